package pocketmq.spark.files;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Finds the files that make up the logs named by a query. */
public final class LogFiles {
    /** The name of a file of a mapped-file queue: the offset of its first byte. */
    private static final Pattern ROW_NAME = Pattern.compile("[0-9]{20}");

    /** Files of a store whose broker has not stored a message yet: it has no folder commitlog, and its log is empty. */
    private static final Set<String> STORE_FILES = Set.of("abort", "checkpoint", "lock");

    /** Innermost braces with alternatives. */
    private static final Pattern BRACES = Pattern.compile("\\{([^{}]*,[^{}]*)\\}");

    private LogFiles() {}

    /**
     * Returns the paths in {@code text}, which are separated by commas; {@code {a,b}} stands for each of its alternatives.
     *
     * <p>A text that is the path of an existing local file or folder is that one path.
     */
    public static List<String> paths(String text) {
        String path = StoreFiles.localPath(text);
        if (!StoreFiles.URL.matcher(path).matches() && Files.exists(Path.of(path))) {
            return List.of(text);
        }
        List<String> found = new ArrayList<>();
        int depth = 0;
        int begin = 0;
        for (int at = 0; at <= text.length(); at++) {
            char symbol = at < text.length() ? text.charAt(at) : ',';
            depth += symbol == '{' ? 1 : symbol == '}' ? -1 : 0;
            if (at == text.length() || (symbol == ',' && depth <= 0)) {
                addAlternatives(text.substring(begin, at).strip(), found);
                begin = at + 1;
            }
        }
        return found;
    }

    private static void addAlternatives(String path, List<String> found) {
        Matcher braces = BRACES.matcher(path);
        if (!braces.find()) {
            found.add(path);
            return;
        }
        for (String choice : braces.group(1).split(",", -1)) {
            addAlternatives(path.substring(0, braces.start()) + choice + path.substring(braces.end()), found);
        }
    }

    /**
     * Returns the CommitLog files named by {@code paths}, sorted by folder and physical offset.
     *
     * <p>Each path is a store's root, a commitlog folder, one file, or a glob of these, as a path or a URL. Throws
     * FileNotFoundException if a path does not exist or holds no commit log.
     */
    public static List<LogFile> of(List<String> paths, Map<String, String> settings) throws IOException {
        Map<String, LogFile> found = new LinkedHashMap<>();
        for (String asked : paths) {
            String path = StoreFiles.localPath(asked);
            StoreFiles files = StoreFiles.of(path, settings);
            List<String> named = files.isFile(path) || files.isFolder(path) ? List.of(path) : files.glob(path);
            if (named.isEmpty()) {
                throw new FileNotFoundException("no store at " + path + ": no such file or folder");
            }
            for (String name : named) {
                for (LogFile file : at(files, trimmed(name))) {
                    if (file.isListed() || !found.containsKey(file.path())) {
                        found.put(file.path(), file);
                    }
                }
            }
        }
        List<LogFile> sorted = new ArrayList<>(found.values());
        sorted.sort(Comparator.comparing(LogFile::folder).thenComparingLong(LogFile::physicalOffset));
        return sorted;
    }

    /** Returns the files of a mapped-file queue (named by 20 digits) in a folder, ascending. */
    static List<LogFile> listed(StoreFiles files, String folder) throws IOException {
        List<LogFile> found = new ArrayList<>();
        for (String name : files.names(folder)) {
            if (ROW_NAME.matcher(name).matches()) {
                String path = StoreFiles.join(folder, name);
                try {
                    found.add(new LogFile(files, path, Long.parseLong(name), files.size(path), true));
                } catch (FileNotFoundException | NoSuchFileException error) {
                    continue; // deleted by retention since the listing
                }
            }
        }
        found.sort(Comparator.comparingLong(LogFile::physicalOffset));
        return found;
    }

    private static String trimmed(String path) {
        String plain = path.replaceFirst("/+$", "");
        return plain.isEmpty() ? "/" : plain;
    }

    private static List<LogFile> at(StoreFiles files, String path) throws IOException {
        if (files.isFile(path)) {
            return List.of(named(files, path));
        }
        String folder = StoreFiles.join(path, "commitlog");
        if (!files.isFolder(folder)) {
            folder = path;
        }
        List<LogFile> found = listed(files, folder);
        boolean isLog = !folder.equals(path) || StoreFiles.name(path).equals("commitlog");
        if (found.isEmpty() && !isLog && files.names(folder).stream().noneMatch(STORE_FILES::contains)) {
            throw new FileNotFoundException(
                    "no commit log in " + path + ": neither a folder `commitlog` nor files named by 20 digits");
        }
        return found;
    }

    /** Returns a file named by the user; if it does not have a broker's file name, its first record gives the offset. */
    private static LogFile named(StoreFiles files, String path) throws IOException {
        String name = StoreFiles.name(path);
        if (ROW_NAME.matcher(name).matches()) {
            return new LogFile(files, path, Long.parseLong(name), files.size(path), false);
        }
        LogFile file = new LogFile(files, path, 0, files.size(path), false);
        byte[] mark = file.read(0, Marks.SIZE);
        if (mark.length == Marks.SIZE) {
            long physicalOffset = BigEndian.int8(mark, Layout.PHYSICAL_OFFSET_POSITION);
            if (Marks.isRecord(mark, 0, physicalOffset)) {
                return new LogFile(files, path, physicalOffset, file.size(), false);
            }
        }
        throw new FileNotFoundException(path + " is not a CommitLog file: it does not begin with a record");
    }
}
