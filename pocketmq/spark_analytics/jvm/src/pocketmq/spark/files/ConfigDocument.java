package pocketmq.spark.files;

import com.fasterxml.jackson.core.json.JsonReadFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.MissingNode;
import java.io.IOException;
import java.util.List;

/** Documents of a store's folder {@code config}, as brokers write them. */
public final class ConfigDocument {
    private static final JsonMapper JSON = JsonMapper.builder()
            .enable(JsonReadFeature.ALLOW_UNQUOTED_FIELD_NAMES, JsonReadFeature.ALLOW_SINGLE_QUOTES,
                    JsonReadFeature.ALLOW_TRAILING_COMMA)
            .build();

    private ConfigDocument() {}

    /** Returns a document of a store, or its copy {@code .bak}; a node without fields if none is readable. */
    public static JsonNode of(StoreFiles files, String root, String document) throws IOException {
        String path = StoreFiles.join(root, "config", document);
        for (String name : List.of(path, path + ".bak")) {
            if (files.isFile(name)) {
                try (FileBytes bytes = files.open(name)) {
                    JsonNode read = JSON.readTree(bytes.bytes(0, Math.toIntExact(files.size(name))));
                    if (read != null && read.isObject()) {
                        return read;
                    }
                } catch (com.fasterxml.jackson.core.JacksonException error) {
                    continue; // the copy may be readable
                }
            }
        }
        return MissingNode.getInstance();
    }
}
