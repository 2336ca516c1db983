package pocketmq.spark.reading;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.Layout;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.QueueFile;
import pocketmq.spark.files.StoreFiles;

/** The records of some topics as their ConsumeQueues list them: ascending positions in the log, and sizes. */
record QueuedRecords(long[] starts, int[] sizes) {
    /** Queues are read by the driver alone, and only if their units are this many times smaller than the log. */
    private static final int UNITS_SHARE_MAX = 100;

    private static final int UNIT = Layout.CONSUME_QUEUE_UNIT_SIZE;
    /** A tags code up to this value is instead the address of a unit in consumequeue_ext. */
    private static final long EXT_ADDRESS_MAX = Integer.MIN_VALUE - 1L;

    private static final Set<String> PREFIXES_WITHOUT_TAGS = Set.of("SCHEDULE_", "RMQ_SYS_", "rmq_sys_");

    /** The units of a queue's file that are read. */
    private record Counted(QueueFile file, int first, int stop, boolean hasTags) {}

    /**
     * Returns the wanted records between two physical offsets. Throws BrokenQueueException, DamagedFileException.
     *
     * @param known physical offset up to which the queues are known to be complete
     * @param isWhole whether to read all units, also those that point outside of this range; otherwise damage in those is
     *     not noticed
     */
    static QueuedRecords of(
            StoreFiles files, String root, List<LogFile> log, Pruning pruning, long begin, long known, boolean isWhole)
            throws IOException {
        String names = String.join(", ", new TreeSet<>(pruning.topics()));
        List<Counted> counted = new ArrayList<>();
        boolean isBegun = false;
        for (String topic : new TreeSet<>(pruning.topics())) {
            boolean hasTags = PREFIXES_WITHOUT_TAGS.stream().noneMatch(topic::startsWith);
            for (int queueId : queueIds(files, root, topic, pruning)) {
                List<QueueFile> row = QueueFile.of(files, root, topic, queueId);
                isBegun |= !row.isEmpty() && row.get(0).start() > 0;
                for (QueueFile file : row) {
                    int count = file.countWithoutGap();
                    int first = isWhole ? 0 : file.firstFrom(begin, count);
                    int stop = isWhole ? count : file.firstFrom(known, count);
                    counted.add(new Counted(file, first, stop, hasTags));
                }
            }
        }
        long unitsSize = counted.stream().mapToLong(file -> (long) (file.stop - file.first) * UNIT).sum();
        long logSize = known - begin;
        if (unitsSize > Math.max(logSize / UNITS_SHARE_MAX, 1 << 20)) {
            throw new BrokenQueueException("the queues of " + names + " cover most of the log");
        }
        if (log.get(0).physicalOffset() == 0 && isBegun) {
            throw new BrokenQueueException("a queue of " + names + " has lost its first file");
        }
        return checked(units(counted, begin, known, pruning), log);
    }

    private static List<Integer> queueIds(StoreFiles files, String root, String topic, Pruning pruning)
            throws IOException {
        if (topic.isEmpty() || topic.contains("/") || !files.isFolder(StoreFiles.join(root, "consumequeue", topic))) {
            throw new BrokenQueueException("topic " + topic + " has no queues in " + root);
        }
        List<Integer> there = QueueFile.queueIds(files, root, topic);
        if (pruning.queueIds() == null) {
            return there;
        }
        if (!there.containsAll(pruning.queueIds())) {
            throw new BrokenQueueException("topic " + topic + " lacks some of the queues "
                    + new TreeSet<>(pruning.queueIds()) + " in " + root);
        }
        return List.copyOf(new TreeSet<>(pruning.queueIds()));
    }

    /** Returns (position, size) of each record that the units point to in [begin, known), ascending and distinct. */
    private static long[][] units(List<Counted> counted, long begin, long known, Pruning pruning) throws IOException {
        long[] codes = pruning.tags() == null ? null : pruning.tags().stream().mapToLong(String::hashCode).toArray();
        List<long[]> found = new ArrayList<>();
        for (Counted file : counted) {
            byte[] data = file.file.units(file.first, file.stop);
            for (int at = 0; at < data.length; at += UNIT) {
                int size = BigEndian.int4(data, at + Layout.UNIT_SIZE_POSITION);
                long start = BigEndian.int8(data, at + Layout.UNIT_PHYSICAL_OFFSET_POSITION);
                long code = BigEndian.int8(data, at + Layout.UNIT_TAGS_CODE_POSITION);
                boolean isRecord = size != QueueFile.BLANK_UNIT_SIZE && code != Layout.HOLE_TAGS_CODE;
                boolean mayMatch = codes == null || !file.hasTags || code <= EXT_ADDRESS_MAX
                        || Arrays.stream(codes).anyMatch(one -> one == code);
                if (isRecord && mayMatch && start >= begin && start < known) {
                    found.add(new long[] {start, size});
                }
            }
        }
        found.sort((one, other) -> Long.compare(one[0], other[0]));
        List<long[]> distinct = new ArrayList<>(found.size());
        for (long[] unit : found) {
            if (distinct.isEmpty() || distinct.get(distinct.size() - 1)[0] != unit[0]) {
                distinct.add(unit);
            }
        }
        return distinct.toArray(long[][]::new);
    }

    private static QueuedRecords checked(long[][] units, List<LogFile> log) throws BrokenQueueException {
        long[] starts = new long[units.length];
        int[] sizes = new int[units.length];
        int file = 0;
        for (int index = 0; index < units.length; index++) {
            starts[index] = units[index][0];
            sizes[index] = (int) units[index][1];
            if (sizes[index] < Layout.RECORD_SIZE_MIN
                    || (index > 0 && starts[index - 1] + sizes[index - 1] > starts[index])) {
                throw new BrokenQueueException("units of the queues overlap");
            }
            while (file < log.size() - 1 && stop(log, file) <= starts[index]) {
                file++;
            }
            if (starts[index] + sizes[index] > stop(log, file)) {
                throw new BrokenQueueException("a unit of the queues extends beyond the end of its file");
            }
        }
        return new QueuedRecords(starts, sizes);
    }

    /** Physical offset behind all records of a file, including those that it has lost. */
    static long stop(List<LogFile> log, int index) {
        return index + 1 < log.size() ? log.get(index + 1).physicalOffset() : log.get(index).end();
    }
}
