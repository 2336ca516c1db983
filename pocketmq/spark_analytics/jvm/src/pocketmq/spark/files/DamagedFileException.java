package pocketmq.spark.files;

import java.io.IOException;

/** A file of a store whose content does not match its format. */
public final class DamagedFileException extends IOException {
    private static final long serialVersionUID = 1;

    public DamagedFileException(String message) {
        super(message);
    }
}
