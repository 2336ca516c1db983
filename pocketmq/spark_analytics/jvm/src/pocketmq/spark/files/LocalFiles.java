package pocketmq.spark.files;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
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
        try (Stream<Path> entries = Files.list(Path.of(folder))) {
            return entries.map(entry -> entry.getFileName().toString()).toList();
        }
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
        List<String> found = new ArrayList<>();
        for (String folder : folders) {
            if (!isPattern) {
                found.addAll(Files.exists(Path.of(folder, part)) ? List.of(StoreFiles.join(folder, part)) : List.of());
            } else if (isFolder(folder.isEmpty() ? "." : folder)) {
                try (DirectoryStream<Path> entries = Files.newDirectoryStream(
                        Path.of(folder.isEmpty() ? "." : folder), escaped(part))) {
                    for (Path entry : entries) {
                        String name = entry.getFileName().toString();
                        if (part.startsWith(".") || !name.startsWith(".")) {
                            found.add(StoreFiles.join(folder, name));
                        }
                    }
                } catch (NotDirectoryException | NoSuchFileException error) {
                    continue; // deleted meanwhile
                }
            }
        }
        return found;
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

    /**
     * Reads through direct buffers, because the JVM would otherwise keep a direct copy of each large array.
     *
     * Only a garbage collection frees a direct buffer, so buffers are kept and reused: there are never more than there
     * were reads at the same time.
     */
    private record LocalBytes(FileChannel channel) implements FileBytes {
        private static final int STEP = 256 << 10;
        private static final Queue<ByteBuffer> UNUSED = new ConcurrentLinkedQueue<>();

        @Override
        public int readSome(long position, byte[] target, int offset, int length) throws IOException {
            ByteBuffer unused = UNUSED.poll();
            ByteBuffer buffer = unused == null ? ByteBuffer.allocateDirect(STEP) : unused;
            try {
                buffer.clear();
                buffer.limit(Math.min(length, STEP));
                int count = channel.read(buffer, position);
                buffer.flip();
                buffer.get(target, offset, Math.max(count, 0));
                return count;
            } finally {
                UNUSED.add(buffer);
            }
        }

        @Override
        public void close() throws IOException {
            channel.close();
        }
    }
}
