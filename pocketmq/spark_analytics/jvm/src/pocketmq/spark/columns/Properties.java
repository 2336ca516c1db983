package pocketmq.spark.columns;

import java.util.Arrays;

/**
 * The property string of a record: {@code name 0x01 value 0x02 name 0x01 value ...}.
 *
 * <p>The first 0x01 of an entry separates name and value. Entries without a name or a value do not count; if a name occurs
 * twice, the last entry counts.
 */
public final class Properties {
    public static final byte[] TAGS = {'T', 'A', 'G', 'S'};
    public static final byte[] KEYS = {'K', 'E', 'Y', 'S'};
    static final byte NAME_VALUE = 1;
    static final byte PROPERTY = 2;

    private Properties() {}

    /** Returns the begin (high 32 bits) and the end (low 32 bits) of a property's value; -1 if it is absent. */
    public static long find(byte[] data, int begin, int end, byte[] name) {
        long found = -1;
        int from = begin;
        while (from < end) {
            int divider = from + name.length;
            boolean isNamed = divider < end && data[divider] == NAME_VALUE
                    && Arrays.equals(data, from, divider, name, 0, name.length);
            int at = isNamed ? divider + 1 : from;
            while (at < end && data[at] != PROPERTY) {
                at++;
            }
            if (isNamed && at > divider + 1) {
                found = (long) (divider + 1) << 32 | at;
            }
            from = at + 1;
        }
        return found;
    }
}
