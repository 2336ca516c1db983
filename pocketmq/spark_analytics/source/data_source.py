"""Data source `rocketmq`: `spark.read.format("rocketmq").load(STORE)` reads CommitLog files as a table.

STORE is a store's root, its commitlog folder, one file, a glob of these, or a list of such, of one broker or several; each
a path or a URL. No broker is needed, and a running one is not disturbed: files are only read, and no lock is taken. A query
sees the log as it was when the query was planned.

Spark tells a Python data source which filters apply, but not which columns are used, so a schema given by the user acts as
the projection: `.schema("topic string, storeTimestamp timestamp")` decodes two columns and nothing else, as does the option
`columns`. The columns of `columns.COLUMNS` form the default schema, with brokerName at its end where several stores are
named; those of `derived_columns` must be requested by name.

Options:
    columns             comma-separated column names, instead of a schema
    groupBy, aggregates one row per group and task instead of messages, for example `topic` and `count, sum(storeSize)`
                        (see `aggregates`)
    topic, queueId      only these, comma-separated; read through the ConsumeQueues where these are usable
    startingTimestamp, endingTimestamp    only records stored in this interval, the end excluded: ms since 1970, or ISO 8601,
                        UTC if it has no zone
    startingOffset, endingOffset          the same for physical offsets
    bodyAs              stored (default); plain: decompressed; string: decompressed, as text; json: the same, null if invalid
                        avro, protobuf: a struct
    bodySchema          with bodyAs=json: `body` is a struct of these fields, in DDL or Spark's JSON notation; infer: of the
                        fields that a sample has. A struct in the user's schema does the same. With avro: the Avro schema, or
                        its file; with protobuf: the file of a descriptor set
    bodyMessage         with bodyAs=protobuf: the full name of the message
    bodyDecoders        a JSON object, or its file, with these options for each topic; `body` has one field for each of them
    inferSamples        number of records in the sample of bodySchema=infer, default 1000
    mode                FAILFAST (default): the query fails at a damaged record before the end of the log; DROPMALFORMED:
                        continues with the next intact record; PERMISSIVE: the same, with a row of nulls for the damage
    columnNameOfCorruptRecord             name of the binary column for damaged bytes, default `_corrupt_record`
    delayLevel          the broker's messageDelayLevel, for deliverTime
    maxPartitionBytes   bytes per task, a number with optional k, m or g, such as `64m`. Default: half of an even share per
                        processor of the driver's machine, from `128m` to `512m`
    brokerNames         a JSON object of stores' root folders and names, for brokerName, where the stores do not tell it
                        (`broker_names`)
    dropReplicas        true (default): of the records that several stores have, as master and slave, each is read once
                        (`replicas`)
    ignoreMissingFiles  true: skip files that retention deletes while the query runs
    pushFilters         true: apply the query's filters on topic, queueId, physicalOffset and storeTimestamp while reading;
                        needs spark.sql.python.filterPushdown.enabled. Use it only for a DataFrame that is filtered once:
                        Spark (4.3) keeps the filters with the loaded table, so a later query without filters, or the
                        other side of a union or join, misses rows. Therefore off by default
    table               another table than `messages`: consumequeue, index, topics, groups, offsets, delays, transactions,
                        deliveries (see `tables`)
    reader              auto (default), python or jvm. If the jar of `pocketmq.spark_analytics.jvm` is on the session's class
                        path, Spark takes the data source in Java, which hands over to this one for `python`; without the
                        jar `jvm` is refused
"""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

import pocketmq
from pocketmq.spark_analytics.reading.body_inference import resolved
from pocketmq.spark_analytics.reading.log_reader import asked_columns
from pocketmq.spark_analytics.reading.options import STREAM_OPTIONS, read_options
from pocketmq.spark_analytics.source.batch import CommitLogReader, FilteringCommitLogReader, TableReader
from pocketmq.spark_analytics.source.errors import named_errors
from pocketmq.spark_analytics.tables.table import asked_table

log = logging.getLogger(__name__)

JAVA_SOURCE: Final = "pocketmq.spark.source.RocketMQSource"
READERS: Final = ("auto", "python", "jvm")


class RocketMQDataSource(DataSource):  # type: ignore[misc]
    """The data source `rocketmq`."""

    @named_errors()
    def __init__(self, options: Any) -> None:
        super().__init__(options)
        reader = options.get("reader", READERS[0]).strip().lower()
        if reader not in READERS:
            raise ValueError(f"option reader is {reader}: it must be one of {', '.join(READERS)}")
        if reader == "jvm":
            raise ValueError(
                "option reader is jvm, but the jar is not on the class path of this session: "
                "start it with --jars and the path that `python -m pocketmq.spark_analytics.jvm` prints"
            )

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    @named_errors()
    def schema(self) -> str:
        table = asked_table(self.options)
        if table is not None:
            return table.ddl
        asked = resolved(read_options(self.options, STREAM_OPTIONS))
        return ", ".join(column.ddl for column in asked_columns(asked))

    @named_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        table = asked_table(self.options)
        if table is not None:
            return TableReader(table, schema, self.options)
        # Spark refuses a reader with pushFilters while its own setting is off; its error names the setting.
        kind = FilteringCommitLogReader if read_options(self.options).push_filters else CommitLogReader
        return kind(schema, self.options)

    @named_errors()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pocketmq.spark_analytics.source import streaming  # needs PySpark 4.2

        reader: DataSourceStreamReader = streaming.CommitLogStreamReader(schema, self.options)
        return reader


@contextmanager
def _this_python(spark: Any) -> Iterator[None]:
    """Let the workers of a local session run this Python, and find this package, whatever is in the working folder.

    Spark takes a data source's Python and environment when it is registered; those of the user's functions stay as they are.
    """
    context = None if is_remote() else spark.sparkContext
    if context is None or not context.master.startswith("local"):
        yield
        return
    program, environment = context.pythonExec, dict(context.environment)
    if "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    folder = str(Path(pocketmq.__file__).resolve().parents[1])
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    # Without it, Python looks into the working folder first.
    context.environment["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        context.pythonExec = program
        context.environment.clear()
        context.environment.update(environment)


def register(spark: Any) -> None:
    """Register the format `rocketmq` with a session. If the jar is on its class path, Spark prefers the reader in Java."""
    try:
        with _this_python(spark):
            spark.dataSource.register(RocketMQDataSource)
    except PySparkException as error:
        # Spark 4.0 refuses the name of a data source in Java. It still finds `pyspark_rocketmq` by itself for reader=python.
        if error.getErrorClass() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    log.info("rocketmq: reader %s, unless the option reader is given", "jvm" if has_jar(spark) else "python")


def has_jar(spark: Any) -> bool:
    """Return whether the data source in Java is on the class path of a session."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:  # Spark Connect
        return False
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return jvm.java.lang.Class.forName(JAVA_SOURCE, False, loader) is not None
    except (PySparkException, Py4JError):
        return False
