package pocketmq.spark.columns;

import java.util.Arrays;
import org.apache.spark.unsafe.types.UTF8String;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.Layout;
import pocketmq.spark.files.Marks;

/**
 * The records of one batch: the positions of their parts in {@link #data}, from which vectors decode columns on demand.
 *
 * <p>Columns that are not used are not decoded. The positions are valid until the next batch is read.
 */
public final class Rows {
    public static final int CAPACITY = 4096;
    /** Born timestamps are set by clients and may not fit into Spark's microseconds. */
    static final long TIMESTAMP_MS_MAX = Long.MAX_VALUE / 1000;
    private static final int HOST_V6_MORE = Layout.HOST_V6_SIZE - Layout.HOST_SIZE;

    public byte[] data = new byte[0];
    public final int[] starts = new int[CAPACITY];
    public final int[] bodies = new int[CAPACITY];
    public final int[] bodyEnds = new int[CAPACITY];
    public final int[] topics = new int[CAPACITY];
    public final int[] topicEnds = new int[CAPACITY];
    public final int[] ends = new int[CAPACITY];

    /** Path of the records' file. */
    public UTF8String path = UTF8String.EMPTY_UTF8;

    /** Name of their broker; empty if it is not asked for. */
    public UTF8String brokerName = UTF8String.EMPTY_UTF8;

    /** Decompressed bodies, by row, of the bodies that are stored compressed; null if bodies are not to be decompressed. */
    final byte[][] plain;

    private int plainSize;
    private int count;
    private int version;

    /** {@code isPlain}: decompress the bodies. */
    public Rows(boolean isPlain) {
        plain = isPlain ? new byte[CAPACITY][] : null;
    }

    /** Number of records. */
    public int count() {
        return count;
    }

    /** A number that changes with each batch. */
    int version() {
        return version;
    }

    /** Whether no further record can be added. */
    public boolean isFull() {
        return count == CAPACITY || plainSize >= Bodies.PORTION_SIZE;
    }

    /** Drops all records; the next ones are in {@code data}. */
    public void clear(byte[] data) {
        this.data = data;
        count = 0;
        plainSize = 0;
        version++;
    }

    /** Keeps the record that was looked at by {@link #look}. */
    public void keep() {
        if (plain != null) {
            plain[count] = null;
            int sysFlag = sysFlag(count);
            if (Bodies.isCompressed(sysFlag)) {
                byte[] body = Bodies.decompressed(data, bodies[count], bodyEnds[count], sysFlag);
                plain[count] = body;
                plainSize += body == null ? 0 : body.length;
            }
        }
        count++;
    }

    /** Returns the first row from {@code row} on whose body could not be decompressed, or -1. */
    public int damagedBody(int row) {
        for (int number = row; plain != null && number < count; number++) {
            if (isBodyDamaged(number)) {
                return number;
            }
        }
        return -1;
    }

    /** Returns whether a row's body was to be decompressed, but could not be. */
    boolean isBodyDamaged(int row) {
        return plain != null && plain[row] == null && Bodies.isCompressed(sysFlag(row));
    }

    /** Drops a row. */
    public void drop(int row) {
        count--;
        for (int[] positions : new int[][] {starts, bodies, bodyEnds, topics, topicEnds, ends}) {
            System.arraycopy(positions, row + 1, positions, row, count - row);
        }
        if (plain != null) {
            System.arraycopy(plain, row + 1, plain, row, count - row);
        }
    }

    /** Keeps only the first rows. */
    public void limit(int countMax) {
        count = Math.min(count, countMax);
    }

