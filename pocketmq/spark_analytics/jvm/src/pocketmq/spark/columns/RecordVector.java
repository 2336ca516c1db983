package pocketmq.spark.columns;

import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataType;

/**
 * A column decoded from records on demand, without nulls unless a subclass says so.
 *
 * <p>A subclass has the getter of its own type. Spark never calls those of other types, which are inherited.
 */
abstract class RecordVector extends ConstantColumnVector {
    RecordVector(DataType type) {
        super(0, type);
    }
}
