package pocketmq.spark.reading;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.Layout;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.Marks;
import pocketmq.spark.files.QueueFile;
import pocketmq.spark.files.StoreFiles;

/**
 * Plans the splits of a log, through the ConsumeQueues if records are selected by topic.
 *
 * <p>Queues are used only as far as they prove what a part of the log holds ({@link Coverage}): the listed records of the
 * wanted topics are read one by one, bytes that are not accounted for are scanned, and so is the log behind the newest unit
 * of all queues. Therefore a topic has the same rows as in a scan of the whole log, whatever the state of the queues.
 */
public record QueuePruning(List<LogFile> log, Pruning pruning, long splitSize) {
    private static final Logger LOG = LoggerFactory.getLogger(QueuePruning.class);
    /**
     * Queues are read by the driver alone. So the units of all queues must be this many times smaller than the log, and
     * those of the wanted topics, whose positions are sent to the tasks, still smaller.
     */
    static final int UNITS_SHARE_MAX = 8;

    static final int WANTED_SHARE_MAX = 100;
    static final long UNITS_SIZE_MIN = 1 << 20;
    /** A stretch in which the wanted records take more than this share is scanned. */
    static final double DENSITY_MAX = 0.5;
    /** A shorter range of the log is scanned: looking up the newest units of all queues costs more. */
    static final long RANGE_SIZE_MIN = 8 << 20;

    private StoreFiles files() {
        return log.get(0).files();
    }

    private String root() {
        return StoreFiles.parent(log.get(0).folder());
    }

    /**
     * Returns the splits of the records between two physical offsets, of which the second is not behind the log's end.
     *
     * <p>As {@link #plan}, for reads that know where the log ends and report lost files themselves.
     */
    public List<Split> between(long begin, long end) throws IOException {
        List<Split> splits = new ArrayList<>();
        long scanned = begin;
        if (pruning.topics() != null && end - begin >= RANGE_SIZE_MIN) {
            long known = Math.min(proven(), end);
            List<QueueUnits> queues = usable(begin, known);
            for (int index = 0; queues != null && index < log.size(); index++) {
                planFile(index, queues, begin, known, splits);
            }
            scanned = queues == null ? begin : known;
        }
        splits.addAll(LogRange.splits(log, scanned, end, pruning, splitSize));
        return splits;
    }

    /** Returns the splits of the log: listed records of the wanted topics where queues are usable, scans elsewhere. */
    public List<Split> plan() throws IOException {
        // To find the end of a log, many small remote reads are not worth it.
        long known = pruning.topics() == null && files().isRemote() ? 0 : proven();
        long begin = log.get(0).physicalOffset();
        List<QueueUnits> queues = usable(begin, known);
        if (queues == null) {
            return SplitPlanning.plan(log, pruning, splitSize, 0, known);
        }
        List<Split> splits = new ArrayList<>();
        for (int index = 0; index < log.size(); index++) {
            long missing = planFile(index, queues, begin, known, splits);
            if (missing != Marks.NONE && pruning.wantsFile(log.get(index), log.get(index + 1))) {
                Split lost = SplitPlanning.lostSplit(log, index, missing, pruning);
                if (lost != null) {
                    splits.add(lost);
                }
            }
        }
        splits.addAll(SplitPlanning.plan(log, pruning, splitSize, known, known));
        return splits;
    }

    /** Returns the units of all queues, null if they are of no use between two physical offsets. */
    private List<QueueUnits> usable(long begin, long known) throws IOException {
        if (pruning.topics() == null || known <= begin) {
            return null;
        }
        List<QueueUnits> queues = new ArrayList<>();
        long size = 0;
        long wantedSize = 0;
        for (String topic : topics()) {
            for (int queueId : topic.startsWith(Coverage.LIGHT_PREFIX)
                    ? List.<Integer>of() : QueueFile.queueIds(files(), root(), topic)) {
                try {
                    QueueUnits queue = new QueueUnits(topic, queueId, QueueFile.of(files(), root(), topic, queueId), begin);
                    queues.add(queue);
                    size += queue.size();
                    wantedSize += pruning.wants(topic, queueId) ? queue.size() : 0;
                } catch (IOException error) {
                    LOG.info("{}: this queue proves nothing", error.getMessage());
                }
            }
        }
        if (Math.max(size * UNITS_SHARE_MAX, wantedSize * WANTED_SHARE_MAX)
                > Math.max(known - begin, UNITS_SIZE_MIN * UNITS_SHARE_MAX)) {
            LOG.info("scanning {}: the units of its queues, or those of the wanted topics, are too many", root());
            return null;
        }
        return queues;
    }

