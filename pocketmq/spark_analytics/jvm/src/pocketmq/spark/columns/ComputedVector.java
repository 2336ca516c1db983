package pocketmq.spark.columns;

import java.util.function.IntFunction;
import java.util.function.IntToLongFunction;
import java.util.stream.IntStream;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column of values that are computed when they are asked for.
 *
 * <p>As all vectors here, it has the getters of its own types. Spark never calls those of other types, which are inherited.
 */
abstract class ComputedVector extends ConstantColumnVector {
    /** A number that stands for null. */
    static final long NULL = Long.MIN_VALUE;

    final Rows rows;
    private final boolean isNullable;

    private ComputedVector(DataType type, Rows rows, boolean isNullable) {
        super(0, type);
        this.rows = rows;
        this.isNullable = isNullable;
    }

    abstract boolean isNone(int row);

    @Override
    public boolean isNullAt(int row) {
        return isNullable && isNone(row);
    }

    @Override
    public boolean hasNull() {
        return isNullable; // counting them would decode the column
    }

    @Override
    public int numNulls() {
        return (int) IntStream.range(0, rows.count()).filter(this::isNullAt).count();
    }

    /** A column of numbers or times, or of booleans, which are 1 and 0. */
    static final class Numbers extends ComputedVector {
        private final IntToLongFunction number;

        Numbers(DataType type, Rows rows, boolean isNullable, IntToLongFunction number) {
            super(type, rows, isNullable);
            this.number = number;
        }

        @Override
        boolean isNone(int row) {
            return number.applyAsLong(row) == NULL;
        }

        @Override
        public boolean getBoolean(int row) {
            return number.applyAsLong(row) != 0;
        }

        @Override
        public int getInt(int row) {
            return (int) number.applyAsLong(row);
        }

        @Override
        public long getLong(int row) {
            return number.applyAsLong(row);
        }
    }

    /** A column of texts (UTF8String) or of byte arrays. The last value is kept, because Spark asks for null and value. */
    static final class Values extends ComputedVector {
        private final IntFunction<?> value;
        private int row = -1;
        private int version = -1;
        private Object last;

        Values(DataType type, Rows rows, boolean isNullable, IntFunction<?> value) {
            super(type, rows, isNullable);
            this.value = value;
        }

        private Object value(int asked) {
            if (asked != row || version != rows.version()) {
                last = value.apply(asked);
                row = asked;
                version = rows.version();
            }
            return last;
        }

        @Override
        boolean isNone(int row) {
            return value(row) == null;
        }

        @Override
        public UTF8String getUTF8String(int row) {
            return (UTF8String) value(row);
        }

        @Override
        public byte[] getBinary(int row) {
            return (byte[]) value(row);
        }
    }
}
