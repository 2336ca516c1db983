package pocketmq.spark.reading;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import pocketmq.spark.files.FileBytes;
import pocketmq.spark.files.Layout;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.Marks;

/**
 * Finds the end of a log and cuts the log into splits, one per task.
 *
 * <p>A task starts at the first position in its split that looks like a record. This is safe only before the end of the log:
 * behind it, after a truncation, intact old records may lie, each at the offset it claims. So the driver finds the end first,
 * by the rule of {@link LogEnd}. A full file ends at its BLANK, and old bytes can lie only behind that.
 *
 * <p>A file is full if a later file begins with a record. Invalid bytes in a full file are damage and do not end the log. A
 * file between two others that is truncated or missing is damage, too. If files were named by the user, in a list or by a
 * glob, some may be left out on purpose; then only a file that is too short for its place counts as damage.
 */
public final class SplitPlanning {
    /** The unused rest of a full file is smaller than one record or batch: 4 MiB unless maxMessageSize was raised. */
    static final long FULL_FILE_TAIL = 64 << 20;

    private SplitPlanning() {}

    /** Returns runs of files in one folder, each file beginning where the previous one ends or should have ended. */
    public static List<List<LogFile>> logs(List<LogFile> files) {
        Map<String, List<LogFile>> byFolder = files.stream()
                .collect(Collectors.groupingBy(LogFile::folder, LinkedHashMap::new, Collectors.toList()));
        Map<String, Set<Long>> starts = files.stream().collect(
                Collectors.groupingBy(LogFile::folder, Collectors.mapping(LogFile::physicalOffset, Collectors.toSet())));
        List<List<LogFile>> chains = new ArrayList<>();
        byFolder.forEach((folder, own) -> addChains(own, elsewhere(starts, folder), chains));
        return chains;
    }

    /** A broker may spread its log over several folders (storePathCommitLog): files missing in one are in another. */
    private static Set<Long> elsewhere(Map<String, Set<Long>> starts, String folder) {
        Set<Long> found = new HashSet<>();
        for (Set<Long> others : starts.values()) {
            if (java.util.Collections.disjoint(others, starts.get(folder))) {
                found.addAll(others);
            }
        }
        return found;
    }

    private static void addChains(List<LogFile> own, Set<Long> elsewhere, List<List<LogFile>> chains) {
        long sizeMax = own.stream().mapToLong(LogFile::size).max().orElse(0);
        List<LogFile> chain = new ArrayList<>(own.subList(0, 1));
        for (LogFile file : own.subList(1, own.size())) {
            LogFile before = chain.get(chain.size() - 1);
            boolean isCut = file.isListed() || file.physicalOffset() - before.physicalOffset() <= sizeMax;
            boolean isGap = before.end() < file.physicalOffset();
            if (before.end() > file.physicalOffset() || (isGap && (!isCut || elsewhere.contains(before.end())))) {
                chains.add(chain);
                chain = new ArrayList<>();
            }
            chain.add(file);
        }
        chains.add(chain);
    }

    /**
     * Cuts one log into splits of about {@code splitSize} bytes.
     *
     * @param begin physical offset of a record known to belong to the log: records before it are skipped
     * @param known physical offset of a record known to belong to the log: the end of the log is searched behind it
     */
    static List<Split> plan(List<LogFile> files, Pruning pruning, long splitSize, long begin, long known)
            throws IOException {
        List<Split> splits = new ArrayList<>();
        long sure = Math.max(begin, known);
        int first = 0;
        while (first < files.size() && files.get(first).end() <= begin) {
            first++;
        }
        int last = files.size() - 1;
        while (last >= first && last != first && !Marks.beginsWithRecord(files.get(last))) {
            last--;
        }
        for (int index = first; index <= last; index++) {
            LogFile file = files.get(index);
            LogFile successor = index < last ? files.get(index + 1) : null;
            if (pruning.wantsFile(file, successor)) {
                planFile(files, index, successor, pruning, splitSize, begin, sure, splits);
            }
        }
        return splits;
    }

