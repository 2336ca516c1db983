package pocketmq.spark.source;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.spark.sql.SparkSession;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.LogFiles;
import pocketmq.spark.files.MissingFileException;
import pocketmq.spark.files.StoreFiles;
import pocketmq.spark.reading.ErrorCondition;
import pocketmq.spark.reading.ReadException;

/** Work of the driver that is repeated when a file is deleted meanwhile. */
final class Planning {
    /** A broker deletes at most ten files in a row. */
    private static final int TRIES = 20;

    private Planning() {}

    /** Something that may fail because a file was deleted. */
    interface Plan<T> {
        T make() throws IOException;
    }

    static <T> T of(Plan<T> plan) {
        for (int number = 1; ; number++) {
            try {
                return plan.make();
            } catch (MissingFileException error) {
                if (number == TRIES) {
                    throw new UncheckedIOException(error);
                }
            } catch (FileNotFoundException | UnsupportedFileSystemException error) {
                throw new ReadException(ErrorCondition.ROCKETMQ_PATH_NOT_FOUND, error.getMessage());
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }

    /** Returns the log files named by some paths, with Hadoop's settings of the active session for URLs. */
    static List<LogFile> logFiles(List<String> paths) throws IOException {
        boolean isRemote = paths.stream().anyMatch(path -> StoreFiles.URL.matcher(StoreFiles.localPath(path)).matches());
        Map<String, String> settings = new HashMap<>();
        if (isRemote) {
            SparkSession.active().sparkContext().hadoopConfiguration()
                    .forEach(setting -> settings.put(setting.getKey(), setting.getValue()));
        }
        return LogFiles.of(paths, settings);
    }
}
