"""Filters are exact: random filters over stores that administration has touched select the rows of a plain loop.

The three readers are the source in Java with a query's own conditions and with options, the source in Python with options
and with pushed filters, and Arrow without Spark. POCKETMQ_FILTERS sets the number of filters.
"""

import os
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan

from pocketmq import spark_analytics
from pocketmq.spark_analytics.reading.options import read_options
from pocketmq.spark_analytics.reading.pruning import Pruning
from tests.spark_analytics.administered import TAGS, TOPICS, Row, administered, plain_records
from tests.spark_analytics.jvm.both_readers import java_frame
from tests.spark_analytics.spark_logs import physical_offsets

pytestmark = pytest.mark.spark

FILTERS = int(os.environ.get("POCKETMQ_FILTERS", "16"))
FILTERS_A_STORE = 8
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# One condition: its column, whether a row meets it, the column expression, the options, and filters that Spark pushes.
Condition = tuple[Callable[[Row], bool], Any, dict[str, str], list[Any]]


def at(time_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=time_ms)


def a_range(name: str, low: int, high: int, option: str = "") -> Condition:
    options = {f"starting{option}": str(low), f"ending{option}": str(high)} if option else {}
    return (
        lambda row: low <= row[name] < high,
        (F.col(name) >= low) & (F.col(name) < high),
        options,
        [GreaterThanOrEqual((name,), low), LessThan((name,), high)] if option else [],
    )


def times(low: int, high: int) -> Condition:
    column = F.col("storeTimestamp")
    return (
        lambda row: low <= row["stored_ms"] < high,
        (column >= F.lit(at(low))) & (column < F.lit(at(high))),
        {"startingTimestamp": str(low), "endingTimestamp": str(high)},
        [GreaterThanOrEqual(("storeTimestamp",), at(low)), LessThan(("storeTimestamp",), at(high))],
    )


def one_of(name: str, values: list[Any], option: str = "") -> Condition:
    options = {option: ",".join(map(str, values))} if option else {}
    pushed = [EqualTo((name,), values[0]) if len(values) == 1 else In((name,), tuple(values))] if option else []
    return lambda row: row[name] in values, F.col(name).isin(values), options, pushed


def conditions(choice: random.Random, rows: list[Row]) -> list[Condition]:
    """Return one to three conditions on different columns, near values that occur."""
    first, last = sorted(choice.choice(rows)["physicalOffset"] for _ in range(2))
    low, high = sorted(choice.choice(rows)["stored_ms"] for _ in range(2))
    makers: dict[str, Callable[[], Condition]] = {
        "topic": lambda: one_of("topic", choice.sample((*TOPICS, "Absent"), choice.choice((1, 1, 2))), "topic"),
        "queueId": lambda: one_of("queueId", choice.sample((0, 1, 2, 7), choice.choice((1, 2))), "queueId"),
        "physicalOffset": lambda: a_range("physicalOffset", first + choice.randrange(2), last + 1, "Offset"),
        "storeTimestamp": lambda: times(low, high + choice.choice((0, 1, 60_000))),
        "tags": lambda: one_of("tags", choice.sample(TAGS[1:], 1)),
        "keys": lambda: one_of("keys", [f"k{choice.randrange(9)}"]),
        "queueOffset": lambda: a_range("queueOffset", choice.randrange(30), choice.randrange(30, 90)),
    }
    names = choice.sample(list(makers), choice.choice((1, 1, 2, 3)))
    if "topic" not in names and choice.random() < 0.5:
        names.append("topic")
    return [makers[name]() for name in names]


def selected(rows: list[Row], own: list[Condition]) -> list[int]:
    return sorted(row["physicalOffset"] for row in rows if all(condition[0](row) for condition in own))


def check(spark: Any, store: Path, rows: list[Row], own: list[Condition], options: dict[str, str], told: str) -> None:
    """Compare the rows of each reader with those of the plain loop."""
    columns = ("physicalOffset", "topic", "queueId", "storeTimestamp", "tags", "keys", "queueOffset")
    frame = java_frame(spark, store, *columns, **options)
    for condition in own:
        frame = frame.where(condition[1])
    java = sorted(row.physicalOffset for row in frame.select("physicalOffset").collect())
    assert java == selected(rows, own), f"Java, where: {told}"

    given = options | {"ignoreUnknownTopics": "true"}
    for condition in own:
        given |= condition[2]
    with_option = [condition for condition in own if condition[2]]
    expected = selected(rows, with_option)
    frame = java_frame(spark, store, "physicalOffset", **given)
    assert sorted(row.physicalOffset for row in frame.collect()) == expected, f"Java, options: {told}"
    assert sorted(physical_offsets(store, **given)) == expected, f"Python: {told}"
    found = spark_analytics.arrow(str(store), "physicalOffset", **given).read_all().column(0).to_pylist()
    assert sorted(found) == expected, f"Arrow: {told}"

    pruning = Pruning.of(read_options({"path": "/"})).narrowed([pushed for condition in own for pushed in condition[3]])
    assert pruning == Pruning.of(read_options({"path": "/", **given})), f"pushed filters: {told}"


@pytest.mark.parametrize("seed", range(-(-FILTERS // FILTERS_A_STORE)))
def test_random_filters_select_the_rows_of_a_plain_loop(jvm_spark: Any, tmp_path: Path, seed: int) -> None:
    store = tmp_path / "store"
    done = administered(store, seed)
    rows = list(plain_records(store))
    assert sorted(physical_offsets(store)) == [row["physicalOffset"] for row in rows]
    choice = random.Random(seed)
    for number in range(FILTERS_A_STORE):
        own = conditions(choice, rows)
        split_size = choice.choice(("", "1k", "9k"))
        options = {"maxPartitionBytes": split_size} if split_size else {}
        told = f"store {seed} ({', '.join(done)}), filter {number}: {[str(condition[1]) for condition in own]}, {options}"
        check(jvm_spark, store, rows, own, options, told)
