package pocketmq.spark.columns;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.Layout;

/** Numbers and times of the fixed part of a record. */
final class NumberVectors {
    /** Born timestamps are set by clients and may not fit into Spark's microseconds. */
    static final long TIMESTAMP_MS_MAX = Long.MAX_VALUE / 1000;

    private NumberVectors() {}

    /** A 32-bit number at a fixed position from the record's first byte. */
    static final class IntAt extends RecordVector {
        private final Rows rows;
        private final int position;

        IntAt(Rows rows, int position) {
            super(DataTypes.IntegerType);
            this.rows = rows;
            this.position = position;
        }

        @Override
        public int getInt(int row) {
            return BigEndian.int4(rows.data, rows.starts[row] + position);
        }
    }

    /** A 64-bit number at a fixed position from the record's first byte. */
    static final class LongAt extends RecordVector {
        private final Rows rows;
        private final int position;

        LongAt(Rows rows, int position) {
            super(DataTypes.LongType);
            this.rows = rows;
            this.position = position;
        }

        @Override
        public long getLong(int row) {
            return BigEndian.int8(rows.data, rows.starts[row] + position);
        }
    }

    /** A number behind the hosts, whose position is fixed from the body's first byte. */
    static final class BehindHosts extends RecordVector {
        private final Rows rows;
        private final int before;

        BehindHosts(DataType type, Rows rows, int position) {
            super(type);
            this.rows = rows;
            this.before = Layout.RECORD_FIXED_SIZE - position;
        }

        @Override
        public int getInt(int row) {
            return BigEndian.int4(rows.data, rows.bodies[row] - before);
        }

        @Override
        public long getLong(int row) {
            return BigEndian.int8(rows.data, rows.bodies[row] - before);
        }
    }

    /** A time, clipped to what Spark can hold. */
    static final class Timestamp extends RecordVector {
        private final ToMs time;
        private final Rows rows;

        /** Reads the ms of a row. */
        interface ToMs {
            long ms(Rows rows, int row);
        }

        Timestamp(Rows rows, ToMs time) {
            super(DataTypes.TimestampType);
            this.rows = rows;
            this.time = time;
        }

        @Override
        public long getLong(int row) {
            return microseconds(time.ms(rows, row));
        }
    }

    static long microseconds(long ms) {
        return Math.max(Math.min(ms, TIMESTAMP_MS_MAX), -TIMESTAMP_MS_MAX) * 1000;
    }
}
