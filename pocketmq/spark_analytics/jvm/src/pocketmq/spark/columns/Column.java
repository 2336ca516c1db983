package pocketmq.spark.columns;

import java.util.function.Function;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.vectorized.ColumnVector;

/**
 * A column of the table of messages.
 *
 * @param isNullable Spark skips the null check of a column that is declared NOT NULL
 * @param decoder makes the vector that decodes the column from rows
 */
public record Column(String name, DataType type, boolean isNullable, Function<Rows, ColumnVector> decoder) {
    public StructField field() {
        return new StructField(name, type, isNullable, Metadata.empty());
    }

    /** Returns the same column with the given nullability. */
    public Column nullable(boolean isNullable) {
        return new Column(name, type, isNullable, decoder);
    }
}
