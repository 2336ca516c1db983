package pocketmq.spark.reading;

import java.nio.ByteBuffer;
import pocketmq.spark.columns.Bodies;
import pocketmq.spark.columns.Rows;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.Layout;

/**
 * The messages of a batch that 5.x stores as one record, in topics with {@code queue.type=BatchCQ}.
 *
 * <p>Each is read from a record of its own, made of the batch's fixed part and topic and the message's flag, body and
 * properties, as Apache's client unpacks them. Its storeSize is the number of bytes within the batch.
 */
final class InnerBatch {
    private static final int FLAGS = Layout.INNER_BATCH_FLAG | Layout.NEED_UNWRAP_FLAG;
    /** Total size, magic code, body CRC, flag and body size; with the size of the properties. */
    private static final int BEFORE_BODY = 20;

    private static final int OVERHEAD = BEFORE_BODY + 2;

    private final byte[] data;
    private final int[] starts;
    private int next;

    private InnerBatch(byte[] data, int[] starts) {
        this.data = data;
        this.starts = starts;
    }

    /** Whether the record that {@code rows} looked at is a batch. */
    static boolean isOne(Rows rows) {
        int sysFlag = rows.sysFlag(rows.count());
        return (sysFlag & FLAGS) == FLAGS && !Bodies.isCompressed(sysFlag);
    }

    /** Returns the messages of the batch that {@code rows} looked at; null if its body is not a sequence of messages. */
    static InnerBatch of(Rows rows) {
        int row = rows.count();
        ByteBuffer body = ByteBuffer.wrap(rows.data, rows.bodies[row], rows.bodyEnds[row] - rows.bodies[row]);
        int count = count(body.duplicate());
        if (count == 0) {
            return null;
        }
        int start = rows.starts[row];
        int fixedSize = rows.bodies[row] - start;
        int topicSize = rows.topicEnds[row] - rows.bodyEnds[row];
        // The size of the properties is counted in both.
        ByteBuffer out = ByteBuffer.allocate(body.remaining() + count * (fixedSize + topicSize + 2 - OVERHEAD));
        long queueOffset = BigEndian.int8(rows.data, start + Layout.QUEUE_OFFSET_POSITION);
        int difference = BigEndian.int4(rows.data, start + Layout.BODY_CRC_POSITION)
                ^ Bodies.crc(rows.data, rows.bodies[row], rows.bodyEnds[row]);
        int[] starts = new int[count + 1];
        for (int number = 0; number < count; number++) {
            int at = body.position();
            int to = out.position();
            int size = body.getInt(at);
            int bodySize = body.getInt(at + BEFORE_BODY - 4);
            int crc = Bodies.crc(rows.data, at + BEFORE_BODY, at + BEFORE_BODY + bodySize) ^ difference; // a damaged batch has no intact messages
            out.put(rows.data, start, fixedSize).put(rows.data, at + BEFORE_BODY, bodySize);
            out.put(rows.data, rows.bodyEnds[row], topicSize);
            out.put(rows.data, at + BEFORE_BODY + bodySize, size - BEFORE_BODY - bodySize);
            out.putInt(to, size).putInt(to + Layout.BODY_CRC_POSITION, crc);
            out.putInt(to + Layout.FLAG_POSITION, body.getInt(at + BEFORE_BODY - 8));
            out.putLong(to + Layout.QUEUE_OFFSET_POSITION, queueOffset + number);
            out.putInt(to + fixedSize - 4, bodySize);
            body.position(at + size);
            starts[number + 1] = out.position();
        }
        return new InnerBatch(out.array(), starts);
    }

    /** Returns the number of messages in a body, 0 if it is not a sequence of messages. */
    private static int count(ByteBuffer body) {
        int count = 0;
        while (body.remaining() >= OVERHEAD) {
            int at = body.position();
            int size = body.getInt(at);
            int bodySize = body.getInt(at + BEFORE_BODY - 4);
            if (size < OVERHEAD || size > body.remaining() || bodySize < 0 || bodySize > size - OVERHEAD
                    || (body.getShort(at + BEFORE_BODY + bodySize) & 0xFFFF) != size - OVERHEAD - bodySize) {
                return 0;
            }
            body.position(at + size);
            count++;
        }
        return body.hasRemaining() ? 0 : count;
    }

    /** Fills the rows with the next wanted messages; returns false if there are none. */
    boolean fill(Rows rows, RecordFilter filter) {
        rows.clear(data);
        while (next < starts.length - 1 && !rows.isFull()) {
            if (rows.look(starts[next], starts[next + 1] - starts[next]) && filter.wants(rows)) {
                rows.keep();
            }
            next++;
        }
        return rows.count() > 0;
    }
}
