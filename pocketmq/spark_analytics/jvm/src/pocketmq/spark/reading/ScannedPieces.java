package pocketmq.spark.reading;

import java.io.IOException;
import pocketmq.spark.columns.Rows;
import pocketmq.spark.files.FileBytes;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.Marks;

/** The records that begin in [begin, stop) of a file, by following their chain, and the damage between them. */
final class ScannedPieces implements Pieces {
    private final LogFile file;
    private final FileBytes bytes;
    private final long stop;
    private final long end;
    private final RecordFilter filter;
    private final CopiedRecords copied;
    private final Rows rows;
    private final Records piece;
    /** Null if records are not selected by store time. */
    private final StoreTimes times;

    /** Null at the end. */
    private Chain chain;
    /** Position of the last record, if its lengths do not add up; else NONE. */
    private long doubtful = Marks.NONE;

    /** The batch whose messages are next, null if there is none. */
    private InnerBatch batch;

    /**
     * Begins at the first record in [begin, stop), or at {@code begin} itself if {@code isExact}; {@code end} is as in
     * {@link Split}.
     */
    ScannedPieces(
            LogFile file, long begin, long stop, long end, boolean isExact, RecordFilter filter, CopiedRecords copied,
            Rows rows)
            throws IOException {
        this.file = file;
        this.bytes = file.open();
        this.stop = stop;
        this.end = end;
        this.filter = filter;
        this.copied = copied;
        this.rows = rows;
        this.piece = new Records(rows);
        this.times = filter.storeTimestampsUs.isAll() ? null : new StoreTimes(file, filter.storeTimestampsUs);
        // A large record may cover the whole split: then no record begins in it.
        goOn(begin == 0 || isExact ? begin : Marks.next(file, bytes, begin, stop));
    }

    private void goOn(long begin) {
        chain = begin == Marks.NONE || begin >= stop ? null : new Chain(file, bytes, begin, stop);
        doubtful = Marks.NONE;
        if (chain != null && times != null) {
            chain.position = times.passed(begin, stop);
            times.begin(chain.position);
        }
    }

    @Override
    public Piece next() throws IOException {
        while (chain != null) {
            if (batch != null) {
                if (batch.fill(rows, filter)) {
                    return piece;
                }
                batch = null;
            }
            rows.clear(chain.window.data);
            int size = fill();
            if (rows.count() > 0) {
                return piece;
            }
            if (batch != null) {
                continue;
            }
            if (size < 0) {
                chain.refill();
            } else if (size > 0) {
                // Its lengths do not add up. The chain is followed all the same, by its size.
                doubtful = chain.position;
                chain.position += size;
                if (times != null) {
                    times.begin(chain.position); // what was read of the stretch is not noted
                }
                return new DamagedBytes(file, doubtful, chain.position, "its lengths do not add up");
            } else {
                Piece damage = ended();
                if (damage != null) {
                    return damage;
                }
            }
        }
        return null;
    }

    /** Fills the rows from the window; returns what {@link Chain#peek} returns for the position where that stopped. */
    private int fill() throws IOException {
        int size = chain.peek();
        while (size > 0 && !rows.isFull()) {
            if (!rows.look((int) chain.window.index(chain.position), size)) {
                return size;
            }
            doubtful = Marks.NONE;
            if (times != null) {
                times.add(rows.storeTimestampUs(rows.count()));
            }
            if (InnerBatch.isOne(rows) && !copied.has(rows)) {
                batch = rows.count() == 0 ? InnerBatch.of(rows) : null;
                if (rows.count() > 0 || batch != null) {
                    chain.position += batch == null ? 0 : size;
                    return size; // its messages are rows of their own data
                }
            }
            if (filter.wants(rows) && !copied.has(rows)) {
                rows.keep();
            }
            chain.position += size;
            if (times != null && times.isComplete(chain.position)) {
                times.note(chain.position);
                chain.position = times.passed(chain.position, stop);
                times.begin(chain.position);
            }
            size = chain.peek();
        }
        return size;
    }

    /** Finds where to continue behind the end of the chain; returns the damage there, if any. */
    private Piece ended() throws IOException {
        long position = chain.position;
        boolean isStop = chain.ending == Chain.Ending.STOP;
        if (times != null) {
            times.note(position);
        }
        if (chain.ending == Chain.Ending.BLANK || (isStop && (position >= end || Marks.goesOn(file, bytes, position)))) {
            chain = null;
            return null;
        }
        long found = doubtful == Marks.NONE ? Marks.NONE : Marks.next(file, bytes, doubtful + 1, position);
        if (found != Marks.NONE) {
            goOn(found);
            return null;
        }
        // The next task begins at the first record it sees, so this task reports all damage up to there, even beyond
        // `stop`.
        found = Marks.next(file, bytes, position + 1, end);
        goOn(found);
        return DamagedBytes.invalid(file, position, found == Marks.NONE ? end : found);
    }

    @Override
    public void close() throws IOException {
        bytes.close();
    }
}
