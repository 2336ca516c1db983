package pocketmq.spark.source;

import java.io.Serializable;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.types.StructType;
import pocketmq.spark.columns.Column;
import pocketmq.spark.columns.Columns;
import pocketmq.spark.reading.Pruning;
import pocketmq.spark.reading.ReadOptions;

/** The parameters of a task besides its split. */
record ReadSpec(
        List<String> names, Pruning pruning, String bodyAs, String mode, String corruptRecordColumn, long[] delaysMs,
        boolean ignoresMissingFiles, int limit, Aggregates aggregates)
        implements Serializable {
    static final int NO_LIMIT = Integer.MAX_VALUE;

    /** {@code aggregates} is null if rows are messages. */
    static ReadSpec of(ReadOptions options, StructType schema, Pruning pruning, int limit, Aggregates aggregates) {
        return new ReadSpec(
                List.of(schema.names()), pruning, options.bodyAs, options.mode, options.corruptRecordColumn,
                options.delaysMs, options.ignoresMissingFiles, limit, aggregates);
    }

    ReadSpec ignoringMissingFiles() {
        return new ReadSpec(names, pruning, bodyAs, mode, corruptRecordColumn, delaysMs, true, limit, aggregates);
    }

    /** Returns the requested columns. */
    List<Column> columns() {
        return names.stream().map(known()::get).toList();
    }

    /** Returns a column by its name. */
    Column column(String name) {
        return known().get(name);
    }

    private Map<String, Column> known() {
        return Columns.of(bodyAs, corruptRecordColumn, mode.equals("PERMISSIVE"), delaysMs).known();
    }

    /** Whether bodies have to be decompressed. */
    boolean isPlain() {
        return aggregates == null && !bodyAs.equals("stored") && names.contains(Columns.BODY);
    }
}
