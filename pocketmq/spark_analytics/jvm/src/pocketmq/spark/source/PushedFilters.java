package pocketmq.spark.source;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import pocketmq.spark.columns.Columns;
import pocketmq.spark.reading.Bounds;
import pocketmq.spark.reading.Pruning;

/**
 * The filters of a query that are applied while reading, exactly; Spark evaluates all others.
 *
 * <p>These are comparisons with constants, and IN, on topic, queueId, tags, keys, physicalOffset, queueOffset and
 * storeTimestamp.
 */
final class PushedFilters {
    private final ReadRequest request;
    private final List<Predicate> pushed = new ArrayList<>();
    private final Set<String> constrained = new HashSet<>();
    /** The selection of the options, restricted by the filters that were taken over. */
    Pruning pruning;

    PushedFilters(ReadRequest request) {
        this.request = request;
        this.pruning = request.options.pruning;
    }

    Predicate[] pushed() {
        return pushed.toArray(Predicate[]::new);
    }

    /** Takes over the filters that are understood; returns the others. */
    Predicate[] push(Predicate[] predicates) {
        List<Predicate> rest = new ArrayList<>();
        for (Predicate predicate : predicates) {
            Pruning narrowed = narrowed(predicate);
            if (narrowed == null) {
                rest.add(predicate);
            } else {
                pruning = narrowed;
                constrained.add(column(predicate));
                pushed.add(predicate);
            }
        }
        // Rows of damage have no topic, queue or time, but such rows are left out if records are selected by one of these.
        rest.removeIf(predicate -> predicate.name().equals("IS_NOT_NULL") && isNeverNull(column(predicate)));
        return rest.toArray(Predicate[]::new);
    }

    private boolean isNeverNull(String column) {
        return column != null
                && (constrained.contains(column) || column.equals(Columns.PHYSICAL_OFFSET) || request.isAlwaysKnown(column));
    }

    private static String column(Predicate predicate) {
        return predicate.children().length > 0 ? ReadRequest.columnName(predicate.children()[0]) : null;
    }

    /** Returns the selection restricted by a filter, null if the filter is not understood. */
    private Pruning narrowed(Predicate predicate) {
        String column = column(predicate);
        boolean isSet = predicate.name().equals("IN") || predicate.name().equals("=") || predicate.name().equals("<=>");
        return switch (column == null ? "" : column) {
            case Pruning.TOPIC, Pruning.TAGS, Pruning.KEYS -> {
                Set<String> texts = isSet ? texts(predicate) : null;
                yield texts == null ? null : pruning.with(column, texts);
            }
            case "queueId" -> {
                List<Object> ids = isSet ? values(predicate, DataTypes.IntegerType) : null;
                yield ids == null ? null
                        : pruning.withQueueIds(ids.stream().map(Integer.class::cast).collect(Collectors.toSet()));
            }
            // Rows of damage have a physical offset, but reading begins at the first record behind a lower bound.
            case Pruning.PHYSICAL_OFFSET ->
                    request.options.isPermissive() ? null : bounded(predicate, column, DataTypes.LongType);
            case Pruning.QUEUE_OFFSET -> bounded(predicate, column, DataTypes.LongType);
            case Pruning.STORE_TIMESTAMP -> bounded(predicate, column, DataTypes.TimestampType);
            default -> null;
        };
    }

    private Pruning bounded(Predicate predicate, String column, DataType type) {
        List<Object> values = values(predicate, type);
        Bounds bounds = values == null || values.size() != 1
                ? null : pruning.bounds(column).narrowed(predicate.name(), (Long) values.get(0));
        return bounds == null ? null : pruning.with(column, bounds);
    }

    /** Returns the constants that a column is compared with, null if one is of another type or null. */
    private static List<Object> values(Predicate predicate, DataType type) {
        List<Object> values = new ArrayList<>();
        Expression[] children = predicate.children();
        for (int index = 1; index < children.length; index++) {
            if (!(children[index] instanceof Literal<?> literal) || !type.equals(literal.dataType())
                    || literal.value() == null) {
                return null;
            }
            values.add(literal.value());
        }
        return values;
    }

    private static Set<String> texts(Predicate predicate) {
        List<Object> values = values(predicate, DataTypes.StringType);
        if (values == null) {
            return null;
        }
        Set<String> texts = new HashSet<>();
        for (Object value : values) {
            String text = value.toString();
            if (value instanceof UTF8String bytes && !UTF8String.fromString(text).equals(bytes)) {
                return null; // not valid UTF-8
            }
            texts.add(text);
        }
        return texts;
    }
}
