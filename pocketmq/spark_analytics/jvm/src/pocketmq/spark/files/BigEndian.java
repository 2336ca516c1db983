package pocketmq.spark.files;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** Big-endian numbers in byte arrays, as all files of a store have them. */
public final class BigEndian {
    private static final VarHandle INT = view(int[].class);
    private static final VarHandle LONG = view(long[].class);
    private static final VarHandle SHORT = view(short[].class);

    private BigEndian() {}

    private static VarHandle view(Class<?> type) {
        return MethodHandles.byteArrayViewVarHandle(type, ByteOrder.BIG_ENDIAN);
    }

    /** Returns the signed 32-bit number at a position. */
    public static int int4(byte[] data, int position) {
        return (int) INT.get(data, position);
    }

    /** Returns the signed 64-bit number at a position. */
    public static long int8(byte[] data, int position) {
        return (long) LONG.get(data, position);
    }

    /** Returns the unsigned 16-bit number at a position. */
    public static int uint2(byte[] data, int position) {
        return (short) SHORT.get(data, position) & 0xffff;
    }
}
