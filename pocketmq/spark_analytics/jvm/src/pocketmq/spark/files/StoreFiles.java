package pocketmq.spark.files;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.Serializable;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/** The file-system operations that reading a store needs. Paths are absolute, or URLs. */
public interface StoreFiles extends Serializable {
    Pattern URL = Pattern.compile("[A-Za-z][A-Za-z0-9+.-]+://.*", Pattern.DOTALL);

    boolean isFile(String path) throws IOException;

    boolean isFolder(String path) throws IOException;

    long size(String path) throws IOException;

    /** Returns the names in a folder. */
    List<String> names(String folder) throws IOException;

    /** Returns the paths that match a pattern, sorted. */
    List<String> glob(String pattern) throws IOException;

    /** Opens a file for reading. Throws FileNotFoundException. */
    FileBytes open(String path) throws IOException;

    /** Returns whether reads of this file system are network requests. */
    boolean isRemote();

    /** Opens a file that existed when the query was planned. Throws MissingFileException. */
    default FileBytes openPlanned(String path) throws IOException {
        try {
            return open(path);
        } catch (FileNotFoundException | java.nio.file.NoSuchFileException error) {
            throw new MissingFileException(path);
        }
    }

    /** Returns the file system of a path or URL; {@code settings} are Hadoop's, for URLs. */
    static StoreFiles of(String path, Map<String, String> settings) {
        return URL.matcher(path).matches() ? new HadoopFiles(settings) : LocalFiles.INSTANCE;
    }

    /** Returns a path without {@code file:} and with {@code ~} expanded; other URLs are returned unchanged. */
    static String localPath(String path) {
        String plain = path.replaceFirst("^file:(//(localhost)?)?(?=/)", "");
        if (plain.equals("~") || plain.startsWith("~/")) {
            return System.getProperty("user.home") + plain.substring(1);
        }
        return plain;
    }

    /** Returns the part of a path before its last slash. */
    static String parent(String path) {
        int slash = path.lastIndexOf('/');
        return slash < 0 ? "" : slash == 0 ? "/" : path.substring(0, slash);
    }

    /** Returns the part of a path behind its last slash. */
    static String name(String path) {
        return path.substring(path.lastIndexOf('/') + 1);
    }

    /** Joins a folder and names within it. */
    static String join(String folder, String... names) {
        return (folder.isEmpty() || folder.endsWith("/") ? folder : folder + "/") + String.join("/", names);
    }
}
