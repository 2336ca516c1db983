package pocketmq.spark.source;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.reading.KnownQueues;
import pocketmq.spark.reading.Pruning;
import pocketmq.spark.reading.QueuePruning;
import pocketmq.spark.reading.Split;
import pocketmq.spark.reading.SplitPlanning;

/** A read of messages, planned once. */
final class MessagesScan implements Batch, SupportsReportStatistics {
    private static final Logger LOG = LoggerFactory.getLogger(MessagesScan.class);

    private final ReadRequest request;
    private final StructType schema;
    private final Pruning pruning;
    private final int limit;
    private final Aggregates aggregates;
    private final List<Predicate> filters;

    MessagesScan(
            ReadRequest request, StructType schema, PushedFilters filters, int limit, Aggregates aggregates) {
        this.request = request;
        this.schema = schema;
        this.pruning = filters.pruning();
        this.filters = List.of(filters.pushed());
        this.limit = limit;
        this.aggregates = aggregates;
    }

    @Override
    public StructType readSchema() {
        return schema;
    }

    @Override
    public String description() {
        String more = limit == ReadSpec.NO_LIMIT ? "" : ", PushedLimit: " + limit;
        if (aggregates != null) {
            more += ", PushedAggregates: " + Arrays.toString(schema.names());
        }
        return request + ", PushedFilters: " + filters + more;
    }

    @Override
    public ColumnarSupportMode columnarSupportMode() {
        return ColumnarSupportMode.SUPPORTED;
    }

    @Override
    public Batch toBatch() {
        request.options.refuseStreamOptions();
        return this;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
        StreamOptions options = new StreamOptions(request.given);
        ReadSpec spec = ReadSpec.of(request.options, schema, pruning, ReadSpec.NO_LIMIT, null);
        return new MessagesStream(request, options.failsOnLoss ? spec : spec.ignoringMissingFiles(), options);
    }

    @Override
    public InputPartition[] planInputPartitions() {
        List<Split> splits = Planning.of(this::splits);
        if (splits.isEmpty() && aggregates != null) {
            splits.add(Split.NOTHING);
        }
        LOG.info("rocketmq: reader jvm, {} tasks for {}", splits.size(), String.join(", ", request.options.paths));
        return splits.toArray(InputPartition[]::new);
    }

    private List<Split> splits() throws IOException {
        List<LogFile> files = Planning.logFiles(request.options.paths);
        if (!request.options.ignoresUnknownTopics) {
            KnownQueues.check(request.options.pruning, files);
        }
        long splitSize = request.options.splitSize(files.stream().mapToLong(LogFile::size).sum());
        List<Split> splits = new ArrayList<>();
        for (List<LogFile> log : SplitPlanning.logs(files)) {
            splits.addAll(QueuePruning.plan(log, pruning, splitSize));
        }
        return splits;
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return new MessagesReaderFactory(ReadSpec.of(request.options, schema, pruning, limit, aggregates));
    }

    @Override
    public Statistics estimateStatistics() {
        return new Statistics() {
            @Override
            public OptionalLong sizeInBytes() {
                List<LogFile> files = Planning.of(() -> Planning.logFiles(request.options.paths));
                return OptionalLong.of(files.stream().mapToLong(LogFile::size).sum());
            }

            @Override
            public OptionalLong numRows() {
                return OptionalLong.empty();
            }
        };
    }
}
