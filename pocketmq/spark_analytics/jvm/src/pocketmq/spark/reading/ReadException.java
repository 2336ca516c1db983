package pocketmq.spark.reading;

import java.util.Map;
import org.apache.spark.SparkThrowable;

/** A store that cannot be read as requested. If a task throws it, Spark shows its message without stack traces. */
public class ReadException extends IllegalArgumentException implements SparkThrowable {
    private static final long serialVersionUID = 1;

    private final String condition;

    /** {@code condition} is one of Spark's names for kinds of errors. */
    public ReadException(String condition, String message) {
        super(message);
        this.condition = condition;
    }

    public String getCondition() {
        return condition;
    }

    /** The name of {@link #getCondition} before Spark 4. */
    public String getErrorClass() {
        return condition;
    }

    public Map<String, String> getMessageParameters() {
        return Map.of();
    }
}
