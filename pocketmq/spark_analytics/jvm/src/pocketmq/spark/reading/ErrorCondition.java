package pocketmq.spark.reading;

/** The kinds of errors that users meet, with the SQLSTATE of each; docs/spark.md lists them. */
public enum ErrorCondition {
    ROCKETMQ_PATH_NOT_FOUND("42K03"),
    ROCKETMQ_INVALID_OPTION("42616"),
    ROCKETMQ_INVALID_COLUMN("42703"),
    ROCKETMQ_UNKNOWN_TOPIC("42704"),
    ROCKETMQ_DAMAGED_RECORD("22023"),
    ROCKETMQ_DELETED_FILE("KD001"),
    ROCKETMQ_LOST_RECORDS("22000");

    final String sqlState;

    ErrorCondition(String sqlState) {
        this.sqlState = sqlState;
    }
}
