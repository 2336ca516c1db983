package pocketmq.spark.files;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The paths that a user's text names. */
public final class StorePaths {
    /** Innermost braces with alternatives. */
    private static final Pattern BRACES = Pattern.compile("\\{([^{}]*,[^{}]*)\\}");

    private StorePaths() {}

    /**
     * Returns the paths in {@code text}, which are separated by commas; {@code {a,b}} stands for each of its alternatives.
     *
     * <p>A text that is the path of an existing local file or folder is that one path.
     */
    public static List<String> of(String text) {
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

    /** Returns the root of a file's store, or its folder, if that is not named commitlog. */
    public static String store(LogFile file) {
        String folder = file.folder();
        return StoreFiles.name(folder).equals("commitlog") ? StoreFiles.parent(folder) : folder;
    }
}
