package pocketmq.spark.reading;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.stream.LongStream;
import org.apache.spark.unsafe.types.UTF8String;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import pocketmq.spark.columns.Rows;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.FileBytes;
import pocketmq.spark.files.Layout;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.Marks;
import pocketmq.spark.files.QueueFile;

/**
 * What the ConsumeQueues prove about a stretch of the log, as spark_analytics/reading/coverage.py describes it.
 *
 * <p>Where the units of all queues lie end to end, each byte belongs to a known record, so no other record of a wanted topic
 * can be there. Bytes that no unit claims, or that several claim, prove nothing and have to be scanned.
 *
 * @param starts physical offsets of the wanted records, ascending
 * @param sizes of these records
 * @param unknown the unknown bytes, as ranges of physical offsets
 */
record Coverage(long[] starts, int[] sizes, List<Pruning.Range> unknown) {
    private static final Logger LOG = LoggerFactory.getLogger(Coverage.class);
    private static final int UNIT = Layout.CONSUME_QUEUE_UNIT_SIZE;
    /** Queues with this prefix list records of other topics. */
    static final String LIGHT_PREFIX = "%LMQ%";
    /** A tags code up to this value is instead the address of a unit in consumequeue_ext. */
    private static final long EXT_ADDRESS_MAX = Integer.MIN_VALUE - 1L;

    private static final Set<String> PREFIXES_WITHOUT_TAGS = Set.of("SCHEDULE_", "RMQ_SYS_", "rmq_sys_");

    /** Returns what the next units of the queues say about the bytes from {@code begin} to {@code stop} of one file. */
    static Coverage of(LogFile file, List<QueueUnits> queues, Pruning pruning, long begin, long stop) throws IOException {
        LongStream.Builder starts = LongStream.builder();
        LongStream.Builder ends = LongStream.builder();
        LongStream.Builder wanted = LongStream.builder();
        try (FileBytes bytes = file.open()) {
            for (QueueUnits queue : queues) {
                QueueUnits.Taken taken;
                try {
                    taken = queue.take(stop);
                } catch (IOException error) {
                    LOG.info("{}: this queue proves nothing", error.getMessage());
                    continue;
                }
                int[] good = good(taken, begin, Math.max(stop, file.end()));
                if (!matches(file, bytes, queue, taken, good)) {
                    LOG.info("queue {} {} does not match the log from {} on", queue.topic, queue.queueId,
                            start(taken, good[0]));
                    continue;
                }
                for (int at : good) {
                    starts.add(start(taken, at));
                    ends.add(start(taken, at) + size(taken, at));
                    if (wants(pruning, queue, BigEndian.int8(taken.units(), at + Layout.UNIT_TAGS_CODE_POSITION))) {
                        wanted.add(start(taken, at));
                    }
                }
            }
        }
        return joined(sorted(starts), sorted(ends), sorted(wanted), begin, stop);
    }

    private static long[] sorted(LongStream.Builder numbers) {
        return numbers.build().sorted().toArray();
    }

    private static long start(QueueUnits.Taken taken, int at) {
        return BigEndian.int8(taken.units(), at + Layout.UNIT_PHYSICAL_OFFSET_POSITION);
    }

    private static int size(QueueUnits.Taken taken, int at) {
        return BigEndian.int4(taken.units(), at + Layout.UNIT_SIZE_POSITION);
    }

    /** Returns the places of the units that may point to records between two physical offsets. */
    private static int[] good(QueueUnits.Taken taken, long begin, long end) {
        int[] good = new int[taken.units().length / UNIT];
        int count = 0;
        for (int at = 0; at < taken.units().length; at += UNIT) {
            int size = size(taken, at);
            long code = BigEndian.int8(taken.units(), at + Layout.UNIT_TAGS_CODE_POSITION);
            if (start(taken, at) >= begin && start(taken, at) <= end - size && size >= Layout.RECORD_SIZE_MIN
                    && size != QueueFile.BLANK_UNIT_SIZE && code != Layout.HOLE_TAGS_CODE) {
                good[count++] = at;
            }
        }
        return Arrays.copyOf(good, count);
    }

    /** Returns whether the first and the last of the records that the file still has name this queue and their offset. */
    private static boolean matches(LogFile file, FileBytes bytes, QueueUnits queue, QueueUnits.Taken taken, int[] good)
            throws IOException {
        int first = 0;
        int last = good.length - 1;
        while (last >= 0 && start(taken, good[last]) + size(taken, good[last]) > file.end()) {
            last--;
        }
        return last < 0 || (names(file, bytes, queue, taken, good[first]) && names(file, bytes, queue, taken, good[last]));
    }

    private static boolean names(LogFile file, FileBytes bytes, QueueUnits queue, QueueUnits.Taken taken, int at)
            throws IOException {
        long start = start(taken, at);
        int size = size(taken, at);
        byte[] data = bytes.bytes(start - file.physicalOffset(), size);
        Rows rows = new Rows(false);
        rows.clear(data);
        return data.length == size && Marks.isRecord(data, 0, start) && BigEndian.int4(data, 0) == size
                && rows.look(0, size)
                && rows.topic(0).equals(UTF8String.fromString(queue.topic))
                && BigEndian.int4(data, Layout.QUEUE_ID_POSITION) == queue.queueId
                && BigEndian.int8(data, Layout.QUEUE_OFFSET_POSITION) == taken.queueOffset() + at / UNIT;
    }

    /** Returns whether the records of a queue, with a tags code, may be wanted. */
    private static boolean wants(Pruning pruning, QueueUnits queue, long code) {
        Set<String> tags = pruning.texts().get(Pruning.TAGS);
        return pruning.wants(queue.topic, queue.queueId)
                && (tags == null || code <= EXT_ADDRESS_MAX
                        || PREFIXES_WITHOUT_TAGS.stream().anyMatch(queue.topic::startsWith)
                        || tags.stream().anyMatch(one -> one.hashCode() == code));
    }

    /**
     * Returns the wanted ones of the records that no other overlaps, and the bytes outside of all these.
     *
     * <p>Starts and ends are sorted each for itself. Number i of both belongs to the same record if that overlaps no other.
     */
    private static Coverage joined(long[] starts, long[] ends, long[] wanted, long begin, long stop) {
        long[] chosen = new long[wanted.length];
        int[] sizes = new int[wanted.length];
        int count = 0;
        List<Pruning.Range> unknown = new ArrayList<>();
        long known = begin;
        for (int index = 0; index < starts.length; index++) {
            boolean isAlone = (index == 0 || starts[index] >= ends[index - 1])
                    && (index == starts.length - 1 || starts[index + 1] >= ends[index]);
            if (!isAlone) {
                continue;
            }
            if (known < starts[index]) {
                unknown.add(new Pruning.Range(known, starts[index]));
            }
            known = ends[index];
            if (Arrays.binarySearch(wanted, starts[index]) >= 0) {
                chosen[count] = starts[index];
                sizes[count++] = (int) (ends[index] - starts[index]);
            }
        }
        if (known < stop) {
            unknown.add(new Pruning.Range(known, stop));
        }
        return new Coverage(Arrays.copyOf(chosen, count), Arrays.copyOf(sizes, count), unknown);
    }
}
