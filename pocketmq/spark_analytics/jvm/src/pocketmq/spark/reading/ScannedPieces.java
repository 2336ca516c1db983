package pocketmq.spark.reading;

import java.io.IOException;
import pocketmq.spark.columns.Rows;
import pocketmq.spark.files.Marks;

/** The records that begin in [begin, stop) of a file, by following their chain, and the damage between them. */
final class ScannedPieces extends Pieces {
    private final long stop;
    private final long end;
    /** Null if records are not selected by store time. */
    private final StoreTimes times;

    /** Null at the end. */
    private Chain chain;
    /** Position of the last record, if its lengths do not add up; else NONE. */
    private long doubtful = Marks.NONE;

    /** Begins at the first record of the split, or at its beginning itself if it is exact. */
    ScannedPieces(Split split, RecordFilter filter, CopiedRecords copied, Rows rows) throws IOException {
        super(split.file(), split.file().open(), filter, copied, rows);
        this.stop = split.stop();
        this.end = split.end();
        this.times = filter.storeTimestampsUs.isAll() ? null : new StoreTimes(file, filter.storeTimestampsUs);
        // A large record may cover the whole split: then no record begins in it.
        long begin = split.begin();
        goOn(begin == 0 || split.isExact() ? begin : Marks.next(file, bytes, begin, stop));
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
    public boolean next() throws IOException {
        damage = null;
        while (chain != null) {
            if (fillFromBatch()) {
                return true;
            }
            rows.clear(chain.window.data);
            int size = fill();
            if (rows.count() > 0) {
                return true;
            }
            if (batch != null) {
                continue;
            }
            if (size < 0) {
                chain.refill();
                continue;
            }
            damage = size > 0 ? doubted(size) : ended();
            if (damage != null) {
                return true;
            }
        }
        return false;
    }

    /** Fills the rows from the window; returns what {@link Chain#peek} returns for the position where that stopped. */
    private int fill() throws IOException {
        int size = chain.peek();
        while (size > 0 && !rows.isFull() && batch == null) {
            if (!rows.look((int) chain.window.index(chain.position), size)) {
                return size;
            }
            doubtful = Marks.NONE;
            if (times != null) {
                times.add(rows.storeTimestampUs(rows.count()));
            }
            if (!take()) {
                return size;
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

    /** Returns the damage of the record at the position, whose lengths do not add up. The chain is followed by its size. */
    private DamagedBytes doubted(int size) {
        doubtful = chain.position;
        chain.position += size;
        if (times != null) {
            times.begin(chain.position); // what was read of the stretch is not noted
        }
        return DamagedBytes.inside(file, doubtful, chain.position);
    }

    /** Finds where to continue behind the end of the chain; returns the damage there, if any. */
    private DamagedBytes ended() throws IOException {
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
        long damagedEnd = found == Marks.NONE ? end : found;
        return new DamagedBytes(file, position, damagedEnd, (damagedEnd - position) + " bytes are not a valid record");
    }
}
