package pocketmq.spark.columns;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.unsafe.types.UTF8String;

/** Numbers the groups of records with the same topic, queue, or both, in the order in which they are met. */
public final class TopicGroups {
    /** {@code topic}: its bytes, which may be invalid as a text. */
    private record Group(UTF8String topic, int queueId) {}

    private final boolean byTopic;
    private final boolean byQueue;
    private final Map<Group, Integer> numbers = new HashMap<>();
    private final List<Group> groups = new ArrayList<>();
    /** Number of the last row's group. */
    private int last;

    public TopicGroups(boolean byTopic, boolean byQueue) {
        this.byTopic = byTopic;
        this.byQueue = byQueue;
    }

    /** Number of groups. */
    public int count() {
        return groups.size();
    }

    /** Returns the text of a group's topic. */
    public UTF8String topic(int group) {
        byte[] topic = groups.get(group).topic.getBytes();
        return Utf8.text(topic, 0, topic.length);
    }

    public int queueId(int group) {
        return groups.get(group).queueId;
    }

    /** Returns the number of the group that a row belongs to. */
    public int group(Rows rows, int row) {
        int begin = byTopic ? rows.topics[row] : 0;
        int end = byTopic ? rows.topicEnds[row] : 0;
        Group group = new Group(UTF8String.fromBytes(rows.data, begin, end - begin), byQueue ? rows.queueId(row) : 0);
        if (groups.isEmpty() || !group.equals(groups.get(last))) {
            Integer known = numbers.get(group);
            last = known == null ? add(new Group(group.topic.copy(), group.queueId)) : known;
        }
        return last;
    }

    private int add(Group group) {
        numbers.put(group, groups.size());
        groups.add(group);
        return groups.size() - 1;
    }
}
