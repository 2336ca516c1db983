"""Stores that Apache's own brokers wrote (tests/golden), read by ours, field by field.

Each folder contains the store's files and what Apache's own classes read from them: every record, the ends of log and queues
after recovery, all queue units, the answers to queries by key and by time. `v4` is 4.9.4, `v5` is 5.5.0; `kill9` was killed
while messages were sent, and in `torn` the end of the last record was zeroed afterwards.
"""

import base64
import gzip
import hashlib
import ipaddress
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.config_file import ConfigFile
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.store_checkpoint import StoreCheckpoint
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_STRUCT
from pocketmq.store.format.properties import decode_properties
from pocketmq.store.format.record import (
    CRC_MASK,
    BadRecordError,
    Record,
    check_record,
    crc32,
    decode_dispatch_request,
    decode_record,
    is_blank,
)
from pocketmq.store.index.index_service import IndexService
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.consume_queue_store import ConsumeQueueStore
from pocketmq.store.queue.dispatcher import Dispatcher
from pocketmq.store.recovery.recovery import RecoveryReport
from tests.golden.golden_files import GOLDEN, TIMER_FILES, unpack_golden

STORES = ("v4_clean", "v4_kill9", "v4_torn_body", "v4_torn_props", "v5_clean", "v5_kill9")
NOW_MS = 1_800_000_000_000
ALWAYS = (0, (1 << 63) - 1)


def rows(name: str, file: str) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / name / f"{file}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def unpack(name: str, folder: Path) -> dict[str, str]:
    """Unpack a store into `folder`/store and return the broker's configuration."""
    unpack_golden(name, folder, (*TIMER_FILES, "rocksdbstore"))
    lines = (folder / "broker.conf").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def store_config(folder: Path, conf: dict[str, str]) -> MessageStoreConfig:
    return MessageStoreConfig(
        store_path_root_dir=str(folder / "store"),
        mapped_file_size_commit_log=int(conf["mappedFileSizeCommitLog"]),
        mapped_file_size_consume_queue=int(conf["mappedFileSizeConsumeQueue"]),
        max_hash_slot_num=int(conf["maxHashSlotNum"]),
        max_index_num=int(conf["maxIndexNum"]),
    )


@dataclass
class Golden:
    name: str
    # The store whose answers are expected. We truncate a record with torn properties, which Apache keeps, like a torn body.
    answers: str
    folder: Path
    # The log's files before recovery, by their first offset.
    log_files: dict[int, memoryview]
    recovered: dict[str, Any]
    store: MessageStore
    report: RecoveryReport


@pytest.fixture(scope="module", params=STORES)
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Golden]:
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    conf = unpack(name, folder)
    log_files = {int(path.name): memoryview(path.read_bytes()) for path in (folder / "store" / "commitlog").iterdir()}
    store = MessageStore(store_config(folder, conf), FileDisk(), VirtualClock(NOW_MS))
    report = store.load()
    answers = "v4_torn_body" if name == "v4_torn_props" else name
    recovered = json.loads((GOLDEN / answers / "expected_recovered.json").read_text())
    yield Golden(name, answers, folder, log_files, recovered, store, report)
    store.shutdown()


# --- records --------------------------------------------------------------------------------------------------------


def host(packed: bytes) -> str:
    return f"{ipaddress.ip_address(packed[:-4])}:{int.from_bytes(packed[-4:], 'big')}"


