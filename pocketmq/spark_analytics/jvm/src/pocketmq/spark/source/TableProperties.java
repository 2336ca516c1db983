package pocketmq.spark.source;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The properties of a table made by {@code CREATE TABLE ... USING rocketmq}, which Spark passes in place of a read's options:
 * its OPTIONS, its place, and others such as owner and comment, which are no options.
 */
final class TableProperties {
    private TableProperties() {}

    /** Returns the options within a table's properties; the argument itself if it is not of a table. */
    static CaseInsensitiveStringMap options(CaseInsensitiveStringMap given) {
        if (!given.containsKey(TableCatalog.PROP_PROVIDER)) {
            return given;
        }
        Map<String, String> options = new HashMap<>();
        given.asCaseSensitiveMap().forEach((key, value) -> {
            if (key.startsWith(TableCatalog.OPTION_PREFIX)) {
                options.put(key.substring(TableCatalog.OPTION_PREFIX.length()), value);
            }
        });
        // Without a location, the table's "path" is a folder that Spark has chosen for it.
        if (given.containsKey(TableCatalog.PROP_LOCATION)) {
            options.put("path", given.get(TableCatalog.PROP_LOCATION));
        }
        return new CaseInsensitiveStringMap(options);
    }
}
