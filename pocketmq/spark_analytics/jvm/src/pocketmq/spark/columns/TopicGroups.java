package pocketmq.spark.columns;

import java.util.Arrays;
import org.apache.spark.unsafe.types.UTF8String;

/** Numbers the groups of records with the same topic, queue, or both, in the order in which they are met. */
public final class TopicGroups {
    private static final byte[] NO_TOPIC = new byte[0];

    private final boolean byTopic;
    private final boolean byQueue;
    private byte[][] topics = new byte[16][];
    private int[] queueIds = new int[16];
    /** Group + 1 by hash; 0 is free. Its length is a power of two. */
    private int[] table = new int[64];
    private int count;
    private int last;

    public TopicGroups(boolean byTopic, boolean byQueue) {
        this.byTopic = byTopic;
        this.byQueue = byQueue;
    }

    /** Number of groups. */
    public int count() {
        return count;
    }

    /** Returns the text of a group's topic. */
    public UTF8String topic(int group) {
        return Utf8.text(topics[group], 0, topics[group].length);
    }

    public int queueId(int group) {
        return queueIds[group];
    }

    /** Returns the number of the group that a row belongs to. */
    public int group(Rows rows, int row) {
        int queueId = byQueue ? rows.queueId(row) : 0;
        int begin = byTopic ? rows.topics[row] : 0;
        int end = byTopic ? rows.topicEnds[row] : 0;
        if (count > 0 && is(last, queueId, rows.data, begin, end)) {
            return last;
        }
        int slot = slot(hash(queueId, rows.data, begin, end), queueId, rows.data, begin, end);
        if (table[slot] == 0) {
            add(queueId, byTopic ? Arrays.copyOfRange(rows.data, begin, end) : NO_TOPIC);
            table[slot] = count;
            if (2 * count > table.length) {
                grow();
            }
            return last = count - 1;
        }
        return last = table[slot] - 1;
    }

    private boolean is(int group, int queueId, byte[] data, int begin, int end) {
        byte[] topic = topics[group];
        return queueIds[group] == queueId && Arrays.equals(topic, 0, topic.length, data, begin, end);
    }

    private static int hash(int queueId, byte[] data, int begin, int end) {
        int hash = queueId;
        for (int at = begin; at < end; at++) {
            hash = 31 * hash + data[at];
        }
        hash *= 0x9E3779B9;
        return hash ^ hash >>> 15;
    }

    /** Returns the place of a group in the table, or the free one where it belongs. */
    private int slot(int hash, int queueId, byte[] data, int begin, int end) {
        int slot = hash & table.length - 1;
        while (table[slot] != 0 && !is(table[slot] - 1, queueId, data, begin, end)) {
            slot = slot + 1 & table.length - 1;
        }
        return slot;
    }

    private void add(int queueId, byte[] topic) {
        if (count == topics.length) {
            topics = Arrays.copyOf(topics, 2 * count);
            queueIds = Arrays.copyOf(queueIds, 2 * count);
        }
        topics[count] = topic;
        queueIds[count] = queueId;
        count++;
    }

    private void grow() {
        table = new int[2 * table.length];
        for (int group = 0; group < count; group++) {
            byte[] topic = topics[group];
            int hash = hash(queueIds[group], topic, 0, topic.length);
            table[slot(hash, queueIds[group], topic, 0, topic.length)] = group + 1;
        }
    }
}
