package pocketmq.spark.columns;

import java.util.Arrays;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.Layout;

/** The body of a record, in the forms of the option {@code bodyAs}. */
final class BodyVectors {
    private BodyVectors() {}

    /** Returns the bytes of a body as it is stored. */
    static byte[] stored(Rows rows, int row) {
        return Arrays.copyOfRange(rows.data, rows.bodies[row], rows.bodyEnds[row]);
    }

    /** {@code stored} or, if {@code rows.plain} is set, {@code plain}. */
    static final class Binary extends NullableVector {
        private final Rows rows;

        Binary(Rows rows) {
            super(DataTypes.BinaryType, rows);
            this.rows = rows;
        }

        @Override
        public boolean isNullAt(int row) {
            return rows.isBodyDamaged(row);
        }

        @Override
        public byte[] getBinary(int row) {
            byte[] plain = rows.plain == null ? null : rows.plain[row];
            return plain == null ? stored(rows, row) : plain;
        }
    }

    /** {@code string}: decompressed, as text. */
    static final class Text extends NullableVector {
        private final Rows rows;

        Text(Rows rows) {
            super(DataTypes.StringType, rows);
            this.rows = rows;
        }

        @Override
        public boolean isNullAt(int row) {
            return rows.isBodyDamaged(row);
        }

        @Override
        public UTF8String getUTF8String(int row) {
            byte[] plain = rows.plain[row];
            return plain == null
                    ? Utf8.text(rows.data, rows.bodies[row], rows.bodyEnds[row])
                    : Utf8.text(plain, 0, plain.length);
        }
    }

    /** {@code json}: decompressed, as text, null if it is not one JSON value. */
    static final class JsonText extends NullableVector {
        private final Rows rows;
        private int row = -1;
        private int version = -1;
        private UTF8String text;

        JsonText(Rows rows) {
            super(DataTypes.StringType, rows);
            this.rows = rows;
        }

        @Override
        public boolean isNullAt(int asked) {
            return getUTF8String(asked) == null;
        }

        @Override
        public UTF8String getUTF8String(int asked) {
            if (asked != row || version != rows.version()) {
                row = asked;
                version = rows.version();
                text = rows.isBodyDamaged(asked) ? null : json(rows.plain[asked] == null ? stored(rows, asked) : rows.plain[asked]);
            }
            return text;
        }

        private static UTF8String json(byte[] body) {
            boolean isJson = Utf8.invalidAt(body, 0, body.length) == body.length && Json.isValue(body);
            return isJson ? UTF8String.fromBytes(body) : null;
        }
    }

    /** The bytes of records whose body is damaged. */
    static final class CorruptRecord extends NullableVector {
        private final Rows rows;

        CorruptRecord(Rows rows) {
            super(DataTypes.BinaryType, rows);
            this.rows = rows;
        }

        @Override
        public boolean isNullAt(int row) {
            return !rows.isBodyDamaged(row);
        }

        @Override
        public byte[] getBinary(int row) {
            int size = Math.min(rows.ends[row] - rows.starts[row], Columns.CORRUPT_SIZE_MAX);
            return Arrays.copyOfRange(rows.data, rows.starts[row], rows.starts[row] + size);
        }
    }

    /** Whether the body matches its CRC. */
    static final class CrcOk extends RecordVector {
        private final Rows rows;
        private final java.util.zip.CRC32 crc = new java.util.zip.CRC32();

        CrcOk(Rows rows) {
            super(DataTypes.BooleanType);
            this.rows = rows;
        }

        @Override
        public boolean getBoolean(int row) {
            crc.reset();
            crc.update(rows.data, rows.bodies[row], rows.bodyEnds[row] - rows.bodies[row]);
            int stored = BigEndian.int4(rows.data, rows.starts[row] + Layout.BODY_CRC_POSITION);
            return ((int) crc.getValue() & Layout.CRC_MASK) == stored;
        }
    }
}
