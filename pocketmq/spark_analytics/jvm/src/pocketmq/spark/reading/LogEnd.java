package pocketmq.spark.reading;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.FileBytes;
import pocketmq.spark.files.Layout;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.Marks;

/**
 * The rule that decides where a log ends, as spark_analytics/reading/log_end.py describes it.
 *
 * <p>The chain of records in the log's last file is followed from a record known to belong to the log. Where it ends without
 * a BLANK, the log nevertheless goes on if a ConsumeQueue proves it, or if a valid record behind that position was stored
 * later than the last valid record before it; the bytes between are damage.
 */
record LogEnd(LogFile file, FileBytes bytes, RecordCheck check) {
    private static final long AHEAD_REMOTE = 64 << 20;
    /** Number of records at the end of a window that are checked as a possible proof. */
    private static final int TRIED_MAX = 4;

    private static final int FIRST_WINDOW_SIZE = 64 << 10;
    private static final long NEVER = -1;

    LogEnd(LogFile file, FileBytes bytes) {
        this(file, bytes, new RecordCheck());
    }

    /**
     * Follows the last file of a log from the record at {@code begin} to the log's end, and adds the positions of cuts.
     *
     * <p>The last cut is the end; the others are record starts about {@code splitSize} apart.
     *
     * @param isProven whether a ConsumeQueue lists the record at {@code begin}
     */
    void addCuts(List<Long> cuts, long begin, long splitSize, boolean isProven) throws IOException {
        long cut = begin;
        long end;
        cuts.add(cut);
        while (true) {
            Chain chain = new Chain(file, bytes, cut, file.size(), FIRST_WINDOW_SIZE);
            long last = cut;
            long before = Marks.NONE;
            for (int size = chain.size(); size > 0; size = chain.size()) {
                before = chain.position > cut ? last : Marks.NONE;
                last = chain.position;
                if (last >= cut + splitSize) {
                    cut = last;
                    cuts.add(cut);
                }
                chain.position += size;
            }
            end = chain.position;
            if (chain.ending == Chain.Ending.BLANK) {
                break;
            }
            boolean isLastValid = last < end && isValid(last, end - last, isProven && last == begin);
            long newest = isLastValid ? last : before;
            long newestMs = newest == Marks.NONE ? NEVER : Marks.storeTimeMs(bytes, newest);
            Proof proof = proofBehind(end, newestMs, file.size());
            if (proof == null) {
                // No following header confirms the last record: it belongs to the log if a recovery would keep it.
                end = isLastValid ? end : last;
                break;
            }
            // A record that was being written when the walk passed, and was followed by others meanwhile, is not damage.
            if (!beginsChain(end)) {
                for (cut += splitSize; cut < proof.position; cut += splitSize) {
                    cuts.add(cut);
                }
                cut = proof.position;
                cuts.add(cut);
            }
        }
        long known = end;
        cuts.removeIf(one -> one >= known);
        cuts.add(end);
    }

    /** Returns whether a record begins at a position, with a size that is possible. */
    boolean beginsChain(long position) throws IOException {
        return Marks.hasRecord(file, bytes, position)
                && new Chain(file, bytes, position, position + 1, FIRST_WINDOW_SIZE).size() > 0;
    }

    /**
     * Returns whether a broker's recovery would keep the record at a position; if it {@code isComplete}, zeros at its end do
     * not count as the rest of an unfinished write.
     */
    private boolean isValid(long position, long size, boolean isComplete) throws IOException {
        byte[] data = bytes.bytes(position, Math.toIntExact(size + Layout.BLANK_SIZE));
        return data.length >= size
                && check.isIntact(data, 0, Math.toIntExact(size), file.physicalOffset() + position, isComplete);
    }

    /** A record that may prove that a log goes on, and its store time. */
    record Proof(long position, int size, long storeTimeMs) {}

    /**
     * Returns the last record that proves that a log goes on behind {@code position}, null if there is none.
     *
     * @param newestMs latest store time of the records before {@code position}
     * @param limit bytes from there on are not searched
     */
    Proof proofBehind(long position, long newestMs, long limit) throws IOException {
        long stop = file.files().isRemote() ? Math.min(limit, position + AHEAD_REMOTE) : limit;
        Proof proof = null;
        long found = nextRecord(position + 1, stop);
        while (found != Marks.NONE) {
            Stretch stretch = new Stretch(proof == null ? newestMs : proof.storeTimeMs);
            Chain chain = new Chain(file, bytes, found, stop);
            long window = Marks.NONE;
            for (int size = chain.size(); size > 0; size = chain.size()) {
                if (chain.window.position != window) {
                    window = chain.window.position;
                    proof = stretch.proof(proof);
                    stretch = new Stretch(proof == null ? newestMs : proof.storeTimeMs);
                }
                stretch.add(chain.window.data, (int) chain.window.index(chain.position), chain.position, size);
                chain.position += size;
            }
            proof = stretch.proof(proof);
            found = nextRecord(Math.max(chain.position, found + 1), stop);
        }
        return proof;
    }

    /** The last few records of a window that were stored later than a time. */
    private final class Stretch {
        private final long newestMs;
        private final Deque<Proof> last = new ArrayDeque<>();

        Stretch(long newestMs) {
            this.newestMs = newestMs;
        }

        void add(byte[] data, int at, long position, int size) {
            long time = BigEndian.int8(data, Marks.storeTimeAt(data, at));
            if (time > newestMs) {
                last.push(new Proof(position, size, time));
                if (last.size() > TRIED_MAX) {
                    last.removeLast();
                }
            }
        }

        /** Returns the last valid one of the records, {@code otherwise} if there is none. */
        Proof proof(Proof otherwise) throws IOException {
            for (Proof record : last) {
                if (isValid(record.position, record.size, false)) {
                    return record;
                }
            }
            return otherwise;
        }
    }

    /** As {@link Marks#next}, passing quickly over bytes that were never written. */
    private long nextRecord(long begin, long limit) throws IOException {
        long written = begin < limit ? bytes.nextWritten(begin, limit) : limit;
        return written < limit ? Marks.next(file, bytes, Math.max(written - Marks.SIZE, begin), limit) : Marks.NONE;
    }

    /** Returns whether a record ends at a position, so that the bytes behind it are damaged rather than another record's. */
    boolean endsChain(long position) throws IOException {
        Chain chain = Chain.first(file, bytes, Math.max(position - SplitPlanning.FULL_FILE_TAIL, 0), position);
        for (; chain != null; chain = chain.next()) {
            if (chain.run().position >= position) {
                return chain.position == position;
            }
        }
        return false;
    }
}
