package pocketmq.spark.reading;

import java.io.IOException;
import java.io.Serializable;
import java.util.HashSet;
import java.util.Set;
import pocketmq.spark.files.FileBytes;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.Marks;
import pocketmq.spark.files.MissingFileException;

/**
 * The records that a query may need, and the parts of the log that must be read for them. A set that is null selects all.
 *
 * <p>Records are selected exactly. Store times ascend in a log as far as the broker's clock did; a clock set back by up to a
 * minute is allowed for.
 */
public record Pruning(
        Set<String> topics, Set<Integer> queueIds, Bounds physicalOffsets, Bounds storeTimestampsUs, Bounds queueOffsets,
        Set<String> tags, Set<String> keys)
        implements Serializable {
    private static final long CLOCK_STEP_US = 60_000_000;
    /** A binary search stops at stretches of this size, which are cheaper to read than to divide. */
    private static final long STRETCH = 1 << 20;

    private static final int PROBE_SIZE = 64 << 10;

    /** Returns the selection given by options. */
    static Pruning of(Set<String> topics, Set<Integer> queueIds, Bounds physicalOffsets, Bounds storeTimestampsUs) {
        return new Pruning(topics, queueIds, physicalOffsets, storeTimestampsUs, Bounds.ALL, null, null);
    }

    public Pruning withTopics(Set<String> wanted) {
        return new Pruning(
                both(topics, wanted), queueIds, physicalOffsets, storeTimestampsUs, queueOffsets, tags, keys);
    }

    public Pruning withQueueIds(Set<Integer> wanted) {
        return new Pruning(
                topics, both(queueIds, wanted), physicalOffsets, storeTimestampsUs, queueOffsets, tags, keys);
    }

    public Pruning withPhysicalOffsets(Bounds bounds) {
        return new Pruning(topics, queueIds, bounds, storeTimestampsUs, queueOffsets, tags, keys);
    }

    public Pruning withStoreTimestampsUs(Bounds bounds) {
        return new Pruning(topics, queueIds, physicalOffsets, bounds, queueOffsets, tags, keys);
    }

    public Pruning withQueueOffsets(Bounds bounds) {
        return new Pruning(topics, queueIds, physicalOffsets, storeTimestampsUs, bounds, tags, keys);
    }

    public Pruning withTags(Set<String> wanted) {
        return new Pruning(
                topics, queueIds, physicalOffsets, storeTimestampsUs, queueOffsets, both(tags, wanted), keys);
    }

    public Pruning withKeys(Set<String> wanted) {
        return new Pruning(
                topics, queueIds, physicalOffsets, storeTimestampsUs, queueOffsets, tags, both(keys, wanted));
    }

    private static <T> Set<T> both(Set<T> own, Set<T> wanted) {
        if (own == null) {
            return wanted;
        }
        Set<T> common = new HashSet<>(own);
        common.retainAll(wanted);
        return common;
    }

    /** Whether records are selected by fields that are unknown for damaged bytes. */
    public boolean asksWhatDamageCannotTell() {
        return topics != null || queueIds != null || tags != null || keys != null || !storeTimestampsUs.isAll()
                || !queueOffsets.isAll();
    }

    // --- files and splits -------------------------------------------------------------------------------------------

    /**
     * Returns whether a file may hold wanted records, or lost bytes between it and the next file may be wanted.
     *
     * <p>Decided by the offsets, the file's first record and the first record of the next file.
     */
    boolean wantsFile(LogFile file, LogFile successor) throws IOException {
        long end = successor == null ? file.end() : successor.physicalOffset();
        if (end <= physicalOffsets.low() || file.physicalOffset() > physicalOffsets.high()) {
            return false;
        }
        if (storeTimestampsUs.high() != Long.MAX_VALUE && firstTimeUs(file, Long.MIN_VALUE) > latestUs()) {
            return false;
        }
        return storeTimestampsUs.low() == Long.MIN_VALUE || successor == null
                || firstTimeUs(successor, Long.MAX_VALUE) >= earliestUs();
    }

    private long latestUs() {
        long high = storeTimestampsUs.high();
        return high > Long.MAX_VALUE - CLOCK_STEP_US ? Long.MAX_VALUE : high + CLOCK_STEP_US;
    }

    private long earliestUs() {
        long low = storeTimestampsUs.low();
        return low < Long.MIN_VALUE + CLOCK_STEP_US ? Long.MIN_VALUE : low - CLOCK_STEP_US;
    }

    /** Returns the store time of a file's first record, {@code otherwise} if it does not begin with one. */
    private static long firstTimeUs(LogFile file, long otherwise) throws IOException {
        try (FileBytes bytes = file.open()) {
            return Marks.hasRecord(file, bytes, 0) ? timeUs(bytes, 0) : otherwise;
        } catch (MissingFileException error) {
            return otherwise;
        }
    }

    private static long timeUs(FileBytes bytes, long position) throws IOException {
        long ms = Marks.storeTimeMs(bytes, position);
        return Math.max(Math.min(ms, Long.MAX_VALUE / 1000), -(Long.MAX_VALUE / 1000)) * 1000;
    }

    /** Positions in a file. */
    record Range(long begin, long end) {}

    /**
     * Returns positions that enclose all wanted records among those that begin in [begin, end).
     *
     * <p>If {@code begin} moves, it moves to the start of a record.
     */
    Range narrow(LogFile file, long begin, long end) throws IOException {
        long from = begin;
        long to = Math.min(end, Math.max(saturated(physicalOffsets.high(), 1 - file.physicalOffset()), begin));
        try (FileBytes bytes = file.open()) {
            long low = saturated(physicalOffsets.low(), -file.physicalOffset());
            if (low > from) {
                long found = Marks.next(file, bytes, low, to);
                from = found == Marks.NONE ? to : found;
            }
            if (storeTimestampsUs.high() != Long.MAX_VALUE) {
                to = positionAt(file, bytes, from, to, latestUs()).end;
            }
            if (storeTimestampsUs.low() != Long.MIN_VALUE) {
                from = positionAt(file, bytes, from, to, earliestUs()).begin;
            }
        }
        return new Range(from, to);
    }

    private static long saturated(long number, long more) {
        if (more > 0 && number > Long.MAX_VALUE - more) {
            return Long.MAX_VALUE;
        }
        return more < 0 && number < Long.MIN_VALUE - more ? Long.MIN_VALUE : number + more;
    }

    /**
     * Returns a stretch of at most STRETCH bytes of [begin, end): records before it were stored at or before {@code timeUs},
     * records behind it after that. It begins with a record if {@code begin} does.
     */
    static Range positionAt(LogFile file, FileBytes bytes, long begin, long end, long timeUs) throws IOException {
        long start = begin;
        long stop = end;
        while (stop - start > STRETCH) {
            long middle = (start + stop) / 2;
            long found = Marks.next(file, bytes, middle, stop, PROBE_SIZE);
            if (found == Marks.NONE || timeUs(bytes, found) > timeUs) {
                stop = middle;
            } else {
                start = found;
            }
        }
        return new Range(start, stop);
    }
}
