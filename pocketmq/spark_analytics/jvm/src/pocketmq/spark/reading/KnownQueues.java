package pocketmq.spark.reading;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.MissingNode;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import pocketmq.spark.files.ConfigDocument;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.QueueFile;
import pocketmq.spark.files.StoreFiles;

/**
 * Check of the options {@code topic} and {@code queueId} against the topics and queues of the stores that are read.
 *
 * <p>A topic is known if it has a ConsumeQueue, or an entry in config/topics.json. Stores without that file, such as single
 * log files and partial copies, do not list the topics that they hold, so every name is accepted there.
 */
public final class KnownQueues {
    private static final int NAMES_LENGTH_MAX = 400;
    private static final int QUEUES_MAX = 1 << 16;

    /** A store with its topics, and the entry of each in config/topics.json: a node without fields if it has none. */
    private record Store(StoreFiles files, String root, Map<String, JsonNode> topics) {}

    private KnownQueues() {}

    /** Throws IllegalArgumentException for a topic or queue of the options that none of the stores knows. */
    public static void check(Pruning asked, List<LogFile> log) throws IOException {
        if (asked.topics() == null && asked.queueIds() == null) {
            return;
        }
        Map<String, Store> stores = new LinkedHashMap<>();
        for (LogFile file : log) {
            String root = StoreFiles.parent(file.folder());
            if (!stores.containsKey(root)) {
                stores.put(root, store(file.files(), root));
            }
        }
        if (stores.isEmpty() || stores.values().stream().anyMatch(store -> store.topics.isEmpty())) {
            return;
        }
        Set<String> known = new TreeSet<>();
        stores.values().forEach(store -> known.addAll(store.topics.keySet()));
        String named = String.join(", ", stores.keySet());
        for (String topic : asked.topics() == null ? Set.<String>of() : new TreeSet<>(asked.topics())) {
            if (!known.contains(topic)) {
                String near = OptionParser.nearest(topic, known);
                throw ReadException.topic("option topic is " + topic + ", which is not a topic of " + named + ": "
                        + near.substring(0, Math.min(near.length(), NAMES_LENGTH_MAX)) + ". If only the log has records of "
                        + "it, as of a deleted topic, select them by .where(\"topic = ...\")");
            }
        }
        if (asked.queueIds() != null) {
            checkQueues(asked, stores.values(), asked.topics() == null ? known : asked.topics(), named);
        }
    }

    private static void checkQueues(Pruning asked, Iterable<Store> stores, Set<String> topics, String named)
            throws IOException {
        TreeSet<Integer> ids = new TreeSet<>();
        for (Store store : stores) {
            for (String topic : topics) {
                addQueueIds(store, topic, ids);
            }
        }
        for (int id : new TreeSet<>(asked.queueIds())) {
            if (!ids.contains(id)) {
                String whose = asked.topics() == null
                        ? "no topic" : "not a queue of " + String.join(", ", new TreeSet<>(asked.topics()));
                throw ReadException.topic("option queueId is " + id + ": " + whose + " in " + named
                        + "; the queues are " + (ids.isEmpty() ? "none" : ids.first() + " to " + ids.last()));
            }
        }
    }

    private static Store store(StoreFiles files, String root) throws IOException {
        Map<String, JsonNode> topics = new LinkedHashMap<>();
        JsonNode table = ConfigDocument.of(files, root, "topics.json").path("topicConfigTable");
        String folder = StoreFiles.join(root, "consumequeue");
        for (String name : !table.isEmpty() && files.isFolder(folder) ? files.names(folder) : List.<String>of()) {
            topics.put(name, MissingNode.getInstance());
        }
        table.fields().forEachRemaining(entry -> topics.put(entry.getKey(), entry.getValue()));
        return new Store(files, root, topics);
    }

    private static void addQueueIds(Store store, String topic, Set<Integer> ids) throws IOException {
        JsonNode fields = store.topics.getOrDefault(topic, MissingNode.getInstance());
        int count = Math.max(fields.path("readQueueNums").asInt(0), fields.path("writeQueueNums").asInt(0));
        for (int id = 0; id < Math.min(count, QUEUES_MAX); id++) {
            ids.add(id);
        }
        if (!topic.contains("/")) {
            ids.addAll(QueueFile.queueIds(store.files, store.root, topic));
        }
    }
}
