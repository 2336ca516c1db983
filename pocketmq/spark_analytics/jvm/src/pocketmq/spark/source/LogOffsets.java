package pocketmq.spark.source;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.connector.read.streaming.Offset;

/**
 * The progress of a query: for each store a physical offset; all records before it were returned.
 *
 * <p>It is stored as the data source in Python does, so that a query may go on with the other reader: for one store
 * {@code {"physicalOffset": N}}, for several the same under the path of each commitlog folder.
 */
final class LogOffsets extends Offset {
    /** Key of the only store of a query. */
    static final String ONLY = "";

    private static final String PHYSICAL_OFFSET = "physicalOffset";
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Physical offsets by store. */
    final Map<String, Long> byStore;

    LogOffsets(Map<String, Long> byStore) {
        this.byStore = new TreeMap<>(byStore);
    }

    /** Reads offsets from a checkpoint. Throws IllegalArgumentException. */
    static LogOffsets parse(String text) {
        Map<String, Long> offsets = new TreeMap<>();
        try {
            JsonNode root = JSON.readTree(text);
            if (root.has(PHYSICAL_OFFSET)) {
                offsets.put(ONLY, root.get(PHYSICAL_OFFSET).asLong());
            } else {
                root.fields().forEachRemaining(
                        entry -> offsets.put(entry.getKey(), entry.getValue().required(PHYSICAL_OFFSET).asLong()));
            }
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException("the checkpoint has offsets of another source: " + text, error);
        }
        return new LogOffsets(offsets);
    }

    @Override
    public String json() {
        ObjectNode root = JSON.createObjectNode();
        if (byStore.keySet().equals(java.util.Set.of(ONLY))) {
            root.put(PHYSICAL_OFFSET, byStore.get(ONLY));
        } else {
            byStore.forEach((folder, offset) -> root.putObject(folder).put(PHYSICAL_OFFSET, offset));
        }
        return root.toString();
    }
}
