package pocketmq.spark.files;

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

    /** Opens the file. Throws MissingFileException. */
    public FileBytes open() throws java.io.IOException {
        return files.openPlanned(path);
    }
}
