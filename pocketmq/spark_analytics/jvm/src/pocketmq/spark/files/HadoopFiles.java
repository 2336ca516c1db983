package pocketmq.spark.files;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** A file system of Hadoop ({@code hdfs://}, {@code s3a://}, {@code gs://} ...), with the session's settings for it. */
public final class HadoopFiles implements StoreFiles {
    private static final long serialVersionUID = 1;

    private final Map<String, String> settings;
    private transient Configuration configuration;

    HadoopFiles(Map<String, String> settings) {
        this.settings = settings;
    }

    private FileSystem own(String path) throws IOException {
        if (configuration == null) {
            configuration = new Configuration();
            settings.forEach(configuration::set);
        }
        return new Path(path).getFileSystem(configuration);
    }

    @Override
    public boolean isFile(String path) throws IOException {
        return own(path).exists(new Path(path)) && own(path).getFileStatus(new Path(path)).isFile();
    }

    @Override
    public boolean isFolder(String path) throws IOException {
        return own(path).exists(new Path(path)) && own(path).getFileStatus(new Path(path)).isDirectory();
    }

    @Override
    public long size(String path) throws IOException {
        return own(path).getFileStatus(new Path(path)).getLen();
    }

    @Override
    public List<String> names(String folder) throws IOException {
        return Arrays.stream(own(folder).listStatus(new Path(folder))).map(status -> status.getPath().getName()).toList();
    }

    @Override
    public List<String> glob(String pattern) throws IOException {
        FileStatus[] found = own(pattern).globStatus(new Path(pattern));
        return Arrays.stream(found == null ? new FileStatus[0] : found)
                .map(status -> status.getPath().toString()).sorted().toList();
    }

    @Override
    public FileBytes open(String path) throws IOException {
        return new HadoopBytes(own(path).open(new Path(path)));
    }

    @Override
    public boolean isRemote() {
        return true;
    }

    private record HadoopBytes(FSDataInputStream stream) implements FileBytes {
        @Override
        public int readSome(long position, byte[] target, int offset, int length) throws IOException {
            return stream.read(position, target, offset, length);
        }

        @Override
        public void close() throws IOException {
            stream.close();
        }
    }
}
