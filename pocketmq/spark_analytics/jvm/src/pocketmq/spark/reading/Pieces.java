package pocketmq.spark.reading;

import java.io.Closeable;
import java.io.IOException;
import org.apache.spark.unsafe.types.UTF8String;
import pocketmq.spark.columns.Rows;

/** The contents of a split, in file order. */
public interface Pieces extends Closeable {
    /** A part of a split: either some records, which {@code rows} was filled with, or damage. */
    sealed interface Piece permits DamagedBytes, Records {}

    /** The rows that were filled. */
    record Records(Rows rows) implements Piece {}

    /** Returns the next records or damage, null at the end. Records are valid until the next call. */
    Piece next() throws IOException;

    /** Returns the contents of a split; records are put into {@code rows}. Throws MissingFileException. */
    static Pieces open(Split split, Pruning pruning, CopiedRecords copied, Rows rows) throws IOException {
        rows.path = UTF8String.fromString(split.file().path());
        rows.brokerName = UTF8String.fromString(split.brokerName());
        if (!split.lost().isEmpty()) {
            return new Lost(split);
        }
        RecordFilter filter = new RecordFilter(pruning);
        if (split.starts() != null) {
            return new PickedPieces(split, filter, copied, rows);
        }
        return new ScannedPieces(
                split.file(), split.begin(), split.stop(), split.end(), split.isExact(), filter, copied, rows);
    }

    /** The damage of a split whose records no longer exist. */
    final class Lost implements Pieces {
        private Split split;

        Lost(Split split) {
            this.split = split;
        }

        @Override
        public Piece next() {
            Split own = split;
            split = null;
            return own == null ? null : new DamagedBytes(own.file(), own.begin(), own.stop(), own.lost());
        }

        @Override
        public void close() {}
    }
}
