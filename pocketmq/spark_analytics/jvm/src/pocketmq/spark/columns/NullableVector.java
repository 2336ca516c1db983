package pocketmq.spark.columns;

import org.apache.spark.sql.types.DataType;

/** A column that may have nulls. */
abstract class NullableVector extends RecordVector {
    private final Rows rows;

    NullableVector(DataType type, Rows rows) {
        super(type);
        this.rows = rows;
    }

    @Override
    public abstract boolean isNullAt(int row);

    @Override
    public boolean hasNull() {
        return true; // counting them would decode the column
    }

    @Override
    public int numNulls() {
        int nulls = 0;
        for (int row = 0; row < rows.count(); row++) {
            nulls += isNullAt(row) ? 1 : 0;
        }
        return nulls;
    }
}
