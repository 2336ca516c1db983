package pocketmq.spark.columns;

import java.nio.charset.StandardCharsets;
import java.util.function.Function;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** Texts of a record: topic, hosts, ids, single properties. */
final class TextVectors {
    private TextVectors() {}

    /** A text that every record has. */
    abstract static class Text extends RecordVector {
        final Rows rows;

        Text(Rows rows) {
            super(DataTypes.StringType);
            this.rows = rows;
        }

        @Override
        public abstract UTF8String getUTF8String(int row);
    }

    static final class Topic extends Text {
        Topic(Rows rows) {
            super(rows);
        }

        @Override
        public UTF8String getUTF8String(int row) {
            return Utf8.text(rows.data, rows.topics[row], rows.topicEnds[row]);
        }
    }

    static final class RawProperties extends Text {
        RawProperties(Rows rows) {
            super(rows);
        }

        @Override
        public UTF8String getUTF8String(int row) {
            return Utf8.text(rows.data, rows.propertiesAt(row), rows.ends[row]);
        }
    }

    /** A text that is the same for all records of a split. */
    static final class OfSplit extends Text {
        private final Function<Rows, String> value;
        private String last = "";
        private UTF8String text = UTF8String.EMPTY_UTF8;

        OfSplit(Rows rows, Function<Rows, String> value) {
            super(rows);
            this.value = value;
        }

        @Override
        public UTF8String getUTF8String(int row) {
            String own = value.apply(rows);
            if (!own.equals(last)) {
                last = own;
                text = UTF8String.fromString(own);
            }
            return text;
        }
    }

    /** Address and port of a host; neighbours mostly have the same, so the last text is kept. */
    static final class Host extends Text {
        private final boolean isStoreHost;
        private byte[] last = new byte[0];
        private UTF8String text = UTF8String.EMPTY_UTF8;

        Host(Rows rows, boolean isStoreHost) {
            super(rows);
            this.isStoreHost = isStoreHost;
        }

        @Override
        public UTF8String getUTF8String(int row) {
            int at = isStoreHost ? rows.storeHostAt(row) : rows.starts[row] + Hosts.BORN_HOST_POSITION;
            int size = Hosts.size(isStoreHost ? rows.isStoreHostV6(row) : rows.isBornHostV6(row));
            if (!java.util.Arrays.equals(rows.data, at, at + size, last, 0, last.length)) {
                last = java.util.Arrays.copyOfRange(rows.data, at, at + size);
                text = UTF8String.fromString(Hosts.text(last));
            }
            return text;
        }
    }

    static final class OffsetMsgId extends Text {
        OffsetMsgId(Rows rows) {
            super(rows);
        }

        @Override
        public UTF8String getUTF8String(int row) {
            return Hosts.offsetMsgId(rows, row);
        }
    }

    /** The value of one property, null where it is absent. */
    static final class Property extends NullableVector {
        final PropertyCursor cursor;
        private final Rows rows;

        Property(Rows rows, String name) {
            super(DataTypes.StringType, rows);
            this.rows = rows;
            this.cursor = new PropertyCursor(rows, name);
        }

        @Override
        public boolean isNullAt(int row) {
            return cursor.span(row) < 0;
        }

        @Override
        public UTF8String getUTF8String(int row) {
            return cursor.text(row);
        }
    }

    /** The span of one property's value in the current row; remembered, because Spark asks for null and value. */
    static final class PropertyCursor {
        private final Rows rows;
        private final byte[] name;
        private int row = -1;
        private int version = -1;
        private long span;

        PropertyCursor(Rows rows, String name) {
            this.rows = rows;
            this.name = name.getBytes(StandardCharsets.UTF_8);
        }

        long span(int asked) {
            if (asked != row || rows.version() != version) {
                span = Properties.find(rows.data, rows.propertiesAt(asked), rows.ends[asked], name);
                row = asked;
                version = rows.version();
            }
            return span;
        }

        /** Returns the value, null if it is absent. */
        UTF8String text(int asked) {
            long found = span(asked);
            return found < 0 ? null : Utf8.text(rows.data, (int) (found >> 32), (int) found);
        }
    }
}
