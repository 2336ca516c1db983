package pocketmq.spark.reading;

import java.io.IOException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import pocketmq.spark.columns.Rows;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.Marks;

/**
 * Reads only the records that a split lists.
 *
 * <p>They are read in portions. Where the file does not match the list, that portion is scanned instead.
 */
final class PickedPieces extends Pieces {
    private static final Logger LOG = LoggerFactory.getLogger(PickedPieces.class);
    /** Maximum bytes of records of a portion. */
    private static final long PORTION_SIZE = 4 << 20;
    /** Maximum stretch of a file covered by a portion. */
    private static final long SPAN_MAX = 256 << 20;
    /** Records with at most this many bytes between them are read in one call, which is cheaper than a call each. */
    private static final int GAP_LOCAL = 4 << 10;

    private static final int GAP_REMOTE = 1 << 20;
    private static final int READ_AHEAD = 256 << 10;

    private final long[] starts;
    private final int[] sizes;
    private final int gap;
    private byte[] data = new byte[0];
    private final Window ahead;
    /** Index of the first record behind the portion, and of the next record of the portion, with its place in the data. */
    private int portionEnd;

    private int next;
    private int at;
    private ScannedPieces scan;

    PickedPieces(Split split, RecordFilter filter, CopiedRecords copied, Rows rows) throws IOException {
        super(split.file(), split.file().open(), filter, copied, rows);
        this.starts = split.starts();
        this.sizes = split.sizes();
        this.ahead = new Window(file, bytes, split.end());
        this.gap = file.files().isRemote() ? GAP_REMOTE : GAP_LOCAL;
    }

    @Override
    public boolean next() throws IOException {
        while (true) {
            if (scan != null) {
                if (scan.next()) {
                    damage = scan.damage;
                    return true;
                }
                scan.close();
                scan = null;
            }
            damage = null;
            if (fillFromBatch()) {
                return true;
            }
            if (next == portionEnd) {
                if (portionEnd == starts.length) {
                    return false;
                }
                readPortion();
                continue;
            }
            rows.clear(data);
            fill();
            if (rows.count() > 0 || damage != null) {
                return true;
            }
        }
    }

    /** Fills the rows from the portion, up to a record whose lengths do not add up, which is the damage if it is the first. */
    private void fill() throws IOException {
        while (next < portionEnd && !rows.isFull() && batch == null) {
            if (!rows.look(at, sizes[next])) {
                if (rows.count() == 0) {
                    damage = DamagedBytes.inside(file, starts[next], starts[next] + sizes[next]);
                    at += sizes[next++];
                }
                return;
            }
            if (!take()) {
                return;
            }
            at += sizes[next++];
        }
    }

    /** Reads the next portion; if it does not match the list, sets the scan that replaces it. */
    private void readPortion() throws IOException {
        int first = portionEnd;
        long size = 0;
        int last = first;
        while (last < starts.length
                && (last == first
                        || (size + sizes[last] <= PORTION_SIZE && starts[last] + sizes[last] <= starts[first] + SPAN_MAX))) {
            size += sizes[last++];
        }
        if (data.length < size) {
            data = new byte[Math.toIntExact(size)];
        }
        portionEnd = last;
        next = first;
        at = 0;
        int to = 0;
        boolean isRight = true;
        for (int number = first; number < last && isRight; number++) {
            isRight = sizes[number] >= Marks.SIZE && copy(number, last, to) == sizes[number]
                    && Marks.isRecord(data, to, file.physicalOffset() + starts[number])
                    && BigEndian.int4(data, to) == sizes[number];
            to += sizes[number];
        }
        if (!isRight) {
            long begin = starts[first];
            long stop = starts[last - 1] + sizes[last - 1];
            LOG.warn("the ConsumeQueues do not match {} from {} to {}: scanning that part", file.path(), begin, stop);
            next = portionEnd;
            long found = Marks.next(file, bytes, begin, stop);
            scan = found == Marks.NONE ? null : new ScannedPieces(Split.scan(file, found, stop, stop).exact(), filter, copied, rows);
        }
    }

    /** Copies a record to {@code to} in the data; returns the number of bytes copied. Reads nearby records ahead. */
    private int copy(int number, int last, int to) throws IOException {
        long begin = starts[number];
        int size = sizes[number];
        if (!ahead.has(begin, size)) {
            int more = number + 1;
            long end = begin + size;
            while (more < last && starts[more] - end <= gap && starts[more] + sizes[more] - begin <= READ_AHEAD) {
                end = starts[more] + sizes[more];
                more++;
            }
            if (more == number + 1) {
                return bytes.read(begin, data, to, size);
            }
            ahead.move(begin, (int) (end - begin), 0);
        }
        int at = (int) ahead.index(begin);
        int there = Math.min(size, ahead.have - at);
        System.arraycopy(ahead.data, at, data, to, there);
        return there;
    }

    @Override
    public void close() throws IOException {
        if (scan != null) {
            scan.close();
        }
        super.close();
    }
}
