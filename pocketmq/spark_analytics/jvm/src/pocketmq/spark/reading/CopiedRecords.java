package pocketmq.spark.reading;

import java.io.Closeable;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import pocketmq.spark.columns.Rows;
import pocketmq.spark.files.FileBytes;
import pocketmq.spark.files.MissingFileException;

/** The copies of a split's file: the records that they have are read from there, so the split leaves them out. */
public final class CopiedRecords implements Closeable {
    private static final Logger LOG = LoggerFactory.getLogger(CopiedRecords.class);

    private final long base;
    private final List<Window> windows = new ArrayList<>();

    private CopiedRecords(long base) {
        this.base = base;
    }

    /** Opens the copies of a split. Throws MissingFileException, unless missing files are ignored. */
    public static CopiedRecords open(Split split, boolean ignoresMissingFiles) throws IOException {
        CopiedRecords copied = new CopiedRecords(split.file() == null ? 0 : split.file().physicalOffset());
        try {
            for (Split.Copy copy : split.copies()) {
                try {
                    copied.windows.add(new Window(copy.file().open(), copy.stop()));
                } catch (MissingFileException error) {
                    if (!ignoresMissingFiles) {
                        throw error;
                    }
                    LOG.warn("skipped: {}", error.getMessage());
                }
            }
        } catch (IOException error) {
            copied.close();
            throw error;
        }
        return copied;
    }

    /** Returns whether a copy has the record that {@code rows} looked at, as row {@code rows.count()}. */
    boolean has(Rows rows) throws IOException {
        for (Window window : windows) {
            int row = rows.count();
            if (window.has(rows.physicalOffset(row) - base, rows.data, rows.starts[row], rows.ends[row])) {
                return true;
            }
        }
        return false;
    }

    @Override
    public void close() throws IOException {
        for (Window window : windows) {
            window.bytes.close();
        }
    }

    /** A part of a copy in memory. */
    private static final class Window {
        /** Bytes read at once where records follow each other, and elsewhere. */
        private static final int SIZE = 1 << 20;

        private static final int SIZE_FIRST = 64 << 10;

        private final FileBytes bytes;
        private final long stop;
        private byte[] data = new byte[0];
        private long begin;
        private long end;

        Window(FileBytes bytes, long stop) {
            this.bytes = bytes;
            this.stop = stop;
        }

        boolean has(long position, byte[] other, int from, int to) throws IOException {
            int size = to - from;
            if (position >= stop) {
                return false;
            }
            if (position < begin || position + size > end) {
                move(position, size);
            }
            int at = (int) (position - begin);
            return position + size <= end && Arrays.equals(other, from, to, data, at, at + size);
        }

        private void move(long position, int size) throws IOException {
            int sizeMax = position >= begin && position <= end ? SIZE : SIZE_FIRST;
            int wanted = (int) Math.max(Math.min(sizeMax, stop - position), size);
            if (data.length < wanted) {
                data = new byte[wanted];
            }
            begin = position;
            end = position + bytes.read(position, data, 0, wanted);
        }
    }
}
