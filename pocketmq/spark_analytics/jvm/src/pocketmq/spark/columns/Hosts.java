package pocketmq.spark.columns;

import java.nio.charset.StandardCharsets;
import org.apache.spark.unsafe.types.UTF8String;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.Layout;

/** Packed host addresses, as text and as part of message ids. */
final class Hosts {
    static final int BORN_HOST_POSITION = Layout.BORN_HOST_POSITION;
    private static final byte[] DIGITS = "0123456789ABCDEF".getBytes(StandardCharsets.US_ASCII);

    private Hosts() {}

    static int size(boolean isV6) {
        return isV6 ? Layout.HOST_V6_SIZE : Layout.HOST_SIZE;
    }

    /** Returns {@code ip:port} of 4 or 16 bytes of address and 4 bytes of port; IPv6 addresses are in brackets. */
    static String text(byte[] packed) {
        int port = BigEndian.int4(packed, packed.length - 4);
        if (packed.length == Layout.HOST_V6_SIZE) {
            return "[" + compressed(packed) + "]:" + port;
        }
        return (packed[0] & 0xff) + "." + (packed[1] & 0xff) + "." + (packed[2] & 0xff) + "." + (packed[3] & 0xff) + ":" + port;
    }

    /** Returns an IPv6 address with its first longest run of two or more zero groups as {@code ::} (RFC 5952). */
    private static String compressed(byte[] packed) {
        int runBegin = -1;
        int runSize = 1;
        for (int begin = 0; begin < 8; begin++) {
            int size = 0;
            while (begin + size < 8 && BigEndian.uint2(packed, 2 * (begin + size)) == 0) {
                size++;
            }
            if (size > runSize) {
                runBegin = begin;
                runSize = size;
            }
        }
        StringBuilder text = new StringBuilder();
        for (int group = 0; group < 8; group++) {
            if (group == runBegin) {
                text.append("::");
                group += runSize - 1;
                continue;
            }
            if (text.length() > 0 && text.charAt(text.length() - 1) != ':') {
                text.append(':');
            }
            text.append(Integer.toHexString(BigEndian.uint2(packed, 2 * group)));
        }
        return text.toString();
    }

    /** Returns the hex of store host and physical offset, as Java's MessageDecoder.createMessageId makes it. */
    static UTF8String offsetMsgId(Rows rows, int row) {
        int host = rows.storeHostAt(row);
        int size = size(rows.isStoreHostV6(row));
        byte[] text = new byte[2 * (size + 8)];
        for (int number = 0; number < size; number++) {
            put(text, number, rows.data[host + number]);
        }
        int own = rows.starts[row] + Layout.PHYSICAL_OFFSET_POSITION;
        for (int number = 0; number < 8; number++) {
            put(text, size + number, rows.data[own + number]);
        }
        return UTF8String.fromBytes(text);
    }

    private static void put(byte[] text, int number, byte code) {
        text[2 * number] = DIGITS[code >> 4 & 0xf];
        text[2 * number + 1] = DIGITS[code & 0xf];
    }
}
