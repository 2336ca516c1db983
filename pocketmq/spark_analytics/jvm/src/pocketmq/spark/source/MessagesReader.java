package pocketmq.spark.source;

import java.io.IOException;
import java.util.List;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;
import pocketmq.spark.columns.Column;
import pocketmq.spark.columns.Columns;
import pocketmq.spark.columns.ConstantVector;
import pocketmq.spark.files.FileBytes;
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
                columns.stream().map(column -> column.decoder().vector(reader.rows())).toArray(ColumnVector[]::new));
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
        ColumnVector[] vectors = new ColumnVector[columns.size()];
        for (int index = 0; index < vectors.length; index++) {
            Column column = columns.get(index);
            vectors[index] = new ConstantVector(column.type(), known(column.name(), damaged));
        }
        ColumnarBatch row = new ColumnarBatch(vectors);
        row.setNumRows(1);
        return row;
    }

    private Object known(String name, DamagedBytes damaged) throws IOException {
        if (name.equals(spec.corruptRecordColumn())) {
            try (FileBytes bytes = damaged.file().open()) {
                long size = Math.min(damaged.stop() - damaged.begin(), Columns.CORRUPT_SIZE_MAX);
                return bytes.bytes(damaged.begin(), (int) size);
            }
        }
        return switch (name) {
            case Columns.PHYSICAL_OFFSET -> damaged.physicalOffset();
            case Columns.BROKER_NAME -> UTF8String.fromString(reader.rows().brokerName);
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
