package pocketmq.spark.source;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.ObjIntConsumer;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import pocketmq.spark.columns.Column;
import pocketmq.spark.columns.Rows;
import pocketmq.spark.columns.TopicGroups;
import pocketmq.spark.reading.Split;

/** Reads one split, and returns one row for each group of its records. */
final class AggregatingReader extends RowsReader {
    private final Aggregates aggregates;
    /** By measure, null for a count. */
    private final List<Column> measured;

    private final ColumnVector[] vectors;
    private final TopicGroups groups;
    /** By measure, then by group. */
    private final long[][] results;

    AggregatingReader(Split split, ReadSpec spec) throws IOException {
        super(split, spec);
        aggregates = spec.aggregates();
        measured = spec.columns(aggregates.measures().stream().map(Aggregates.Measure::column).toList());
        vectors = measured.stream().map(this::vector).toArray(ColumnVector[]::new);
        groups = new TopicGroups(aggregates.groups().contains("topic"), aggregates.groups().contains("queueId"));
        results = new long[vectors.length][0];
    }

    private ColumnVector vector(Column column) {
        return column == null ? null : column.decoder().apply(rows);
    }

    @Override
    public boolean next() throws IOException {
        if (batch != null) {
            return false;
        }
        int[] group = new int[Rows.CAPACITY];
        while (read()) {
            int before = groups.count();
            for (int row = 0; row < rows.count(); row++) {
                group[row] = groups.group(rows, row);
            }
            reserve(before);
            for (int index = 0; index < vectors.length; index++) {
                add(index, group, rows.count());
            }
        }
        boolean isEmpty = groups.count() == 0;
        batch = isEmpty ? new ColumnarBatch(nothing(), 1) : new ColumnarBatch(columns(), groups.count());
        return !isEmpty || aggregates.groups().isEmpty();
    }

    /** Returns the aggregates over no records: counts of 0, and nulls. */
    private ColumnVector[] nothing() {
        return aggregates.measures().stream().map(measure -> {
            OnHeapColumnVector column = new OnHeapColumnVector(1, DataTypes.LongType);
            if (measure.function() == Aggregates.Function.COUNT) {
                column.putLong(0, 0);
            } else {
                column.putNull(0);
            }
            return column;
        }).toArray(ColumnVector[]::new);
    }

    /** Makes room for new groups, from number {@code before} on. */
    private void reserve(int before) {
        for (int index = 0; index < vectors.length; index++) {
            if (results[index].length < groups.count()) {
                results[index] = Arrays.copyOf(results[index], Math.max(2 * before, groups.count()));
            }
            Arrays.fill(results[index], before, groups.count(), aggregates.measures().get(index).function().initial);
        }
    }

    private void add(int index, int[] group, int count) {
        long[] result = results[index];
        ColumnVector vector = vectors[index];
        boolean isInt = vector != null && vector.dataType().equals(DataTypes.IntegerType);
        Aggregates.Function function = aggregates.measures().get(index).function();
        for (int row = 0; row < count; row++) {
            long value = vector == null ? 1 : isInt ? vector.getInt(row) : vector.getLong(row);
            long before = result[group[row]];
            result[group[row]] = switch (function) {
                case COUNT, SUM -> before + value;
                case MIN -> Math.min(before, value);
                case MAX -> Math.max(before, value);
            };
        }
    }

    private ColumnVector[] columns() {
        List<ColumnVector> columns = new ArrayList<>();
        for (String name : aggregates.groups()) {
            columns.add(name.equals("topic")
                    ? column(DataTypes.StringType, (to, group) -> to.putByteArray(group, groups.topic(group).getBytes()))
                    : column(DataTypes.IntegerType, (to, group) -> to.putInt(group, groups.queueId(group))));
        }
        for (int index = 0; index < vectors.length; index++) {
            long[] result = results[index];
            boolean isSum = aggregates.measures().get(index).function().isSum;
            DataType type = isSum ? DataTypes.LongType : measured.get(index).type();
            columns.add(column(type, type.equals(DataTypes.IntegerType)
                    ? (to, group) -> to.putInt(group, (int) result[group])
                    : (to, group) -> to.putLong(group, result[group])));
        }
        return columns.toArray(ColumnVector[]::new);
    }

    /** Returns a column with a value of each group, which {@code put} puts there. */
    private ColumnVector column(DataType type, ObjIntConsumer<OnHeapColumnVector> put) {
        OnHeapColumnVector column = new OnHeapColumnVector(groups.count(), type);
        for (int group = 0; group < groups.count(); group++) {
            put.accept(column, group);
        }
        return column;
    }
}
