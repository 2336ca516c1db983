package pocketmq.spark.source;

import java.io.IOException;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.vectorized.ColumnVectorUtils;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;
import pocketmq.spark.columns.Column;
import pocketmq.spark.columns.Columns;
import pocketmq.spark.reading.DamagedBytes;
import pocketmq.spark.reading.Split;

/** Reads one split as batches of columns. */
final class MessagesReader implements PartitionReader<ColumnarBatch> {
    private final ReadSpec spec;
    private final List<Column> columns;
    private final RowsReader reader;
    private final ColumnarBatch records;
    private ColumnarBatch batch;
    private int left;

    MessagesReader(Split split, ReadSpec spec) throws IOException {
        this.spec = spec;
        this.left = spec.limit();
        this.columns = spec.columns();
        this.reader = new RowsReader(split, spec);
        this.records = new ColumnarBatch(
                columns.stream().map(column -> column.decoder().apply(reader.rows())).toArray(ColumnVector[]::new));
    }

    @Override
    public boolean next() throws IOException {
        if (left <= 0 || !reader.next()) {
            return false;
        }
        if (reader.shown() != null) {
            batch = batchOf(reader.shown());
        } else {
            reader.rows().limit(left);
            records.setNumRows(reader.rows().count());
            batch = records;
        }
        left -= batch.numRows();
        return true;
    }

    /** Returns a row that shows damage. */
    private ColumnarBatch batchOf(DamagedBytes damaged) throws IOException {
        Object[] values = new Object[columns.size()];
        InternalRow known = new GenericInternalRow(values);
        ConstantColumnVector[] vectors = new ConstantColumnVector[columns.size()];
        for (int index = 0; index < vectors.length; index++) {
            Column column = columns.get(index);
            values[index] = known(column.name(), damaged);
            vectors[index] = new ConstantColumnVector(1, column.type());
            ColumnVectorUtils.populate(vectors[index], known, index);
        }
        ColumnarBatch row = new ColumnarBatch(vectors);
        row.setNumRows(1);
        return row;
    }

    /** Returns the value of a column, as Spark has it in its rows; null if it is unknown. */
    private Object known(String name, DamagedBytes damaged) throws IOException {
        if (name.equals(spec.options().corruptRecordColumn)) {
            long size = Math.min(damaged.stop() - damaged.begin(), Columns.CORRUPT_SIZE_MAX);
            return damaged.file().read(damaged.begin(), (int) size);
        }
        return switch (name) {
            case Columns.PHYSICAL_OFFSET -> damaged.physicalOffset();
            case Columns.BROKER_NAME -> reader.rows().brokerName;
            case Columns.STORE_PATH -> UTF8String.fromString(damaged.file().path());
            default -> null;
        };
    }

    @Override
    public ColumnarBatch get() {
        return batch;
    }

    @Override
    public void close() throws IOException {
        reader.close();
    }
}
