package pocketmq.spark.reading;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Set;
import org.apache.spark.unsafe.types.UTF8String;
import pocketmq.spark.columns.Properties;
import pocketmq.spark.columns.Rows;
import pocketmq.spark.columns.Utf8;
import pocketmq.spark.files.BigEndian;
import pocketmq.spark.files.Layout;

/** Decides for each record of a task whether it is wanted, cheap conditions first. */
final class RecordFilter {
    private final Bounds physicalOffsets;
    final Bounds storeTimestampsUs;
    private final Bounds queueOffsets;
    private final int[] queueIds;
    private final byte[][] topics;
    private final byte[][] tags;
    private final byte[][] keys;
    private final boolean isOpen;

    RecordFilter(Pruning pruning) {
        physicalOffsets = pruning.physicalOffsets();
        storeTimestampsUs = pruning.bounds(Pruning.STORE_TIMESTAMP);
        queueOffsets = pruning.bounds(Pruning.QUEUE_OFFSET);
        queueIds = pruning.queueIds() == null
                ? null : pruning.queueIds().stream().mapToInt(Integer::intValue).sorted().toArray();
        topics = bytes(pruning.topics());
        tags = bytes(pruning.texts().get(Pruning.TAGS));
        keys = bytes(pruning.texts().get(Pruning.KEYS));
        isOpen = !pruning.asksWhatDamageCannotTell() && physicalOffsets.isAll();
    }

    private static byte[][] bytes(Set<String> texts) {
        return texts == null
                ? null : texts.stream().map(text -> text.getBytes(StandardCharsets.UTF_8)).toArray(byte[][]::new);
    }

    /** Returns whether the record that {@code rows} looked at, as row {@code rows.count()}, is wanted. */
    boolean wants(Rows rows) {
        return isOpen || wants(rows, rows.count());
    }

    private boolean wants(Rows rows, int row) {
        if (!physicalOffsets.has(rows.physicalOffset(row)) || !storeTimestampsUs.has(rows.storeTimestampUs(row))) {
            return false;
        }
        if (queueIds != null && Arrays.binarySearch(queueIds, rows.queueId(row)) < 0) {
            return false;
        }
        if (!queueOffsets.has(BigEndian.int8(rows.data, rows.starts[row] + Layout.QUEUE_OFFSET_POSITION))) {
            return false;
        }
        if (topics != null && !isOneOf(topics, rows.data, rows.topics[row], rows.topicEnds[row])) {
            return false;
        }
        return (tags == null || hasProperty(rows, row, Properties.TAGS, tags))
                && (keys == null || hasProperty(rows, row, Properties.KEYS, keys));
    }

    private static boolean hasProperty(Rows rows, int row, byte[] name, byte[][] wanted) {
        long span = Properties.find(rows.data, rows.propertiesAt(row), rows.ends[row], name);
        return span >= 0 && isOneOf(wanted, rows.data, (int) (span >> 32), (int) span);
    }

    private static boolean isOneOf(byte[][] wanted, byte[] data, int begin, int end) {
        for (byte[] text : wanted) {
            if (Arrays.equals(text, 0, text.length, data, begin, end)) {
                return true;
            }
        }
        if (Utf8.isAscii(data, begin, end)) {
            return false;
        }
        UTF8String text = Utf8.text(data, begin, end); // invalid bytes are compared as they are shown
        return Arrays.stream(wanted).anyMatch(one -> UTF8String.fromBytes(one).equals(text));
    }
}
