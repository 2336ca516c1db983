package pocketmq.spark.source;

import java.io.IOException;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import pocketmq.spark.columns.Rows;
import pocketmq.spark.files.MissingFileException;
import pocketmq.spark.reading.CopiedRecords;
import pocketmq.spark.reading.DamagedBytes;
import pocketmq.spark.reading.ErrorCondition;
import pocketmq.spark.reading.Pieces;
import pocketmq.spark.reading.ReadException;
import pocketmq.spark.reading.Split;

/** Reads the wanted records of one split, piece by piece, and the damage to be shown; subclasses make batches of columns. */
abstract class RowsReader implements PartitionReader<ColumnarBatch> {
    private static final Logger LOG = LoggerFactory.getLogger(RowsReader.class);

    final ReadSpec spec;
    /** The records that {@link #read} has read. */
    final Rows rows;
    /** The damage that {@link #read} has met instead of records, null if there are records. */
    DamagedBytes shown;
    /** What {@link #next} has made, null before it is called. */
    ColumnarBatch batch;

    private final Pieces pieces;
    private CopiedRecords copied;

    RowsReader(Split split, ReadSpec spec) throws IOException {
        this.spec = spec;
        rows = new Rows(spec.isPlain());
        pieces = opened(split);
    }

    /** Returns the contents of the split; null if it has no file, or if that is missing and missing files are ignored. */
    private Pieces opened(Split split) throws IOException {
        if (split.file() == null) {
            return null;
        }
        try {
            copied = new CopiedRecords(split, spec.ignoresMissingFiles());
            return Pieces.open(split, spec.pruning(), copied, rows);
        } catch (MissingFileException error) {
            if (!spec.ignoresMissingFiles()) {
                throw new ReadException(ErrorCondition.ROCKETMQ_DELETED_FILE, error.getMessage());
            }
            LOG.warn("skipped: {}", error.getMessage());
            return null;
        }
    }

    @Override
    public ColumnarBatch get() {
        return batch;
    }

    /** Reads on; returns false at the end. Throws ReadException. */
    final boolean read() throws IOException {
        while (pieces != null && pieces.next()) {
            shown = pieces.damage;
            if (shown == null) {
                checkBodies();
            }
            if (shown == null ? rows.count() > 0 : isShown(shown)) {
                return true;
            }
        }
        return false;
    }

    // --- damage, by mode: FAILFAST, PERMISSIVE or DROPMALFORMED, as in Spark's own data sources -----------------------

    /** Returns whether a row is to be shown for damaged bytes. Throws ReadException in mode FAILFAST. */
    private boolean isShown(DamagedBytes damaged) {
        tell(damaged.file().path(), damaged.physicalOffset(), damaged.why());
        // Topic, queue and time of damaged bytes are unknown, so they match no selection by these.
        return spec.options().mode.equals("PERMISSIVE") && !spec.pruning().asksWhatDamageCannotTell()
                && spec.pruning().physicalOffsets().has(damaged.physicalOffset());
    }

    /** Handles the rows whose body could not be decompressed. Throws ReadException in mode FAILFAST. */
    private void checkBodies() {
        int row = rows.damagedBody(0);
        while (row >= 0) {
            tell(rows.path.toString(), rows.physicalOffset(row), "its body cannot be decompressed");
            if (spec.options().mode.equals("DROPMALFORMED")) {
                rows.drop(row);
                row = rows.damagedBody(row);
            } else {
                row = rows.damagedBody(row + 1);
            }
        }
    }

    private void tell(String path, long physicalOffset, String what) {
        String message = "damaged record at physical offset " + physicalOffset + " of " + path + ": " + what;
        if (spec.options().mode.equals("FAILFAST")) {
            throw new ReadException(ErrorCondition.ROCKETMQ_DAMAGED_RECORD, message + "; .option(\"mode\", \"DROPMALFORMED\") leaves it out, \"PERMISSIVE\" shows it");
        }
        LOG.warn(message);
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
