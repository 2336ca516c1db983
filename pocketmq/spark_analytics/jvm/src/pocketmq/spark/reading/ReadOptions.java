package pocketmq.spark.reading;

import java.io.Serializable;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import pocketmq.spark.columns.Columns;

/** The options of one read, with defaults; an unknown name or an invalid value is refused. Absent numbers are null. */
public final class ReadOptions implements Serializable {
    private static final long serialVersionUID = 1;

    /** Names of the options of a batch read, including those that only the reader in Python supports. */
    private static final List<String> NAMES = List.of(
            "path", "paths", "table", "columns", "topic", "queueId", "groupBy", "aggregates", "startingTimestamp",
            "endingTimestamp", "startingOffset", "endingOffset", "bodyAs", "bodySchema", "bodyMessage", "bodyDecoders",
            "inferSamples", "mode", "columnNameOfCorruptRecord", "delayLevel", "maxPartitionBytes", "pushFilters",
            "ignoreMissingFiles", "ignoreUnknownTopics", "reader", "brokerNames", "dropReplicas");

    /** Names of the options of readStream only. */
    private static final List<String> STREAM_NAMES =
            List.of("startingOffsets", "maxBytesPerTrigger", "maxRecordsPerTrigger", "failOnDataLoss");

    private static final String DEFAULT_DELAY_LEVEL =
            "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";
    /** Starting a task has a fixed cost, so small splits are merged. */
    private static final long SPLIT_SIZE_MIN = 128 << 20;

    private static final long SPLIT_SIZE_MAX = 512 << 20;
    private static final int TASKS_A_PROCESSOR = 2;

    public final List<String> paths;
    /** Names of the requested columns, null if none are named. */
    public final List<String> columnNames;
    public final Pruning pruning;
    public final String bodyAs;
    public final String mode;
    public final String corruptRecordColumn;
    public final long[] delaysMs;
    public final boolean ignoresMissingFiles;
    public final boolean ignoresUnknownTopics;
    /** Names given by the user, by the stores' paths. */
    public final Map<String, String> brokerNames;

    public final boolean dropsReplicas;
    private final Long givenSplitSize;
    private final transient OptionParser parser;

    /** Validates options as Spark passes them. Throws IllegalArgumentException. */
    public ReadOptions(CaseInsensitiveStringMap given) {
        parser = new OptionParser(given.asCaseSensitiveMap());
        parser.refuseUnknown(NAMES, STREAM_NAMES);
        paths = parser.paths();
        columnNames = parser.names("columns");
        Long startingUs = parser.timestampUs("startingTimestamp");
        Long endingUs = parser.timestampUs("endingTimestamp");
        Long starting = parser.number("startingOffset");
        Long ending = parser.number("endingOffset");
        List<String> topics = parser.names("topic");
        pruning = new Pruning(
                topics == null ? Map.of() : Map.of(Pruning.TOPIC, Set.copyOf(topics)), parser.queueIds("queueId"),
                Map.of(Pruning.PHYSICAL_OFFSET, Bounds.of(starting, ending),
                        Pruning.STORE_TIMESTAMP, Bounds.of(startingUs, endingUs)));
        bodyAs = parser.oneOf("bodyAs", List.of("stored", "plain", "string", "json", "avro", "protobuf"));
        mode = parser.oneOf("mode", List.of("FAILFAST", "PERMISSIVE", "DROPMALFORMED"));
        corruptRecordColumn = parser.text("columnNameOfCorruptRecord", "_corrupt_record");
        delaysMs = parser.delaysMs("delayLevel", DEFAULT_DELAY_LEVEL);
        givenSplitSize = parser.size("maxPartitionBytes");
        parser.flag("pushFilters", true);
        ignoresMissingFiles = parser.flag("ignoreMissingFiles", false);
        ignoresUnknownTopics = parser.flag("ignoreUnknownTopics", false);
        brokerNames = parser.brokerNames("brokerNames");
        dropsReplicas = parser.flag("dropReplicas", true);
        parser.checkOrder("Timestamp", startingUs, endingUs);
        parser.checkOrder("Offset", starting, ending);
    }

    /** Refuses options that only readStream has. Throws IllegalArgumentException. */
    public void refuseStreamOptions() {
        parser.refuseUnknown(NAMES, List.of());
    }

    /** Returns whether one path is named, which is not a glob. */
    public boolean isOneStore() {
        return paths.size() == 1 && !paths.get(0).matches("(?s).*[*?\\[].*");
    }

    /** Returns every column that may be requested. */
    public Columns columns() {
        return new Columns(bodyAs, corruptRecordColumn, isPermissive(), delaysMs);
    }

    public boolean isPermissive() {
        return mode.equals("PERMISSIVE");
    }

    /** Returns the bytes per task for {@code total} bytes in all: an even share for this machine's processors. */
    public long splitSize(long total) {
        int tasks = TASKS_A_PROCESSOR * Runtime.getRuntime().availableProcessors();
        long share = (total + tasks - 1) / tasks;
        return givenSplitSize != null ? givenSplitSize : Math.min(Math.max(share, SPLIT_SIZE_MIN), SPLIT_SIZE_MAX);
    }
}
