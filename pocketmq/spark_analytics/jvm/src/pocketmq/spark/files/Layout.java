package pocketmq.spark.files;

/**
 * Positions, sizes and marks of a store's files; positions count from a record's or unit's first byte, with IPv4 hosts.
 *
 * <p>Generated from store/format/layout.py by {@code python -m pocketmq.spark_analytics.jvm build}.
 */
public final class Layout {
    public static final int MESSAGE_MAGIC_CODE = -626843481;
    public static final int MESSAGE_MAGIC_CODE_V2 = -626843477;
    public static final int BLANK_MAGIC_CODE = -875286124;
    public static final int BORNHOST_V6_FLAG = 16;
    public static final int STOREHOSTADDRESS_V6_FLAG = 32;
    public static final int HOST_SIZE = 8;
    public static final int HOST_V6_SIZE = 20;
    public static final int RECORD_FIXED_SIZE = 88;
    public static final int RECORD_SIZE_MIN = 91;
    public static final int BLANK_SIZE = 8;
    public static final int CONSUME_QUEUE_UNIT_SIZE = 20;
    public static final long HOLE_TAGS_CODE = 9223372036854775807L;
    public static final int COMPRESSED_FLAG = 1;
    public static final int CRC_MASK = 2147483647;
    public static final int SECTOR_SIZE = 512;
    public static final int INNER_BATCH_FLAG = 128;
    public static final int NEED_UNWRAP_FLAG = 64;
    public static final int MAGIC_CODE_POSITION = 4;
    public static final int BODY_CRC_POSITION = 8;
    public static final int QUEUE_ID_POSITION = 12;
    public static final int FLAG_POSITION = 16;
    public static final int QUEUE_OFFSET_POSITION = 20;
    public static final int PHYSICAL_OFFSET_POSITION = 28;
    public static final int SYS_FLAG_POSITION = 36;
    public static final int BORN_TIMESTAMP_POSITION = 40;
    public static final int BORN_HOST_POSITION = 48;
    public static final int STORE_TIMESTAMP_POSITION = 56;
    public static final int STORE_HOST_POSITION = 64;
    public static final int RECONSUME_TIMES_POSITION = 72;
    public static final int PREPARED_TRANSACTION_OFFSET_POSITION = 76;
    public static final int UNIT_PHYSICAL_OFFSET_POSITION = 0;
    public static final int UNIT_SIZE_POSITION = 8;
    public static final int UNIT_TAGS_CODE_POSITION = 12;

    private Layout() {}
}
