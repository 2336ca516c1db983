package pocketmq.spark.reading;

import pocketmq.spark.files.LogFile;

/**
 * Bytes [begin, stop) of a file that are not valid records, although the log continues behind them.
 *
 * @param why reason why they are invalid; if they are missing from the file, {@code stop} may be behind its last byte
 */
public record DamagedBytes(LogFile file, long begin, long stop, String why) {
    /** The damage of a record at {@code begin} whose size is known. */
    static DamagedBytes inside(LogFile file, long begin, long stop) {
        return new DamagedBytes(file, begin, stop, "its lengths do not add up");
    }

    public long physicalOffset() {
        return file.physicalOffset() + begin;
    }
}
