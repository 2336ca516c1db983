package pocketmq.spark.source;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.LongSummaryStatistics;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.Marks;
import pocketmq.spark.reading.ErrorCondition;
import pocketmq.spark.reading.LogRange;
import pocketmq.spark.reading.LogTail;
import pocketmq.spark.reading.QueuePruning;
import pocketmq.spark.reading.ReadException;
import pocketmq.spark.reading.Replicas;
import pocketmq.spark.reading.Split;

/**
 * Follows the logs of some stores while brokers write them.
 *
 * <p>A micro-batch has the same splits and columns as a batch read; only the end of the log is checked again each time. A
 * micro-batch that is planned again after a crash has the same bounds and therefore the same rows.
 */
final class MessagesStream implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
    private static final Logger LOG = LoggerFactory.getLogger(MessagesStream.class);

    private final ReadRequest request;
    private final ReadSpec spec;
    private final StreamOptions options;
    private final boolean isOne;
    private final Map<String, LogTail> tails = new HashMap<>();
    private final Map<String, Long> latest = new TreeMap<>();
    /** Ends of the logs at which a query with Trigger.AvailableNow stops; null for other queries. */
    private Map<String, Long> target;

    MessagesStream(ReadRequest request, ReadSpec spec, StreamOptions options) {
        this.request = request;
        this.spec = spec;
        this.options = options;
        this.isOne = request.options.isOneStore();
        LOG.info("rocketmq: reader jvm, following {}", String.join(", ", request.options.paths));
    }

    // --- Spark's interface ------------------------------------------------------------------------------------------

    @Override
    public Offset initialOffset() {
        return Planning.of(() -> {
            Map<String, Long> offsets = new HashMap<>();
            if (isOne) {
                offsets.put(LogOffsets.ONLY, 0L);
            }
            for (Map.Entry<String, List<LogFile>> log : logs().entrySet()) {
                List<LogFile> files = log.getValue();
                long end = follow(log.getKey(), files, Marks.NONE);
                offsets.put(log.getKey(), switch (options.starting) {
                    case "earliest" -> files.get(0).physicalOffset();
                    case "latest" -> end;
                    default -> LogRange.firstFrom(files, Long.parseLong(options.starting), end);
                });
            }
            return new LogOffsets(offsets);
        });
    }

    @Override
    public Offset deserializeOffset(String json) {
        return LogOffsets.parse(json);
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
        return options.limit;
    }

    @Override
    public Offset latestOffset() {
        throw new UnsupportedOperationException("latestOffset(Offset, ReadLimit) is called instead");
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
        return Planning.of(() -> nextEnd(parsed(start), limit));
    }

    @Override
    public Offset reportLatestOffset() {
        return latest.isEmpty() ? null : new LogOffsets(latest);
    }

    /** Returns how many bytes of log are behind the consumed records: of all stores, and the least, most and mean of one. */
    @Override
    public Map<String, String> metrics(Optional<Offset> latestConsumed) {
        if (latestConsumed.isEmpty() || latest.isEmpty()) {
            return Map.of();
        }
        Map<String, Long> consumed = parsed(latestConsumed.get()).byStore;
        LongSummaryStatistics behind = latest.entrySet().stream()
                .mapToLong(end -> Math.max(end.getValue() - consumed.getOrDefault(end.getKey(), 0L), 0))
                .summaryStatistics();
        return Map.of(
                "bytesBehindLatest", Long.toString(behind.getSum()),
                "minBytesBehindLatest", Long.toString(behind.getMin()),
                "maxBytesBehindLatest", Long.toString(behind.getMax()),
                "avgBytesBehindLatest", Double.toString(behind.getAverage()));
    }

    @Override
    public void prepareForTriggerAvailableNow() {
        target = Planning.of(() -> {
            Map<String, Long> ends = new HashMap<>();
            for (Map.Entry<String, List<LogFile>> log : logs().entrySet()) {
                ends.put(log.getKey(), tail(log.getKey()).settled(log.getValue()));
            }
            return ends;
        });
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        return Planning.of(() -> splits(parsed(start).byStore, parsed(end).byStore)).toArray(InputPartition[]::new);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return spec;
    }

    @Override
    public void commit(Offset end) {}

    @Override
    public void stop() {}

    /** The description of the source in a query's progress. */
    @Override
    public String toString() {
        return request + (isOne ? ", physicalOffset of the log" : ", physicalOffset of each log")
                + ", startingOffsets " + options.starting;
    }

    private static LogOffsets parsed(Offset offset) {
        return offset instanceof LogOffsets own ? own : LogOffsets.parse(offset.json());
    }

    // --- planning ---------------------------------------------------------------------------------------------------

    /** Returns the end of the next micro-batch, not before {@code start}. */
    private LogOffsets nextEnd(LogOffsets start, ReadLimit limit) throws IOException {
        Map<String, Long> begins = new HashMap<>(start.byStore);
        Map<String, Long> ends = new HashMap<>(begins);
        Map<String, List<LogFile>> logs = logs();
        for (Map.Entry<String, List<LogFile>> log : logs.entrySet()) {
            List<LogFile> files = log.getValue();
            long begin = begins.computeIfAbsent(log.getKey(), key -> files.get(0).physicalOffset());
            long end = follow(log.getKey(), files, begin);
            if (end < begin) {
                lost(files, begin, "the log ends at " + end + ": it was truncated", "there once the log is longer again");
            } else if (begin < files.get(0).physicalOffset()) {
                deleted(files, begin);
            }
            if (target != null) {
                end = Math.min(end, target.getOrDefault(log.getKey(), begin));
            }
            ends.put(log.getKey(), Math.max(end, begin));
        }
        if (limit instanceof StreamOptions.Limit own) {
            limit(own, logs, begins, ends);
        }
        return new LogOffsets(ends);
    }

    private static void limit(
            StreamOptions.Limit limit, Map<String, List<LogFile>> logs, Map<String, Long> begins, Map<String, Long> ends)
            throws IOException {
        List<String> behind = logs.keySet().stream().filter(key -> ends.get(key) > begins.get(key)).toList();
        for (String key : behind) {
            List<LogFile> files = logs.get(key);
            long bytes = Math.max(limit.bytes() / behind.size(), 1);
            long begin = Math.max(begins.get(key), files.get(0).physicalOffset());
            if (bytes < ends.get(key) - begin) {
                ends.put(key, LogRange.firstFrom(files, begin + bytes, ends.get(key)));
            }
            if (limit.records() != Long.MAX_VALUE) {
                long records = Math.max(limit.records() / behind.size(), 1);
                ends.put(key, LogRange.behind(files, begin, ends.get(key), records));
            }
        }
    }

    private List<Split> splits(Map<String, Long> begins, Map<String, Long> ends) throws IOException {
        Map<String, List<LogFile>> logs = logs();
        List<Split> splits = new ArrayList<>();
        for (Map.Entry<String, Long> log : ends.entrySet()) {
            List<LogFile> files = logs.getOrDefault(log.getKey(), List.of());
            long stop = log.getValue();
            long begin = begins.getOrDefault(log.getKey(), files.isEmpty() ? stop : files.get(0).physicalOffset());
            if (begin < stop) {
                check(files, begin, stop);
                long splitSize = request.options.splitSize(stop - begin);
                List<Split> own = new QueuePruning(files, spec.pruning(), splitSize).between(begin, stop);
                splits.addAll(Replicas.withCopies(own, copies(log.getKey(), begin, begins, ends, logs)));
            }
        }
        List<LogFile> files = logs.values().stream().flatMap(List::stream).toList();
        return request.named(splits, files, spec.names());
    }

    /** Returns the copies of a log's records in the other logs, as far as these are returned from there. */
    private List<Map<Long, Split.Copy>> copies(
            String key, long begin, Map<String, Long> begins, Map<String, Long> ends, Map<String, List<LogFile>> logs)
            throws IOException {
        List<Map<Long, Split.Copy>> found = new ArrayList<>();
        for (Map.Entry<String, List<LogFile>> log : logs.entrySet()) {
            String other = log.getKey();
            if (request.options.dropsReplicas && !other.equals(key)
                    && Replicas.haveSameLog(logs.getOrDefault(key, List.of()), log.getValue())) {
                long limit = (other.compareTo(key) < 0 ? ends : begins).getOrDefault(other, 0L);
                found.add(Replicas.copiesBetween(log.getValue(), begin, ends.get(key), limit));
            }
        }
        return found;
    }

    /** Returns the files of each store, ascending. */
    private Map<String, List<LogFile>> logs() throws IOException {
        return Planning.logFiles(request.options.paths).stream().collect(Collectors.groupingBy(
                file -> isOne ? LogOffsets.ONLY : file.folder(), LinkedHashMap::new, Collectors.toList()));
    }

    private long follow(String key, List<LogFile> files, long known) throws IOException {
        long end = tail(key).follow(files, known);
        latest.put(key, end);
        return end;
    }

    private LogTail tail(String key) {
        return tails.computeIfAbsent(key, one -> new LogTail());
    }

    // --- lost records -----------------------------------------------------------------------------------------------

    /** Reports a loss if bytes between two offsets are missing, or if no record begins at the first. */
    private void check(List<LogFile> files, long begin, long end) throws IOException {
        long position = begin;
        for (LogFile file : files) {
            if (file.end() <= begin || file.physicalOffset() >= end) {
                continue;
            }
            long where = file.physicalOffset();
            if (where > position && file == files.get(0)) {
                deleted(files, position);
            } else if (where > position) {
                lost(files, position, "their file is truncated or missing, the next one begins at " + where, "at " + where);
            } else if (position == begin && !LogRange.mayBegin(file, begin - where)) {
                lost(files, begin, "no record begins there any more: the log was truncated", "at the next record");
            }
            position = file.end();
        }
        if (position < end) {
            lost(files, position, "they were deleted", "without them");
        }
    }

    private void deleted(List<LogFile> files, long begin) {
        long where = files.get(0).physicalOffset();
        lost(files, begin, "the log begins at " + where + ": retention has deleted them", "at " + where);
    }

    private void lost(List<LogFile> files, long physicalOffset, String why, String where) {
        String folder = files.isEmpty() ? String.join(", ", request.options.paths) : files.get(0).folder();
        String message = "records of " + folder + " from physical offset " + physicalOffset + " on are lost: " + why;
        if (options.failsOnLoss) {
            throw new ReadException(ErrorCondition.ROCKETMQ_LOST_RECORDS, message + "; .option(\"failOnDataLoss\", \"false\") continues " + where);
        }
        LOG.warn(message);
    }
}
