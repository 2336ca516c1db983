package pocketmq.spark.files;

import java.io.IOException;

/** A file that existed when the query was planned and no longer does. */
public final class MissingFileException extends IOException {
    private static final long serialVersionUID = 1;

    public MissingFileException(String path) {
        super(path + " was deleted after the query was planned, probably by retention; "
                + ".option(\"ignoreMissingFiles\", \"true\") reads the remaining files");
    }
}
