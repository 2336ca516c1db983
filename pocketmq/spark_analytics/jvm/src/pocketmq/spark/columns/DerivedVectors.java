package pocketmq.spark.columns;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** Columns that exist only when they are requested by name: values derived from topic and properties. */
final class DerivedVectors {
    private static final byte[] SCHEDULE_TOPIC = bytes("SCHEDULE_TOPIC_XXXX");
    private static final byte[] TIMER_TOPIC = bytes("rmq_sys_wheel_timer");
    private static final byte[] HALF_TOPIC = bytes("RMQ_SYS_TRANS_HALF_TOPIC");
    private static final long NUMBER_MAX = NumberVectors.TIMESTAMP_MS_MAX / 2;
    private static final long NUMBER_MIN = -NUMBER_MAX - 1;
    private static final int DIGITS_MAX = 18;
    private static final long TIMER_PRECISION_MS = 1000;

    private DerivedVectors() {}

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    private static boolean isOf(byte[] topic, Rows rows, int row) {
        return Arrays.equals(rows.data, rows.topics[row], rows.topicEnds[row], topic, 0, topic.length);
    }

    private static boolean isWaiting(Rows rows, int row) {
        return isOf(SCHEDULE_TOPIC, rows, row) || isOf(TIMER_TOPIC, rows, row) || isOf(HALF_TOPIC, rows, row);
    }

    /** The integer value of one property, clipped to the range of timestamps. */
    private static final class NumberCursor {
        private final Rows rows;
        private final TextVectors.PropertyCursor cursor;
        /** The number that the last successful {@link #read} found. */
        long value;

        NumberCursor(Rows rows, String name) {
            this.rows = rows;
            this.cursor = new TextVectors.PropertyCursor(rows, name);
        }

        boolean isThere(int row) {
            return cursor.span(row) >= 0;
        }

        /** Returns whether the property is an integer of up to 18 digits, and sets {@link #value}. */
        boolean read(int row) {
            long span = cursor.span(row);
            if (span < 0) {
                return false;
            }
            int begin = (int) (span >> 32);
            int end = (int) span;
            boolean isNegative = rows.data[begin] == '-';
            int at = isNegative ? begin + 1 : begin;
            if (at == end || end - at > DIGITS_MAX) {
                return false;
            }
            long number = 0;
            for (; at < end; at++) {
                int digit = rows.data[at] - '0';
                if (digit < 0 || digit > 9) {
                    return false;
                }
                number = 10 * number + digit;
            }
            value = Math.max(Math.min(isNegative ? -number : number, NUMBER_MAX), NUMBER_MIN);
            return true;
        }

        boolean readInt(int row) {
            return read(row) && value == (int) value;
        }
    }

    /** The id shown by clients: the unique key, else the offset message id. */
    static final class MsgId extends TextVectors.Text {
        private final TextVectors.PropertyCursor uniqKey;

        MsgId(Rows rows) {
            super(rows);
            this.uniqKey = new TextVectors.PropertyCursor(rows, Columns.UNIQ_KEY);
        }

        @Override
        public UTF8String getUTF8String(int row) {
            UTF8String key = uniqKey.text(row);
            return key == null ? Hosts.offsetMsgId(rows, row) : key;
        }
    }

    static final class RealTopic extends TextVectors.Text {
        private final TextVectors.PropertyCursor real;

        RealTopic(Rows rows) {
            super(rows);
            this.real = new TextVectors.PropertyCursor(rows, "REAL_TOPIC");
        }

        @Override
        public UTF8String getUTF8String(int row) {
            UTF8String topic = isWaiting(rows, row) ? real.text(row) : null;
            return topic == null ? Utf8.text(rows.data, rows.topics[row], rows.topicEnds[row]) : topic;
        }
    }

    static final class RealQueueId extends RecordVector {
        private final Rows rows;
        private final NumberCursor real;

        RealQueueId(Rows rows) {
            super(DataTypes.IntegerType);
            this.rows = rows;
            this.real = new NumberCursor(rows, "REAL_QID");
        }

