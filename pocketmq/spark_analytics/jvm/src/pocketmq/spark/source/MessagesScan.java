package pocketmq.spark.source;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.reading.KnownQueues;
import pocketmq.spark.reading.Pruning;
import pocketmq.spark.reading.QueuePruning;
import pocketmq.spark.reading.Replicas;
import pocketmq.spark.reading.Split;
import pocketmq.spark.reading.SplitPlanning;

/** A read of messages: takes over from Spark what can be done while reading, then plans the read, once. */
final class MessagesScan
        implements ScanBuilder, SupportsPushDownRequiredColumns, SupportsPushDownV2Filters, SupportsPushDownLimit,
                SupportsPushDownAggregates, Batch, SupportsReportStatistics {
    private static final Logger LOG = LoggerFactory.getLogger(MessagesScan.class);

    private final ReadRequest request;
    private final PushedFilters filters;
    private StructType schema;
    private int limit = ReadSpec.NO_LIMIT;
    private Aggregates aggregates;
    /** Null before they are planned. */
    private List<Split> splits;

    MessagesScan(ReadRequest request) {
        this.request = request;
        this.filters = new PushedFilters(request);
        this.schema = request.schema();
    }

    // --- what Spark leaves to the reader ----------------------------------------------------------------------------

    @Override
    public void pruneColumns(StructType required) {
        schema = required;
    }

    @Override
    public Predicate[] pushPredicates(Predicate[] predicates) {
        return filters.push(predicates);
    }

    @Override
    public Predicate[] pushedPredicates() {
        return filters.pushed();
    }

    @Override
    public boolean pushLimit(int limit) {
        this.limit = limit;
        return true;
    }

    @Override
    public boolean isPartiallyPushed() {
        return true; // each task keeps to the limit by itself
    }

    @Override
    public boolean pushAggregation(Aggregation aggregation) {
        aggregates = Aggregates.of(aggregation, request);
        if (aggregates != null) {
            schema = aggregates.schema(request);
        }
        return aggregates != null;
    }

    @Override
    public Scan build() {
        return this;
    }

    // --- the read ---------------------------------------------------------------------------------------------------

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
        return request + ", PushedFilters: " + Arrays.toString(filters.pushed()) + more;
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
        boolean ignoresMissing = request.options.ignoresMissingFiles || !options.failsOnLoss;
        return new MessagesStream(request, spec(ignoresMissing, ReadSpec.NO_LIMIT), options);
    }

    @Override
    public InputPartition[] planInputPartitions() {
        List<Split> splits = planned();
        if (splits.isEmpty() && aggregates != null) {
            splits.add(Split.NOTHING);
        }
        LOG.info("rocketmq: reader jvm, {} tasks for {}", splits.size(), String.join(", ", request.options.paths));
        return splits.toArray(InputPartition[]::new);
    }

    /** Returns the splits, planned at the first call: for the estimate or for the read. */
    private List<Split> planned() {
        if (splits == null) {
            splits = Planning.of(this::splits);
        }
        return new ArrayList<>(splits);
    }

    private List<Split> splits() throws IOException {
        List<LogFile> files = Planning.logFiles(request.options.paths);
        if (!request.options.ignoresUnknownTopics) {
            KnownQueues.check(request.options.pruning, files);
        }
        long splitSize = request.options.splitSize(files.stream().mapToLong(LogFile::size).sum());
        List<List<LogFile>> logs = SplitPlanning.logs(files);
        List<List<Split>> planned = new ArrayList<>();
        for (List<LogFile> log : logs) {
            planned.add(new QueuePruning(log, filters.pruning, splitSize).plan());
        }
        List<Split> splits = request.options.dropsReplicas
                ? Replicas.withoutCopies(logs, planned) : planned.stream().flatMap(List::stream).toList();
        return request.named(splits, files, List.of(schema.names()));
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return spec(request.options.ignoresMissingFiles, limit);
    }

    private ReadSpec spec(boolean ignoresMissingFiles, int limit) {
        List<String> names = List.of(schema.names());
        return new ReadSpec(request.options, names, filters.pruning, ignoresMissingFiles, limit, aggregates);
    }

    @Override
    public Statistics estimateStatistics() {
        Pruning pruning = filters.pruning;
        if (!pruning.asksWhatDamageCannotTell() && pruning.physicalOffsets().isAll()) {
            // Spark asks this also of tables without their query's filters, so the log is not planned for it.
            List<LogFile> files = Planning.of(() -> Planning.logFiles(request.options.paths));
            return new Estimate(OptionalLong.of(files.stream().mapToLong(LogFile::size).sum()), OptionalLong.empty());
        }
        long listed = 0;
        long records = 0;
        long scanned = 0;
        for (Split split : planned()) {
            if (split.starts() == null) {
                scanned += split.stop() - split.begin();
            } else {
                listed += Arrays.stream(split.sizes()).asLongStream().sum();
                records += split.starts().length;
            }
        }
        boolean isCounted = records > 0 && aggregates == null;
        long rows = isCounted ? records + (long) ((double) scanned / listed * records) : 0;
        return new Estimate(OptionalLong.of(listed + scanned),
                isCounted ? OptionalLong.of(Math.min(rows, limit)) : OptionalLong.empty());
    }

    private record Estimate(OptionalLong sizeInBytes, OptionalLong numRows) implements Statistics {}
}
