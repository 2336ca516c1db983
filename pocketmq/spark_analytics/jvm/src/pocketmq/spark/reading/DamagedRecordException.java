package pocketmq.spark.reading;

/** Invalid bytes within the log, before its end, in mode FAILFAST. */
public final class DamagedRecordException extends ReadException {
    private static final long serialVersionUID = 1;

    public DamagedRecordException(String message) {
        super(ErrorCondition.ROCKETMQ_DAMAGED_RECORD, message);
    }
}
