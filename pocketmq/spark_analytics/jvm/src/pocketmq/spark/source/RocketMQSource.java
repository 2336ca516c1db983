package pocketmq.spark.source;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.SessionConfigSupport;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Data source {@code rocketmq}: reads the CommitLog of a RocketMQ broker as a table, directly from its files.
 *
 * <p>It gives the same results as the data source of this name in Python (spark_analytics/source), whose documentation
 * describes columns and options. Settings {@code spark.datasource.rocketmq.*} of a session count as options.
 */
public class RocketMQSource implements SessionConfigSupport, DataSourceRegister {
    private static final Logger LOG = LoggerFactory.getLogger(RocketMQSource.class);

    private TableProvider python;

    @Override
    public String shortName() {
        return "rocketmq";
    }

    @Override
    public String keyPrefix() {
        return shortName();
    }

    @Override
    public boolean supportsExternalMetadata() {
        return true; // a schema given by the user acts as the projection
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap given) {
        CaseInsensitiveStringMap options = optionsOf(given);
        TableProvider other = otherReader(options, null);
        return other == null ? new ReadRequest(options).schema() : other.inferSchema(options);
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(properties);
        CaseInsensitiveStringMap options = optionsOf(given);
        TableProvider other = otherReader(options, schema);
        if (other == null) {
            return new ReadRequest(options).withSchema(schema);
        }
        if (options != given) {
            other.inferSchema(options); // it keeps these options; Spark does not pass a table's to a source in Python
        }
        return other.getTable(schema, partitioning, options);
    }

    /** Returns the source that reads instead of this one, null if there is none. */
    private TableProvider otherReader(CaseInsensitiveStringMap options, StructType schema) {
        String reason = PythonReader.reason(options, schema);
        if (reason != null && python == null) {
            LOG.info("rocketmq: reader python, {}", reason);
            python = PythonReader.provider(reason);
        }
        return reason == null ? null : python;
    }

    /**
     * Returns the options within the properties of a table made by {@code CREATE TABLE ... USING rocketmq}, which Spark passes
     * in place of a read's options: its OPTIONS, its place, and others such as owner and comment, which are no options. If
     * they are not of a table, they are returned themselves.
     */
    private static CaseInsensitiveStringMap optionsOf(CaseInsensitiveStringMap given) {
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
