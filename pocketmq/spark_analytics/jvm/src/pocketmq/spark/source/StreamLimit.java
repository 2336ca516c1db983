package pocketmq.spark.source;

import org.apache.spark.sql.connector.read.streaming.ReadLimit;

/** Limits of a micro-batch, over all stores; {@code Long.MAX_VALUE} means no limit. */
record StreamLimit(long bytes, long records) implements ReadLimit {}