    private List<String> topics() throws IOException {
        String folder = StoreFiles.join(root(), "consumequeue");
        return files().isFolder(folder) ? files().names(folder) : List.of();
    }

    /**
     * Adds the splits of a file between two physical offsets; returns the position of the first listed record that it
     * lacks, or NONE.
     */
    private long planFile(int index, List<QueueUnits> queues, long begin, long known, List<Split> splits)
            throws IOException {
        LogFile file = log.get(index);
        LogFile successor = index + 1 < log.size() ? log.get(index + 1) : null;
        long from = Math.max(begin, file.physicalOffset());
        // Behind all records of the file, including those that it has lost.
        long stop = Math.min(known, successor == null ? file.end() : successor.physicalOffset());
        if (from >= stop || !pruning.wantsFile(file, successor)) {
            return Marks.NONE;
        }
        Coverage found = Coverage.of(file, queues, pruning, from, stop);
        long[] starts = found.starts();
        for (int row = 0; row < starts.length; row++) {
            starts[row] -= file.physicalOffset();
        }
        int there = starts.length;
        while (there > 0 && starts[there - 1] + found.sizes()[there - 1] > file.size()) {
            there--;
        }
        long missing = there < starts.length ? starts[there] : Marks.NONE;
        int first = 0;
        for (Pruning.Range range : unknown(index, found)) {
            int before = Math.min(firstFrom(starts, range.begin()), there);
            cut(file, Arrays.copyOfRange(starts, first, before), Arrays.copyOfRange(found.sizes(), first, before), splits);
            LogRange.addScans(file, range.begin(), range.end(), pruning, splitSize, LogRange::mayBegin, splits);
            first = Math.min(firstFrom(starts, range.end()), there);
        }
        cut(file, Arrays.copyOfRange(starts, first, there), Arrays.copyOfRange(found.sizes(), first, there), splits);
        return missing;
    }

    /** Returns the ranges of a file that have to be scanned; those with less than a split between them are joined. */
    private List<Pruning.Range> unknown(int index, Coverage found) throws IOException {
        LogFile file = log.get(index);
        List<Pruning.Range> ranges = new ArrayList<>();
        long size = 0;
        for (Pruning.Range range : found.unknown()) {
            long low = range.begin() - file.physicalOffset();
            long high = Math.min(range.end() - file.physicalOffset(), file.size());
            if (index + 1 < log.size() && range.end() == log.get(index + 1).physicalOffset()) {
                if (low >= high || Marks.isBlank(file.read(low, Layout.BLANK_SIZE), range.end() - range.begin())) {
                    continue;
                }
                high = SplitPlanning.recordsEnd(log, index, low).end();
            }
            if (low >= high) {
                continue;
            }
            size += high - low;
            Pruning.Range last = ranges.isEmpty() ? null : ranges.get(ranges.size() - 1);
            if (last != null && low - last.end() < splitSize) {
                ranges.set(ranges.size() - 1, new Pruning.Range(last.begin(), high));
            } else {
                ranges.add(new Pruning.Range(low, high));
            }
        }
        if (size > 0) {
            LOG.warn("the ConsumeQueues do not account for {} bytes of {}: scanning these", size, file.path());
        }
        return ranges;
    }

    /** Returns the index of the first of ascending numbers that is not smaller than a number. */
    private static int firstFrom(long[] numbers, long number) {
        int found = Arrays.binarySearch(numbers, number);
        return found < 0 ? -found - 1 : found;
    }

    /** Adds the splits for the records of a file that a topic's queues list. */
    private void cut(LogFile file, long[] listed, int[] listedSizes, List<Split> splits) throws IOException {
        if (listed.length == 0) {
            return;
        }
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

    /**
     * Returns the physical offset of the newest record that a queue proves to belong to the log; 0 if none does.
     *
     * <p>Queues that are damaged, or whose last unit points to no record, prove nothing.
     */
    private long proven() throws IOException {
        List<QueueFile.Unit> units = new ArrayList<>();
        for (String topic : topics()) {
            for (int queueId : QueueFile.queueIds(files(), root(), topic)) {
                try {
                    QueueFile.Unit unit = QueueFile.newest(QueueFile.of(files(), root(), topic, queueId));
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
        for (LogFile file : log) {
            if (file.physicalOffset() <= unit.physicalOffset() && unit.physicalOffset() < file.end()) {
                byte[] mark = file.read(unit.physicalOffset() - file.physicalOffset(), Marks.SIZE);
                return mark.length == Marks.SIZE && Marks.isRecord(mark, 0, unit.physicalOffset())
                        && BigEndian.int4(mark, 0) == unit.size();
            }
        }
        return false;
    }
}
