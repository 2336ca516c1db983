package pocketmq.spark.columns;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A column decoded from records on demand, without nulls unless a subclass says so. */
public abstract class RecordVector extends ColumnVector {
    protected RecordVector(DataType type) {
        super(type);
    }

    @Override
    public void close() {}

    @Override
    public boolean hasNull() {
        return false;
    }

    @Override
    public int numNulls() {
        return 0;
    }

    @Override
    public boolean isNullAt(int row) {
        return false;
    }

    @Override
    public boolean getBoolean(int row) {
        throw refused();
    }

    @Override
    public byte getByte(int row) {
        throw refused();
    }

    @Override
    public short getShort(int row) {
        throw refused();
    }

    @Override
    public int getInt(int row) {
        throw refused();
    }

    @Override
    public long getLong(int row) {
        throw refused();
    }

    @Override
    public float getFloat(int row) {
        throw refused();
    }

    @Override
    public double getDouble(int row) {
        throw refused();
    }

    @Override
    public ColumnarArray getArray(int row) {
        throw refused();
    }

    @Override
    public ColumnarMap getMap(int row) {
        throw refused();
    }

    @Override
    public Decimal getDecimal(int row, int precision, int scale) {
        throw refused();
    }

    @Override
    public UTF8String getUTF8String(int row) {
        throw refused();
    }

    @Override
    public byte[] getBinary(int row) {
        throw refused();
    }

    @Override
    public ColumnVector getChild(int ordinal) {
        throw refused();
    }

    private UnsupportedOperationException refused() {
        return new UnsupportedOperationException("a column of type " + dataType() + " has no such values");
    }
}
