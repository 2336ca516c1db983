package pocketmq.spark.columns;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;

/** A column of computed numbers or texts. */
public final class ArrayVector extends RecordVector {
    private final long[] numbers;
    private final UTF8String[] texts;

    private ArrayVector(DataType type, long[] numbers, UTF8String[] texts) {
        super(type);
        this.numbers = numbers;
        this.texts = texts;
    }

    public static ArrayVector of(DataType type, long[] numbers) {
        return new ArrayVector(type, numbers, null);
    }

    public static ArrayVector of(DataType type, UTF8String[] texts) {
        return new ArrayVector(type, null, texts);
    }

    @Override
    public int getInt(int row) {
        return (int) numbers[row];
    }

    @Override
    public long getLong(int row) {
        return numbers[row];
    }

    @Override
    public UTF8String getUTF8String(int row) {
        return texts[row];
    }
}
