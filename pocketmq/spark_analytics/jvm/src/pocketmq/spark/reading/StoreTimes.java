package pocketmq.spark.reading;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import pocketmq.spark.files.LogFile;

/**
 * Earliest and latest store time of the stretches of a log that this JVM has read, as spark_analytics/reading/store_times.py
 * describes it.
 *
 * <p>A query by time reads the whole log once, since the broker's clock may have been set back. Later queries pass over the
 * stretches in which no record was stored in their time. Notes of a file are dropped when it has changed.
 */
final class StoreTimes {
    /** Stretches end at multiples of this size. */
    static final long STRETCH = 4 << 20;

    private static final Map<String, Notes> NOTES = new ConcurrentHashMap<>();

    /** The end of a stretch, and the earliest and latest store time of the records in it. */
    private record Noted(long end, long firstUs, long lastUs) {}

    /** The stretches of a file, by the position of their first record; {@code state} changes when the file does. */
    private record Notes(List<Object> state, Map<Long, Noted> stretches) {}

    private final Bounds wanted;
    private final Map<Long, Noted> stretches;
    /** The stretch that is being read: where it begins, and at least ends, and the times seen in it. */
    private long begin;

    private long boundary;
    private long firstUs;
    private long lastUs;

    /** For a query of the records of a file that were stored at some times. */
    StoreTimes(LogFile file, Bounds wanted) {
        this.wanted = wanted;
        this.stretches = file.files().isRemote() ? new ConcurrentHashMap<>() : notes(file.path()).stretches;
    }

    private static Notes notes(String path) {
        List<Object> state;
        try {
            BasicFileAttributes file = Files.readAttributes(Path.of(path), BasicFileAttributes.class);
            state = List.of(String.valueOf(file.fileKey()), file.size(), file.lastModifiedTime());
        } catch (IOException error) {
            return new Notes(List.of(), new ConcurrentHashMap<>()); // deleted by retention: the reader reports it
        }
        return NOTES.compute(path, (key, known) -> known != null && known.state.equals(state)
                ? known : new Notes(state, new ConcurrentHashMap<>()));
    }

    /**
     * Returns the end of the noted stretches that follow each other from a position on without a wanted record.
     *
     * <p>Only stretches that end before {@code stop} are considered: what follows them is read by the same task.
     */
    long passed(long position, long stop) {
        long passed = position;
        Noted noted = stretches.get(passed);
        while (noted != null && noted.end <= stop && (noted.firstUs > wanted.high() || noted.lastUs < wanted.low())) {
            passed = noted.end;
            noted = stretches.get(passed);
        }
        return passed;
    }

    /** Begins a stretch at a record. */
    void begin(long position) {
        begin = position;
        boundary = (position / STRETCH + 1) * STRETCH;
        firstUs = Long.MAX_VALUE;
        lastUs = Long.MIN_VALUE;
    }

    /** Returns whether the stretch has all its records if the next one begins at a position. */
    boolean isComplete(long position) {
        return position >= boundary;
    }

    void add(long timeUs) {
        firstUs = Math.min(firstUs, timeUs);
        lastUs = Math.max(lastUs, timeUs);
    }

    /** Notes the stretch, which ends at a position. */
    void note(long end) {
        if (begin < end && firstUs <= lastUs) {
            stretches.put(begin, new Noted(end, firstUs, lastUs));
        }
    }
}
