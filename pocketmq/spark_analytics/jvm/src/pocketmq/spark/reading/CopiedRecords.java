package pocketmq.spark.reading;

import java.io.Closeable;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import pocketmq.spark.columns.Rows;
import pocketmq.spark.files.MissingFileException;

/** The copies of a split's file: the records that they have are read from there, so the split leaves them out. */
public final class CopiedRecords implements Closeable {
    private static final Logger LOG = LoggerFactory.getLogger(CopiedRecords.class);
    /** Bytes read at once where records follow each other, and elsewhere. */
    private static final int READ_SIZE = 1 << 20;

    private static final int READ_SIZE_FIRST = 64 << 10;

    private final long base;
    private final List<Window> windows = new ArrayList<>();

    /** Opens the copies of a split. Throws MissingFileException, unless missing files are ignored. */
    public CopiedRecords(Split split, boolean ignoresMissingFiles) throws IOException {
        base = split.file().physicalOffset();
        try {
            for (Split.Copy copy : split.copies()) {
                try {
                    windows.add(new Window(copy.file(), copy.file().open(), copy.stop()));
                } catch (MissingFileException error) {
                    if (!ignoresMissingFiles) {
                        throw error;
                    }
                    LOG.warn("skipped: {}", error.getMessage());
                }
            }
        } catch (IOException error) {
            close();
            throw error;
        }
    }

    /** Returns whether a copy has the record that {@code rows} looked at, as row {@code rows.count()}. */
    boolean has(Rows rows) throws IOException {
        int row = rows.count();
        for (Window window : windows) {
            if (has(window, rows.physicalOffset(row) - base, rows.data, rows.starts[row], rows.ends[row])) {
                return true;
            }
        }
        return false;
    }

    private static boolean has(Window window, long position, byte[] data, int begin, int end) throws IOException {
        int size = end - begin;
        if (position >= window.stop) {
            return false;
        }
        if (!window.has(position, size)) {
            boolean isNext = position >= window.position && position <= window.position + window.have;
            window.move(position, size, isNext ? READ_SIZE : READ_SIZE_FIRST);
        }
        int at = (int) window.index(position);
        return window.has(position, size) && Arrays.equals(data, begin, end, window.data, at, at + size);
    }

    @Override
    public void close() throws IOException {
        for (Window window : windows) {
            window.close();
        }
    }
}
