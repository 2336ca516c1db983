package pocketmq.spark.columns;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.github.luben.zstd.ZstdInputStream;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.zip.CRC32;
import java.util.zip.InflaterInputStream;
import org.apache.commons.compress.compressors.lz4.FramedLZ4CompressorInputStream;
import pocketmq.spark.files.Layout;

/**
 * Message bodies: their CRC, their decompression, and whether they are JSON.
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
    /** Deeper nested values do not count as JSON: most parsers refuse them. */
    private static final int JSON_DEPTH_MAX = 500;

    private static final JsonFactory JSON = JsonFactory.builder()
            .disable(JsonFactory.Feature.CANONICALIZE_FIELD_NAMES)
            .streamReadConstraints(StreamReadConstraints.builder().maxNestingDepth(JSON_DEPTH_MAX)
                    .maxNumberLength(Integer.MAX_VALUE).maxStringLength(Integer.MAX_VALUE).build())
            .build();

    private Bodies() {}

    public static boolean isCompressed(int sysFlag) {
        return (sysFlag & Layout.COMPRESSED_FLAG) != 0;
    }

    /** Returns the CRC of a body, as a record has it. */
    public static int crc(byte[] data, int begin, int end) {
        CRC32 crc = new CRC32();
        crc.update(data, begin, end - begin);
        return (int) crc.getValue() & Layout.CRC_MASK;
    }

    /** Returns the body of a row as it was sent, null if it cannot be decompressed. */
    public static byte[] decompressed(byte[] data, int begin, int end, int sysFlag) {
        if (begin == end) {
            return new byte[0];
        }
        InputStream stored = new ByteArrayInputStream(data, begin, end - begin);
        try (InputStream stream = opened(stored, sysFlag & COMPRESSION_MASK)) {
            byte[] plain = stream == null ? null : stream.readNBytes(SIZE_MAX + 1);
            return plain == null || plain.length > SIZE_MAX ? null : plain;
        } catch (IOException | RuntimeException error) {
            return null;
        }
    }

    private static InputStream opened(InputStream stored, int kind) throws IOException {
        return switch (kind) {
            case 0, ZLIB_FLAG -> new InflaterInputStream(stored);
            case LZ4_FLAG -> new FramedLZ4CompressorInputStream(stored); // lz4-java cannot read linked blocks
            case ZSTD_FLAG -> new ZstdInputStream(stored);
            default -> null;
        };
    }

    /** Returns whether bytes are one JSON value (RFC 8259) in UTF-8, with optional white space around it. */
    static boolean isJson(byte[] body) {
        if (Utf8.invalidAt(body, 0, body.length) < body.length) {
            return false;
        }
        String text = new String(body, StandardCharsets.UTF_8);
        boolean hasEscapes = text.contains("\\u");
        int values = 0;
        try (JsonParser parser = JSON.createParser(text)) {
            for (JsonToken token = parser.nextToken(); token != null; token = parser.nextToken()) {
                boolean isText = token == JsonToken.VALUE_STRING || token == JsonToken.FIELD_NAME;
                if (isText && hasEscapes
                        && parser.getText().codePoints().anyMatch(code -> Character.getType(code) == Character.SURROGATE)) {
                    return false;
                }
                values += parser.getParsingContext().inRoot() ? 1 : 0;
            }
        } catch (IOException error) {
            return false;
        }
        return values == 1;
    }
}
