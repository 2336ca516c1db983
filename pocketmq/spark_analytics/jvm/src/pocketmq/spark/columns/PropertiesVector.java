package pocketmq.spark.columns;

import java.util.Arrays;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** All properties of a record as a map; decoded for a whole batch when the first of its maps is requested. */
final class PropertiesVector extends ConstantColumnVector {
    private final Rows rows;
    private final Part names = new Part();
    private final Part values = new Part();
    /** First entry of each row; the last element is the number of entries. */
    private final int[] first = new int[Rows.CAPACITY + 1];
    private int version = -1;
    private int count;
    private byte[] data;

    PropertiesVector(Rows rows) {
        super(0, DataTypes.createMapType(DataTypes.StringType, DataTypes.StringType));
        this.rows = rows;
    }

    @Override
    public ColumnarMap getMap(int row) {
        if (version != rows.version()) {
            decode();
        }
        return new ColumnarMap(names, values, first[row], first[row + 1] - first[row]);
    }

    private void decode() {
        version = rows.version();
        data = rows.data;
        count = 0;
        for (int row = 0; row < rows.count(); row++) {
            first[row] = count;
            add(rows.propertiesAt(row), rows.ends[row]);
            dropRepeated(first[row]);
        }
        first[rows.count()] = count;
    }

    /** Adds each entry of a property string that has a name and a value, in order. */
    private void add(int begin, int end) {
        int from = begin;
        int divider = -1;
        for (int at = begin; at <= end; at++) {
            byte code = at == end ? Properties.PROPERTY : data[at];
            if (code == Properties.NAME_VALUE && divider < 0) {
                divider = at;
            } else if (code == Properties.PROPERTY) {
                if (divider > from && divider < at - 1) {
                    names.put(count, from, divider);
                    values.put(count++, divider + 1, at);
                }
                from = at + 1;
                divider = -1;
            }
        }
    }

    /** Drops all but the last entry of each name from entry {@code from} on. */
    private void dropRepeated(int from) {
        int kept = from;
        for (int entry = from; entry < count; entry++) {
            boolean isLast = true;
            for (int later = entry + 1; later < count && isLast; later++) {
                isLast = !names.isSame(entry, later);
            }
            if (isLast) {
                names.copy(entry, kept);
                values.copy(entry, kept);
                kept++;
            }
        }
        count = kept;
    }

    /** The names or the values of all entries. */
    private final class Part extends ConstantColumnVector {
        private int[] begins = new int[Rows.CAPACITY];
        private int[] ends = new int[Rows.CAPACITY];

        Part() {
            super(0, DataTypes.StringType);
        }

        void put(int entry, int begin, int end) {
            if (entry == begins.length) {
                begins = Arrays.copyOf(begins, 2 * entry);
                ends = Arrays.copyOf(ends, 2 * entry);
            }
            begins[entry] = begin;
            ends[entry] = end;
        }

        void copy(int from, int to) {
            begins[to] = begins[from];
            ends[to] = ends[from];
        }

        boolean isSame(int one, int other) {
            return Arrays.equals(data, begins[one], ends[one], data, begins[other], ends[other]);
        }

        @Override
        public UTF8String getUTF8String(int entry) {
            return Utf8.text(data, begins[entry], ends[entry]);
        }
    }
}
