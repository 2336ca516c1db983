"""`dump` shows exactly the selected records, found by queue, index or scan of the log."""

import gzip
import io
import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from pocketmq.runtime.clock import VirtualClock
from pocketmq.runtime.command_line.printer import Printer
from pocketmq.store_tools.files.selection import Damage, Selection, select
from pocketmq.store_tools.files.store_files import StoreFiles
from pocketmq.store_tools.files.value_text import parse_time_ms
from pocketmq.store_tools.transfer.documents import as_document
from pocketmq.store_tools.transfer.dump import write_json, write_table
from tests.golden.golden_files import GOLDEN
from tests.store_tools.made_stores import NOW_MS, flip, made, message, opened, unpacked


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("dump") / "store")


def dumped(root: Path, form: str = "text", plain: bool = False, **filters: Any) -> list[dict[str, Any]]:
    out, damage = io.StringIO(), Damage()
    records = select(StoreFiles(str(root)), Selection(**filters), damage)
    write_json((as_document(record, form, plain) for record in records), out)
    assert damage.unreadable == 0
    return [json.loads(line) for line in out.getvalue().splitlines()]


FILTERS: list[dict[str, Any]] = [
    {"topic": "Topic1"},
    {"topic": "Topic0", "queue_id": 2},
    {"topic": "Topic1", "tag": "Tag1"},
    {"topic": "Topic0", "from_queue_offset": 3, "to_queue_offset": 9},
    {"topic": "Topic1", "from_physical_offset": 9000, "to_physical_offset": 20000},
    {"topic": "Topic1", "from_ms": NOW_MS + 20_000, "to_ms": NOW_MS + 50_000},
    {"from_ms": NOW_MS + 20_000, "to_ms": NOW_MS + 50_000},
    {"from_physical_offset": 9001, "to_physical_offset": 20000},
    {"key": "key-77"},
    {"topic": "Topic1", "key": "shared"},
    {"topic": "Topic1", "key": "ünï-77"},
    {"topic": "Topic1", "key": "U000077"},
    {"tag": "Tag2", "queue_id": 2},
    {"topic": "SCHEDULE_TOPIC_XXXX", "to_queue_offset": 4},
    {"topic": "Nobody"},
    {"key": "nothing"},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_selection_needs_neither_queues_nor_index(root: Path, filters: dict[str, Any], tmp_path: Path) -> None:
    everything = dumped(root)
    assert len(everything) == 180
    expected = []
    for row in everything:
        properties = row["properties"]
        keys = [*properties.get("KEYS", "").split(" "), properties.get("UNIQ_KEY")]
        if (
            filters.get("topic") in (None, row["topic"])
            and filters.get("queue_id") in (None, row["queueId"])
            and filters.get("tag") in (None, properties.get("TAGS"))
            and ("key" not in filters or filters["key"] in keys)
            and filters.get("from_ms", 0) <= row["storeTimestamp"] <= filters.get("to_ms", 1 << 62)
            and filters.get("from_physical_offset", 0) <= row["physicalOffset"] < filters.get("to_physical_offset", 1 << 62)
            and filters.get("from_queue_offset", 0) <= row["queueOffset"] < filters.get("to_queue_offset", 1 << 62)
        ):
            expected.append(row)
    assert len(expected) < 180 and (expected or filters in FILTERS[-2:])
    assert dumped(root, **filters) == expected
    bare = tmp_path / "bare"
    shutil.copytree(root / "commitlog", bare / "commitlog")
    assert dumped(bare, **filters) == expected


@pytest.mark.parametrize("name", ["v4_clean", "v5_clean"])
def test_apache_records_are_shown_as_apache_reads_them(name: str, tmp_path: Path) -> None:
    found = {row["physicalOffset"]: row for row in dumped(unpacked(name, tmp_path))}
    with gzip.open(GOLDEN / name / "expected.jsonl.gz", "rt", encoding="utf-8") as lines:
        expected = [row for row in map(json.loads, lines) if row["kind"] == "msg"]
    assert len(found) == len(expected)
    for row in expected:
        mine = found[row["physicalOffset"]]
        for key in ("topic", "queueId", "queueOffset", "storeSize", "sysFlag", "bornTimestamp", "bornHost", "storeHost"):
            assert mine[key] == row[key]
        assert mine["msgId"] == row["offsetMsgId"] and mine["properties"] == (row["properties"] or {})


def test_body_forms_and_decompression(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = opened(root, VirtualClock(NOW_MS))
    store.commit_log.put(message("T", 0, zlib.compress(b"plain words"), sys_flag=1))
    store.commit_log.put(message("T", 0, b"not compressed", sys_flag=1))
    store.commit_log.put(message("T", 0, b"words"))
    store.shutdown()
    assert [row.get("body") for row in dumped(root, plain=True)] == ["plain words", "not compressed", "words"]
    assert "cannot be uncompressed with ZLIB" in dumped(root, plain=True)[1]["bodyNote"]
    assert [row["bodySize"] for row in dumped(root, "none")] == [19, 14, 5]
    assert dumped(root, "hex")[2]["bodyHex"] == b"words".hex()
    assert dumped(root, "base64")[2]["bodyBase64"] == "d29yZHM="
    # Bytes that are not UTF-8 are shown as base64.
    assert "body" not in dumped(root)[0] and "bodyBase64" in dumped(root)[0]


def test_table_has_one_line_per_record(root: Path) -> None:
    out = io.StringIO()
    records = select(StoreFiles(str(root)), Selection(topic="Topic1", to_queue_offset=3), Damage())
    write_table(records, Printer(file=out, width=160), "text", False)
    lines = out.getvalue().splitlines()
    assert len(lines) == 10 and "Topic1/1 @ 0" in lines[1] and "body 1 body 1" in lines[1] and "Tag1" in lines[1]


def test_damaged_records_are_skipped_and_counted(root: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "store"))
    flip(copy / "commitlog" / f"{0:020}", dumped(root)[3]["physicalOffset"] + 95)
    for filters, count in (({}, 179), ({"topic": "Topic0"}, 74)):
        damage = Damage()
        found = list(select(StoreFiles(str(copy)), Selection(**filters), damage))
        assert (len(found), damage.unreadable) == (count, 1) or (filters and damage.unreadable == 0)


def test_times_are_parsed_in_all_documented_forms() -> None:
    assert parse_time_ms("1700000000123") == 1700000000123
    assert parse_time_ms("2023-11-14T22:13:20.123+00:00") == 1700000000123
    assert parse_time_ms("2023-11-14") < parse_time_ms("2023-11-14T00:00:01")
    with pytest.raises(ValueError, match="'yesterday': expected a time such as 2026-11-21"):
        parse_time_ms("yesterday")
