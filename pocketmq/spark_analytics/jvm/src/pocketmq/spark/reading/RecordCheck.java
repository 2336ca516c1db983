package pocketmq.spark.reading;

import java.util.Arrays;
import pocketmq.spark.columns.Rows;
import pocketmq.spark.files.FileBytes;
import pocketmq.spark.files.Layout;

/** The rules by which a broker's recovery keeps a record: lengths, CRC of the body, and no lost or torn sector. */
final class RecordCheck {
    private final Rows rows = new Rows(false);

    /**
     * Returns whether a record is intact; its mark was checked before.
     *
     * <p>No checksum covers topic and properties. They must not contain a lost sector, and not end in a zero byte that other
     * zeros follow, as an unfinished write of a killed process does.
     *
     * @param data the record, and bytes behind it
     * @param physicalOffset that of {@code data[at]}
     * @param isComplete whether zeros at the record's end are known to be its own
     */
    boolean isIntact(byte[] data, int at, int size, long physicalOffset, boolean isComplete) {
        rows.clear(data);
        if (!rows.look(at, size) || !rows.isCrcRight(0)) {
            return false;
        }
        int topic = rows.topics[0];
        int topicEnd = rows.topicEnds[0];
        if (topic == topicEnd || hasZero(data, topic, topicEnd)) {
            return false;
        }
        int begin = topicEnd + 2;
        int end = at + size;
        if (begin < end && !isComplete && data[end - 1] == 0 && end + Layout.BLANK_SIZE <= data.length
                && isZero(data, end, end + Layout.BLANK_SIZE)) {
            return false;
        }
        return hasNoLostSector(data, begin, end, physicalOffset - at);
    }

    private static boolean isZero(byte[] data, int begin, int end) {
        return Arrays.equals(data, begin, end, FileBytes.ZEROS, 0, end - begin);
    }

    private static boolean hasZero(byte[] data, int begin, int end) {
        for (int at = begin; at < end; at++) {
            if (data[at] == 0) {
                return true;
            }
        }
        return false;
    }

    /** {@code dataOffset}: physical offset of the data's first byte; a file begins with a sector. */
    private static boolean hasNoLostSector(byte[] data, int begin, int end, long dataOffset) {
        int start = begin;
        while (start < end) {
            int more = Layout.SECTOR_SIZE - (int) ((start + dataOffset) % Layout.SECTOR_SIZE);
            // Bytes behind the record are in its last sector, too.
            if (data[start] == 0 && isZero(data, start, Math.min(start + more, data.length))) {
                return false;
            }
            start = Math.min(start + more, end);
        }
        return true;
    }
}
