package pocketmq.spark.source;

import java.io.Serializable;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.expressions.aggregate.Sum;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * The part of an aggregation that each task computes over its own records: one row per group, first the grouping columns,
 * then one column per measure. Spark combines the rows of all tasks. Without grouping columns, a task has one row even if it
 * has no records: a sum of no counts would be null.
 */
record Aggregates(List<String> groups, List<Measure> measures) implements Serializable {
    private static final List<String> GROUPED = List.of("topic", "queueId");

    /** The aggregate functions. */
    enum Function {
        COUNT(true, 0),
        SUM(true, 0),
        MIN(false, Long.MAX_VALUE),
        MAX(false, Long.MIN_VALUE);

        final boolean isSum;
        /** The result over no values. */
        final long initial;

        Function(boolean isSum, long initial) {
            this.isSum = isSum;
            this.initial = initial;
        }
    }

    /** {@code column} is null for a count. */
    record Measure(Function function, String column) implements Serializable {}

    /** Returns the part of an aggregation that tasks can compute exactly, null if they cannot. */
    static Aggregates of(Aggregation asked, ReadRequest request) {
        if (request.options.isPermissive()) {
            return null; // rows that stand for damage belong to no group
        }
        List<String> groups = Arrays.stream(asked.groupByExpressions()).map(ReadRequest::columnName).toList();
        List<Measure> measures =
                Arrays.stream(asked.aggregateExpressions()).map(function -> measure(function, request)).toList();
        boolean isGrouped = groups.stream().allMatch(name -> name != null && GROUPED.contains(name));
        return isGrouped && !measures.contains(null) ? new Aggregates(groups, measures) : null;
    }

    private static Measure measure(AggregateFunc function, ReadRequest request) {
        if (function instanceof CountStar) {
            return new Measure(Function.COUNT, null);
        }
        if (function instanceof Count count) {
            String name = ReadRequest.columnName(count.column());
            boolean isCounted = name != null && !count.isDistinct() && request.isAlwaysKnown(name)
                    && !name.equals(pocketmq.spark.columns.Columns.BODY); // may be damaged
            return isCounted ? new Measure(Function.COUNT, null) : null;
        }
        if (function instanceof Sum sum) {
            // Sums of larger numbers may overflow, which is for Spark to handle.
            return sum.isDistinct() ? null : measure(Function.SUM, sum.column(), request, List.of(DataTypes.IntegerType));
        }
        List<DataType> ordered = List.of(DataTypes.IntegerType, DataTypes.LongType, DataTypes.TimestampType);
        if (function instanceof Min min) {
            return measure(Function.MIN, min.column(), request, ordered);
        }
        return function instanceof Max max ? measure(Function.MAX, max.column(), request, ordered) : null;
    }

    private static Measure measure(Function function, Expression of, ReadRequest request, List<DataType> types) {
        String name = ReadRequest.columnName(of);
        boolean isMeasured = name != null && request.isAlwaysKnown(name) && types.contains(request.column(name).type());
        return isMeasured ? new Measure(function, name) : null;
    }

    /** Returns the schema of the rows of a task. */
    StructType schema(ReadRequest request) {
        StructType schema = new StructType();
        for (String group : groups) {
            schema = schema.add(request.column(group).field());
        }
        for (Measure measure : measures) {
            DataType type = measure.function.isSum ? DataTypes.LongType : request.column(measure.column).type();
            String of = measure.column == null ? "*" : measure.column;
            String name = measure.function.name().toLowerCase(java.util.Locale.ROOT) + "(" + of + ")";
            schema = schema.add(name, type, groups.isEmpty() && measure.function != Function.COUNT);
        }
        return schema;
    }
}
