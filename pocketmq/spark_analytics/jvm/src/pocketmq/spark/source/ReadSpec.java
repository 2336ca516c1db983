package pocketmq.spark.source;

import java.io.Serializable;
import java.util.List;
import java.util.Map;
import pocketmq.spark.columns.Column;
import pocketmq.spark.columns.Columns;
import pocketmq.spark.reading.Pruning;
import pocketmq.spark.reading.ReadOptions;

/** The parameters of a task besides its split; {@code aggregates} is null if rows are messages. */
record ReadSpec(
        ReadOptions options, List<String> names, Pruning pruning, boolean ignoresMissingFiles, int limit, Aggregates aggregates)
        implements Serializable {
    static final int NO_LIMIT = Integer.MAX_VALUE;

    /** Returns the requested columns. */
    List<Column> columns() {
        return names.stream().map(known()::get).toList();
    }

    /** Returns a column by its name. */
    Column column(String name) {
        return known().get(name);
    }

    private Map<String, Column> known() {
        return options.columns().known();
    }

    /** Whether bodies have to be decompressed. */
    boolean isPlain() {
        return aggregates == null && !options.bodyAs.equals("stored") && names.contains(Columns.BODY);
    }
}
