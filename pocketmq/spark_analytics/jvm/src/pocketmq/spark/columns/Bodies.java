package pocketmq.spark.columns;

import com.github.luben.zstd.ZstdInputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.zip.InflaterInputStream;
import pocketmq.spark.files.Layout;

/**
 * Decompression of message bodies.
 *
 * <p>Clients compress bodies larger than 4 KiB and set a flag in sysFlag; the broker stores them unchanged. Decompressed
 * sizes are limited, because a few bytes can expand to gigabytes.
 */
public final class Bodies {
    /** Clients limit bodies to 4 MiB before compression, unless maxMessageSize was raised. */
    static final int SIZE_MAX = 64 << 20;
    /** A batch is closed once it holds this many decompressed bytes. */
    public static final int PORTION_SIZE = 64 << 20;

    private static final int COMPRESSION_MASK = 0x700;
    private static final int LZ4_FLAG = 0x100;
    private static final int ZSTD_FLAG = 0x200;
    private static final int ZLIB_FLAG = 0x300;
    private static final int STEP = 16 << 10;

    private Bodies() {}

    public static boolean isCompressed(int sysFlag) {
        return (sysFlag & Layout.COMPRESSED_FLAG) != 0;
    }

    /** Returns the body of a row as it was sent, null if it cannot be decompressed. */
    public static byte[] decompressed(byte[] data, int begin, int end, int sysFlag) {
        if (begin == end) {
            return new byte[0];
        }
        int kind = sysFlag & COMPRESSION_MASK;
        if (kind == LZ4_FLAG) {
            return Lz4Frame.decompressed(data, begin, end, SIZE_MAX);
        }
        InputStream stored = new ByteArrayInputStream(data, begin, end - begin);
        try (InputStream stream = opened(stored, kind)) {
            return stream == null ? null : whole(stream);
        } catch (IOException | RuntimeException error) {
            return null;
        }
    }

    private static InputStream opened(InputStream stored, int kind) throws IOException {
        return switch (kind) {
            case 0, ZLIB_FLAG -> new InflaterInputStream(stored);
            case ZSTD_FLAG -> new ZstdInputStream(stored);
            default -> null;
        };
    }

    /** Returns all bytes of a stream; null if there are too many. Throws IOException if it is truncated or invalid. */
    private static byte[] whole(InputStream stream) throws IOException {
        ByteArrayOutputStream plain = new ByteArrayOutputStream();
        byte[] step = new byte[STEP];
        for (int count = stream.read(step); count >= 0; count = stream.read(step)) {
            plain.write(step, 0, count);
            if (plain.size() > SIZE_MAX) {
                return null;
            }
        }
        return plain.toByteArray();
    }
}
