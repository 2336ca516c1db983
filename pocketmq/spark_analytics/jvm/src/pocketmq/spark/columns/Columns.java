package pocketmq.spark.columns;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.function.IntFunction;
import java.util.function.IntToLongFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.unsafe.types.UTF8String;
import pocketmq.spark.files.Layout;

/** Every column that may be requested, by name, for one set of options. */
public final class Columns {
    public static final String PHYSICAL_OFFSET = "physicalOffset";
    public static final String STORE_PATH = "storePath";
    public static final String BROKER_NAME = "brokerName";
    public static final String BODY = "body";
    static final String UNIQ_KEY = "UNIQ_KEY";
    /** A damaged stretch may be as long as a file; only its first bytes are kept. */
    public static final int CORRUPT_SIZE_MAX = 1 << 20;

    private static final DataType STRING = DataTypes.StringType;
    private static final DataType INT = DataTypes.IntegerType;
    private static final DataType BIGINT = DataTypes.LongType;
    private static final DataType TIMESTAMP = DataTypes.TimestampType;
    private static final DataType BINARY = DataTypes.BinaryType;

    /** All columns by name; those of the default schema come first, in its order. */
    public final Map<String, Column> known = new LinkedHashMap<>();

    private final List<String> usual;

    /**
     * @param bodyAs value of the option bodyAs
     * @param corruptRecord name of the column for damaged bytes
     * @param isPermissive whether every column may be null, because a row of nulls stands for damage
     * @param delaysMs the broker's delay levels
     */
    public Columns(String bodyAs, String corruptRecord, boolean isPermissive, long[] delaysMs) {
        addFixed();
        addBody(bodyAs);
        addProperties();
        usual = List.copyOf(known.keySet());
        addDerived(delaysMs);
        addValue(corruptRecord, BINARY, true, rows -> rows::corruptRecord);
        if (isPermissive) {
            known.replaceAll((name, column) -> column.nullable(true));
        }
    }

    /** Names of the columns of a read that names none: where several stores are named, with the brokers' names. */
    public List<String> usual(boolean isOneStore) {
        List<String> names = new ArrayList<>(usual);
        if (!isOneStore) {
            names.add(BROKER_NAME);
        }
        return names;
    }

    private void add(String name, DataType type, boolean isNullable, Function<Rows, ColumnVector> decoder) {
        known.put(name, new Column(name, type, isNullable, decoder));
    }

    private void addValue(String name, DataType type, boolean isNullable, Function<Rows, IntFunction<?>> values) {
        add(name, type, isNullable, rows -> new ComputedVector.Values(type, rows, isNullable, values.apply(rows)));
    }

    private void addText(String name, Function<Rows, IntFunction<UTF8String>> texts) {
        addValue(name, STRING, false, texts::apply);
    }

    private void addProperty(String name, String key) {
        addValue(name, STRING, true, rows -> new PropertyCursor(rows, key)::text);
    }

    private void addNumber(
            String name, DataType type, boolean isNullable, Function<Rows, IntToLongFunction> numbers) {
        add(name, type, isNullable, rows -> new ComputedVector.Numbers(type, rows, isNullable, numbers.apply(rows)));
    }

    /** Adds a number at a fixed position from the record's first byte. */
    private void addFixed(String name, DataType type, int position) {
        add(name, type, false, rows -> new NumberVector(type, rows, rows.starts, position));
    }

    /** Adds a number behind the hosts, whose position is fixed from the body's first byte. */
    private void addBehindHosts(String name, DataType type, int position) {
        add(name, type, false, rows -> new NumberVector(type, rows, rows.bodies, position - Layout.RECORD_FIXED_SIZE));
    }

    private void addFixed() {
        addText("topic", rows -> rows::topic);
        addFixed("queueId", INT, Layout.QUEUE_ID_POSITION);
        addFixed("queueOffset", BIGINT, Layout.QUEUE_OFFSET_POSITION);
        addFixed(PHYSICAL_OFFSET, BIGINT, Layout.PHYSICAL_OFFSET_POSITION);
        addFixed("storeSize", INT, 0);
        addFixed("bodyCrc", INT, Layout.BODY_CRC_POSITION);
        addFixed("sysFlag", INT, Layout.SYS_FLAG_POSITION);
        addFixed("flag", INT, Layout.FLAG_POSITION);
        addNumber("bornTimestamp", TIMESTAMP, false, rows -> rows::bornTimestampUs);
        addNumber("storeTimestamp", TIMESTAMP, false, rows -> rows::storeTimestampUs);
        addText("bornHost", rows -> new Hosts(rows, false));
        addText("storeHost", rows -> new Hosts(rows, true));
        addBehindHosts("reconsumeTimes", INT, Layout.RECONSUME_TIMES_POSITION);
        addBehindHosts("preparedTransactionOffset", BIGINT, Layout.PREPARED_TRANSACTION_OFFSET_POSITION);
    }

    private void addBody(String bodyAs) {
        // A damaged body is null in every mode in which a query goes on, whatever the column declares.
        switch (bodyAs) {
            case "string" -> add(BODY, STRING, false, rows -> new ComputedVector.Values(STRING, rows, true, rows::bodyText));
            case "json" -> addValue(BODY, STRING, true, rows -> rows::bodyJson);
            default -> add(BODY, BINARY, false, rows -> new ComputedVector.Values(BINARY, rows, true, rows::body));
        }
    }

    private void addProperties() {
        add("properties", DataTypes.createMapType(STRING, STRING), false, PropertiesVector::new);
        addProperty("tags", "TAGS");
        addProperty("keys", "KEYS");
        addProperty("uniqKey", UNIQ_KEY);
        addText("offsetMsgId", rows -> row -> Hosts.offsetMsgId(rows, row));
    }

    private void addDerived(long[] delaysMs) {
        addText("msgId", DerivedValues::msgId);
        addNumber("delayLevel", INT, true, rows -> new PropertyCursor(rows, "DELAY")::int4);
        addNumber("deliverTime", TIMESTAMP, true, rows -> DerivedValues.deliverTime(rows, delaysMs));
        addText("realTopic", DerivedValues::realTopic);
        addNumber("realQueueId", INT, false, DerivedValues::realQueueId);
        addNumber("crcOk", DataTypes.BooleanType, false, rows -> row -> rows.isCrcRight(row) ? 1 : 0);
        addText("rawProperties", rows -> rows::rawProperties);
        addText(STORE_PATH, rows -> row -> rows.path);
        addText(BROKER_NAME, rows -> row -> rows.brokerName);
    }
}
