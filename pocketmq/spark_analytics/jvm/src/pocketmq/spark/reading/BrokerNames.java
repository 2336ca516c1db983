package pocketmq.spark.reading;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import pocketmq.spark.files.ConfigDocument;
import pocketmq.spark.files.FileBytes;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.files.StoreFiles;

/** Names of the brokers that stores belong to; spark_analytics/files/broker_names.py describes where a store has it. */
public final class BrokerNames {
    private static final String IDENTITY = "brokerIdentity";
    private static final String MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_";
    private static final String REPLY_SUFFIX = "_REPLY_TOPIC";
    /** A built-in topic that also has the permission. */
    private static final String DEFAULT_TOPIC = "TBW102";

    private static final int PERM_INHERIT = 1;
    /** Folders whose names say nothing about the broker. */
    private static final Set<String> COMMON = Set.of("store", "commitlog", "");

    private BrokerNames() {}

    /** Returns splits of some files with the names of their brokers, given or found. Throws IllegalArgumentException. */
    public static List<Split> named(List<Split> splits, List<LogFile> files, Map<String, String> given)
            throws IOException {
        Set<String> stores = new TreeSet<>(files.stream().map(LogFile::store).toList());
        for (String store : new TreeSet<>(given.keySet())) {
            if (!stores.contains(store)) {
                throw ReadException.option(
                        "option brokerNames has " + store + ": the stores are " + String.join(", ", stores));
            }
        }
        Map<String, String> names = new TreeMap<>();
        for (Split split : splits) {
            String store = split.file().store();
            if (!names.containsKey(store)) {
                String own = given.get(store);
                names.put(store, own == null ? name(split.file().files(), store) : own);
            }
        }
        return splits.stream().map(split -> split.named(names.get(split.file().store()))).toList();
    }

    private static String name(StoreFiles files, String root) throws IOException {
        String name = ofIdentity(files, StoreFiles.join(root, IDENTITY));
        if (name.isEmpty()) {
            name = ofTopics(ConfigDocument.of(files, root, "topics.json").path("topicConfigTable"));
        }
        return name.isEmpty() ? ofFolder(root) : name;
    }

    private static String ofIdentity(StoreFiles files, String path) throws IOException {
        if (!files.isFile(path)) {
            return "";
        }
        try (FileBytes bytes = files.open(path)) {
            byte[] text = bytes.bytes(0, Math.toIntExact(files.size(path)));
            String[] parts = new String(text, StandardCharsets.UTF_8).strip().split("[;#]", -1);
            return parts.length == 3 ? parts[1] : "";
        }
    }

    private static String ofTopics(JsonNode topics) {
        List<String> named = new ArrayList<>();
        List<String> own = new ArrayList<>();
        Set<String> others = new HashSet<>(Set.of(DEFAULT_TOPIC));
        for (String topic : (Iterable<String>) topics::fieldNames) {
            if (topic.startsWith(MEMBER_PREFIX)) {
                named.add(topic.substring(MEMBER_PREFIX.length()));
            } else if (isBuiltIn(topics.get(topic))) {
                own.add(topic);
            }
            if (topic.endsWith(REPLY_SUFFIX)) {
                others.add(topic.substring(0, topic.length() - REPLY_SUFFIX.length()));
            }
        }
        own.removeAll(others);
        return named.size() == 1 ? named.get(0) : own.size() == 1 ? own.get(0) : "";
    }

    private static boolean isBuiltIn(JsonNode topic) {
        return (topic.path("perm").asInt(0) & PERM_INHERIT) != 0
                && topic.path("readQueueNums").asInt(0) == 1
                && topic.path("writeQueueNums").asInt(0) == 1;
    }

    private static String ofFolder(String root) {
        String path = root.replaceFirst("/+$", "");
        while (COMMON.contains(StoreFiles.name(path)) && !path.isEmpty() && !path.equals(StoreFiles.parent(path))) {
            path = StoreFiles.parent(path);
        }
        return StoreFiles.name(path);
    }
}
