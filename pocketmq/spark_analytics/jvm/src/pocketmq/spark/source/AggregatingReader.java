package pocketmq.spark.source;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;
import pocketmq.spark.columns.ArrayVector;
import pocketmq.spark.columns.Column;
import pocketmq.spark.columns.ConstantVector;
import pocketmq.spark.columns.Rows;
import pocketmq.spark.columns.TopicGroups;
import pocketmq.spark.reading.Split;

/** Reads one split, and returns one row for each group of its records. */
final class AggregatingReader implements PartitionReader<ColumnarBatch> {
    private final Aggregates aggregates;
    /** Null if the split is {@link Split#NOTHING}. */
    private final RowsReader reader;

    private final Rows rows;
    private final List<Column> measured;
    private final ColumnVector[] vectors;
    private final TopicGroups groups;
    /** By measure, then by group. */
    private final long[][] results;

    private boolean isDone;
    private ColumnarBatch batch;

    AggregatingReader(Split split, ReadSpec spec) throws IOException {
        aggregates = spec.aggregates();
        reader = split.file() == null ? null : new RowsReader(split, spec);
        rows = reader == null ? new Rows(false) : reader.rows();
        measured = aggregates.measured(spec);
        vectors = measured.stream().map(this::vector).toArray(ColumnVector[]::new);
        groups = new TopicGroups(aggregates.groups().contains("topic"), aggregates.groups().contains("queueId"));
        results = new long[vectors.length][0];
    }

    private ColumnVector vector(Column column) {
        return column == null ? null : column.decoder().vector(rows);
    }

    @Override
    public boolean next() throws IOException {
        if (isDone) {
            return false;
        }
        isDone = true;
        int[] group = new int[Rows.CAPACITY];
        while (reader != null && reader.next()) {
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
        batch = new ColumnarBatch(isEmpty ? nothing() : columns());
        batch.setNumRows(isEmpty ? 1 : groups.count());
        return !isEmpty || aggregates.groups().isEmpty();
    }

    /** Returns the aggregates over no records: counts of 0, and nulls. */
    private ColumnVector[] nothing() {
        ColumnVector[] columns = new ColumnVector[vectors.length];
        for (int index = 0; index < vectors.length; index++) {
            boolean isCount = aggregates.measures().get(index).function() == Aggregates.Function.COUNT;
            columns[index] = new ConstantVector(DataTypes.LongType, isCount ? 0L : null);
        }
        return columns;
    }

    /** Makes room for new groups, from number {@code before} on. */
    private void reserve(int before) {
        for (int index = 0; index < vectors.length; index++) {
            if (results[index].length < groups.count()) {
                results[index] = Arrays.copyOf(results[index], Math.max(2 * before, groups.count()));
            }
            long initial = switch (aggregates.measures().get(index).function()) {
                case COUNT, SUM -> 0;
                case MIN -> Long.MAX_VALUE;
                case MAX -> Long.MIN_VALUE;
            };
            Arrays.fill(results[index], before, groups.count(), initial);
        }
    }

    private void add(int index, int[] group, int count) {
        long[] result = results[index];
        ColumnVector vector = vectors[index];
        boolean isInt = vector != null && vector.dataType().equals(DataTypes.IntegerType);
        switch (aggregates.measures().get(index).function()) {
            case COUNT -> {
                for (int row = 0; row < count; row++) {
                    result[group[row]]++;
                }
            }
            case SUM -> {
                for (int row = 0; row < count; row++) {
                    result[group[row]] += vector.getInt(row);
                }
            }
            case MIN -> {
                for (int row = 0; row < count; row++) {
                    result[group[row]] = Math.min(result[group[row]], isInt ? vector.getInt(row) : vector.getLong(row));
                }
            }
            case MAX -> {
                for (int row = 0; row < count; row++) {
                    result[group[row]] = Math.max(result[group[row]], isInt ? vector.getInt(row) : vector.getLong(row));
                }
            }
        }
    }

    private ColumnVector[] columns() {
        ColumnVector[] columns = new ColumnVector[aggregates.groups().size() + vectors.length];
        int at = 0;
        for (String name : aggregates.groups()) {
            columns[at++] = name.equals("topic") ? topics() : queueIds();
        }
        for (int index = 0; index < vectors.length; index++) {
            boolean isOfColumn = switch (aggregates.measures().get(index).function()) {
                case COUNT, SUM -> false;
                case MIN, MAX -> true;
            };
            columns[at++] = ArrayVector.of(isOfColumn ? measured.get(index).type() : DataTypes.LongType, results[index]);
        }
        return columns;
    }

    private ColumnVector topics() {
        UTF8String[] topics = new UTF8String[groups.count()];
        for (int group = 0; group < topics.length; group++) {
            topics[group] = groups.topic(group);
        }
        return ArrayVector.of(DataTypes.StringType, topics);
    }

    private ColumnVector queueIds() {
        long[] ids = new long[groups.count()];
        for (int group = 0; group < ids.length; group++) {
            ids[group] = groups.queueId(group);
        }
        return ArrayVector.of(DataTypes.IntegerType, ids);
    }

    @Override
    public ColumnarBatch get() {
        return batch;
    }

    @Override
    public void close() throws IOException {
        if (reader != null) {
            reader.close();
        }
    }
}
