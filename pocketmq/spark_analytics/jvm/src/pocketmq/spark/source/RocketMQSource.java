package pocketmq.spark.source;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.SessionConfigSupport;
import org.apache.spark.sql.connector.catalog.Table;
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
        CaseInsensitiveStringMap options = TableProperties.options(given);
        TableProvider other = otherReader(options, null);
        return other == null ? new ReadRequest(options).schema() : other.inferSchema(options);
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(properties);
        CaseInsensitiveStringMap options = TableProperties.options(given);
        TableProvider other = otherReader(options, schema);
        if (other == null) {
            return new MessagesTable(new ReadRequest(options).withSchema(schema));
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
}
