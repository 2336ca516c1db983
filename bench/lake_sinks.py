"""Streams of a store into Delta Lake and Iceberg tables, killed between the write and its commit: each row once.

    python -m bench.lake_sinks delta|iceberg JARS [--messages 20000] [--plain]

JARS is a folder with the jars of the format for the installed Spark: delta-spark and delta-storage, or
iceberg-spark-runtime. The recipes are those of docs/spark.md. Each query is stopped after the table is written and before
Spark's checkpoint records the batch, as by a kill there; Spark then passes the same batch to `foreachBatch` again. With
--plain batches are appended without the recipe, which shows duplicate rows.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pocketmq.runtime.clock import SystemClock
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.format.message import Message
from pocketmq.store.message_store import MessageStore

HOST: Final = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
COLUMNS: Final = "topic string, queueId int, queueOffset bigint, physicalOffset bigint, body binary"
QUERY: Final = "orders-to-lake"
STOPS: Final = 3


class KilledError(RuntimeError):
    """Simulates a kill of the driver."""


# --- recipes --------------------------------------------------------------------------------------------------------


def to_delta(batch: Any, batch_id: int, table: str) -> None:
    """Append a micro-batch; Delta ignores a version that this application has already committed."""
    writer = batch.write.format("delta").mode("append")
    writer.option("txnAppId", QUERY).option("txnVersion", batch_id).save(table)


def to_iceberg(batch: Any, batch_id: int, table: str) -> None:
    """Append a micro-batch unless a snapshot of the table names it."""
    spark = batch.sparkSession
    done = spark.sql(f"SELECT max(CAST(summary['rocketmq.{QUERY}'] AS BIGINT)) FROM {table}.snapshots").first()[0]
    if done is None or batch_id > done:
        batch.writeTo(table).option(f"snapshot-property.rocketmq.{QUERY}", str(batch_id)).append()


RECIPES: Final = {"delta": to_delta, "iceberg": to_iceberg}


def plainly(batch: Any, _batch_id: int, table: str) -> None:
    """Append a micro-batch, whether or not the table already contains it."""
    if table.startswith("/"):
        batch.write.format("delta").mode("append").save(table)
    else:
        batch.writeTo(table).append()


# --- the run --------------------------------------------------------------------------------------------------------


def session(sink: str, jars: Path, folder: Path) -> Any:
    """Return a Spark session with the extension of a table format."""
    from pyspark.sql import SparkSession

    from pocketmq.spark_analytics.jvm import JAR

    names = ",".join(map(str, [*sorted(jars.glob("*.jar")), JAR]))
    builder = SparkSession.builder.master("local[1]").config("spark.jars", names).config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.sql.shuffle.partitions", "1").config("spark.ui.showConsoleProgress", "false")
    if sink == "delta":
        builder = builder.config("spark.databricks.delta.snapshotPartitions", "1")
        builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    else:
        extensions = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        builder = builder.config("spark.sql.extensions", extensions)
        builder = builder.config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        builder = builder.config("spark.sql.catalog.lake.type", "hadoop")
        builder = builder.config("spark.sql.catalog.lake.warehouse", str(folder / "lake"))
        # A query has a session of its own; a cached table would not show its commits in this one.
        builder = builder.config("spark.sql.catalog.lake.cache-enabled", "false")
    return builder.getOrCreate()


def write_store(folder: Path, messages: int) -> Path:
    config = MessageStoreConfig(store_path_root_dir=str(folder), mapped_file_size_commit_log=16 << 20)
    store = MessageStore(config, FileDisk(), SystemClock())
    store.load()
    store.start()
    for number in range(messages):
        store.commit_log.put(Message("Orders", number % 4, b"%d" % number, HOST, HOST, properties={}, properties_bytes=b""))
        if number % 200 == 199:
            store.dispatch()
    store.dispatch()
    store.shutdown()
    return folder


def run(spark: Any, store: Path, folder: Path, write: Callable[[Any, int], None]) -> None:
    """Stream until the end of the store; stop the query in some batches after their write, and start it again."""
    killed: set[int] = set()

    def write_then_stop(batch: Any, batch_id: int) -> None:
        write(batch, batch_id)
        if batch_id % 2 == 0 and len(killed) < STOPS and batch_id not in killed:
            killed.add(batch_id)
            raise KilledError(f"after the write of batch {batch_id}")

    while True:
        stream = spark.readStream.format("rocketmq").option("reader", "jvm").option("maxRecordsPerTrigger", "3000")
        frame = stream.schema(COLUMNS).load(str(store))
        writer = frame.writeStream.foreachBatch(write_then_stop).option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except Exception as error:
            if KilledError.__name__ not in str(error):
                raise
            continue
        assert len(killed) == STOPS, killed
        return


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sink", choices=("delta", "iceberg"))
    parser.add_argument("jars", type=Path)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--plain", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = session(asked.sink, asked.jars, folder)
        store = write_store(folder / "store", asked.messages)
        recipe = plainly if asked.plain else RECIPES[asked.sink]
        table = str(folder / "table") if asked.sink == "delta" else "lake.db.orders"
        if asked.sink == "iceberg":
            spark.sql(f"CREATE TABLE {table} ({COLUMNS}) USING iceberg")
        run(spark, store, folder, lambda batch, batch_id: recipe(batch, batch_id, table))
        rows = spark.read.format(asked.sink).load(table)
        count, distinct = rows.count(), rows.select("physicalOffset").distinct().count()
        print(f"{asked.sink}, Spark {spark.version}: {count} rows, {distinct} distinct, of {asked.messages} messages")
        spark.stop()
    sys.exit(0 if count == distinct == asked.messages else 1)


if __name__ == "__main__":
    main()
