package pocketmq.spark.files;

import java.io.Closeable;
import java.io.IOException;
import java.util.Arrays;

/** An open file that is read at given positions. */
public interface FileBytes extends Closeable {
    byte[] ZEROS = new byte[256 << 10];

    /** Reads some of {@code length} bytes into {@code target}; returns how many, none or -1 at the end of the file. */
    int readSome(long position, byte[] target, int offset, int length) throws IOException;

    /** Reads up to {@code length} bytes into {@code target}; returns how many, fewer only at the end of the file. */
    default int read(long position, byte[] target, int offset, int length) throws IOException {
        int done = 0;
        while (done < length) {
            int count = readSome(position + done, target, offset + done, length - done);
            if (count <= 0) {
                break;
            }
            done += count;
        }
        return done;
    }

    /** Returns up to {@code size} bytes from a position, fewer only at the end of the file. */
    default byte[] bytes(long position, int size) throws IOException {
        byte[] data = new byte[Math.max(size, 0)];
        int there = read(position, data, 0, data.length);
        return there == data.length ? data : Arrays.copyOf(data, there);
    }

    /** Returns the first position from {@code position} on that may hold a byte that is not zero; at most {@code limit}. */
    default long nextWritten(long position, long limit) throws IOException {
        byte[] data = new byte[ZEROS.length];
        for (long at = position; at < limit; ) {
            int have = read(at, data, 0, (int) Math.min(data.length, limit - at));
            int index = Arrays.mismatch(data, 0, have, ZEROS, 0, have);
            if (index >= 0) {
                return at + index;
            }
            if (have == 0) {
                return limit;
            }
            at += have;
        }
        return limit;
    }
}
