package pocketmq.spark.source;

import java.util.List;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import pocketmq.spark.columns.Columns;
import pocketmq.spark.reading.ReadException;

/**
 * Hands a read over to the data source {@code rocketmq} in Python, which Spark would not find by itself: of two sources with
 * one name it takes the one in Java.
 *
 * <p>Spark has no public class for this, so the one class and method that are needed are looked up by their names.
 */
final class PythonReader {
    private static final String PROVIDER = "org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2";
    private static final String MESSAGES = "messages";
    private static final List<String> BODY_OPTIONS = List.of("bodySchema", "bodyMessage", "bodyDecoders", "inferSamples");

    private PythonReader() {}

    /**
     * Returns why a read is for the Python source, null if it is for this one. Throws IllegalArgumentException.
     *
     * @param schema the user's schema, null if there is none
     */
    static String reason(CaseInsensitiveStringMap options, StructType schema) {
        String reader = options.getOrDefault("reader", "auto").strip().toLowerCase(java.util.Locale.ROOT);
        String table = options.getOrDefault("table", MESSAGES).strip();
        String reason = !table.equalsIgnoreCase(MESSAGES) ? "option table is " + table
                : options.containsKey("groupBy") || options.containsKey("aggregates") ? "options groupBy and aggregates"
                : typedBody(options, schema);
        return switch (reader) {
            case "python" -> "option reader is python";
            case "auto" -> reason;
            case "jvm" -> {
                if (reason != null) {
                    throw ReadException.option(
                            reason + ": only the Python reader supports this, option reader is jvm");
                }
                yield null;
            }
            default -> throw ReadException.option(
                    "option reader is " + reader + ": it must be one of auto, python, jvm");
        };
    }

    /** Returns the option or schema that requests bodies decoded by a schema, null if there is none. */
    private static String typedBody(CaseInsensitiveStringMap options, StructType schema) {
        String form = options.getOrDefault("bodyAs", "").strip();
        if (form.equalsIgnoreCase("avro") || form.equalsIgnoreCase("protobuf")) {
            return "option bodyAs is " + form;
        }
        for (String name : BODY_OPTIONS) {
            if (options.containsKey(name)) {
                return "option " + name;
            }
        }
        for (StructField field : schema == null ? new StructField[0] : schema.fields()) {
            if (field.name().equals(Columns.BODY) && field.dataType() instanceof StructType) {
                return "a schema with a struct for body";
            }
        }
        return null;
    }

    /** Returns the Python source. */
    static TableProvider provider(String reason) {
        try {
            Class<?> type = Class.forName(PROVIDER, true, Thread.currentThread().getContextClassLoader());
            Object provider = type.getConstructor().newInstance();
            type.getMethod("setShortName", String.class).invoke(provider, "rocketmq");
            return (TableProvider) provider;
        } catch (ReflectiveOperationException error) {
            throw new IllegalArgumentException(reason + ": this Spark has no data sources in Python", error);
        }
    }
}
