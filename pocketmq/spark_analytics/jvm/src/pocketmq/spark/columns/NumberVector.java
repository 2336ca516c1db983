package pocketmq.spark.columns;

import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataType;
import pocketmq.spark.files.BigEndian;

/** A number of the fixed part of a record. */
final class NumberVector extends ConstantColumnVector {
    private final Rows rows;
    /** Positions that the number's own counts from: the record's first byte or, for a number behind the hosts, the body's. */
    private final int[] from;
    private final int position;

    NumberVector(DataType type, Rows rows, int[] from, int position) {
        super(0, type);
        this.rows = rows;
        this.from = from;
        this.position = position;
    }

    @Override
    public int getInt(int row) {
        return BigEndian.int4(rows.data, from[row] + position);
    }

    @Override
    public long getLong(int row) {
        return BigEndian.int8(rows.data, from[row] + position);
    }
}
