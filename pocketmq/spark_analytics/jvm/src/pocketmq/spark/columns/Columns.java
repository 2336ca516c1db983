package pocketmq.spark.columns;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
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

    private final Map<String, Column> known = new LinkedHashMap<>();
    /** Number of the columns of the default schema, which come first. */
    private int usual;

    private Columns() {}

    /**
     * Returns the columns.
     *
     * @param bodyAs value of the option bodyAs
     * @param corruptRecord name of the column for damaged bytes
     * @param isPermissive whether every column may be null, because a row of nulls stands for damage
     * @param delaysMs the broker's delay levels
     */
    public static Columns of(String bodyAs, String corruptRecord, boolean isPermissive, long[] delaysMs) {
        Columns columns = new Columns();
        columns.addFixed();
        columns.addBody(bodyAs);
        columns.addProperties();
        columns.usual = columns.known.size();
        columns.addDerived(delaysMs);
        columns.add(corruptRecord, DataTypes.BinaryType, true, BodyVectors.CorruptRecord::new);
        if (isPermissive) {
            columns.known.replaceAll((name, column) -> column.nullable(true));
        }
        return columns;
    }

    /** All columns by name; those of the default schema come first, in its order. */
    public Map<String, Column> known() {
        return known;
    }

    /** Names of the columns of a read that names none: where several stores are named, with the brokers' names. */
    public List<String> usual(boolean isOneStore) {
        List<String> names = new ArrayList<>(List.copyOf(known.keySet()).subList(0, usual));
        if (!isOneStore) {
            names.add(BROKER_NAME);
        }
        return names;
    }

    private void add(String name, DataType type, boolean isNullable, Column.Decoder decoder) {
        known.put(name, new Column(name, type, isNullable, decoder));
    }

    private void addInt(String name, int position) {
        add(name, INT, false, rows -> new NumberVectors.IntAt(rows, position));
    }

    private void addFixed() {
        add("topic", STRING, false, TextVectors.Topic::new);
        addInt("queueId", Layout.QUEUE_ID_POSITION);
        add("queueOffset", BIGINT, false, rows -> new NumberVectors.LongAt(rows, Layout.QUEUE_OFFSET_POSITION));
        add(PHYSICAL_OFFSET, BIGINT, false, rows -> new NumberVectors.LongAt(rows, Layout.PHYSICAL_OFFSET_POSITION));
        addInt("storeSize", 0);
        addInt("bodyCrc", Layout.BODY_CRC_POSITION);
        addInt("sysFlag", Layout.SYS_FLAG_POSITION);
        addInt("flag", Layout.FLAG_POSITION);
        add("bornTimestamp", TIMESTAMP, false, rows -> new NumberVectors.Timestamp(rows, Rows::bornTimestampMs));
        add("storeTimestamp", TIMESTAMP, false, rows -> new NumberVectors.Timestamp(rows, Rows::storeTimestampMs));
        add("bornHost", STRING, false, rows -> new TextVectors.Host(rows, false));
        add("storeHost", STRING, false, rows -> new TextVectors.Host(rows, true));
        addBehindHosts("reconsumeTimes", INT, Layout.RECONSUME_TIMES_POSITION);
        addBehindHosts("preparedTransactionOffset", BIGINT, Layout.PREPARED_TRANSACTION_OFFSET_POSITION);
    }

    private void addBehindHosts(String name, DataType type, int position) {
        add(name, type, false, rows -> new NumberVectors.BehindHosts(type, rows, position));
    }

    private void addBody(String bodyAs) {
        switch (bodyAs) {
            case "string" -> add(BODY, STRING, false, BodyVectors.Text::new);
            case "json" -> add(BODY, STRING, true, BodyVectors.JsonText::new);
            default -> add(BODY, DataTypes.BinaryType, false, BodyVectors.Binary::new);
        }
    }

    private void addProperties() {
        add("properties", DataTypes.createMapType(STRING, STRING), false, PropertiesVector::new);
        add("tags", STRING, true, rows -> new TextVectors.Property(rows, "TAGS"));
        add("keys", STRING, true, rows -> new TextVectors.Property(rows, "KEYS"));
        add("uniqKey", STRING, true, rows -> new TextVectors.Property(rows, UNIQ_KEY));
        add("offsetMsgId", STRING, false, TextVectors.OffsetMsgId::new);
    }

    private void addDerived(long[] delaysMs) {
        add("msgId", STRING, false, DerivedVectors.MsgId::new);
        add("delayLevel", INT, true, DerivedVectors.DelayLevel::new);
        add("deliverTime", TIMESTAMP, true, rows -> new DerivedVectors.DeliverTime(rows, delaysMs));
        add("realTopic", STRING, false, DerivedVectors.RealTopic::new);
        add("realQueueId", INT, false, DerivedVectors.RealQueueId::new);
        add("crcOk", DataTypes.BooleanType, false, BodyVectors.CrcOk::new);
        add("rawProperties", STRING, false, TextVectors.RawProperties::new);
        add(STORE_PATH, STRING, false, rows -> new TextVectors.OfSplit(rows, own -> own.path));
        add(BROKER_NAME, STRING, false, rows -> new TextVectors.OfSplit(rows, own -> own.brokerName));
    }
}
