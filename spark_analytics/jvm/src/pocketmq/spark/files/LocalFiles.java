package pocketmq.spark.files;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.NotDirectoryException;
import java.nio.file.Path;
import java.nio.file.PathMatcher;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;

/** The local file system. */
public enum LocalFiles implements StoreFiles {
    INSTANCE;

    private static final String MAGIC = "*?[";

    @Override
    public boolean isFile(String path) {
        return Files.isRegularFile(Path.of(path));
    }

    @Override
    public boolean isFolder(String path) {
        return Files.isDirectory(Path.of(path));
    }

    @Override
    public long size(String path) throws IOException {
        return Files.size(Path.of(path));
    }

    @Override
    public List<String> names(String folder) throws IOException {
        List<String> names = new ArrayList<>();
        try (Stream<Path> entries = Files.list(Path.of(folder))) {
            entries.forEach(entry -> names.add(entry.getFileName().toString()));
        }
        return names;
    }

    @Override
    public List<String> glob(String pattern) throws IOException {
        List<String> found = new ArrayList<>();
        found.add(pattern.startsWith("/") ? "/" : "");
        for (String part : pattern.split("/")) {
            if (!part.isEmpty()) {
                found = below(found, part);
            }
        }
        found.sort(null);
        return found;
    }

    private List<String> below(List<String> folders, String part) throws IOException {
        boolean isPattern = part.chars().anyMatch(symbol -> MAGIC.indexOf(symbol) >= 0);
        PathMatcher matcher = isPattern ? FileSystems.getDefault().getPathMatcher("glob:" + escaped(part)) : null;
        List<String> found = new ArrayList<>();
        for (String folder : folders) {
            if (matcher == null) {
                String path = StoreFiles.join(folder, part);
                if (Files.exists(Path.of(path))) {
                    found.add(path);
                }
                continue;
            }
            for (String name : isFolder(folder.isEmpty() ? "." : folder) ? namesOrNone(folder) : List.<String>of()) {
                boolean isHidden = name.startsWith(".") && !part.startsWith(".");
                if (!isHidden && matcher.matches(Path.of(name))) {
                    found.add(StoreFiles.join(folder, name));
                }
            }
        }
        return found;
    }

    private List<String> namesOrNone(String folder) throws IOException {
        try {
            return names(folder.isEmpty() ? "." : folder);
        } catch (NotDirectoryException | java.nio.file.NoSuchFileException error) {
            return List.of();
        }
    }

    /** Escapes the braces, which mean alternatives in Java but nothing in a shell's pattern without expansion. */
    private static String escaped(String part) {
        return part.replace("\\", "\\\\").replace("{", "\\{").replace("}", "\\}");
    }

    @Override
    public FileBytes open(String path) throws IOException {
        return new LocalBytes(FileChannel.open(Path.of(path)));
    }

    @Override
    public boolean isRemote() {
        return false;
    }

    /** Reads through one small direct buffer, so that the JVM does not keep a direct copy of each large array. */
    private static final class LocalBytes implements FileBytes {
        private static final int STEP = 256 << 10;
        private static final int ZEROS_STEP = 1 << 20;
        private final FileChannel channel;
        private ByteBuffer buffer = ByteBuffer.allocateDirect(0);

        LocalBytes(FileChannel channel) {
            this.channel = channel;
        }

        @Override
        public int read(long position, byte[] target, int offset, int length) throws IOException {
            int step = Math.min(length, STEP);
            if (buffer.capacity() < step) {
                buffer = ByteBuffer.allocateDirect(step <= 4096 ? 4096 : STEP);
            }
            int done = 0;
            while (done < length) {
                buffer.clear();
                buffer.limit(Math.min(length - done, buffer.capacity()));
                int count = channel.read(buffer, position + done);
                if (count <= 0) {
                    break;
                }
                buffer.flip();
                buffer.get(target, offset + done, count);
                done += count;
            }
            return done;
        }

        @Override
        public long nextWritten(long position, long limit) throws IOException {
            ByteBuffer words = ByteBuffer.allocateDirect(ZEROS_STEP);
            for (long at = position; at < limit; at += words.limit()) {
                words.clear();
                words.limit((int) Math.min(words.capacity(), limit - at));
                int have = channel.read(words, at);
                if (have <= 0) {
                    return limit;
                }
                words.flip();
                while (words.remaining() >= 8) {
                    if (words.getLong() != 0) {
                        return at + words.position() - 8;
                    }
                }
                while (words.hasRemaining()) {
                    if (words.get() != 0) {
                        return at + words.position() - 1;
                    }
                }
            }
            return limit;
        }

        @Override
        public void close() throws IOException {
            channel.close();
        }
    }
}
