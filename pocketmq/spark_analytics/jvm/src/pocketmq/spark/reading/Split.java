package pocketmq.spark.reading;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;
import pocketmq.spark.files.LogFile;

/**
 * The share of one task in a log file: the records that begin in [begin, stop); positions count from the file's first byte.
 *
 * @param end the end of the log in this file as far as known: up to there records follow each other without a gap
 * @param starts ascending positions: if given, only the records there belong to the split
 * @param sizes of the records at {@code starts}
 * @param isExact whether a record should begin at {@code begin}: other bytes there are damage that belongs to this split
 *     rather than to the one before
 * @param lost if not empty, the records of the split no longer exist, and this says why
 * @param brokerName empty if it is not asked for
 * @param copies records that one of them has, too, are left out ({@link Replicas})
 */
public record Split(
        LogFile file, long begin, long stop, long end, long[] starts, int[] sizes, boolean isExact, String lost,
        String brokerName, List<Copy> copies)
        implements InputPartition {
    /** The same part of another store's log; its records that begin before {@code stop} are read from there. */
    public record Copy(LogFile file, long stop) implements Serializable {}

    /** A split without a file. */
    public static final Split NOTHING = new Split(null, 0, 0, 0, null, null, false, "");

    private static final long serialVersionUID = 1;

    Split(LogFile file, long begin, long stop, long end, long[] starts, int[] sizes, boolean isExact, String lost) {
        this(file, begin, stop, end, starts, sizes, isExact, lost, "", List.of());
    }

    /** Returns a split that follows the chain of records. */
    public static Split scan(LogFile file, long begin, long stop, long end) {
        return new Split(file, begin, stop, end, null, null, false, "");
    }

    /** Returns the same split, at whose beginning a record should begin. */
    Split exact() {
        return new Split(file, begin, stop, end, starts, sizes, true, lost, brokerName, copies);
    }

    /** Returns the same split of a named broker. */
    Split named(String name) {
        return new Split(file, begin, stop, end, starts, sizes, isExact, lost, name, copies);
    }

    /** Returns the same split with copies of its records. */
    Split with(List<Copy> others) {
        return new Split(file, begin, stop, end, starts, sizes, isExact, lost, brokerName, others);
    }
}
