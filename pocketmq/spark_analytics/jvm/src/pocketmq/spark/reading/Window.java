package pocketmq.spark.reading;

import java.io.Closeable;
import java.io.IOException;
import pocketmq.spark.files.FileBytes;
import pocketmq.spark.files.LogFile;

/** A part of a file in memory, which is moved through the file. */
final class Window implements Closeable {
    /** Larger windows exceed the processor's cache, smaller ones cost more calls. */
    static final int SIZE = 2 << 20;
    /** Bytes read beyond the end of a split, for the rest of its last record. */
    private static final int OVERLAP = 64 << 10;

    byte[] data = new byte[0];
    /** Number of valid bytes in {@code data}. */
    int have;
    /** Position in the file of {@code data[0]}. */
    long position;
    /** Whether no byte of the file lies behind the window. */
    boolean isAtEnd;

    final long stop;
    private final LogFile file;
    private final FileBytes bytes;

    /** {@code stop}: no record that begins there or behind is wanted. */
    Window(LogFile file, FileBytes bytes, long stop) {
        this.file = file;
        this.bytes = bytes;
        this.stop = stop;
    }

    /** Moves the window so that it begins at {@code target}, with at least {@code wanted} bytes if the file has them. */
    void move(long target, int wanted, int sizeMax) throws IOException {
        long size = Math.max(Math.min(sizeMax, stop - target + OVERLAP), wanted);
        int there = (int) Math.max(Math.min(size, file.size() - target), 0);
        if (data.length < there) {
            data = new byte[there];
        }
        have = bytes.read(target, data, 0, there);
        position = target;
        isAtEnd = have < there || target + have >= file.size();
    }

    /** Returns the index of a file position in {@code data}; it is out of range for positions outside the window. */
    long index(long target) {
        return target - position;
    }

    /** Returns whether some bytes of the file are in the window. */
    boolean has(long target, long size) {
        return target >= position && target + size <= position + have;
    }

    @Override
    public void close() throws IOException {
        bytes.close();
    }
}
