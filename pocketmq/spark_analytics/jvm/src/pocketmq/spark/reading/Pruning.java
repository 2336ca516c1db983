package pocketmq.spark.reading;

import java.io.IOException;
import java.io.Serializable;
import java.util.HashSet;
import java.util.Set;
import pocketmq.spark.files.FileBytes;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.Marks;

/**
 * The records that a query may need, and the parts of the log that must be read for them. A set that is null selects all.
 *
 * <p>Records are selected exactly. Store times need not ascend in a log, since a broker's clock may be set back. So they select
 * records, but no part of the log that is not read; {@link StoreTimes} tells which parts need not be read again.
 */
public record Pruning(
        Set<String> topics, Set<Integer> queueIds, Bounds physicalOffsets, Bounds storeTimestampsUs, Bounds queueOffsets,
        Set<String> tags, Set<String> keys)
        implements Serializable {
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

    /** Returns whether the records of a queue may be wanted. */
    boolean wants(String topic, int queueId) {
        return (topics == null || topics.contains(topic)) && (queueIds == null || queueIds.contains(queueId));
    }

    /** Returns whether wanted physical offsets are in a file, or between it and the next file. */
    boolean wantsFile(LogFile file, LogFile successor) {
        long end = successor == null ? file.end() : successor.physicalOffset();
        return end > physicalOffsets.low() && file.physicalOffset() <= physicalOffsets.high();
    }

    /** Positions in a file, or physical offsets. */
    record Range(long begin, long end) {}

    /**
     * Returns positions that enclose all wanted records among those that begin in [begin, end).
     *
     * <p>If {@code begin} moves, it moves to the start of a record.
     */
    Range narrow(LogFile file, long begin, long end) throws IOException {
        long from = begin;
        long to = Math.min(end, Math.max(saturated(physicalOffsets.high(), 1 - file.physicalOffset()), begin));
        long low = saturated(physicalOffsets.low(), -file.physicalOffset());
        if (low > from) {
            try (FileBytes bytes = file.open()) {
                long found = Marks.next(file, bytes, low, to);
                from = found == Marks.NONE ? to : found;
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
}
