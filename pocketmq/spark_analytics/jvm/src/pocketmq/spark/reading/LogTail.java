package pocketmq.spark.reading;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import pocketmq.spark.files.FileBytes;
import pocketmq.spark.files.Layout;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.Marks;

/**
 * The end of a log that a broker is writing, updated by each call of {@link #follow}.
 *
 * <p>The chain of records is followed once, and later continued from where it ended, so checking a log that did not grow costs
 * a few small reads. All files before the newest one belong to the log entirely, since a file is started only when the
 * previous one is full.
 *
 * <p>A record's header is written before its body, so the newest records may be incomplete. A record counts when it is valid
 * as a whole, by the rules of a broker's recovery; this is checked for the last window that is read. The end is set before
 * an invalid record. If it is still invalid after a second and others follow it, it is damage rather than a record being
 * written. The same holds for bytes where no record begins: after a second they are damage if a record follows them within
 * LOOK_AHEAD that proves that the log goes on, by the rule of {@link LogEnd}.
 */
public final class LogTail {
    private static final long DOUBT_NS = 1_000_000_000;
    private static final long STEP_MS = 100;
    private static final long LOOK_AHEAD = 4 << 20;
    /** A log that does not grow is searched less and less often. */
    private static final long LOOKS_APART_MAX_NS = 64 * DOUBT_NS;

    private final RecordCheck check = new RecordCheck();
    private LogFile file;
    private long position;
    /** Start of the last record before {@code position}. */
    private long last;
    /** Physical offset of a record that was not valid, and the time until which it may become valid. */
    private long doubted = Marks.NONE;

    private long doubtedUntil;
    /** Physical offset at which the chain ends without a record, and when the bytes behind it are searched next. */
    private long stoppedAt = Marks.NONE;

    private long lookAt;
    private long looksApart;
    private boolean isFull;

    /**
     * Returns the physical offset behind the last complete record of a log with these files; its begin if it has none.
     *
     * <p>The result is smaller than the previous one if the log was truncated.
     *
     * @param known physical offset of a record's start, or of the end of the log, seen earlier; or NONE
     */
    public long follow(List<LogFile> files, long known) throws IOException {
        LogFile newest = newest(files);
        if (newest == null) {
            return files.isEmpty() ? 0 : files.get(0).physicalOffset();
        }
        try (FileBytes bytes = newest.open()) {
            if (file == null || file.physicalOffset() != newest.physicalOffset()) {
                position = last = 0;
                isFull = false;
                long start = known - newest.physicalOffset();
                if (file == null && 0 < start && start < newest.size() && Marks.hasRecord(newest, bytes, start)) {
                    position = last = start;
                }
            }
            file = newest;
            if (new LogEnd(newest, bytes).beginsChain(position)) {
                walk(bytes);
            } else if (last < position && !Marks.hasRecord(newest, bytes, last)) {
                position = last = 0;
                walk(bytes);
            } else {
                lookAhead(bytes);
            }
        }
        return newest.physicalOffset() + position;
    }

    /** As {@link #follow}, but if an invalid record is at the end, waits up to a second for it to be completed. */
    public long settled(List<LogFile> files) throws IOException {
        long end = follow(files, Marks.NONE);
        while (doubted != Marks.NONE && System.nanoTime() < doubtedUntil) {
            pause();
            end = follow(files, Marks.NONE);
        }
        end = doubted == Marks.NONE ? end : follow(files, Marks.NONE);
        while (file != null && proof() != null) {
            long until = System.nanoTime() + DOUBT_NS;
            while (follow(files, Marks.NONE) == end && System.nanoTime() < until) {
                pause();
            }
            lookAt = System.nanoTime();
            end = follow(files, Marks.NONE);
        }
        return end;
    }

    private static void pause() throws IOException {
        try {
            Thread.sleep(STEP_MS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted", error);
        }
    }

    /** Continues behind bytes that are not a record, if they stay so and a later record proves that the log goes on. */
    private void lookAhead(FileBytes bytes) throws IOException {
        long physicalOffset = file.physicalOffset() + position;
        long now = System.nanoTime();
        if (stoppedAt != physicalOffset) {
            stoppedAt = physicalOffset;
            looksApart = DOUBT_NS;
        } else if (now < lookAt) {
            return;
        } else {
            LogEnd.Proof proof = proof(bytes);
            if (proof != null) {
                position = last = proof.position();
                walk(bytes);
                return;
            }
            looksApart = Math.min(2 * looksApart, LOOKS_APART_MAX_NS);
        }
        lookAt = now + looksApart;
    }

    private LogEnd.Proof proof() throws IOException {
        try (FileBytes bytes = file.open()) {
            return proof(bytes);
        }
    }

    private LogEnd.Proof proof(FileBytes bytes) throws IOException {
        LogEnd end = new LogEnd(file, bytes);
        if (isFull || end.beginsChain(position)) {
            return null;
        }
        long storedMs = last < position ? Marks.storeTimeMs(bytes, last) : Marks.NONE;
        return end.proofBehind(position, storedMs, Math.min(position + LOOK_AHEAD, file.size()));
    }

    /** Returns the last file that begins with a record; files behind it are preallocated. */
    private LogFile newest(List<LogFile> files) throws IOException {
        for (int index = files.size() - 1; index >= 0; index--) {
            LogFile one = files.get(index);
            if ((file != null && file.physicalOffset() == one.physicalOffset()) || Marks.beginsWithRecord(one)) {
                return one;
            }
        }
        return null;
    }

    private void walk(FileBytes bytes) throws IOException {
        Chain chain = new Chain(file, bytes, position, file.size());
        List<Long> starts = new ArrayList<>();
        long window = Marks.NONE;
        for (int size = chain.size(); size > 0; size = chain.size()) {
            if (chain.window.position != window) {
                window = chain.window.position;
                starts.clear();
            }
            starts.add(chain.position);
            chain.position += size;
        }
        isFull = chain.ending == Chain.Ending.BLANK;
        if (starts.isEmpty()) {
            return;
        }
        starts.add(chain.position);
        int count = starts.size() - 1;
        if (chain.ending == Chain.Ending.BLANK) {
            doubted = Marks.NONE;
        } else {
            count = complete(bytes, starts);
        }
        position = starts.get(count);
        last = count == 0 ? last : starts.get(count - 1);
    }

    /** Returns how many records are complete; {@code starts} are their positions, and that of the end. */
    private int complete(FileBytes bytes, List<Long> starts) throws IOException {
        int count = starts.size() - 1;
        long begin = starts.get(0);
        byte[] data = bytes.bytes(begin, (int) (starts.get(count) - begin) + Layout.SECTOR_SIZE);
        int invalid = 0;
        while (invalid < count && isIntact(data, starts, invalid)) {
            invalid++;
        }
        if (invalid == count) {
            doubted = Marks.NONE;
            return count;
        }
        long physicalOffset = file.physicalOffset() + starts.get(invalid);
        if (physicalOffset != doubted) {
            doubted = physicalOffset;
            doubtedUntil = System.nanoTime() + DOUBT_NS;
        }
        if (invalid == count - 1 || System.nanoTime() < doubtedUntil) {
            return invalid;
        }
        return isIntact(data, starts, count - 1) ? count : count - 1;
    }

    private boolean isIntact(byte[] data, List<Long> starts, int index) {
        int at = (int) (starts.get(index) - starts.get(0));
        int size = (int) (starts.get(index + 1) - starts.get(index));
        return at + size <= data.length && check.isIntact(data, at, size, file.physicalOffset() + starts.get(index), false);
    }
}
