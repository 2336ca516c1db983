package pocketmq.spark.reading;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.FileBytes;
import pocketmq.spark.files.Layout;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.Marks;
import pocketmq.spark.files.QueueFile;
import pocketmq.spark.files.StoreFiles;

/**
 * Plans the splits of a log, through the ConsumeQueues if records are selected by topic.
 *
 * <p>A broker dispatches the records to their queues in the order of the log. So each queue is complete up to the newest unit
 * of all queues, and the records of a topic up to there are known from its queues; the rest of the log is scanned. While a
 * broker runs, or after it has crashed, the queues are trusted only up to the checkpoint, since a power cut may have taken
 * recent units from some queues and not from others.
 *
 * <p>Missing or inconsistent queues do not fail a query: the log is scanned instead, and a log line says why.
 */
public final class QueuePruning {
    private static final Logger LOG = LoggerFactory.getLogger(QueuePruning.class);
    /** A checkpoint's timestamps are not taken exactly at the syncs (StoreCheckpoint.getMinTimestamp). */
    private static final long CHECKPOINT_MARGIN_MS = 3000;
    /** A stretch in which the wanted records take more than this share is scanned. */
    private static final double DENSITY_MAX = 0.5;
    /** A shorter range of the log is scanned: looking up the newest units of all queues costs more. */
    private static final long RANGE_SIZE_MIN = 8 << 20;

    private final List<LogFile> log;
    private final Pruning pruning;
    private final long splitSize;
    private final StoreFiles files;
    private final String root;

    private QueuePruning(List<LogFile> log, Pruning pruning, long splitSize) {
        this.log = log;
        this.pruning = pruning;
        this.splitSize = splitSize;
        this.files = log.get(0).files();
        this.root = StoreFiles.parent(log.get(0).folder());
    }

    /** Returns the splits of one log: listed records of the wanted topics where queues are usable, scans elsewhere. */
    public static List<Split> plan(List<LogFile> log, Pruning pruning, long splitSize) throws IOException {
        return new QueuePruning(log, pruning, splitSize).plan();
    }

    /**
     * Returns the splits of the records between two physical offsets, of which the second is not behind the log's end.
     *
     * <p>As {@link #plan}, for reads that know where the log ends and report lost files themselves.
     */
    public static List<Split> between(List<LogFile> log, Pruning pruning, long splitSize, long begin, long end)
            throws IOException {
        List<Split> splits = new ArrayList<>();
        long scanned = begin;
        if (pruning.topics() != null && end - begin >= RANGE_SIZE_MIN) {
            scanned = new QueuePruning(log, pruning, splitSize).addListed(begin, end, splits);
        }
        splits.addAll(LogRange.splits(log, scanned, end, pruning, splitSize));
        return splits;
    }

    /** Adds the splits of the listed records between two offsets; returns the offset from which the log has to be scanned. */
    private long addListed(long begin, long end, List<Split> splits) throws IOException {
        try {
            long known = Math.min(newestKnown(), end);
            if (known <= begin) {
                return begin;
            }
            QueuedRecords records = QueuedRecords.of(files, root, log, pruning, begin, known, false);
            for (int index = 0; index < log.size(); index++) {
                planFile(index, records, splits);
            }
            return known;
        } catch (IOException error) {
            LOG.warn("{}: scanning {} from {} to {}", error.getMessage(), log.get(0).folder(), begin, end);
            splits.clear();
            return begin;
        }
    }

    private List<Split> plan() throws IOException {
        if (pruning.topics() == null) {
            return SplitPlanning.plan(log, pruning, splitSize, 0, proven());
        }
        long known;
        QueuedRecords records;
        try {
            known = newestKnown();
            records = QueuedRecords.of(files, root, log, pruning, log.get(0).physicalOffset(), known, true);
        } catch (IOException error) {
            LOG.warn("{}: scanning the whole log in {}", error.getMessage(), log.get(0).folder());
            return SplitPlanning.plan(log, pruning, splitSize, 0, proven());
        }
        List<Split> splits = new ArrayList<>();
        for (int index = 0; index < log.size(); index++) {
            long missing = planFile(index, records, splits);
            if (missing != Marks.NONE && pruning.wantsFile(log.get(index), log.get(index + 1))) {
                Split lost = SplitPlanning.lostSplit(log, index, missing, pruning);
                if (lost != null) {
                    splits.add(lost);
                }
            }
        }
        splits.addAll(SplitPlanning.plan(log, pruning, splitSize, known, proven()));
        return splits;
    }

