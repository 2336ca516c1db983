"""Tables of 4.9.4 and 5.5.0 stores: the broker reads and rewrites them without losing anything."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from pocketmq.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from pocketmq.runtime.lifecycle import StartError
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.config_document import SEAL_KEY, decode_document
from tests.broker.running import running_broker

GOLDEN = Path(__file__).parents[1] / "golden"


def config_of(name: str) -> dict[str, bytes]:
    """Return file name -> content of a golden store's `config/`."""
    with tarfile.open(GOLDEN / name / "store.tar.gz") as archive:
        members = [member for member in archive if "/config/" in member.name and member.isfile()]
        return {Path(member.name).name: archive.extractfile(member).read() for member in members}  # type: ignore[union-attr]


def lacks(found: Any, wanted: Any, path: str = "") -> list[str]:
    """Return the places where `found` lacks or changes a value of `wanted`; data versions may have advanced."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        missing = [f"{path}/{key}" for key in wanted if key not in found]
        return missing + [
            one for key in wanted.keys() & found.keys() for one in lacks(found[key], wanted[key], f"{path}/{key}")
        ]
    return [] if found == wanted or path.startswith("/dataVersion/") else [f"{path}: {found!r} for {wanted!r}"]


@pytest.mark.parametrize("name", ["v4_clean", "v4_kill9", "v5_clean", "v5_kill9"])
async def test_every_table_is_rewritten_without_loss(name: str) -> None:
    disk, files = MemoryDisk(), config_of(name)
    for file, data in files.items():
        disk.write_file(f"/store/config/{file}", data)
    async with running_broker(disk=disk, auto_create_topic_enable=False) as broker:
        services = broker.services
        services.topics.update(TopicConfig("Ours", 1, 1))
        services.groups.update(SubscriptionGroupConfig("ours"))
        services.offsets.commit("ours", "Ours", 0, 1)
        services.schedule.begin_at(17, 0)
        services.schedule.begin_at(4, 9)
        services.schedule.persist()
    written = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
    for file in written:
        now, before = decode_document(disk.read_file(f"/store/config/{file}")), decode_document(files[file])
        assert now.keys() == before.keys() | {SEAL_KEY}
        if file == "delayOffset.json":  # there are no queues here, so all levels are set back
            assert now["offsetTable"].keys() >= before["offsetTable"].keys()
        else:
            assert lacks(now, before) == []
    assert "Ours" in decode_document(disk.read_file("/store/config/topics.json"))["topicConfigTable"]
    for file in files:
        if not file.removesuffix(".bak").startswith((*written, "timercheck")):
            assert disk.read_file(f"/store/config/{file}") == files[file], file


THEIRS = {"of": ["a", {"later": 7}], "version": None}
"""Value of fields that no version has written yet."""
NOT_OURS = ("broker.properties", "lmqConsumerOffset.json", "topicQueueMapping.json", "popInfo/0", "empty")


@pytest.mark.parametrize("name", ["v4_clean", "v5_clean"])
async def test_unknown_fields_are_kept_at_every_level(name: str) -> None:
    """They are kept over two broker runs, in changed and unchanged rows."""
    disk, files = MemoryDisk(), config_of(name)
    tables = {"topics.json": "topicConfigTable", "subscriptionGroup.json": "subscriptionGroupTable"}
    for file, table in tables.items():
        document = decode_document(files[file])
        document["theirs"] = document["dataVersion"]["theirs"] = THEIRS
        for row in document[table].values():
            row["theirs"] = THEIRS
        files[file] = json.dumps(document).encode()
    for file in ("consumerOffset.json", "delayOffset.json"):
        files[file] = json.dumps({**decode_document(files[file]), "theirs": THEIRS}).encode()
    files |= {file: b"as it is\0" for file in NOT_OURS}
    for file, data in files.items():
        disk.write_file(f"/store/config/{file}", data)
    topic = next(topic for topic in decode_document(files["topics.json"])["topicConfigTable"] if topic.startswith("Golden"))
    for life in (1, 2):
        async with running_broker(disk=disk) as broker:
            services = broker.services
            group = next(group for group in services.groups.table if group.startswith(("Golden", "V5")))
            present = services.topics.table[topic]
            services.topics.update(TopicConfig(topic, life, life, perm=4))
            assert services.topics.table[topic].attributes == present.attributes
            services.groups.update(SubscriptionGroupConfig(group, retry_max_times=life))
            services.offsets.commit(group, topic, 0, life)
            services.schedule.persist()
        now = {file: decode_document(disk.read_file(f"/store/config/{file}")) for file in (*tables, "consumerOffset.json")}
        for file, table in tables.items():
            before = decode_document(files[file])
            changed = before[table][topic if table == "topicConfigTable" else group]
            known = ("readQueueNums", "writeQueueNums", "perm", "order", "retryMaxTimes")
            for key in known:
                changed.pop(key, None)
            assert lacks(now[file], before) == []
        assert now["topics.json"]["topicConfigTable"][topic]["perm"] == 4
        assert now["subscriptionGroup.json"]["subscriptionGroupTable"][group]["retryMaxTimes"] == life
        assert lacks(now["consumerOffset.json"], decode_document(files["consumerOffset.json"])) == []
        assert decode_document(disk.read_file("/store/config/delayOffset.json"))["theirs"] == THEIRS
    for file in NOT_OURS:
        assert disk.read_file(f"/store/config/{file}") == b"as it is\0", file


@pytest.mark.parametrize("row", ["null", "[1]", '{"0":null}', '{"x":1}'])
async def test_unreadable_offsets_are_kept_unchanged(row: str) -> None:
    disk = MemoryDisk()
    document = '{"offsetTable":{"T@odd":' + row + ',"T@g":{0:7},"no group":{0:1}}}'
    disk.write_file("/store/config/consumerOffset.json", document.encode())
    async with running_broker(disk=disk) as broker:
        assert broker.services.offsets.query("g", "T", 0) == 7
        broker.services.offsets.commit("g", "T", 1, 8)
    table = decode_document(disk.read_file("/store/config/consumerOffset.json"))["offsetTable"]
    assert table == {"T@odd": json.loads(row), "T@g": {"0": 7, "1": 8}, "no group": {"0": 1}}


async def test_unreadable_row_is_kept_unchanged() -> None:
    disk = MemoryDisk()
    rows = b'{"topicConfigTable":{"Odd":{"topicName":"Odd","perm":{"deep":1}},"T":{"topicName":"T","perm":4}}}'
    disk.write_file("/store/config/topics.json", rows)
    async with running_broker(disk=disk) as broker:
        assert broker.services.topics.get("Odd") is None
        broker.services.topics.update(TopicConfig("New", 1, 1))
    table = decode_document(disk.read_file("/store/config/topics.json"))["topicConfigTable"]
    assert table["Odd"] == {"topicName": "Odd", "perm": {"deep": 1}} and table["T"]["perm"] == 4


@pytest.mark.parametrize(
    "file, content",
    [
        ("delayOffset", b'{"offsetTable":{"1":null}}'),
        ("consumerOffset", b'{"offsetTable":[1]}'),
        ("consumerOrderInfo", b'{"table":{"T@g":{"x":{}}}}'),
        ("messageRequestMode", b'{"messageRequestModeMap":{"T":{"g":{"topic":1}}}}'),
        ("topics", b'{"topicConfigTable":{},"dataVersion":{"timestamp":"x"}}'),
    ],
)
async def test_table_of_wrong_shape_is_refused_naming_the_file(file: str, content: bytes) -> None:
    disk = MemoryDisk()
    disk.write_file(f"/store/config/{file}.json", content)
    with pytest.raises(
        StartError,
        match=rf"^/store/config/{file}.json does not have the structure of its table \(.*\): repair it, or delete",
    ):
        async with running_broker(disk=disk):
            pass
