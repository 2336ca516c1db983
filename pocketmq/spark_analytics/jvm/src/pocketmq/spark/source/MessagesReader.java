package pocketmq.spark.source;

import java.io.IOException;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
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
final class MessagesReader extends RowsReader {
    private final List<Column> columns;
    private final ColumnarBatch records;
    private int left;

    MessagesReader(Split split, ReadSpec spec) throws IOException {
        super(split, spec);
        this.left = spec.limit();
        this.columns = spec.columns(spec.names());
        this.records = new ColumnarBatch(
                columns.stream().map(column -> column.decoder().apply(rows)).toArray(ColumnVector[]::new));
    }

    @Override
    public boolean next() throws IOException {
        if (left <= 0 || !read()) {
            return false;
        }
        if (shown != null) {
            batch = batchOf(shown);
        } else {
            rows.limit(left);
            records.setNumRows(rows.count());
            batch = records;
        }
        left -= batch.numRows();
        return true;
    }

    /** Returns a row that shows damage. */
    private ColumnarBatch batchOf(DamagedBytes damaged) throws IOException {
        ConstantColumnVector[] vectors = new ConstantColumnVector[columns.size()];
        for (int index = 0; index < vectors.length; index++) {
            Column column = columns.get(index);
            vectors[index] = new ConstantColumnVector(1, column.type());
            Object[] value = {known(column.name(), damaged)};
            ColumnVectorUtils.populate(vectors[index], new GenericInternalRow(value), 0);
        }
        return new ColumnarBatch(vectors, 1);
    }

    /** Returns the value of a column, as Spark has it in its rows; null if it is unknown. */
    private Object known(String name, DamagedBytes damaged) throws IOException {
        if (name.equals(spec.options().corruptRecordColumn)) {
            long size = Math.min(damaged.stop() - damaged.begin(), Columns.CORRUPT_SIZE_MAX);
            return damaged.file().read(damaged.begin(), (int) size);
        }
        return switch (name) {
            case Columns.PHYSICAL_OFFSET -> damaged.physicalOffset();
            case Columns.BROKER_NAME -> rows.brokerName;
            case Columns.STORE_PATH -> UTF8String.fromString(damaged.file().path());
            default -> null;
        };
    }
}
