package pocketmq.spark.reading;

import java.io.IOException;
import java.io.Serializable;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import pocketmq.spark.files.FileBytes;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.Marks;

/**
 * The records that a query may need, and the parts of the log that must be read for them. A set that is null, or a column that is not named, selects all.
 *
 * <p>Records are selected exactly. Store times need not ascend in a log, since a broker's clock may be set back. So they select
 * records, but no part of the log that is not read; {@link StoreTimes} tells which parts need not be read again.
 */
public record Pruning(Map<String, Set<String>> texts, Set<Integer> queueIds, Map<String, Bounds> numbers)
        implements Serializable {
    public static final String TOPIC = "topic";
    public static final String TAGS = "tags";
    public static final String KEYS = "keys";
    public static final String PHYSICAL_OFFSET = "physicalOffset";
    public static final String QUEUE_OFFSET = "queueOffset";
    /** Its bounds are microseconds. */
    public static final String STORE_TIMESTAMP = "storeTimestamp";

    /** Returns the selection restricted to some values of topic, tags or keys. */
    public Pruning with(String column, Set<String> wanted) {
        Map<String, Set<String>> all = new HashMap<>(texts);
        all.merge(column, wanted, Pruning::both);
        return new Pruning(all, queueIds, numbers);
    }

    public Pruning withQueueIds(Set<Integer> wanted) {
        return new Pruning(texts, queueIds == null ? wanted : both(queueIds, wanted), numbers);
    }

    /** Returns the selection with other bounds of a number or time. */
    public Pruning with(String column, Bounds bounds) {
        Map<String, Bounds> all = new HashMap<>(numbers);
        all.put(column, bounds);
        return new Pruning(texts, queueIds, all);
    }

    private static <T> Set<T> both(Set<T> own, Set<T> wanted) {
        Set<T> common = new HashSet<>(own);
        common.retainAll(wanted);
        return common;
    }

    public Set<String> topics() {
        return texts.get(TOPIC);
    }

    public Bounds bounds(String column) {
        return numbers.getOrDefault(column, Bounds.ALL);
    }

    public Bounds physicalOffsets() {
        return bounds(PHYSICAL_OFFSET);
    }

    /** Whether records are selected by fields that are unknown for damaged bytes. */
    public boolean asksWhatDamageCannotTell() {
        return !texts.isEmpty() || queueIds != null || !bounds(STORE_TIMESTAMP).isAll() || !bounds(QUEUE_OFFSET).isAll();
    }

    // --- files and splits -------------------------------------------------------------------------------------------

    /** Returns whether the records of a queue may be wanted. */
    boolean wants(String topic, int queueId) {
        return (topics() == null || topics().contains(topic)) && (queueIds == null || queueIds.contains(queueId));
    }

    /** Returns whether wanted physical offsets are in a file, or between it and the next file. */
    boolean wantsFile(LogFile file, LogFile successor) {
        long end = successor == null ? file.end() : successor.physicalOffset();
        return end > physicalOffsets().low() && file.physicalOffset() <= physicalOffsets().high();
    }

    /** Positions in a file, or physical offsets. */
    record Range(long begin, long end) {}

    /**
     * Returns positions that enclose all wanted records among those that begin in [begin, end).
     *
     * <p>If {@code begin} moves, it moves to the start of a record.
     */
    Range narrow(LogFile file, long begin, long end) throws IOException {
        Range wanted = wanted(file);
        long from = begin;
        long to = Math.min(end, Math.max(wanted.end, begin));
        if (wanted.begin > from) {
            try (FileBytes bytes = file.open()) {
                long found = Marks.next(file, bytes, wanted.begin, to);
                from = found == Marks.NONE ? to : found;
            }
        }
        return new Range(from, to);
    }

    /** Returns the positions, within a file or not, at the wanted physical offsets. */
    Range wanted(LogFile file) {
        return new Range(saturated(physicalOffsets().low(), -file.physicalOffset()),
                saturated(physicalOffsets().high(), 1 - file.physicalOffset()));
    }

    private static long saturated(long number, long more) {
        if (more > 0 && number > Long.MAX_VALUE - more) {
            return Long.MAX_VALUE;
        }
        return more < 0 && number < Long.MIN_VALUE - more ? Long.MIN_VALUE : number + more;
    }
}
