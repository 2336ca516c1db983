package pocketmq.spark.source;

import java.util.EnumSet;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The messages of one or several stores. */
record MessagesTable(ReadRequest request) implements SupportsRead {
    @Override
    public String name() {
        return "rocketmq " + String.join(", ", request.options.paths);
    }

    @Override
    @SuppressWarnings("deprecation") // its successor columns() would need a class of Spark for each column
    public StructType schema() {
        return request.schema();
    }

    @Override
    public Set<TableCapability> capabilities() {
        return EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new MessagesScanBuilder(request.withOptions(options));
    }
}