    private static void planFile(
            List<LogFile> files, int index, LogFile successor, Pruning pruning, long splitSize, long begin, long known,
            List<Split> splits)
            throws IOException {
        LogFile file = files.get(index);
        long start = Math.max(begin - file.physicalOffset(), 0);
        List<Long> cuts = new ArrayList<>();
        Split lost = null;
        if (successor == null) {
            boolean isProven = known > 0 && file.physicalOffset() <= known && known < file.end();
            long sure = isProven ? known - file.physicalOffset() : start;
            addEven(cuts, start, sure, splitSize);
            try (FileBytes bytes = file.open()) {
                new LogEnd(file, bytes).addCuts(cuts, sure, splitSize, isProven);
            }
        } else {
            Gap gap = recordsEnd(files, index, start);
            lost = gap.lostFrom == Marks.NONE ? null : lostSplit(files, index, gap.lostFrom, pruning);
            addEven(cuts, start, gap.end, splitSize);
            cuts.add(gap.end);
        }
        long end = cuts.get(cuts.size() - 1);
        Pruning.Range range = pruning.narrow(file, cuts.get(0), end);
        long from = range.begin();
        for (long cut : cuts) {
            if (cut > range.begin() && cut < range.end()) {
                splits.add(Split.scan(file, from, cut, end));
                from = cut;
            }
        }
        if (from < range.end()) {
            splits.add(Split.scan(file, from, range.end(), end));
        }
        if (lost != null) {
            splits.add(lost);
        }
    }

    private static void addEven(List<Long> cuts, long begin, long end, long size) {
        for (long cut = begin; cut < end; cut += size) {
            cuts.add(cut);
        }
    }

    /** Returns the split for the bytes lost between a position of a file and the next file, null if they are not wanted. */
    static Split lostSplit(List<LogFile> files, int index, long position, Pruning pruning) {
        LogFile file = files.get(index);
        long successor = files.get(index + 1).physicalOffset();
        long extent = successor - file.physicalOffset();
        long size = Math.min(extent, files.stream().mapToLong(LogFile::size).max().orElse(0));
        Pruning.Range wanted = pruning.wanted(file);
        long begin = Math.max(position, wanted.begin());
        long stop = Math.min(extent, wanted.end());
        String why = "records up to physical offset " + successor + " are lost: the file has " + file.size() + " of "
                + size + " bytes, and the next file begins there";
        return begin < stop ? new Split(file, begin, stop, stop, null, null, false, why) : null;
    }

    /** Returns the end of the records in a full file: the position of its BLANK, or the file's size if that is damaged. */
    static long fullEnd(LogFile file, long begin) throws IOException {
        try (FileBytes bytes = file.open()) {
            Chain tail = file.size() - begin > FULL_FILE_TAIL
                    ? Chain.first(file, bytes, file.size() - FULL_FILE_TAIL, file.size()) : null;
            if (tail != null && tail.run().ending == Chain.Ending.BLANK) {
                return tail.position;
            }
            for (Chain chain = new Chain(file, bytes, begin, file.size()); chain != null; chain = chain.next()) {
                if (chain.run().ending == Chain.Ending.BLANK) {
                    return chain.position;
                }
            }
            return file.size();
        }
    }

    /** End of the records of a file, and begin of the bytes that it has lost, or NONE. */
    record Gap(long end, long lostFrom) {}

    /** Returns where the records of a file that is not the log's last one end. */
    static Gap recordsEnd(List<LogFile> files, int index, long begin) throws IOException {
        LogFile file = files.get(index);
        long successor = files.get(index + 1).physicalOffset();
        return file.end() == successor
                ? new Gap(fullEnd(file, begin), Marks.NONE)
                : endBeforeGap(file, begin, successor - file.physicalOffset());
    }

    /** Returns the gap behind a file whose successor begins at {@code extent}. */
    private static Gap endBeforeGap(LogFile file, long begin, long extent) throws IOException {
        try (FileBytes bytes = file.open()) {
            // Walk from the beginning only if no record begins in the file's tail.
            Chain chain = Chain.first(file, bytes, Math.max(begin, file.size() - FULL_FILE_TAIL), file.size());
            chain = chain == null ? new Chain(file, bytes, begin, file.size()) : chain;
            long end = begin;
            for (; chain != null; chain = chain.next()) {
                end = chain.run().position;
                if (chain.ending == Chain.Ending.BLANK) {
                    return new Gap(end, file.size());
                }
            }
            // If the file was cut within its BLANK, no record is lost.
            boolean isFull = Marks.isBlank(bytes.bytes(end, Layout.BLANK_SIZE), extent - end);
            return new Gap(end, isFull ? extent : end);
        }
    }
}