    /**
     * Finds the parts of a record; returns whether body, topic and properties fill it exactly.
     *
     * <p>The row is not counted before {@link #keep} is called. Each length is checked against the record's end before it is
     * used.
     */
    public boolean look(int start, int size) {
        byte[] data = this.data;
        int end = start + size;
        int body = start + fixedSize(data[start + Layout.SYS_FLAG_POSITION + 3]);
        int lengthSize = BigEndian.int4(data, start + Layout.MAGIC_CODE_POSITION) == Layout.MESSAGE_MAGIC_CODE_V2 ? 2 : 1;
        if (body + lengthSize + 2 > end) {
            return false;
        }
        int bodySize = BigEndian.int4(data, body - 4);
        if (bodySize < 0 || bodySize > end - body - lengthSize - 2) {
            return false;
        }
        int bodyEnd = body + bodySize;
        int topicSize = lengthSize == 2 ? BigEndian.uint2(data, bodyEnd) : data[bodyEnd] & 0xff;
        int topic = bodyEnd + lengthSize;
        int topicEnd = topic + topicSize;
        if (topicEnd + 2 > end || topicEnd + 2 + BigEndian.uint2(data, topicEnd) != end) {
            return false;
        }
        int row = count;
        starts[row] = start;
        bodies[row] = body;
        bodyEnds[row] = bodyEnd;
        topics[row] = topic;
        topicEnds[row] = topicEnd;
        ends[row] = end;
        return true;
    }

    /** Size of the part of a record before its body, by the last byte of its sysFlag. */
    public static int fixedSize(int flags) {
        return Layout.RECORD_FIXED_SIZE
                + ((flags & Layout.BORNHOST_V6_FLAG) != 0 ? HOST_V6_MORE : 0)
                + ((flags & Layout.STOREHOSTADDRESS_V6_FLAG) != 0 ? HOST_V6_MORE : 0);
    }

    public int sysFlag(int row) {
        return BigEndian.int4(data, starts[row] + Layout.SYS_FLAG_POSITION);
    }

    public int queueId(int row) {
        return BigEndian.int4(data, starts[row] + Layout.QUEUE_ID_POSITION);
    }

    public long physicalOffset(int row) {
        return BigEndian.int8(data, starts[row] + Layout.PHYSICAL_OFFSET_POSITION);
    }

    long bornTimestampUs(int row) {
        return microseconds(BigEndian.int8(data, starts[row] + Layout.BORN_TIMESTAMP_POSITION));
    }

    long storeTimestampMs(int row) {
        return BigEndian.int8(data, Marks.storeTimeAt(data, starts[row]));
    }

    /** Store time in microseconds, clipped to what Spark can hold. */
    public long storeTimestampUs(int row) {
        return microseconds(storeTimestampMs(row));
    }

    static long microseconds(long ms) {
        return Math.max(Math.min(ms, TIMESTAMP_MS_MAX), -TIMESTAMP_MS_MAX) * 1000;
    }

    /** Position of the store host's address, which is followed by its port. */
    int storeHostAt(int row) {
        return Marks.storeTimeAt(data, starts[row]) + 8;
    }

    /** Position of the first byte of the property string, which ends with the record. */
    public int propertiesAt(int row) {
        return topicEnds[row] + 2;
    }

    public UTF8String topic(int row) {
        return Utf8.text(data, topics[row], topicEnds[row]);
    }

    UTF8String rawProperties(int row) {
        return Utf8.text(data, propertiesAt(row), ends[row]);
    }

    // --- bodies -----------------------------------------------------------------------------------------------------

    /** Returns the body as it is stored or, if bodies are to be decompressed, as it was sent; null if it is damaged. */
    byte[] body(int row) {
        if (plain != null && plain[row] != null) {
            return plain[row];
        }
        return isBodyDamaged(row) ? null : Arrays.copyOfRange(data, bodies[row], bodyEnds[row]);
    }

    UTF8String bodyText(int row) {
        byte[] body = body(row);
        return body == null ? null : Utf8.text(body, 0, body.length);
    }

    /** Returns the body as text, null if it is not one JSON value. */
    UTF8String bodyJson(int row) {
        byte[] body = body(row);
        return body != null && Bodies.isJson(body) ? UTF8String.fromBytes(body) : null;
    }

    /** Returns the bytes of a record whose body is damaged, null for others. */
    byte[] corruptRecord(int row) {
        int size = Math.min(ends[row] - starts[row], Columns.CORRUPT_SIZE_MAX);
        return isBodyDamaged(row) ? Arrays.copyOfRange(data, starts[row], starts[row] + size) : null;
    }

    /** Returns whether the body matches its CRC. */
    public boolean isCrcRight(int row) {
        return Bodies.crc(data, bodies[row], bodyEnds[row])
                == BigEndian.int4(data, starts[row] + Layout.BODY_CRC_POSITION);
    }
}
