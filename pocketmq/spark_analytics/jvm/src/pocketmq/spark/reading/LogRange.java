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

    /** Returns the physical offset of the first record at or behind {@code physicalOffset}; the log's end if none is. */
    public static long firstFrom(List<LogFile> files, long physicalOffset, long end) throws IOException {
        for (LogFile file : files) {
            long start = Math.max(physicalOffset - file.physicalOffset(), 0);
            if (file.physicalOffset() >= end || start >= file.size()) {
                continue;
            }
            try (FileBytes bytes = file.open()) {
                long found = Marks.NONE;
                long stop = end - file.physicalOffset();
                if (end >= file.end()) {
                    // Behind the BLANK of a full file there may be old records. The BLANK is searched for only if no record
                    // begins before the file's tail.
                    long tail = file.size() - SplitPlanning.FULL_FILE_TAIL;
                    found = start < tail ? Marks.next(file, bytes, start, tail) : Marks.NONE;
                    stop = found == Marks.NONE ? SplitPlanning.fullEnd(file, 0) : tail;
                }
                if (found == Marks.NONE && start < stop) {
                    found = Marks.next(file, bytes, start, stop);
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
        for (LogFile file : files) {
            long start = Math.max(physicalOffset - file.physicalOffset(), 0);
            if (file.physicalOffset() >= end || start >= file.size()) {
                continue;
            }
            long stop = Math.min(file.size(), end - file.physicalOffset());
            try (FileBytes bytes = file.open()) {
                Chain chain = new Chain(file, bytes, start, stop);
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
        for (LogFile file : files) {
            long start = Math.max(begin - file.physicalOffset(), 0);
            if (file.physicalOffset() >= end || start >= file.size()) {
                continue;
            }
            long stop = end >= file.end() ? SplitPlanning.fullEnd(file, start) : end - file.physicalOffset();
            Pruning.Range range = pruning.narrow(file, start, stop);
            for (long cut = range.begin(); cut < range.end(); cut += splitSize) {
                Split split = Split.scan(file, cut, Math.min(cut + splitSize, range.end()), stop);
                splits.add(cut == start && isDamagedBoundary(file, start) ? split.exact() : split);
            }
        }
        return splits;
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
