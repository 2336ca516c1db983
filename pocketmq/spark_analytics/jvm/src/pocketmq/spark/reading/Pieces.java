package pocketmq.spark.reading;

import java.io.Closeable;
import java.io.IOException;

/** The contents of a split, in file order. */
public interface Pieces extends Closeable {
    /** Returns the next records or damage, null at the end. Records are valid until the next call. */
    Piece next() throws IOException;
}
