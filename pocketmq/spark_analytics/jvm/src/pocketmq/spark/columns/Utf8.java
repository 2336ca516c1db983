package pocketmq.spark.columns;

import java.io.ByteArrayOutputStream;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import org.apache.spark.unsafe.types.UTF8String;

/** Texts from stored bytes; each maximal invalid part of UTF-8 becomes U+FFFD. */
public final class Utf8 {
    private static final VarHandle LONG = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final long HIGH_BITS = 0x8080808080808080L;
    private static final byte[] REPLACEMENT = {(byte) 0xEF, (byte) 0xBF, (byte) 0xBD};

    private Utf8() {}

    /** Returns data[begin..end) as text; valid UTF-8 is not copied. */
    public static UTF8String text(byte[] data, int begin, int end) {
        if (isAscii(data, begin, end) || invalidAt(data, begin, end) == end) {
            return UTF8String.fromBytes(data, begin, end - begin);
        }
        return UTF8String.fromBytes(repaired(data, begin, end));
    }

    public static boolean isAscii(byte[] data, int begin, int end) {
        int at = begin;
        for (; at <= end - 8; at += 8) {
            if (((long) LONG.get(data, at) & HIGH_BITS) != 0) {
                return false;
            }
        }
        int bits = 0;
        for (; at < end; at++) {
            bits |= data[at];
        }
        return bits >= 0;
    }

    /** Returns the position of the first invalid byte, {@code end} if all are valid. */
    static int invalidAt(byte[] data, int begin, int end) {
        int at = begin;
        while (at < end) {
            int size = sequence(data, at, end);
            if (size <= 0) {
                return at;
            }
            at += size;
        }
        return end;
    }

    private static byte[] repaired(byte[] data, int begin, int end) {
        ByteArrayOutputStream out = new ByteArrayOutputStream(end - begin + 16);
        int at = begin;
        while (at < end) {
            int size = sequence(data, at, end);
            if (size > 0) {
                out.write(data, at, size);
                at += size;
            } else {
                out.write(REPLACEMENT, 0, REPLACEMENT.length);
                at -= size;
            }
        }
        return out.toByteArray();
    }

    /** Returns the size of the valid sequence at a position, or the negative size of the invalid part there. */
    private static int sequence(byte[] data, int at, int end) {
        int first = data[at] & 0xff;
        if (first < 0x80) {
            return 1;
        }
        int size = first >= 0xC2 && first <= 0xDF ? 2 : first >= 0xE0 && first <= 0xEF ? 3
                : first >= 0xF0 && first <= 0xF4 ? 4 : 0;
        if (size == 0) {
            return -1;
        }
        for (int number = 1; number < size; number++) {
            if (at + number >= end || !isContinuation(first, number, data[at + number] & 0xff)) {
                return -number;
            }
        }
        return size;
    }

    /** Returns whether a byte may be at place {@code number} behind {@code first} (Unicode, table 3-7). */
    private static boolean isContinuation(int first, int number, int code) {
        int low = number > 1 ? 0x80 : first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
        int high = number > 1 ? 0xBF : first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
        return code >= low && code <= high;
    }
}