        @Override
        public int getInt(int row) {
            return isWaiting(rows, row) && real.readInt(row) ? (int) real.value : rows.queueId(row);
        }
    }

    static final class DelayLevel extends NullableVector {
        private final NumberCursor level;

        DelayLevel(Rows rows) {
            super(DataTypes.IntegerType, rows);
            this.level = new NumberCursor(rows, "DELAY");
        }

        @Override
        public boolean isNullAt(int row) {
            return !level.readInt(row);
        }

        @Override
        public int getInt(int row) {
            return level.readInt(row) ? (int) level.value : 0;
        }
    }

    /** Due time of a waiting message (level or timer), null for all others. */
    static final class DeliverTime extends NullableVector {
        /** A property of the sender that asks for a delay or a time, and the ms of its unit; 0 for a time. */
        private record Asked(NumberCursor number, long unitMs) {}

        private final Rows rows;
        private final long[] delaysMs;
        private final NumberCursor level;
        // Properties of a timer-topic record that determine its deliver time, in order of precedence: PocketMQ's own; the
        // sender's first (a delay counts only until Apache's broker stores the record again on its way); else the time
        // computed by the broker, which Apache's rounds down to the last whole second before it.
        private final NumberCursor due;
        private final NumberCursor rolled;
        private final List<Asked> asked;
        private final NumberCursor out;
        private long dueMs;

        DeliverTime(Rows rows, long[] delaysMs) {
            super(DataTypes.TimestampType, rows);
            this.rows = rows;
            this.delaysMs = delaysMs;
            this.level = new NumberCursor(rows, "DELAY");
            this.due = new NumberCursor(rows, "PMQ_DUE_MS");
            this.rolled = new NumberCursor(rows, "TIMER_ROLL_TIMES");
            this.asked = List.of(
                    new Asked(new NumberCursor(rows, "TIMER_DELAY_SEC"), 1000),
                    new Asked(new NumberCursor(rows, "TIMER_DELAY_MS"), 1),
                    new Asked(new NumberCursor(rows, "TIMER_DELIVER_MS"), 0),
                    new Asked(new NumberCursor(rows, "__STARTDELIVERTIME"), 0));
            this.out = new NumberCursor(rows, "TIMER_OUT_MS");
        }

        @Override
        public boolean isNullAt(int row) {
            return !isKnown(row);
        }

        @Override
        public long getLong(int row) {
            return isKnown(row) ? NumberVectors.microseconds(dueMs) : 0;
        }

        private boolean isKnown(int row) {
            if (isOf(SCHEDULE_TOPIC, rows, row)) {
                if (!level.read(row) || level.value <= 0) {
                    return false;
                }
                dueMs = storedMs(row) + delaysMs[(int) Math.min(level.value, delaysMs.length) - 1];
                return true;
            }
            return isOf(TIMER_TOPIC, rows, row) && isTimerKnown(row);
        }

        private boolean isTimerKnown(int row) {
            if (due.read(row)) {
                dueMs = due.value;
                return true;
            }
            for (Asked property : asked) {
                if (property.number.isThere(row)) {
                    if (property.number.read(row) && !(property.unitMs > 0 && rolled.isThere(row))) {
                        dueMs = askedMs(property, row);
                        return true;
                    }
                    break;
                }
            }
            if (out.read(row)) {
                dueMs = out.value + TIMER_PRECISION_MS;
                return true;
            }
            return false;
        }

        private long askedMs(Asked property, int row) {
            long number = property.number.value;
            if (property.unitMs == 0) {
                return number;
            }
            return storedMs(row) + Math.min(number, NumberVectors.TIMESTAMP_MS_MAX / 2000) * property.unitMs;
        }

        private long storedMs(int row) {
            long ms = Math.max(rows.storeTimestampMs(row), -NumberVectors.TIMESTAMP_MS_MAX);
            return Math.min(ms, NUMBER_MAX);
        }
    }
}
