package pocketmq.spark.source;

import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;

/** Takes over from Spark what can be done while reading: columns, filters, a limit, aggregates. */
final class MessagesScanBuilder
        implements ScanBuilder, SupportsPushDownRequiredColumns, SupportsPushDownV2Filters, SupportsPushDownLimit,
                SupportsPushDownAggregates {
    private final ReadRequest request;
    private final PushedFilters filters;
    private StructType schema;
    private int limit = ReadSpec.NO_LIMIT;
    private Aggregates aggregates;

    MessagesScanBuilder(ReadRequest request) {
        this.request = request;
        this.filters = new PushedFilters(request);
        this.schema = request.schema();
    }

    @Override
    public void pruneColumns(StructType required) {
        schema = required;
    }

    @Override
    public Predicate[] pushPredicates(Predicate[] predicates) {
        return filters.push(predicates);
    }

    @Override
    public Predicate[] pushedPredicates() {
        return filters.pushed();
    }

    @Override
    public boolean pushLimit(int limit) {
        this.limit = limit;
        return true;
    }

    @Override
    public boolean isPartiallyPushed() {
        return true; // each task keeps to the limit by itself
    }

    @Override
    public boolean pushAggregation(Aggregation aggregation) {
        aggregates = Aggregates.of(aggregation, request);
        if (aggregates != null) {
            schema = aggregates.schema(request);
        }
        return aggregates != null;
    }

    @Override
    public Scan build() {
        return new MessagesScan(request, schema, filters, limit, aggregates);
    }
}
