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

    private final Map<String, Long> offsets;

    LogOffsets(Map<String, Long> offsets) {
        this.offsets = new TreeMap<>(offsets);
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

    /** Physical offsets by store. */
    Map<String, Long> byStore() {
        return offsets;
    }

    @Override
    public String json() {
        ObjectNode root = JSON.createObjectNode();
        if (offsets.keySet().equals(java.util.Set.of(ONLY))) {
            root.put(PHYSICAL_OFFSET, offsets.get(ONLY));
        } else {
            offsets.forEach((folder, offset) -> root.putObject(folder).put(PHYSICAL_OFFSET, offset));
        }
        return root.toString();
    }
}
