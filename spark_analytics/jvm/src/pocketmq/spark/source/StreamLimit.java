package pocketmq.spark.source;

import org.apache.spark.sql.connector.read.streaming.ReadLimit;

/** Limits of a micro-batch, over all stores; a limit of {@code Long.MAX_VALUE} is none. */
record StreamLimit(long bytes, long records) implements ReadLimit {}
