package pocketmq.spark.reading;

import java.io.IOException;

/** Queues that cannot be relied upon; the message says why. */
final class BrokenQueueException extends IOException {
    private static final long serialVersionUID = 1;

    BrokenQueueException(String message) {
        super(message);
    }
}