    /** Adds the splits of a file's listed records; returns the position of the first that the file lacks, or NONE. */
    private long planFile(int index, QueuedRecords records, List<Split> splits) throws IOException {
        LogFile file = log.get(index);
        int begin = firstFrom(records.starts(), file.physicalOffset());
        int end = firstFrom(records.starts(), QueuedRecords.stop(log, index));
        long[] starts = Arrays.copyOfRange(records.starts(), begin, end);
        for (int row = 0; row < starts.length; row++) {
            starts[row] -= file.physicalOffset();
        }
        int[] sizes = Arrays.copyOfRange(records.sizes(), begin, end);
        int there = 0;
        while (there < starts.length && starts[there] + sizes[there] <= file.size()) {
            there++;
        }
        if (there > 0 && pruning.wantsFile(file, null)) {
            cut(file, Arrays.copyOf(starts, there), Arrays.copyOf(sizes, there), splits);
        }
        return there < starts.length ? starts[there] : Marks.NONE;
    }

    /** Returns the index of the first of ascending numbers that is not smaller than a number. */
    private static int firstFrom(long[] numbers, long number) {
        int found = Arrays.binarySearch(numbers, number);
        return found < 0 ? -found - 1 : found;
    }

    /** Adds the splits for the records of a file that a topic's queues list. */
    private void cut(LogFile file, long[] listed, int[] listedSizes, List<Split> splits) throws IOException {
        Pruning.Range range = pruning.narrow(file, listed[0], listed[listed.length - 1] + 1);
        int from = firstFrom(listed, range.begin());
        int to = firstFrom(listed, range.end());
        long[] starts = Arrays.copyOfRange(listed, from, Math.max(to, from));
        int[] sizes = Arrays.copyOfRange(listedSizes, from, Math.max(to, from));
        // Rows first to last are to be read one by one, and have `wanted` bytes in all.
        int first = 0;
        int last = 0;
        long wanted = 0;
        while (last < starts.length) {
            // Consider stretches as long as a scanned split; those with few wanted records are combined.
            int behind = firstFrom(starts, starts[last] + splitSize);
            long span = starts[behind - 1] + sizes[behind - 1] - starts[last];
            long size = 0;
            for (int row = last; row < behind; row++) {
                size += sizes[row];
            }
            boolean isDense = size > DENSITY_MAX * span && behind - last > 1;
            if (isDense || wanted + size > splitSize) {
                addPicked(file, starts, sizes, first, last, splits);
                first = last;
                wanted = 0;
            }
            if (isDense) {
                long stop = starts[behind - 1] + 1;
                splits.add(Split.scan(file, starts[last], stop, stop));
                first = behind;
            } else {
                wanted += size;
            }
            last = behind;
        }
        addPicked(file, starts, sizes, first, last, splits);
    }

    private static void addPicked(LogFile file, long[] starts, int[] sizes, int first, int last, List<Split> splits) {
        if (first < last) {
            long stop = starts[last - 1] + sizes[last - 1];
            splits.add(new Split(file, starts[first], stop, stop, Arrays.copyOfRange(starts, first, last),
                    Arrays.copyOfRange(sizes, first, last), false, ""));
        }
    }

    // --- up to where queues are complete ----------------------------------------------------------------------------

