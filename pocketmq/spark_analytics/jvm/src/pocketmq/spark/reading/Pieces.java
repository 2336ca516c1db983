package pocketmq.spark.reading;

import java.io.Closeable;
import java.io.IOException;
import org.apache.spark.unsafe.types.UTF8String;
import pocketmq.spark.columns.Rows;
import pocketmq.spark.files.FileBytes;
import pocketmq.spark.files.LogFile;

/** The contents of a split, in file order, piece by piece: either some records, which the rows are filled with, or damage. */
public abstract class Pieces implements Closeable {
    final LogFile file;
    final FileBytes bytes;
    final RecordFilter filter;
    final CopiedRecords copied;
    final Rows rows;
    /** The batch whose messages are next, null if there is none. */
    InnerBatch batch;

    /** The damage that is the present piece, null if that consists of records. */
    public DamagedBytes damage;

    Pieces(LogFile file, FileBytes bytes, RecordFilter filter, CopiedRecords copied, Rows rows) {
        this.file = file;
        this.bytes = bytes;
        this.filter = filter;
        this.copied = copied;
        this.rows = rows;
    }

    /** Returns the contents of a split; records are put into {@code rows}. Throws MissingFileException. */
    public static Pieces open(Split split, Pruning pruning, CopiedRecords copied, Rows rows) throws IOException {
        rows.path = UTF8String.fromString(split.file().path());
        rows.brokerName = UTF8String.fromString(split.brokerName());
        if (!split.lost().isEmpty()) {
            return new Lost(split);
        }
        RecordFilter filter = new RecordFilter(pruning);
        return split.starts() == null
                ? new ScannedPieces(split, filter, copied, rows) : new PickedPieces(split, filter, copied, rows);
    }

    /** Goes on to the next piece; returns false at the end. Records are valid until the next call. */
    public abstract boolean next() throws IOException;

    /** Fills the rows with the next messages of the batch; returns false if there are none. */
    final boolean fillFromBatch() {
        if (batch != null && batch.fill(rows, filter)) {
            return true;
        }
        batch = null;
        return false;
    }

    /**
     * Takes the record that the rows looked at: it becomes a row if it is wanted, or the batch, whose messages are rows of their
     * own data. Returns false for a batch that has to wait until the present rows are read.
     */
    final boolean take() throws IOException {
        if (InnerBatch.isOne(rows) && !copied.has(rows)) {
            if (rows.count() > 0) {
                return false;
            }
            batch = InnerBatch.of(rows);
        }
        if (batch == null && filter.wants(rows) && !copied.has(rows)) {
            rows.keep();
        }
        return true;
    }

    @Override
    public void close() throws IOException {
        bytes.close();
    }

    /** The damage of a split whose records no longer exist. */
    private static final class Lost extends Pieces {
        private final Split split;

        Lost(Split split) {
            super(split.file(), null, null, null, null);
            this.split = split;
        }

        @Override
        public boolean next() {
            boolean isFirst = damage == null;
            damage = new DamagedBytes(file, split.begin(), split.stop(), split.lost());
            return isFirst;
        }

        @Override
        public void close() {}
    }
}
