package pocketmq.spark.columns;

import com.google.common.net.InetAddresses;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.function.IntFunction;
import org.apache.spark.unsafe.types.UTF8String;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.Layout;

/** Address and port of a host of each record; neighbours mostly have the same, so the last text is kept. */
final class Hosts implements IntFunction<UTF8String> {
    private static final HexFormat HEX = HexFormat.of().withUpperCase();

    private final Rows rows;
    private final boolean isStoreHost;
    private byte[] last = new byte[0];
    private UTF8String text = UTF8String.EMPTY_UTF8;

    Hosts(Rows rows, boolean isStoreHost) {
        this.rows = rows;
        this.isStoreHost = isStoreHost;
    }

    @Override
    public UTF8String apply(int row) {
        int at = isStoreHost ? rows.storeHostAt(row) : rows.starts[row] + Layout.BORN_HOST_POSITION;
        int end = at + size(rows, row, isStoreHost ? Layout.STOREHOSTADDRESS_V6_FLAG : Layout.BORNHOST_V6_FLAG);
        if (!Arrays.equals(rows.data, at, end, last, 0, last.length)) {
            last = Arrays.copyOfRange(rows.data, at, end);
            text = UTF8String.fromString(text(last));
        }
        return text;
    }

    /** {@code v6Flag}: the flag in sysFlag of the host in question. */
    private static int size(Rows rows, int row, int v6Flag) {
        return (rows.sysFlag(row) & v6Flag) != 0 ? Layout.HOST_V6_SIZE : Layout.HOST_SIZE;
    }

    /** Returns {@code ip:port} of 4 or 16 bytes of address and 4 bytes of port; IPv6 addresses are in brackets. */
    private static String text(byte[] packed) {
        byte[] address = Arrays.copyOf(packed, packed.length - 4);
        int port = BigEndian.int4(packed, address.length);
        try {
            return packed.length == Layout.HOST_V6_SIZE
                    ? "[" + InetAddresses.toAddrString(Inet6Address.getByAddress(null, address, -1)) + "]:" + port
                    : InetAddress.getByAddress(address).getHostAddress() + ":" + port;
        } catch (UnknownHostException error) {
            throw new IllegalArgumentException(error); // only for other sizes
        }
    }

    /** Returns the hex of store host and physical offset, as Java's MessageDecoder.createMessageId makes it. */
    static UTF8String offsetMsgId(Rows rows, int row) {
        int host = rows.storeHostAt(row);
        int own = rows.starts[row] + Layout.PHYSICAL_OFFSET_POSITION;
        return UTF8String.fromString(HEX.formatHex(rows.data, host, host + size(rows, row, Layout.STOREHOSTADDRESS_V6_FLAG))
                + HEX.formatHex(rows.data, own, own + 8));
    }
}
