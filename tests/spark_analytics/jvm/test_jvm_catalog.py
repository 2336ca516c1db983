"""Stores as tables of a catalog, in SQL."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from pocketmq.spark_analytics.session import DEFAULT_READER

pytestmark = pytest.mark.spark

CATALOG = "spark.sql.catalog.rocketmq"


@pytest.fixture(scope="module")
def catalog(spark: Any, java_built: bool, golden_stores: dict[str, Path]) -> Any:
    """A session with a catalog of two stores."""
    if not java_built:
        pytest.skip("no JDK")
    session = spark.newSession()
    session.conf.set(CATALOG, "pocketmq.spark.source.StoreCatalog")
    session.conf.set(f"{CATALOG}.path.broker_a", str(golden_stores["v4_clean"]))
    session.conf.set(f"{CATALOG}.path.broker_b", str(golden_stores["v5_clean"]))
    session.conf.set(DEFAULT_READER, "auto")
    return session


def test_stores_are_queried_as_tables(catalog: Any) -> None:
    counts = catalog.sql("SELECT topic, count(*) AS n FROM rocketmq.stores.broker_a GROUP BY topic").collect()
    assert {row.topic: row.n for row in counts}["GoldenDelay"] == 24
    both = catalog.sql(
        "SELECT topic FROM rocketmq.stores.broker_a WHERE topic = 'GoldenDelay' "
        "UNION ALL SELECT topic FROM rocketmq.stores.broker_b WHERE topic = 'V5Timer'"
    )
    assert both.count() == 24 + 19


def test_show_and_describe_statements(catalog: Any) -> None:
    namespaces = {row[0] for row in catalog.sql("SHOW NAMESPACES IN rocketmq").collect()}
    assert {"stores", "offsets", "delays"} <= namespaces
    assert {row.tableName for row in catalog.sql("SHOW TABLES IN rocketmq.stores").collect()} == {"broker_a", "broker_b"}
    described = {row.col_name for row in catalog.sql("DESCRIBE rocketmq.stores.broker_a").collect()}
    assert {"topic", "body", "properties"} <= described


def test_companion_tables(catalog: Any, spark: Any, golden_stores: dict[str, Path]) -> None:
    """Companion tables are read by the data source in Python."""
    offsets = catalog.sql("SELECT * FROM rocketmq.offsets.broker_a")
    direct = spark.read.format("rocketmq").option("table", "offsets").load(str(golden_stores["v4_clean"]))
    assert offsets.columns == direct.columns
    assert sorted(map(str, offsets.collect())) == sorted(map(str, direct.collect())) != []


def test_catalog_is_read_only(catalog: Any) -> None:
    for statement in ("DROP TABLE rocketmq.stores.broker_a", "CREATE NAMESPACE rocketmq.other"):
        with pytest.raises(PySparkException, match="is read-only: a broker writes the stores"):
            catalog.sql(statement)
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        catalog.sql("SELECT * FROM rocketmq.stores.broker_c")


def test_temporary_view_can_choose_its_reader(catalog: Any, golden_stores: dict[str, Path]) -> None:
    for reader in ("jvm", "python"):
        catalog.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW log USING rocketmq "
            f"OPTIONS (path '{golden_stores['v4_clean']}', READER '{reader}', Columns 'topic,queueId')"
        )
        assert catalog.sql("SELECT count(*) FROM log WHERE topic = 'GoldenRaw'").collect()[0][0] == 7


@pytest.fixture
def tables(catalog: Any) -> Iterator[Any]:
    """The session with the catalog; tables that a test makes in the session's own catalog are dropped."""
    yield catalog
    for row in catalog.sql("SHOW TABLES IN spark_catalog.default").collect():
        if not row.isTemporary:
            catalog.sql(f"DROP TABLE spark_catalog.default.{row.tableName}")


def test_tables_created_with_a_path_or_a_location(tables: Any, golden_stores: dict[str, Path]) -> None:
    store = golden_stores["v4_clean"]
    tables.sql(f"CREATE TABLE log USING rocketmq OPTIONS (path '{store}', COLUMNS 'topic,queueId') COMMENT 'messages'")
    tables.sql(f"CREATE TABLE raw (topic string, body binary) USING rocketmq OPTIONS (topic 'GoldenRaw') LOCATION '{store}'")
    tables.sql(f"""CREATE TABLE both USING rocketmq OPTIONS (paths '["{store}", "{golden_stores["v5_kill9"]}"]')""")
    assert tables.sql("SELECT count(*) FROM log WHERE topic = 'GoldenDelay'").first()[0] == 24
    assert tables.sql("SELECT count(body) FROM raw").first()[0] == 7
    assert tables.sql("SELECT count(*) FROM both").first()[0] == 2280 + 297
    assert [row.col_name for row in tables.sql("DESCRIBE log").collect()] == ["topic", "queueId"]
    before = sorted(store.rglob("*"))
    for name in ("log", "raw", "both"):
        tables.sql(f"DROP TABLE {name}")
    assert sorted(store.rglob("*")) == before, "the store is not the table's to delete"


def test_created_companion_table(tables: Any, golden_stores: dict[str, Path]) -> None:
    store = golden_stores["v4_clean"]
    tables.sql(f"CREATE TABLE lag USING rocketmq OPTIONS (path '{store}', table 'offsets')")
    direct = tables.read.format("rocketmq").option("table", "offsets").load(str(store))
    assert sorted(map(str, tables.table("lag").collect())) == sorted(map(str, direct.collect())) != []


def test_options_of_one_query_of_a_created_table(tables: Any, golden_stores: dict[str, Path]) -> None:
    tables.sql(f"CREATE TABLE log (topic string) USING rocketmq LOCATION '{golden_stores['v4_clean']}'")
    assert tables.read.option("topic", "GoldenRaw").table("log").count() == 7
    with pytest.raises(PySparkException, match="unknown option topik: did you mean topic"):
        tables.read.option("topik", "GoldenRaw").table("log").count()
    assert tables.table("log").count() == 2280


def test_create_table_checks_its_options(tables: Any, golden_stores: dict[str, Path]) -> None:
    for options, message in (
        (f"OPTIONS (path '{golden_stores['v4_clean']}', colums 'topic')", "unknown option colums: did you mean columns"),
        ("", "no store given"),
    ):
        with pytest.raises(PySparkException, match=message):
            tables.sql(f"CREATE TABLE bad USING rocketmq {options}")
