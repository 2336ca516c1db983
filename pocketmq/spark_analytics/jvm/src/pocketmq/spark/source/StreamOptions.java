package pocketmq.spark.source;

import java.util.Locale;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import pocketmq.spark.reading.OptionParser;
import pocketmq.spark.reading.ReadException;

/** The options of readStream, beside those of a batch read. */
final class StreamOptions {
    private static final long DEFAULT_BYTES = 512 << 20;

    /** Limits of a micro-batch, over all stores; {@code Long.MAX_VALUE} means no limit. */
    record Limit(long bytes, long records) implements ReadLimit {}

    final Limit limit;
    final boolean failsOnLoss;
    /** {@code earliest}, {@code latest} or a physical offset. */
    final String starting;

    /** Throws IllegalArgumentException. */
    StreamOptions(java.util.Map<String, String> given) {
        OptionParser parser = new OptionParser(given);
        Long bytes = parser.size("maxBytesPerTrigger");
        Long records = parser.number("maxRecordsPerTrigger");
        if (records != null && records == 0) {
            throw ReadException.option("option maxRecordsPerTrigger is '0': it must be a positive integer");
        }
        limit = new Limit(bytes == null ? DEFAULT_BYTES : bytes, records == null ? Long.MAX_VALUE : records);
        failsOnLoss = parser.flag("failOnDataLoss", true);
        starting = parser.text("startingOffsets", "earliest").toLowerCase(Locale.ROOT);
        if (!starting.matches("earliest|latest|[0-9]{1,18}")) {
            throw ReadException.option("option startingOffsets is '" + starting
                    + "': it must be earliest, latest or a physical offset");
        }
    }
}
