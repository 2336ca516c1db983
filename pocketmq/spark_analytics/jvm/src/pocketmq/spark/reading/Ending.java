package pocketmq.spark.reading;

/** Reason why following a chain of records ended. */
enum Ending {
    /** Every record that begins before the requested end was seen. */
    STOP,
    /** The file is full. */
    BLANK,
    /** The bytes at this position are not a valid record. */
    BROKEN
}
