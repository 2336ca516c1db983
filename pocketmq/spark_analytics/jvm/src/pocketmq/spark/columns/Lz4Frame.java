package pocketmq.spark.columns;

import java.util.Arrays;
import net.jpountz.xxhash.XXHash32;
import net.jpountz.xxhash.XXHashFactory;

/**
 * Decoder of one LZ4 frame. The library that Spark ships reads only frames whose blocks are independent of each other, which
 * Java's clients write and others do not.
 */
final class Lz4Frame {
    private static final int MAGIC = 0x184D2204;
    private static final int BLOCK_SIZE_MIN = 64 << 10;
    private static final XXHash32 HASH = XXHashFactory.fastestJavaInstance().hash32();

    private final byte[] data;
    private final int end;
    private final int sizeMax;
    private int at;
    private byte[] plain;
    private int size;

    private Lz4Frame(byte[] data, int begin, int end, int sizeMax) {
        this.data = data;
        this.at = begin;
        this.end = end;
        this.sizeMax = sizeMax;
        this.plain = new byte[Math.min(4 * (end - begin) + 64, sizeMax + 1)];
    }

    /** Returns the content of a frame, null if that is more than {@code sizeMax} bytes or the frame is invalid. */
    static byte[] decompressed(byte[] data, int begin, int end, int sizeMax) {
        Lz4Frame frame = new Lz4Frame(data, begin, end, sizeMax);
        try {
            return frame.read() ? Arrays.copyOf(frame.plain, frame.size) : null;
        } catch (IndexOutOfBoundsException error) {
            return null; // it is truncated, or a length in it is wrong
        }
    }

    private boolean read() {
        if (number() != MAGIC) {
            return false;
        }
        int begin = at;
        int flags = data[at++];
        int blockSize = BLOCK_SIZE_MIN << 2 * ((data[at++] >> 4 & 7) - 4);
        boolean isLinked = (flags & 0x20) == 0;
        boolean hasBlockHash = (flags & 0x10) != 0;
        boolean hasSize = (flags & 0x08) != 0;
        boolean hasHash = (flags & 0x04) != 0;
        boolean isKnown = (flags & 0xC2) == 0x40 && (flags & 0x01) == 0 && blockSize >= BLOCK_SIZE_MIN;
        long sizeStated = hasSize ? (number() & 0xffffffffL) | (long) number() << 32 : -1;
        if (!isKnown || (byte) (HASH.hash(data, begin, at - begin, 0) >> 8) != data[at++]) {
            return false;
        }
        while (true) {
            int header = number();
            if (header == 0) {
                break;
            }
            int stored = header & 0x7fffffff;
            if (stored > end - at || stored > blockSize) {
                return false;
            }
            int first = at;
            int before = size;
            boolean isRight = header < 0 ? copied(stored) : decoded(first + stored, isLinked ? 0 : size);
            if (!isRight || size > sizeMax || size - before > blockSize) {
                return false;
            }
            if (hasBlockHash && number() != HASH.hash(data, first, stored, 0)) {
                return false;
            }
        }
        return (!hasHash || number() == HASH.hash(plain, 0, size, 0)) && (!hasSize || sizeStated == size);
    }

    /** Returns the next little-endian number. */
    private int number() {
        if (at > end - 4) {
            throw new IndexOutOfBoundsException(at);
        }
        at += 4;
        return data[at - 4] & 0xff | (data[at - 3] & 0xff) << 8 | (data[at - 2] & 0xff) << 16 | data[at - 1] << 24;
    }

    private boolean copied(int length) {
        if (!reserve(length)) {
            return false;
        }
        System.arraycopy(data, at, plain, size, length);
        at += length;
        size += length;
        return true;
    }

    /** Decodes a block that ends at {@code stop}; its matches begin at or behind {@code base} in the decoded bytes. */
    private boolean decoded(int stop, int base) {
        while (at < stop) {
            int token = data[at++];
            int literals = length(token >> 4 & 0xf, stop);
            if (literals > stop - at || !copied(literals)) {
                return false;
            }
            if (at == stop) {
                return true; // the last sequence has no match
            }
            if (stop - at < 2) {
                return false;
            }
            int from = size - (data[at] & 0xff | (data[at + 1] & 0xff) << 8);
            at += 2;
            int length = length(token & 0xf, stop) + 4;
            if (from < base || from == size || !reserve(length)) {
                return false;
            }
            for (int last = size + length; size < last; size++) { // byte by byte: the match may overlap itself
                plain[size] = plain[from++];
            }
        }
        return false;
    }

    private int length(int nibble, int stop) {
        long length = nibble;
        for (int more = nibble == 15 ? 255 : 0; more == 255; length += more) {
            if (at >= stop) {
                throw new IndexOutOfBoundsException(at);
            }
            more = data[at++] & 0xff;
        }
        return (int) Math.min(length, sizeMax + 1L);
    }

    private boolean reserve(int length) {
        if (length > sizeMax - size) {
            return false;
        }
        if (size + length > plain.length) {
            plain = Arrays.copyOf(plain, (int) Math.min(Math.max(2L * plain.length, size + length), sizeMax));
        }
        return true;
    }
}
