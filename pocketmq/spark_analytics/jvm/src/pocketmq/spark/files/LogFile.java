package pocketmq.spark.files;

import java.io.IOException;
import java.io.Serializable;

/**
 * One file of a CommitLog.
 *
 * @param physicalOffset of its first byte
 * @param size in bytes
 * @param isListed found by listing a folder, all of whose files are meant, rather than named by the user
 */
public record LogFile(StoreFiles files, String path, long physicalOffset, long size, boolean isListed)
        implements Serializable {
    /** Physical offset of the first byte behind the file. */
    public long end() {
        return physicalOffset + size;
    }

    public String folder() {
        return StoreFiles.parent(path);
    }

    /** Returns the root of the file's store, or its folder, if that is not named commitlog. */
    public String store() {
        return StoreFiles.name(folder()).equals("commitlog") ? StoreFiles.parent(folder()) : folder();
    }

    /** Opens the file for several reads. Throws MissingFileException. */
    public FileBytes open() throws IOException {
        return files.openPlanned(path);
    }

    /** Reads up to {@code size} bytes from a position, fewer only at the end of the file. Throws MissingFileException. */
    public byte[] read(long position, int size) throws IOException {
        try (FileBytes bytes = open()) {
            return bytes.bytes(position, size);
        }
    }
}
