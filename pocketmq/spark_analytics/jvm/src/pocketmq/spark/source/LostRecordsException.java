package pocketmq.spark.source;

import pocketmq.spark.reading.ErrorCondition;
import pocketmq.spark.reading.ReadException;

/** Records that the query has not read no longer exist. */
final class LostRecordsException extends ReadException {
    private static final long serialVersionUID = 1;

    LostRecordsException(String message) {
        super(ErrorCondition.ROCKETMQ_LOST_RECORDS, message);
    }
}
