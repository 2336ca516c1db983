package pocketmq.spark.reading;

import java.util.Map;
import org.apache.spark.SparkThrowable;

/** A store that cannot be read as requested. If a task throws it, Spark shows its message without stack traces. */
public class ReadException extends IllegalArgumentException implements SparkThrowable {
    private static final long serialVersionUID = 1;

    private final ErrorCondition condition;
    private final String problem;

    /** {@code problem} is the message without the name of the condition and the SQLSTATE. */
    public ReadException(ErrorCondition condition, String problem) {
        super("[" + condition + "] " + problem + " SQLSTATE: " + condition.sqlState);
        this.condition = condition;
        this.problem = problem;
    }

    /** A value or a combination of options that is not possible. */
    public static ReadException option(String problem) {
        return new ReadException(ErrorCondition.ROCKETMQ_INVALID_OPTION, problem);
    }

    /** A column that does not exist, or not with the type of the schema. */
    public static ReadException column(String problem) {
        return new ReadException(ErrorCondition.ROCKETMQ_INVALID_COLUMN, problem);
    }

    /** A topic or queue that no store knows. */
    static ReadException topic(String problem) {
        return new ReadException(ErrorCondition.ROCKETMQ_UNKNOWN_TOPIC, problem);
    }

    public String getCondition() {
        return condition.name();
    }

    /** The name of {@link #getCondition} before Spark 4. */
    public String getErrorClass() {
        return condition.name();
    }

    @Override
    public String getSqlState() {
        return condition.sqlState;
    }

    public Map<String, String> getMessageParameters() {
        return Map.of("problem", problem);
    }
}
