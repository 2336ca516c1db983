package pocketmq.spark.reading;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.FileBytes;
import pocketmq.spark.files.Layout;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.Marks;

/** Records and splits of a log between physical offsets, for reads that know where the log ends. */
public final class LogRange {
    private LogRange() {}

    /** The positions of a file that lie between two physical offsets; {@code stop} may be behind its last byte. */
    private record Part(LogFile file, long start, long stop) {}

    private static List<Part> parts(List<LogFile> files, long begin, long end) {
        return files.stream()
                .map(file -> new Part(file, Math.max(begin - file.physicalOffset(), 0), end - file.physicalOffset()))
                .filter(part -> part.stop > 0 && part.start < part.file.size())
                .toList();
    }

    /** Returns the physical offset of the first record at or behind {@code physicalOffset}; the log's end if none is. */
    public static long firstFrom(List<LogFile> files, long physicalOffset, long end) throws IOException {
        for (Part part : parts(files, physicalOffset, end)) {
            LogFile file = part.file;
            try (FileBytes bytes = file.open()) {
                long found = Marks.NONE;
                long stop = part.stop;
                if (stop >= file.size()) {
                    // Behind the BLANK of a full file there may be old records. The BLANK is searched for only if no record
                    // begins before the file's tail.
                    long tail = file.size() - SplitPlanning.FULL_FILE_TAIL;
                    found = part.start < tail ? Marks.next(file, bytes, part.start, tail) : Marks.NONE;
                    stop = found == Marks.NONE ? SplitPlanning.fullEnd(file, 0) : tail;
                }
                if (found == Marks.NONE && part.start < stop) {
                    found = Marks.next(file, bytes, part.start, stop);
                }
                if (found != Marks.NONE) {
                    return file.physicalOffset() + found;
                }
            }
        }
        return end;
    }

    /** Returns the physical offset behind {@code count} records from {@code physicalOffset} on; {@code end} if too few. */
    public static long behind(List<LogFile> files, long physicalOffset, long end, long count) throws IOException {
        long left = count;
        for (Part part : parts(files, physicalOffset, end)) {
            LogFile file = part.file;
            try (FileBytes bytes = file.open()) {
                Chain chain = new Chain(file, bytes, part.start, Math.min(file.size(), part.stop));
                for (; chain != null; chain = chain.ending == Chain.Ending.BROKEN ? chain.next() : null) {
                    for (int size = chain.size(); size > 0; size = chain.size()) {
                        if (left-- == 0) {
                            return file.physicalOffset() + chain.position;
                        }
                        chain.position += size;
                    }
                }
            }
        }
        return end;
    }

    /** Returns the splits of the records between two physical offsets. */
    public static List<Split> splits(List<LogFile> files, long begin, long end, Pruning pruning, long splitSize)
            throws IOException {
        List<Split> splits = new ArrayList<>();
        for (Part part : parts(files, begin, end)) {
            LogFile file = part.file;
            long stop = part.stop >= file.size() ? SplitPlanning.fullEnd(file, part.start) : part.stop;
            addScans(file, part.start, stop, pruning, splitSize, LogRange::isDamagedBoundary, splits);
        }
        return splits;
    }

    /** Whether a record should begin at a position of a file, so that other bytes there are damage. */
    interface Beginning {
        boolean isAt(LogFile file, long position) throws IOException;
    }

    /** Adds the splits that scan a range of a file, as far as it is wanted. */
    static void addScans(
            LogFile file, long begin, long end, Pruning pruning, long splitSize, Beginning beginning, List<Split> splits)
            throws IOException {
        Pruning.Range range = pruning.narrow(file, begin, end);
        for (long cut = range.begin(); cut < range.end(); cut += splitSize) {
            Split split = Split.scan(file, cut, Math.min(cut + splitSize, range.end()), end);
            splits.add(cut == begin && beginning.isAt(file, cut) ? split.exact() : split);
        }
    }

    /** Returns whether a record should begin at a position, because one ends there or begins there. */
    public static boolean mayBegin(LogFile file, long position) throws IOException {
        return isBoundary(file, position) || isDamagedBoundary(file, position);
    }

    private static boolean isDamagedBoundary(LogFile file, long position) throws IOException {
        if (position == 0 || isBoundary(file, position)) {
            return false;
        }
        try (FileBytes bytes = file.open()) {
            return new LogEnd(file, bytes).endsChain(position);
        }
    }

    /** Returns whether a record begins at a position, or the file is full there (the BLANK's size is not checked). */
    private static boolean isBoundary(LogFile file, long position) throws IOException {
        byte[] mark = file.read(position, Marks.SIZE);
        return position == file.size()
                || (mark.length == Marks.SIZE && Marks.isRecord(mark, 0, file.physicalOffset() + position))
                || (mark.length >= Layout.BLANK_SIZE
                        && BigEndian.int4(mark, Layout.MAGIC_CODE_POSITION) == Layout.BLANK_MAGIC_CODE);
    }
}
