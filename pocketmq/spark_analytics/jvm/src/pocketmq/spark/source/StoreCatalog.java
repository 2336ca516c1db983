package pocketmq.spark.source;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A catalog of stores, so that SQL reads them by names: {@code SELECT ... FROM rocketmq.stores.broker_a}.
 *
 * <p>Settings, for a catalog named {@code rocketmq}: {@code spark.sql.catalog.rocketmq} names this class,
 * {@code spark.sql.catalog.rocketmq.path.broker_a} the place of a store; all others are options of every read, such as
 * {@code spark.sql.catalog.rocketmq.mode}. The namespace {@code stores} has the messages, the others are companion tables,
 * which the data source in Python reads. Nothing can be created, changed or dropped.
 */
public final class StoreCatalog implements TableCatalog, SupportsNamespaces {
    private static final String STORES = "stores";
    private static final List<String> NAMESPACES = List.of(
            STORES, "consumequeue", "index", "topics", "groups", "offsets", "delays", "transactions", "deliveries");
    private static final String PATH = "path.";

    private final Map<String, String> paths = new TreeMap<>();
    private final Map<String, String> options = new HashMap<>();
    private String name;

    @Override
    public void initialize(String name, CaseInsensitiveStringMap settings) {
        this.name = name;
        settings.asCaseSensitiveMap().forEach((key, value) -> {
            if (key.startsWith(PATH)) {
                paths.put(key.substring(PATH.length()), value);
            } else {
                options.put(key, value);
            }
        });
    }

    @Override
    public String name() {
        return name;
    }

    // --- namespaces and tables --------------------------------------------------------------------------------------

    @Override
    public String[][] listNamespaces() {
        return NAMESPACES.stream().map(name -> new String[] {name}).toArray(String[][]::new);
    }

    @Override
    public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
        if (namespace.length == 0) {
            return listNamespaces();
        }
        loadNamespaceMetadata(namespace);
        return new String[0][];
    }

    @Override
    public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
        if (!isKnown(namespace)) {
            throw new NoSuchNamespaceException(namespace);
        }
        return Map.of();
    }

    private static boolean isKnown(String[] namespace) {
        return namespace.length == 1 && NAMESPACES.contains(namespace[0]);
    }

    @Override
    public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
        loadNamespaceMetadata(namespace);
        return paths.keySet().stream().map(store -> Identifier.of(namespace, store)).toArray(Identifier[]::new);
    }

    @Override
    public Table loadTable(Identifier table) throws NoSuchTableException {
        String path = paths.get(table.name());
        if (path == null || !isKnown(table.namespace())) {
            throw new NoSuchTableException(table);
        }
        Map<String, String> read = new HashMap<>(options);
        read.put("path", path);
        if (!table.namespace()[0].equals(STORES)) {
            read.put("table", table.namespace()[0]);
        }
        RocketMQSource source = new RocketMQSource();
        return source.getTable(source.inferSchema(new CaseInsensitiveStringMap(read)), new Transform[0], read);
    }

    // --- unsupported changes ----------------------------------------------------------------------------------------

    private UnsupportedOperationException refused() {
        return new UnsupportedOperationException("catalog " + name + " is read-only: a broker writes the stores");
    }

    /** Spark 3.5 requires it, later versions deprecate it. */
    public Table createTable(
            Identifier table, StructType schema, Transform[] partitions, Map<String, String> properties) {
        throw refused();
    }

    @Override
    public Table alterTable(Identifier table, TableChange... changes) {
        throw refused();
    }

    @Override
    public boolean dropTable(Identifier table) {
        throw refused();
    }

    @Override
    public void renameTable(Identifier table, Identifier to) {
        throw refused();
    }

    @Override
    public void createNamespace(String[] namespace, Map<String, String> metadata) {
        throw refused();
    }

    @Override
    public void alterNamespace(String[] namespace, NamespaceChange... changes) {
        throw refused();
    }

    @Override
    public boolean dropNamespace(String[] namespace, boolean cascade) {
        throw refused();
    }
}
