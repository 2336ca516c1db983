package pocketmq.spark.source;

import java.io.IOException;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import pocketmq.spark.columns.Column;
import pocketmq.spark.columns.Columns;
import pocketmq.spark.files.LogFile;
import pocketmq.spark.reading.BrokerNames;
import pocketmq.spark.reading.OptionParser;
import pocketmq.spark.reading.ReadException;
import pocketmq.spark.reading.ReadOptions;
import pocketmq.spark.reading.Split;

/** The table of a query: validated options, and the columns that they or a schema name, of the messages of some stores. */
final class ReadRequest implements SupportsRead {
    final CaseInsensitiveStringMap given;
    final ReadOptions options;
    private final Map<String, Column> known;
    private List<Column> columns;

    /** Throws IllegalArgumentException for an unknown column or option. */
    ReadRequest(CaseInsensitiveStringMap given) {
        this.given = given;
        options = new ReadOptions(given);
        Columns all = options.columns();
        known = all.known;
        List<String> names = options.columnNames == null ? all.usual(options.isOneStore()) : options.columnNames;
        columns = names.stream().map(this::column).toList();
    }

    /** The read as Spark shows it in plans and in the progress of streams. */
    @Override
    public String toString() {
        return "rocketmq (reader jvm) " + String.join(", ", options.paths);
    }

    @Override
    @SuppressWarnings("deprecation") // its successor columns() would need a class of Spark for each column
    public StructType schema() {
        return new StructType(columns.stream().map(Column::field).toArray(StructField[]::new));
    }

    /** Takes a user's schema as the projection. Throws IllegalArgumentException. */
    ReadRequest withSchema(StructType schema) {
        List<Column> named = new ArrayList<>();
        for (StructField field : schema.fields()) {
            Column column = column(field.name());
            String type = field.dataType().simpleString();
            if (!column.type().simpleString().equals(type)) {
                throw ReadException.column("column " + field.name() + " is " + column.type().simpleString()
                        + ", but the schema has " + type + ": cast it after reading");
            }
            if (column.isNullable() && !field.nullable()) {
                throw ReadException.column("column " + field.name() + " may be null in mode " + options.mode
                        + ": leave NOT NULL out of the schema");
            }
            named.add(column.nullable(field.nullable()));
        }
        if (options.columnNames != null && !options.columnNames.equals(List.of(schema.names()))) {
            throw ReadException.column("option columns is " + String.join(", ", options.columnNames)
                    + ", the schema has others: use only one of them");
        }
        columns = named;
        return this;
    }

    /** Returns this request with the options of one query of a table. Throws IllegalArgumentException. */
    private ReadRequest withOptions(CaseInsensitiveStringMap more) {
        Map<String, String> all = new HashMap<>(given);
        all.putAll(more);
        return all.equals(new HashMap<>(given)) ? this : new ReadRequest(new CaseInsensitiveStringMap(all)).withSchema(schema());
    }

    /** Returns splits with the names of their brokers, if these are asked for. */
    List<Split> named(List<Split> splits, List<LogFile> files, List<String> names) throws IOException {
        boolean isAsked = names.contains(Columns.BROKER_NAME) || !options.brokerNames.isEmpty();
        return isAsked ? BrokerNames.named(splits, files, options.brokerNames) : splits;
    }

    /** Returns a column by its name. Throws IllegalArgumentException. */
    Column column(String name) {
        Column column = known.get(name);
        if (column == null) {
            throw ReadException.column("unknown column " + name + ": " + OptionParser.nearest(name, known.keySet())
                    + "; the columns are " + String.join(", ", known.keySet()));
        }
        return column;
    }

    /** Returns the name of the column that an expression is, null if it is something else. */
    static String columnName(Expression expression) {
        return expression instanceof NamedReference reference && reference.fieldNames().length == 1
                ? reference.fieldNames()[0] : null;
    }

    /** Returns whether a column has a value in every row that is not damaged. */
    boolean isAlwaysKnown(String name) {
        Column column = known.get(name);
        return column != null && !column.isNullable();
    }

    @Override
    public String name() {
        return "rocketmq " + String.join(", ", options.paths);
    }

    @Override
    public Set<TableCapability> capabilities() {
        return EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap more) {
        return new MessagesScan(withOptions(more));
    }
}
