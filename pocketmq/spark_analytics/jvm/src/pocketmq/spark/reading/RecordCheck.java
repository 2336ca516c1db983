package pocketmq.spark.reading;

import java.util.zip.CRC32;
import pocketmq.spark.columns.Rows;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.Layout;

/** The rules by which a broker's recovery keeps a record: lengths, CRC of the body, and no lost or torn sector. */
final class RecordCheck {
    private final CRC32 crc = new CRC32();
    private final Rows rows = new Rows(false);

    /**
     * Returns whether a record is intact; its mark was checked before.
     *
     * <p>No checksum covers topic and properties. They must not contain a lost sector or end in a zero byte, as an
     * unfinished write of a killed process does.
     *
     * @param physicalOffset that of {@code data[at]}
     */
    boolean isIntact(byte[] data, int at, int size, long physicalOffset) {
        rows.clear(data);
        if (!rows.look(at, size)) {
            return false;
        }
        int body = rows.bodies[0];
        int topic = rows.topics[0];
        int topicEnd = rows.topicEnds[0];
        crc.reset();
        crc.update(data, body, rows.bodyEnds[0] - body);
        if (((int) crc.getValue() & Layout.CRC_MASK) != BigEndian.int4(data, at + Layout.BODY_CRC_POSITION)) {
            return false;
        }
        if (topic == topicEnd || hasZero(data, topic, topicEnd)) {
            return false;
        }
        int begin = topicEnd + 2;
        int end = at + size;
        return begin == end || (data[end - 1] != 0 && hasNoLostSector(data, begin, end, physicalOffset - at));
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
            int stop = Math.min(start + more, end);
            int bits = 0;
            for (int at = start; at < stop; at++) {
                bits |= data[at];
            }
            if (bits == 0) {
                return false;
            }
            start = stop;
        }
        return true;
    }
}
