package pocketmq.spark.columns;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;

/** A column with the same value, or null, in every row. */
public final class ConstantVector extends RecordVector {
    private final Object value;

    /** {@code value}: a Long, an UTF8String, a byte array, or null. */
    public ConstantVector(DataType type, Object value) {
        super(type);
        this.value = value;
    }

    @Override
    public boolean hasNull() {
        return value == null;
    }

    @Override
    public int numNulls() {
        return value == null ? 1 : 0;
    }

    @Override
    public boolean isNullAt(int row) {
        return value == null;
    }

    @Override
    public long getLong(int row) {
        return value == null ? 0 : (long) value;
    }

    @Override
    public int getInt(int row) {
        return 0;
    }

    @Override
    public boolean getBoolean(int row) {
        return false;
    }

    @Override
    public UTF8String getUTF8String(int row) {
        return (UTF8String) value;
    }

    @Override
    public byte[] getBinary(int row) {
        return (byte[]) value;
    }
}
