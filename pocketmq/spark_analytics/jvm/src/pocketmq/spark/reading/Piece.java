package pocketmq.spark.reading;

import pocketmq.spark.columns.Rows;

/** A part of a split: either some records ({@link Rows}) or damage. */
public sealed interface Piece permits DamagedBytes, Piece.Records {
    /** The rows that were filled. */
    record Records(Rows rows) implements Piece {}
}
