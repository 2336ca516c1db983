package pocketmq.spark.files;

import java.io.IOException;
import java.util.Arrays;

/** Recognition of the beginning of a record by its mark, and of the BLANK that fills the rest of a file. */
public final class Marks {
    /** Size of a record's mark: its first bytes, including magic code and physical offset, by which it is recognised. */
    public static final int SIZE = Layout.PHYSICAL_OFFSET_POSITION + 8;

    public static final long NONE = -1;
    private static final int SEARCHED_AT_ONCE = 1 << 20;

    private Marks() {}

    /** Returns whether a record's magic code and own offset are at {@code at}, where {@code SIZE} bytes must be readable. */
    public static boolean isRecord(byte[] data, int at, long physicalOffset) {
        int magic = BigEndian.int4(data, at + Layout.MAGIC_CODE_POSITION);
        return (magic == Layout.MESSAGE_MAGIC_CODE || magic == Layout.MESSAGE_MAGIC_CODE_V2)
                && BigEndian.int8(data, at + Layout.PHYSICAL_OFFSET_POSITION) == physicalOffset;
    }

    /** Returns whether the BLANK is at {@code at}; its size must be all the remaining room in the file. */
    public static boolean isBlank(byte[] data, int at, int have, long room) {
        return have - at >= Layout.BLANK_SIZE
                && BigEndian.int4(data, at) == room
                && BigEndian.int4(data, at + Layout.MAGIC_CODE_POSITION) == Layout.BLANK_MAGIC_CODE;
    }

    /** As {@link #isBlank(byte[], int, int, long)}, for the bytes that were read at its position. */
    public static boolean isBlank(byte[] mark, long room) {
        return isBlank(mark, 0, mark.length, room);
    }

    private static byte[] mark(LogFile file, FileBytes bytes, long position) throws IOException {
        return bytes.bytes(position, (int) Math.min(SIZE, file.size() - position));
    }

    /** Returns whether a record begins at a position of a file. */
    public static boolean hasRecord(LogFile file, FileBytes bytes, long position) throws IOException {
        byte[] mark = mark(file, bytes, position);
        return mark.length == SIZE && isRecord(mark, 0, file.physicalOffset() + position);
    }

    /** Returns whether a file begins with a record; false if the file has been deleted. */
    public static boolean beginsWithRecord(LogFile file) throws IOException {
        try (FileBytes bytes = file.open()) {
            return hasRecord(file, bytes, 0);
        } catch (MissingFileException error) {
            return false;
        }
    }

    /** Returns whether a record or the BLANK begins at a position, or the file ends there. */
    public static boolean goesOn(LogFile file, FileBytes bytes, long position) throws IOException {
        return position == file.size() || isBlank(mark(file, bytes, position), file.size() - position)
                || hasRecord(file, bytes, position);
    }

    /** Returns the first position in [begin, stop) that looks like the start of a record, or NONE. */
    public static long next(LogFile file, FileBytes bytes, long begin, long stop) throws IOException {
        byte[] data = new byte[0];
        for (long position = begin; position < stop; position += SEARCHED_AT_ONCE) {
            int size = (int) Math.min(Math.min(SEARCHED_AT_ONCE, stop - position) + SIZE, file.size() - position);
            if (size < SIZE) {
                return NONE;
            }
            data = data.length < size ? new byte[size] : data;
            int have = bytes.read(position, data, 0, size);
            long wanted = file.physicalOffset() + position;
            int last = (int) Math.min(have - SIZE, stop - position - 1);
            for (int at = 0; at <= last; at++) {
                // The first three bytes of both magic codes are the same.
                if (data[at + Layout.MAGIC_CODE_POSITION] == (byte) (Layout.MESSAGE_MAGIC_CODE >>> 24)
                        && isRecord(data, at, wanted + at)) {
                    return position + at;
                }
            }
        }
        return NONE;
    }

    /** Returns the store time (ms) of the record at a position. */
    public static long storeTimeMs(FileBytes bytes, long position) throws IOException {
        int size = Layout.STORE_TIMESTAMP_POSITION + Layout.HOST_V6_SIZE;
        byte[] data = Arrays.copyOf(bytes.bytes(position, size), size);
        return BigEndian.int8(data, storeTimeAt(data, 0));
    }

    /** Returns the place of the store time, which follows the born host, of the record at {@code at}. */
    public static int storeTimeAt(byte[] data, int at) {
        boolean isV6 = (data[at + Layout.SYS_FLAG_POSITION + 3] & Layout.BORNHOST_V6_FLAG) != 0;
        return at + Layout.STORE_TIMESTAMP_POSITION + (isV6 ? Layout.HOST_V6_SIZE - Layout.HOST_SIZE : 0);
    }
}
