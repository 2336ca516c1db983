package pocketmq.spark.source;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import pocketmq.spark.reading.Split;

/** Opens the readers of tasks. */
record MessagesReaderFactory(ReadSpec spec) implements PartitionReaderFactory {
    @Override
    public boolean supportColumnarReads(InputPartition partition) {
        return true;
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
        throw new UnsupportedOperationException("messages are read in columns");
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
        try {
            Split split = (Split) partition;
            return spec.aggregates() == null ? new MessagesReader(split, spec) : new AggregatingReader(split, spec);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
