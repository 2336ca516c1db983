package pocketmq.spark.reading;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.BinaryOperator;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.Marks;

/**
 * Stores with the same log: of the records that several of them have, each is read once.
 *
 * <p>The rules are described in spark_analytics/reading/replicas.py.
 */
public final class Replicas {
    private static final Logger LOG = LoggerFactory.getLogger(Replicas.class);
    /** Bytes of a record that are compared to recognise a log. */
    private static final int HEAD_SIZE = 4 << 10;

    private Replicas() {}

    /** Returns the splits of some logs, each with the copies of its records in earlier logs. */
    public static List<Split> withoutCopies(List<List<LogFile>> logs, List<List<Split>> planned) throws IOException {
        List<Map<Long, Split.Copy>> copies = planned.stream().map(Replicas::copiesOf).toList();
        List<Split> marked = new ArrayList<>();
        for (int index = 0; index < logs.size(); index++) {
            List<Map<Long, Split.Copy>> own = new ArrayList<>();
            for (int earlier = 0; earlier < index; earlier++) {
                if (!copies.get(earlier).isEmpty() && haveSameLog(logs.get(index), logs.get(earlier))) {
                    own.add(copies.get(earlier));
                }
            }
            marked.addAll(withCopies(planned.get(index), own));
        }
        return marked;
    }

    private static Map<Long, Split.Copy> copiesOf(List<Split> splits) {
        return splits.stream().filter(split -> split.lost().isEmpty()).collect(Collectors.toMap(
                split -> split.file().physicalOffset(), split -> new Split.Copy(split.file(), split.end()),
                BinaryOperator.maxBy(Comparator.comparingLong(Split.Copy::stop))));
    }

    /** Returns splits with the copies of their files in other logs. */
    public static List<Split> withCopies(List<Split> splits, List<Map<Long, Split.Copy>> others) {
        return splits.stream().map(split -> {
            long physicalOffset = split.file().physicalOffset();
            return !split.lost().isEmpty() ? split
                    : split.with(others.stream().map(own -> own.get(physicalOffset)).filter(Objects::nonNull).toList());
        }).toList();
    }

    /** Returns a log's files with records between two physical offsets, as far as its records before a limit go. */
    public static Map<Long, Split.Copy> copiesBetween(List<LogFile> files, long begin, long end, long limit)
            throws IOException {
        Map<Long, Split.Copy> copies = new HashMap<>();
        for (LogFile file : files) {
            if (file.end() > begin && file.physicalOffset() < Math.min(end, limit)) {
                long stop = limit < file.end() ? limit - file.physicalOffset() : SplitPlanning.fullEnd(file, 0);
                copies.put(file.physicalOffset(), new Split.Copy(file, stop));
            }
        }
        return copies;
    }

    /** Returns whether two logs begin with the same record: in the first or the last file that both have. */
    public static boolean haveSameLog(List<LogFile> files, List<LogFile> others) throws IOException {
        Map<Long, LogFile> byOffset = new HashMap<>();
        others.forEach(file -> byOffset.put(file.physicalOffset(), file));
        List<LogFile> both = files.stream().filter(file -> byOffset.containsKey(file.physicalOffset())).toList();
        for (LogFile file : both.isEmpty() ? both : List.of(both.get(0), both.get(both.size() - 1))) {
            byte[] head = head(file);
            if (head.length > 0 && Arrays.equals(head, head(byOffset.get(file.physicalOffset())))) {
                LOG.info("{} and {} have the same log: each record is read once", file.folder(), others.get(0).folder());
                return true;
            }
        }
        return false;
    }

    /** Returns the first bytes of a file's first record; none if the file does not begin with a record. */
    private static byte[] head(LogFile file) throws IOException {
        byte[] data = file.read(0, HEAD_SIZE);
        if (data.length < Marks.SIZE || !Marks.isRecord(data, 0, file.physicalOffset())) {
            return new byte[0];
        }
        return Arrays.copyOf(data, Math.max(Math.min(data.length, BigEndian.int4(data, 0)), 0));
    }
}