def as_java_shows(record: Record) -> dict[str, Any]:
    """Return our record with the fields of an expected row."""
    offset_msg_id = (record.store_host + record.physical_offset.to_bytes(8, "big")).hex().upper()
    properties = decode_properties(record.properties)
    return {
        "kind": "msg",
        "topic": record.topic.decode(),
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "storeSize": record.total_size,
        "msgId": offset_msg_id,
        "offsetMsgId": offset_msg_id,
        "clientMsgId": properties.get("UNIQ_KEY", offset_msg_id),
        "bodyCRC": record.body_crc,
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "bornTimestamp": record.born_timestamp_ms,
        "storeTimestamp": record.store_timestamp_ms,
        "bornHost": host(record.born_host),
        "storeHost": host(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "bodyLen": len(record.body),
        "bodySha256": hashlib.sha256(record.body).hexdigest(),
        "properties": properties,
    }


# Fields that a record does not have: its file, and the results of decompression by Java's decoder.
_NOT_OF_THE_RECORD = ("file", "compression", "plainLen", "plainSha256", "bodyB64")


def test_every_record_reads_as_in_java(golden: Golden) -> None:
    expected = iter(rows(golden.name, "expected"))
    log_end = golden.recovered["maxPhyOffsetAfterStart"]
    records = 0
    for start, view in sorted(golden.log_files.items()):
        position = 0
        for row in expected:
            assert row["physicalOffset"] == start + position
            if row["kind"] == "blank":
                assert is_blank(view, position) and row["size"] == len(view) - position
                break
            if row["kind"] == "end":
                with pytest.raises(BadRecordError):
                    decode_record(view, position)
                break
            if start + position >= log_end:
                # The torn body: Java's decoder shows a part of the record, its recovery truncates it, and we reject it.
                with pytest.raises(BadRecordError):
                    check_record(view, position, start + position)
            else:
                record = decode_record(view, position)
                wanted = {key: value for key, value in row.items() if key not in _NOT_OF_THE_RECORD}
                # Java shows no map for a record without properties.
                wanted["properties"] = wanted["properties"] or {}
                assert as_java_shows(record) == wanted
                assert base64.b64decode(row.get("bodyB64", "")) in (b"", record.body)
                assert crc32(record.body) & CRC_MASK == record.body_crc
                assert check_record(view, position, start + position) == record.total_size
                records += 1
            position += row["storeSize"]
    assert next(expected, None) is None
    assert records > 290


# --- recovery -------------------------------------------------------------------------------------------------------


def test_the_log_ends_where_apache_ends_it(golden: Golden) -> None:
    assert golden.store.min_physical_offset == golden.recovered["minPhyOffset"]
    assert golden.store.max_physical_offset == golden.recovered["maxPhyOffsetAfterStart"]
    assert golden.report.clean == golden.name.endswith("clean")
    if golden.report.clean:
        assert golden.report.repairs == []


def test_queues_begin_and_end_where_apache_has_them(golden: Golden) -> None:
    # Apache creates a queue when it is read; our store has no queues without units.
    expected = {name: tuple(range_) for name, range_ in golden.recovered["consumeQueueMaxAfterStart"].items() if range_[1]}
    found = {f"{queue.topic}/{queue.queue_id}": (queue.min_offset, queue.max_offset) for queue in golden.store.queues}
    assert {name: range_ for name, range_ in found.items() if range_[1]} == expected


def test_queue_units_equal_those_of_apache(golden: Golden) -> None:
    expected = [row for row in rows(golden.answers, "expected_cq") if row["units"]]
    assert expected
    for row in expected:
        queue = golden.store.queue(row["topic"], row["queueId"])
        assert queue is not None
        units: list[list[int]] = []
        while run := queue.units(row["minOffset"] + len(units), 32):
            units += map(list, CONSUME_QUEUE_UNIT_STRUCT.iter_unpack(run))
        assert units == row["units"], f"{row['topic']}/{row['queueId']}"


# --- queries --------------------------------------------------------------------------------------------------------


def test_queries_by_key_are_answered_as_by_apache(golden: Golden) -> None:
    questions = rows(golden.answers, "expected_index")
    for row in questions:
        result = golden.store.query_message(row["topic"], row["key"], 64, *ALWAYS)
        answer = [as_java_shows(decode_record(view))["offsetMsgId"] for view in result.views]
        if not golden.report.clean:
            # Both brokers index a part of the log twice after a crash, but not the same part.
            answer, row["brokerAnswer"] = list(dict.fromkeys(answer)), list(dict.fromkeys(row["brokerAnswer"]))
        assert answer == row["brokerAnswer"], f"{row['topic']}#{row['key']}"
        assert set(row["keyReallyMatches"]) <= set(answer)
        assert result.index_last_update_timestamp_ms == row["indexLastUpdateTimestamp"]
        assert result.index_last_update_physical_offset == row["indexLastUpdatePhyoffset"]
    assert len(questions) > 200


@pytest.mark.parametrize("golden", [name for name in STORES if name.startswith("v5")], indirect=True, scope="module")
def test_offset_by_time_is_that_of_apache_5(golden: Golden) -> None:
    answers = list(rows(golden.answers, "expected_offset_by_time"))
    assert len(answers) > 200
    for row in answers:
        assert golden.store.offset_by_time(row["topic"], row["queueId"], row["timestamp"]) == row["offset"], row


# --- other files of a store -----------------------------------------------------------------------------------------


def test_config_files_are_read(golden: Golden) -> None:
    folder = golden.folder / "store" / "config"
    documents = {path.name: ConfigFile(FileDisk(), str(path)).load() for path in folder.glob("*.json")}
    topics = documents["topics.json"]["topicConfigTable"]
    assert topics["TBW102"]["perm"] == 7 and topics["SCHEDULE_TOPIC_XXXX"]["readQueueNums"] == 18
    assert documents["subscriptionGroup.json"]["subscriptionGroupTable"]["TOOLS_CONSUMER"]["groupName"] == "TOOLS_CONSUMER"
    for by_queue in documents["consumerOffset.json"]["offsetTable"].values():
        assert by_queue and all(queue_id.isdecimal() and offset >= 0 for queue_id, offset in by_queue.items())
    delivered = documents["delayOffset.json"]["offsetTable"]
    for level, queue_offset in delivered.items():
        assert 0 <= queue_offset <= golden.store.max_offset("SCHEDULE_TOPIC_XXXX", int(level) - 1)


def test_index_of_the_same_log_equals_apaches_bytes(tmp_path: Path) -> None:
    conf = unpack("v4_clean", tmp_path)
    theirs, ours, disk = tmp_path / "store", tmp_path / "ours", FileDisk()
    queues = ConsumeQueueStore(disk, str(ours / "consumequeue"), int(conf["mappedFileSizeConsumeQueue"]))
    index = IndexService(
        disk,
        str(ours / "index"),
        VirtualClock(),
        StoreCheckpoint(disk, str(ours / "checkpoint")),
        slot_count=int(conf["maxHashSlotNum"]),
        index_count_max=int(conf["maxIndexNum"]),
    )
    dispatcher, tags_code = Dispatcher(queues, index), DelayLevels().tags_code
    requests = []
    for path in sorted((theirs / "commitlog").iterdir()):
        view, position = memoryview(path.read_bytes()), 0
        try:
            while not is_blank(view, position):
                requests.append(decode_dispatch_request(view, position, tags_code))
                position += requests[-1].size
        except BadRecordError:
            pass
    assert len(requests) == 2280
    for start in range(0, len(requests), 7):
        dispatcher.dispatch(requests[start : start + 7])
    queues.close()
    index.close()

    def files(root: Path) -> dict[str, bytes]:
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    assert files(ours / "consumequeue") == files(theirs / "consumequeue")
    # An index file is named after the time of its creation.
    assert [*dict(sorted(files(ours / "index").items())).values()] == [
        *dict(sorted(files(theirs / "index").items())).values()
    ]
