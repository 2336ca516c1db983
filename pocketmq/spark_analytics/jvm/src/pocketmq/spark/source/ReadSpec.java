package pocketmq.spark.source;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import pocketmq.spark.columns.Column;
import pocketmq.spark.columns.Columns;
import pocketmq.spark.reading.Pruning;
import pocketmq.spark.reading.ReadOptions;
import pocketmq.spark.reading.Split;

/**
 * The parameters of tasks besides their splits, and the factory of their readers.
 *
 * @param aggregates null if rows are messages
 */
record ReadSpec(
        ReadOptions options, List<String> names, Pruning pruning, boolean ignoresMissingFiles, int limit, Aggregates aggregates)
        implements PartitionReaderFactory {
    private static final long serialVersionUID = 1;

    static final int NO_LIMIT = Integer.MAX_VALUE;

    /** Returns columns by their names, null for the name null. */
    List<Column> columns(List<String> named) {
        Map<String, Column> known = options.columns().known;
        return named.stream().map(known::get).toList();
    }

    /** Whether bodies have to be decompressed. */
    boolean isPlain() {
        return aggregates == null && !options.bodyAs.equals("stored") && names.contains(Columns.BODY);
    }

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
            return aggregates == null ? new MessagesReader(split, this) : new AggregatingReader(split, this);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
