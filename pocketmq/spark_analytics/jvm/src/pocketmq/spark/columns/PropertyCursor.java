package pocketmq.spark.columns;

import java.nio.charset.StandardCharsets;
import org.apache.spark.unsafe.types.UTF8String;

/** The value of one property; its span in the current row is remembered. */
final class PropertyCursor {
    private static final long NUMBER_MAX = Rows.TIMESTAMP_MS_MAX / 2;
    private static final int DIGITS_MAX = 18;

    private final Rows rows;
    private final byte[] name;
    private int row = -1;
    private int version = -1;
    private long span;

    PropertyCursor(Rows rows, String name) {
        this.rows = rows;
        this.name = name.getBytes(StandardCharsets.UTF_8);
    }

    private long span(int asked) {
        if (asked != row || rows.version() != version) {
            span = Properties.find(rows.data, rows.propertiesAt(asked), rows.ends[asked], name);
            row = asked;
            version = rows.version();
        }
        return span;
    }

    boolean isThere(int row) {
        return span(row) >= 0;
    }

    /** Returns the value, null if it is absent. */
    UTF8String text(int row) {
        long found = span(row);
        return found < 0 ? null : Utf8.text(rows.data, (int) (found >> 32), (int) found);
    }

    /** Returns a value that is an integer of up to 18 digits, clipped to the range of timestamps; NULL for others. */
    long number(int row) {
        long found = span(row);
        if (found < 0) {
            return ComputedVector.NULL;
        }
        int at = (int) (found >> 32);
        int end = (int) found;
        boolean isNegative = rows.data[at] == '-';
        at += isNegative ? 1 : 0;
        if (at == end || end - at > DIGITS_MAX) {
            return ComputedVector.NULL;
        }
        long number = 0;
        for (; at < end; at++) {
            int digit = rows.data[at] - '0';
            if (digit < 0 || digit > 9) {
                return ComputedVector.NULL;
            }
            number = 10 * number + digit;
        }
        return Math.max(Math.min(isNegative ? -number : number, NUMBER_MAX), -NUMBER_MAX - 1);
    }

    /** As {@link #number}, but NULL also for numbers of more than 32 bits. */
    long int4(int row) {
        long number = number(row);
        return number == (int) number ? number : ComputedVector.NULL;
    }
}
