"""Batches of a topic with `queue.type=BatchCQ`, as Apache 5.5.0 stores them, read as messages by every reader."""

import base64
import zlib
from pathlib import Path
from typing import Any

import pytest

from pocketmq import spark_analytics
from tests.spark_analytics.jvm.both_readers import EVERY, java_rows, python_rows
from tests.spark_analytics.spark_logs import LogBuilder, read

pytestmark = pytest.mark.spark

# CommitLog of a 5.5.0 broker: two batches of three messages, sent by its own client, and one message alone.
LOG = zlib.decompress(
    base64.b85decode(
        "c-pm+KTpCy7>Do9;J?Yq#f2|ma@Pvfv9y&CrN*{Iof?D#2~BIDHDNN*#W=CJI5<F}3+%cWKZB#2gWto0qOFZJAq|(b*Y|DHd+v7+0I2sqNI!bF"
        "ttN;cuK>XQhBq8uum=D>-u!xm{n~y0{W-j5x2sTNX?&eHwQd??P~TOKb=acaO^i`lEgqPx0e58l-{3IM6C&qjk`=Q;4$Bf2r11-MC>9Oqwmpgr"
        "v7keGPHkjEjM$QwA%x`sfdCpHki-Ziis000jDVm>2rB^r7Y>0-Ou)s2z@gQA#jTzi&RMex21Qj>G&3*i3X7+t7fekl6!%pq(|X0TT#YuGj-42W"
        "N77zdHx%vrzmny3T-pvZYNDi=Y~@MiW2xm5<XL3CkNC*?j5xU9PpB98IJ$}WcsH|;B<v$e;$ub-S$}JGA4%9pLJ}inX7-VUeI#6Bg6zyb^7HV~"
        "hsh=L5w4AWTpztWMSNWJr&N0C*x0}Oh>!iheFUkB<=8YF#=|`Jzpb#o5V!xy$#j}_!=mWt^rv-PHeV~mUXT"
    )
)
# What the pull consumer of 5.5.0 showed: queue offset, physical offset, flag, msgId, body, tags, keys, property n.
CONSUMED = [
    (0, 0, 7, "FD00000000000000000000000000000203311DBD16A6870DC08C0000", b"body 00", "even", "key-00", "0"),
    (1, 0, 8, "FD00000000000000000000000000000203311DBD16A6870DC08C0001", b"body 01", "odd", "key-01", "1"),
    (2, 0, 9, "FD00000000000000000000000000000203311DBD16A6870DC08C0002", b"body 02", "even", "key-02", "2"),
    (3, 656, 7, "FD00000000000000000000000000000203311DBD16A6870DC58A0004", b"body 10", "even", "key-10", "0"),
    (4, 656, 8, "FD00000000000000000000000000000203311DBD16A6870DC58A0005", b"body 11", "odd", "key-11", "1"),
    (5, 656, 9, "FD00000000000000000000000000000203311DBD16A6870DC58A0006", b"body 12", "even", "key-12", "2"),
    (6, 1312, 0, "FD00000000000000000000000000000203311DBD16A6870DC59E0008", b"alone", "single", "key-single", None),
]
NAMES = ("queueOffset", "physicalOffset", "flag", "msgId", "body", "tags", "keys", "properties")


def written(folder: Path, log: bytes = LOG) -> Path:
    (folder / "commitlog").mkdir(parents=True)
    (folder / "commitlog" / f"{0:020}").write_bytes(log.ljust(65536, b"\0"))
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return written(tmp_path)


def shown(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    plain = [{**row, "properties": dict(row["properties"]).get("n")} for row in rows]
    return sorted(tuple(row[name] for name in NAMES) for row in plain)


def test_python_reader_shows_the_messages_that_a_consumer_gets(store: Path) -> None:
    assert shown(read(store, *NAMES)) == CONSUMED
    assert {row["crcOk"] for row in read(store, "crcOk")} == {True}
    assert shown(spark_analytics.arrow(store, columns=",".join(NAMES)).read_all().to_pylist()) == CONSUMED


def test_java_reader_shows_the_same_rows_as_the_one_in_python(jvm_spark: Any, store: Path) -> None:
    rows = java_rows(jvm_spark, store)
    assert shown(rows) == CONSUMED
    assert {row["topic"] for row in rows} == {"BatchTopic"}

    def by_queue_offset(row: dict[str, Any]) -> int:
        return int(row["queueOffset"])

    expected = sorted(python_rows(store, *EVERY), key=by_queue_offset)
    for row, other in zip(sorted(rows, key=by_queue_offset), expected, strict=True):
        assert {**row, "properties": dict(row["properties"])} == {**other, "properties": dict(other["properties"])}


def test_filters_and_counts_are_of_messages(jvm_spark: Any, store: Path) -> None:
    log = jvm_spark.read.format("rocketmq").load(str(store))
    assert log.count() == 7
    assert {row.queueOffset for row in log.where("tags = 'odd'").collect()} == {1, 4}
    assert {row["body"] for row in map(dict, (row.asDict() for row in log.where("queueOffset = 5").collect()))} == {
        b"body 12"
    }
    counted = spark_analytics.arrow(store, groupBy="topic", aggregates="count,max(queueOffset)").read_all().to_pylist()
    assert counted == [{"topic": "BatchTopic", "count": 7, "max(queueOffset)": 6}]


def test_damaged_batch_is_known_by_the_crc_of_its_messages(jvm_spark: Any, tmp_path: Path) -> None:
    store = written(tmp_path, LOG.replace(b"body 11", b"b\xffdy 11"))
    for rows in (read(store, "queueOffset", "crcOk"), java_rows(jvm_spark, store, "physicalOffset", "queueOffset", "crcOk")):
        assert [row["crcOk"] for row in sorted(rows, key=lambda row: row["queueOffset"])] == [True] * 3 + [False] * 3 + [
            True
        ]


def test_batch_that_is_not_a_sequence_of_messages_stays_a_row(jvm_spark: Any, tmp_path: Path) -> None:
    log = LogBuilder(4000)
    for body in (b"", b"short", bytes(22), b"\0\0\0\x7f" + bytes(40)):
        log.append(body, sys_flag=0xC0)
    log.append(b"plain")
    store = log.write(tmp_path)
    rows = read(store, "body", "physicalOffset")
    assert [row["body"] for row in rows] == [row["body"] for row in java_rows(jvm_spark, store, "body", "physicalOffset")]
    assert len(rows) == 5


def test_messages_of_large_batches(jvm_spark: Any, tmp_path: Path) -> None:
    message = bytes.fromhex("00000018 00000000 00000000 00000005 00000002") + b"hi" + b"\0\0"
    log = LogBuilder(400_000)
    for count in (1, 10_000, 3):
        log.append(message * count, sys_flag=0xC0, born_host=bytes(20))
        log.append()
    store = log.write(tmp_path)
    expected = sorted((row["physicalOffset"], row["queueOffset"]) for row in read(store, "physicalOffset", "queueOffset"))
    found = java_rows(jvm_spark, store, "physicalOffset", "queueOffset")
    assert len(expected) == 10_007
    assert sorted((row["physicalOffset"], row["queueOffset"]) for row in found) == expected
