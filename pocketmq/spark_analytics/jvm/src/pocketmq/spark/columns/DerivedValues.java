package pocketmq.spark.columns;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.function.IntFunction;
import java.util.function.IntToLongFunction;
import org.apache.spark.unsafe.types.UTF8String;

/** Values of columns that exist only when they are requested by name, derived from topic and properties. */
final class DerivedValues {
    private static final byte[] SCHEDULE_TOPIC = bytes("SCHEDULE_TOPIC_XXXX");
    private static final byte[] TIMER_TOPIC = bytes("rmq_sys_wheel_timer");
    private static final byte[] HALF_TOPIC = bytes("RMQ_SYS_TRANS_HALF_TOPIC");
    private static final long TIMER_PRECISION_MS = 1000;

    private DerivedValues() {}

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    private static boolean isOf(byte[] topic, Rows rows, int row) {
        return Arrays.equals(rows.data, rows.topics[row], rows.topicEnds[row], topic, 0, topic.length);
    }

    private static boolean isWaiting(Rows rows, int row) {
        return isOf(SCHEDULE_TOPIC, rows, row) || isOf(TIMER_TOPIC, rows, row) || isOf(HALF_TOPIC, rows, row);
    }

    /** The id shown by clients: the unique key, else the offset message id. */
    static IntFunction<UTF8String> msgId(Rows rows) {
        PropertyCursor uniqKey = new PropertyCursor(rows, Columns.UNIQ_KEY);
        return row -> uniqKey.isThere(row) ? uniqKey.text(row) : Hosts.offsetMsgId(rows, row);
    }

    static IntFunction<UTF8String> realTopic(Rows rows) {
        PropertyCursor real = new PropertyCursor(rows, "REAL_TOPIC");
        return row -> isWaiting(rows, row) && real.isThere(row) ? real.text(row) : rows.topic(row);
    }

    static IntToLongFunction realQueueId(Rows rows) {
        PropertyCursor real = new PropertyCursor(rows, "REAL_QID");
        return row -> {
            long queueId = isWaiting(rows, row) ? real.int4(row) : ComputedVector.NULL;
            return queueId == ComputedVector.NULL ? rows.queueId(row) : queueId;
        };
    }

    /** Due time of a waiting message (level or timer) in microseconds, NULL for all others. */
    static IntToLongFunction deliverTime(Rows rows, long[] delaysMs) {
        IntToLongFunction scheduledMs = scheduledMs(rows, delaysMs);
        IntToLongFunction timerMs = timerMs(rows);
        return row -> {
            long dueMs = isOf(SCHEDULE_TOPIC, rows, row) ? scheduledMs.applyAsLong(row)
                    : isOf(TIMER_TOPIC, rows, row) ? timerMs.applyAsLong(row) : ComputedVector.NULL;
            return dueMs == ComputedVector.NULL ? dueMs : Rows.microseconds(dueMs);
        };
    }

    private static IntToLongFunction scheduledMs(Rows rows, long[] delaysMs) {
        PropertyCursor level = new PropertyCursor(rows, "DELAY");
        return row -> {
            long number = level.number(row);
            return number <= 0 ? ComputedVector.NULL
                    : storedMs(rows, row) + delaysMs[(int) Math.min(number, delaysMs.length) - 1];
        };
    }

    /** A property of the sender that asks for a delay or a time, and the ms of its unit; 0 for a time. */
    private record Asked(PropertyCursor number, long unitMs) {}

    /**
     * Properties of a timer-topic record that tell its deliver time, in order of precedence: PocketMQ's own; the sender's
     * first (a delay counts only until Apache's broker stores the record again on its way); else the time computed by the
     * broker, which Apache's rounds down to the last whole second before it.
     */
    private static IntToLongFunction timerMs(Rows rows) {
        PropertyCursor due = new PropertyCursor(rows, "PMQ_DUE_MS");
        PropertyCursor rolled = new PropertyCursor(rows, "TIMER_ROLL_TIMES");
        List<Asked> asked = List.of(
                new Asked(new PropertyCursor(rows, "TIMER_DELAY_SEC"), 1000),
                new Asked(new PropertyCursor(rows, "TIMER_DELAY_MS"), 1),
                new Asked(new PropertyCursor(rows, "TIMER_DELIVER_MS"), 0),
                new Asked(new PropertyCursor(rows, "__STARTDELIVERTIME"), 0));
        PropertyCursor out = new PropertyCursor(rows, "TIMER_OUT_MS");
        return row -> {
            long own = due.number(row);
            if (own != ComputedVector.NULL) {
                return own;
            }
            for (Asked property : asked) {
                if (property.number.isThere(row)) {
                    long number = property.number.number(row);
                    if (number != ComputedVector.NULL && !(property.unitMs > 0 && rolled.isThere(row))) {
                        return property.unitMs == 0 ? number
                                : storedMs(rows, row) + Math.min(number, Rows.TIMESTAMP_MS_MAX / 2000) * property.unitMs;
                    }
                    break;
                }
            }
            long outMs = out.number(row);
            return outMs == ComputedVector.NULL ? outMs : outMs + TIMER_PRECISION_MS;
        };
    }

    private static long storedMs(Rows rows, int row) {
        long ms = Math.max(rows.storeTimestampMs(row), -Rows.TIMESTAMP_MS_MAX);
        return Math.min(ms, Rows.TIMESTAMP_MS_MAX / 2);
    }
}
