"""`export` and `import` preserve all fields of records except offsets."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.tables.topic_config import topic_name_problem
from pocketmq.runtime.clock import VirtualClock
from pocketmq.store_tools.files.selection import Damage, Selection, select
from pocketmq.store_tools.files.store_files import StoreFiles
from pocketmq.store_tools.transfer.documents import as_export
from pocketmq.store_tools.transfer.dump import write_json
from pocketmq.store_tools.transfer.importer import ImportResult, ImportRules, import_records
from tests.store_tools.made_stores import GOLDEN_STORES, HOST_V6, NOW_MS, made, message, opened, unpacked, verified


def exported(root: Path) -> str:
    out = io.StringIO()
    write_json(map(as_export, select(StoreFiles(str(root)), Selection(), Damage())), out)
    return out.getvalue()


def imported(root: Path, text: str, *, keep_times: bool = True) -> ImportResult:
    return import_records(str(root), io.StringIO(text), None, keep_times=keep_times)


def without(text: str, *names: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in text.splitlines()]
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


@pytest.mark.parametrize("name", GOLDEN_STORES)
def test_export_and_import_change_offsets_only(name: str, tmp_path: Path) -> None:
    first = exported(unpacked(name, tmp_path))
    result = imported(tmp_path / "copy", first)
    assert (result.imported, result.refused, result.raised) == (len(first.splitlines()), 0, 0)
    second = exported(tmp_path / "copy")
    assert without(second, "physicalOffset", "queueOffset") == without(first, "physicalOffset", "queueOffset")
    assert verified(tmp_path / "copy").exit_code == 0
    imported(tmp_path / "new", first, keep_times=False)
    names = ("physicalOffset", "queueOffset", "storeTimestamp")
    assert without(exported(tmp_path / "new"), *names) == without(first, *names)


def test_unusual_records_are_preserved(tmp_path: Path) -> None:
    store = opened(tmp_path / "store", VirtualClock(NOW_MS))
    for properties in (b"a\x01b\x02", b"a\x01b\x02a\x01c", b"empty\x01", b"\xff\xfe\x01v", "ключ\x01значение".encode(), b""):
        odd = message("%RETRY%" + "g" * 200, 3, bytes(range(256)), host=HOST_V6, sys_flag=0x8, KEYS="k")
        odd.properties_bytes, odd.flag, odd.reconsume_times, odd.prepared_transaction_offset = properties, -7, 2, 99
        store.commit_log.put(odd)
    store.commit_log.put(message("T", 1, b"rolled back", sys_flag=0xC))
    store.shutdown()
    first = exported(tmp_path / "store")
    imported(tmp_path / "copy", first)
    names = ("physicalOffset", "queueOffset")
    assert without(exported(tmp_path / "copy"), *names) == without(first, *names)


def test_import_appends_to_a_store_and_keeps_its_file_sizes(tmp_path: Path) -> None:
    root, other = made(tmp_path / "store", 40), made(tmp_path / "other", 30)
    before = exported(root)
    result = imported(root, exported(other), keep_times=True)
    # The records are older than the store's last ones, and store times never decrease.
    assert result.imported == 36 and result.raised > 0 and "raised" in str(result)
    assert exported(root).startswith(before)
    after = verified(root)
    assert (after.exit_code, after.records) == (0, 84)
    assert {path.stat().st_size for path in (root / "commitlog").iterdir()} == {16384}


def test_missing_topics_are_added_to_the_topic_table(tmp_path: Path) -> None:
    result = imported(tmp_path / "copy", exported(made(tmp_path / "store", 10)))
    assert result.topics_added == ["SCHEDULE_TOPIC_XXXX", "Topic0", "Topic1"]
    table = json.loads((tmp_path / "copy" / "config" / "topics.json").read_text())["topicConfigTable"]
    assert (table["Topic0"]["perm"], table["Topic0"]["readQueueNums"]) == (6, 3)


def test_invalid_lines_are_refused_one_by_one(tmp_path: Path) -> None:
    row = json.loads(exported(made(tmp_path / "store", 1)).splitlines()[0])
    bad: list[tuple[Any, str]] = [
        ("nonsense", "not valid JSON"),
        (json.dumps([1]), "expected a JSON object, not list"),
        (json.dumps({**row, "topic": None}), "topic is missing"),
        (json.dumps({**row, "topic": ""}), "topic has 0 bytes"),
        (json.dumps({**row, "queueId": "1"}), "queueId is '1', not a whole number"),
        (json.dumps({**row, "queueId": 1 << 40}), "does not fit 32 bits"),
        (json.dumps({**row, "bornHost": "here"}), "bornHost is 'here', not an address"),
        (json.dumps({**row, "bodyBase64": "*"}), "bodyBase64 is not base64"),
        (json.dumps({**row, "properties": {"a": 1}}), "properties must be an object whose values are text"),
        (json.dumps({**row, "properties": {"a": "b" * 40_000}}), "properties have 40002 bytes, at most 32767"),
        (json.dumps({**row, "propertiesBase64": "YQFiAGM="}), "properties have a zero byte at 3"),
        (json.dumps({**row, "queueId": -1}), "queueId is -1, 0 to 65535 are allowed"),
        (json.dumps({**row, "queueId": (1 << 31) - 1}), "queueId is 2147483647, 0 to 65535 are allowed"),
        (json.dumps({**row, "topic": "a topic"}), "topic is 'a topic', only the characters"),
        (json.dumps({**row, "topic": "T\nINFO forged"}), "topic is 'T\\nINFO forged', only the characters"),
        (json.dumps({**row, "topic": "%RETRY%g\nINFO forged"}), "control characters"),
        (json.dumps({**row, "topic": "T" * 128}), "topic has 128 bytes, 1 to 127 are allowed"),
        (json.dumps({**row, "bodyBase64": "A" * (8 << 20)}), "body has 6291456 bytes, --max-message-size allows 4194304"),
    ]
    result = imported(tmp_path / "copy", "\n".join([*(line for line, _ in bad), "", json.dumps(row)]))
    assert (result.imported, result.refused) == (1, len(bad))
    for number, ((_, why), said) in enumerate(zip(bad, result.refusals, strict=True), 1):
        assert said.startswith(f"line {number} refused") and why in said


def test_queue_outside_the_topic_table_is_refused(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in exported(made(tmp_path / "store", 9)).splitlines()]
    row = next(row for row in rows if row["topic"] == "Topic0")
    copy = tmp_path / "copy"
    imported(copy, json.dumps({**row, "queueId": 2}))
    before = sorted(path.name for path in (copy / "consumequeue/Topic0").iterdir())
    result = imported(copy, "\n".join(json.dumps({**row, "queueId": number}) for number in (2, 3)))
    assert (result.imported, result.refusals) == (
        1,
        ["line 2 refused: queueId is 3, but Topic0 has 3 queues according to config/topics.json"],
    )
    assert sorted(path.name for path in (copy / "consumequeue/Topic0").iterdir()) == before


@pytest.mark.parametrize("topic", ["T", "%RETRY%group", "rmq_sys_wheel_timer", "a|b", "T" * 127, "", "ü", "a b", "T" * 128])
def test_import_accepts_exactly_the_topics_that_a_broker_accepts(topic: str) -> None:
    one = message(topic, 0, b"")
    assert bool(ImportRules({}).problem(one)) == bool(topic_name_problem(topic))
