"""Damaged stores give the same rows and the same errors in the data sources in Java and in Python."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.spark_analytics.jvm.both_readers import java_refusal, java_rows, python_refusal, python_rows
from tests.spark_analytics.spark_logs import LogBuilder, write_queues
from tests.spark_analytics.test_spark_log_end import ends_in_zeros
from tests.support.amount import cases

pytestmark = pytest.mark.spark

STORES = cases(60, 120)
SHOWN = ("physicalOffset", "storePath", "topic", "body", "_corrupt_record")
SHOWN_BY_PYTHON = (*SHOWN[:-1], "_corrupt_record binary")


def damaged_log(random_: random.Random) -> LogBuilder:
    """Return a log of several files with one or two random kinds of damage."""
    log = LogBuilder(1500, 900, 1500)
    for number in range(random_.randrange(5, 40)):
        log.append(
            b"x" * random_.choice((0, 7, 90, 600)), "ABC"[number % 3] * random_.choice((1, 150)), {"KEYS": str(number)}
        )
        if random_.random() < 0.03:
            log.append(b"da a3 20 a7" * 5)
    for _ in range(random_.randrange(1, 3)):
        base, data = random_.choice(log.files)
        at = random_.randrange(len(data))
        match random_.randrange(6):
            case 0:
                data[at] ^= 1 << random_.randrange(8)
            case 1:
                stop = min(at + random_.randrange(400), len(data))
                data[at:stop] = bytes(stop - at)
            case 2:
                own = [offset - base for offset in log.physical_offsets if base <= offset < base + len(data)]
                for start in own[:1]:
                    data[start : start + 4] = random_.choice((0, 90, 91, 300, 1 << 30)).to_bytes(4)
            case 3:
                del data[at:]
            case 4:
                log.truncate(random_.choice(log.physical_offsets))
                log.append(b"new")
            case _:
                stop = min(at + random_.randrange(400), len(data))
                data[at:stop] = random_.randbytes(stop - at)
    if len(log.files) > 2 and random_.random() < 0.2:
        del log.files[random_.randrange(1, len(log.files) - 1)]
    log.files = [file for file in log.files if file[1]]
    return log


@pytest.fixture(scope="module")
def damaged_stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    random_ = random.Random(2035)
    folder = tmp_path_factory.mktemp("damaged")
    return [damaged_log(random_).write(folder / f"{number:03}") for number in range(STORES)]


@pytest.mark.parametrize(
    ("mode", "split_size"),
    [("PERMISSIVE", 333), ("DROPMALFORMED", 1 << 20), *cases([], [("PERMISSIVE", 1 << 20), ("DROPMALFORMED", 333)])],
)
def test_rows_of_randomly_damaged_stores(jvm_spark: Any, damaged_stores: list[Path], mode: str, split_size: int) -> None:
    stores = damaged_stores if split_size > 333 else damaged_stores[::3]
    rows = java_rows(jvm_spark, stores, *SHOWN, mode=mode, maxPartitionBytes=split_size)
    expected = python_rows(stores, *SHOWN_BY_PYTHON, mode=mode, maxPartitionBytes=split_size)
    assert rows == expected
    assert len({row["storePath"] for row in rows}) > len(stores)
    if mode == "PERMISSIVE":
        assert sum(row["topic"] is None for row in rows) > len(stores) // 3


def stated(message: str) -> str:
    """Return the part of an error that names the damage."""
    return message[message.index("damaged record") :].partition(";")[0] if "damaged record" in message else message


def test_failfast_names_the_same_damage(jvm_spark: Any, damaged_stores: list[Path]) -> None:
    refusals = [
        (stated(java_refusal(jvm_spark, store, *SHOWN)), stated(python_refusal(store, *SHOWN_BY_PYTHON)))
        for store in damaged_stores[::6]
    ]
    assert [one for one, _ in refusals] == [other for _, other in refusals]
    assert sum(bool(one) for one, _ in refusals) > len(refusals) // 3


def test_topics_read_through_queues_of_damaged_stores(jvm_spark: Any, tmp_path: Path) -> None:
    random_ = random.Random(7)
    stores = []
    for number in range(cases(14, 40)):
        log = LogBuilder(1500, 900, 1500)
        for record in range(30):
            log.append(b"y" * random_.choice((0, 80, 300)), "ABC"[record % 3], {"TAGS": str(record % 2)})
        store = log.write(tmp_path / str(number))
        write_queues(store)
        path = random_.choice(sorted((store / "commitlog").iterdir()))
        data = bytearray(path.read_bytes())
        at = random_.randrange(len(data))
        match random_.randrange(4):
            case 0:
                data[at] ^= 0xFF
            case 1:
                data[at : at + 100] = bytes(len(data[at : at + 100]))
            case 2:
                del data[at:]
            case _:
                (store / "abort").touch()
        path.write_bytes(data)
        stores.append(store)
    names = ("physicalOffset", "storePath", "topic", "body")
    for options in ({"topic": "A"}, {"topic": "A,B", "queueId": "3"}, {"topic": "C", "startingOffset": "1000"}):
        rows = java_rows(jvm_spark, stores, *names, mode="DROPMALFORMED", **options)
        assert rows == python_rows(stores, *names, mode="DROPMALFORMED", **options)
        assert len({row["storePath"] for row in rows}) > len(stores)


def test_errors_name_option_and_column(jvm_spark: Any, golden_stores: dict[str, Path], tmp_path: Path) -> None:
    store = golden_stores["v4_clean"]
    for options in (
        {"topik": "T"}, {"mode": "LENIENT"}, {"bodyAs": "text"}, {"maxPartitionBytes": "0"}, {"startingOffset": "-1"},
        {"startingOffset": "5", "endingOffset": "4"}, {"startingTimestamp": "yesterday"},
        {"delayLevel": "1x"}, {"topic": "a,,b"}, {"ignoreMissingFiles": "maybe"},
    ):  # fmt: skip
        refused = java_refusal(jvm_spark, store, "topic", "physicalOffset", **options)
        (name, value) = next(iter(options.items()))
        assert (name.lower() if name == "topik" else value) in refused, options
    assert "did you mean topic?" in java_refusal(jvm_spark, store, "topik")
    assert f"no store at {tmp_path}/absent" in java_refusal(jvm_spark, tmp_path / "absent", "physicalOffset")
    assert f"no commit log in {tmp_path}" in java_refusal(jvm_spark, tmp_path, "physicalOffset")


def test_errors_have_a_condition_and_an_sqlstate(
    jvm_spark: Any, spark: Any, golden_stores: dict[str, Path], tmp_path: Path
) -> None:
    log = LogBuilder(20_000)
    while len(log.files) < 2:
        log.append()
    log.files[0][1][500:900] = b"x" * 400
    store, damaged = golden_stores["v4_clean"], log.write(tmp_path)
    known: list[tuple[str, str, Path, dict[str, str]]] = [
        ("ROCKETMQ_PATH_NOT_FOUND", "42K03", store / "absent", {}),
        ("ROCKETMQ_INVALID_OPTION", "42616", store, {"topik": "T"}),
        ("ROCKETMQ_INVALID_OPTION", "42616", store, {"mode": "WRONG"}),
        ("ROCKETMQ_INVALID_COLUMN", "42703", store, {"columns": "topik"}),
        ("ROCKETMQ_UNKNOWN_TOPIC", "42704", store, {"topic": "absent"}),
        ("ROCKETMQ_DAMAGED_RECORD", "22023", damaged, {}),
    ]
    for condition, sql_state, path, options in known:
        with pytest.raises(PySparkException) as caught:
            jvm_spark.read.format("rocketmq").options(**options).load(str(path)).collect()
        assert (caught.value.getCondition(), caught.value.getSqlState()) == (condition, sql_state)
        assert f"[{condition}] " in str(caught.value) and f"SQLSTATE: {sql_state}" in str(caught.value)
        with pytest.raises(PySparkException, match=rf"\[{condition}\].* SQLSTATE: {sql_state}"):
            spark.read.format("rocketmq").options(**options).load(str(path)).collect()


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize("is_listed", [False, True])
def test_a_last_record_that_ends_in_zeros_is_the_same(
    jvm_spark: Any, tmp_path: Path, is_listed: bool, is_torn: bool
) -> None:
    store, log = ends_in_zeros(tmp_path, is_listed=is_listed, is_torn=is_torn)
    for options in ({}, {"topic": "T"}):
        rows = java_rows(jvm_spark, store, "physicalOffset", "rawProperties", **options)
        assert rows == python_rows(store, "physicalOffset", "rawProperties", **options)
        assert len(rows) == len(log.physical_offsets) - (0 if is_listed and not is_torn else 1)


def test_records_that_end_in_zeros_within_the_log_are_the_same(jvm_spark: Any, tmp_path: Path) -> None:
    log = LogBuilder(64 << 10)
    for number in range(40):
        log.append(properties=b"KEYS\x01" + bytes([64 + number]) + bytes(number % 9))
    store = log.write(tmp_path)
    rows = java_rows(jvm_spark, store, "physicalOffset")
    assert rows == python_rows(store, "physicalOffset")
    assert [row["physicalOffset"] for row in rows] == log.physical_offsets[: 40 if 39 % 9 == 0 else -1]