    /**
     * Returns the physical offset of the newest record that a queue proves to belong to the log; 0 if none does.
     *
     * <p>Queues that are damaged, or whose last unit points to no record, prove nothing.
     */
    private long proven() throws IOException {
        String folder = StoreFiles.join(root, "consumequeue");
        if (files.isRemote() || !files.isFolder(folder)) {
            return 0; // remote: not worth many small reads
        }
        List<QueueFile.Unit> units = new ArrayList<>();
        for (String topic : files.names(folder)) {
            for (int queueId : QueueFile.queueIds(files, root, topic)) {
                try {
                    QueueFile.Unit unit = QueueFile.newest(QueueFile.of(files, root, topic, queueId), true);
                    if (unit != null) {
                        units.add(unit);
                    }
                } catch (IOException error) {
                    LOG.info("{}: this queue is not used to find the end of the log", error.getMessage());
                }
            }
        }
        units.sort(Comparator.comparingLong(QueueFile.Unit::physicalOffset).reversed());
        for (QueueFile.Unit unit : units) {
            if (hasRecord(unit)) {
                return unit.physicalOffset();
            }
        }
        return 0;
    }

    /** Returns whether the record of a unit is in the log. */
    private boolean hasRecord(QueueFile.Unit unit) throws IOException {
        int holder = holder(unit.physicalOffset());
        if (holder < 0) {
            return false;
        }
        LogFile file = log.get(holder);
        try (FileBytes bytes = file.open()) {
            long position = unit.physicalOffset() - file.physicalOffset();
            return Marks.hasRecord(file, bytes, position)
                    && BigEndian.int4(bytes.bytes(position, 4), 0) == unit.size();
        }
    }

    /** Returns the physical offset of a record up to which every queue has all of its units. */
    private long newestKnown() throws IOException {
        String folder = StoreFiles.join(root, "consumequeue");
        if (!files.isFolder(folder)) {
            throw new BrokenQueueException(root + " has no consumequeue");
        }
        QueueFile.Unit unit = null;
        for (String topic : files.names(folder)) {
            for (int queueId : QueueFile.queueIds(files, root, topic)) {
                QueueFile.Unit one = QueueFile.newest(QueueFile.of(files, root, topic, queueId), false);
                unit = unit == null || (one != null && one.physicalOffset() > unit.physicalOffset()) ? one : unit;
            }
        }
        long newest = unit == null ? -1 : unit.physicalOffset();
        int holder = holder(newest);
        if (unit == null || holder < 0) {
            throw new BrokenQueueException("the newest unit of the queues points to " + newest + ", outside the log");
        }
        if (!hasRecord(unit)) {
            throw new BrokenQueueException(
                    "the newest unit of the queues points to " + newest + ", where no record of its size begins");
        }
        return files.isFile(StoreFiles.join(root, "abort")) ? Math.min(newest, synced(holder, newest)) : newest;
    }

    private int holder(long physicalOffset) {
        for (int index = 0; index < log.size(); index++) {
            if (log.get(index).physicalOffset() <= physicalOffset && physicalOffset < log.get(index).end()) {
                return index;
            }
        }
        return -1;
    }

    /** Returns the physical offset of a record before which the checkpoint guarantees synced queues. */
    private long synced(int holder, long newest) throws IOException {
        byte[] data;
        try (FileBytes bytes = files.open(StoreFiles.join(root, "checkpoint"))) {
            data = bytes.bytes(0, Layout.CHECKPOINT_SIZE);
        }
        if (data.length < Layout.CHECKPOINT_SIZE) {
            throw new BrokenQueueException("the checkpoint of " + root + " is truncated");
        }
        long timeUs = (Math.min(BigEndian.int8(data, 0), BigEndian.int8(data, 8)) - CHECKPOINT_MARGIN_MS) * 1000;
        for (int index = holder; index >= 0; index--) {
            LogFile file = log.get(index);
            try (FileBytes bytes = file.open()) {
                if (Marks.hasRecord(file, bytes, 0) && Marks.storeTimeMs(bytes, 0) * 1000 <= timeUs) {
                    long end = index == holder ? newest - file.physicalOffset() : file.size();
                    return file.physicalOffset() + Pruning.positionAt(file, bytes, 0, end, timeUs).begin();
                }
            }
        }
        return log.get(0).physicalOffset();
    }
}
