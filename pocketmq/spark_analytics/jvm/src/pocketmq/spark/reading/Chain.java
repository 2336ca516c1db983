package pocketmq.spark.reading;

import java.io.IOException;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.FileBytes;
import pocketmq.spark.files.Layout;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.Marks;

/**
 * Follows the chain of records in a file, one by one: the position of a record follows only from the size of the one before.
 *
 * <p>A chain ends either at the BLANK that fills a file or at invalid bytes: unwritten, torn, or left behind by an earlier
 * truncation. Nothing behind that point belongs to the log, even if it looks like records.
 */
final class Chain {
    /** Reason why following a chain of records ended. */
    enum Ending {
        /** Every record that begins before the requested end was seen. */
        STOP,
        /** The file is full. */
        BLANK,
        /** The bytes at this position are not a valid record. */
        BROKEN
    }

    /** Position of the next record, or of the first byte behind the records seen. */
    long position;

    Ending ending = Ending.STOP;
    final Window window;

    private final LogFile file;
    private final FileBytes bytes;
    private final long begin;
    private final long stop;
    private int windowSize;

    Chain(LogFile file, FileBytes bytes, long begin, long stop) {
        this(file, bytes, begin, stop, Window.SIZE);
    }

    /** The first window has {@code firstSize} bytes, each next one is twice as long, up to {@code Window.SIZE}. */
    Chain(LogFile file, FileBytes bytes, long begin, long stop, int firstSize) {
        this.file = file;
        this.bytes = bytes;
        this.begin = begin;
        this.stop = stop;
        this.window = new Window(file, bytes, stop);
        this.window.position = begin;
        this.position = begin;
        this.windowSize = firstSize;
    }

    /**
     * Returns the size of the record at {@link #position}; 0 if the chain ends there, and -1 if the window must be moved
     * first, by {@link #refill}, which invalidates what was taken from it.
     */
    int peek() {
        if (position >= stop) {
            ending = Ending.STOP;
            return 0;
        }
        int at = (int) window.index(position);
        int rest = window.have - at;
        if (rest < Marks.SIZE && !window.isAtEnd) {
            return -1;
        }
        long room = file.size() - position;
        if (rest >= Marks.SIZE && Marks.isRecord(window.data, at, file.physicalOffset() + position)) {
            int size = BigEndian.int4(window.data, at);
            if (size >= Layout.RECORD_SIZE_MIN && size <= room && (size <= rest || !window.isAtEnd)) {
                return size <= rest ? size : -1;
            }
        }
        ending = Marks.isBlank(window.data, at, window.have, room) ? Ending.BLANK : Ending.BROKEN;
        return 0;
    }

    /** Moves the window to {@link #position}, with the whole record there. */
    void refill() throws IOException {
        int at = (int) window.index(position);
        int wanted = window.have - at >= Marks.SIZE ? BigEndian.int4(window.data, at) : Marks.SIZE;
        window.move(position, wanted, Math.max(windowSize, wanted));
        windowSize = Math.min(2 * windowSize, Window.SIZE);
    }

    /** Returns the size of the record at {@link #position}, 0 if the chain ends there. */
    int size() throws IOException {
        int size = peek();
        while (size < 0) {
            refill();
            size = peek();
        }
        return size;
    }

    /** Follows the chain to its end; returns this chain. */
    Chain run() throws IOException {
        for (int size = size(); size > 0; size = size()) {
            position += size;
        }
        return this;
    }

    /** Returns the chain from the first position in [begin, stop) that looks like the start of a record, null without one. */
    static Chain first(LogFile file, FileBytes bytes, long begin, long stop) throws IOException {
        long found = Marks.next(file, bytes, begin, stop);
        return found == Marks.NONE ? null : new Chain(file, bytes, found, stop);
    }

    /** Returns the chain from the next such position behind the end of this chain, null without one. */
    Chain next() throws IOException {
        return first(file, bytes, Math.max(position, begin + 1), stop);
    }
}
