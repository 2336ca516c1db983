package pocketmq.spark.source;

import java.io.Closeable;
import java.io.IOException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import pocketmq.spark.columns.Rows;
import pocketmq.spark.files.MissingFileException;
import pocketmq.spark.reading.CopiedRecords;
import pocketmq.spark.reading.Damage;
import pocketmq.spark.reading.DamagedBytes;
import pocketmq.spark.reading.ErrorCondition;
import pocketmq.spark.reading.Piece;
import pocketmq.spark.reading.Pieces;
import pocketmq.spark.reading.ReadException;
import pocketmq.spark.reading.Reading;
import pocketmq.spark.reading.Split;

/** Reads the wanted records of one split, batch by batch, and the damage to be shown. */
final class RowsReader implements Closeable {
    private static final Logger LOG = LoggerFactory.getLogger(RowsReader.class);

    private final Damage damage;
    private final Rows rows;
    private final Pieces pieces;
    private CopiedRecords copied;
    private DamagedBytes shown;

    RowsReader(Split split, ReadSpec spec) throws IOException {
        damage = new Damage(spec.options().mode, spec.pruning());
        rows = new Rows(spec.isPlain());
        pieces = opened(split, spec);
    }

    /** Returns the contents of the split; null if its file is missing and missing files are ignored. */
    private Pieces opened(Split split, ReadSpec spec) throws IOException {
        try {
            copied = CopiedRecords.open(split, spec.ignoresMissingFiles());
            return Reading.open(split, spec.pruning(), copied, rows);
        } catch (MissingFileException error) {
            if (!spec.ignoresMissingFiles()) {
                throw new ReadException(ErrorCondition.ROCKETMQ_DELETED_FILE, error.getMessage());
            }
            LOG.warn("skipped: {}", error.getMessage());
            return null;
        }
    }

    /** The records that {@link #next} has read. */
    Rows rows() {
        return rows;
    }

    /** The damage that {@link #next} has met instead of records, null if there are records. */
    DamagedBytes shown() {
        return shown;
    }

    /** Reads on; returns false at the end. Throws ReadException. */
    boolean next() throws IOException {
        while (pieces != null) {
            Piece piece = pieces.next();
            if (piece == null) {
                return false;
            }
            shown = null;
            if (piece instanceof DamagedBytes damaged) {
                if (damage.isShown(damaged)) {
                    shown = damaged;
                    return true;
                }
                continue;
            }
            damage.bodies(rows);
            if (rows.count() > 0) {
                return true;
            }
        }
        return false;
    }

    @Override
    public void close() throws IOException {
        if (pieces != null) {
            pieces.close();
        }
        if (copied != null) {
            copied.close();
        }
    }
}
