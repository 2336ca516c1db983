"""Targets for the tables in `config/`, the name server's KV file and ACL files: loading accepts or refuses any content."""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from pocketmq.broker.access.acl.access_rules import AclError, access_rules
from pocketmq.broker.access.acl.plain_permission import _read as read_acl
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delay.cancel import DelayCancelled
from pocketmq.broker.filter.consumer_filter import ConsumerFilterManager
from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.broker.tables.consumer_offset import ConsumerOffsetManager
from pocketmq.broker.tables.message_request_mode import MessageRequestModeManager
from pocketmq.broker.tables.subscription_group import SubscriptionGroupManager
from pocketmq.broker.tables.topic_config import TopicConfigManager
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.kv_config import KVConfigManager
from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.config_file import ConfigFile
from pocketmq.store.disk.disk import StoreError
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.config_document import decode_document, encode_document
from tests.fuzz.fuzz_mutators import grow_with_first_byte, mutate_json, mutate_text
from tests.fuzz.fuzz_oracle import One, Target, Wrong

Make = Callable[[ConfigFile], ConfigManager]
_CONFIG, _CLOCK = BrokerConfig(broker_name="b"), VirtualClock()
MANAGERS: tuple[tuple[Make, Any], ...] = (
    (
        lambda file: TopicConfigManager(_CONFIG, file, _CLOCK),
        {
            "dataVersion": {"counter": 1, "timestamp": 2, "stateVersion": 0},
            "topicConfigTable": {
                "T": {"topicName": "T", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "order": False,
                "topicSysFlag": 0,
                      "topicFilterType": "SINGLE_TAG", "attributes": {"message.type": "NORMAL"}},
            },
        },
    ),
    (
        lambda file: SubscriptionGroupManager(_CONFIG, file, _CLOCK),
        {
            "dataVersion": {"counter": 1, "timestamp": 2},
            "forbiddenTable": {},
            "subscriptionGroupTable": {"g": {"groupName": "g", "consumeEnable": True, "retryQueueNums": 1,
            "retryMaxTimes": 16}},
        },
    ),
    (
        lambda file: ConsumerOffsetManager(file, _CLOCK),
        {"dataVersion": {"counter": 1}, "offsetTable": {"T@g": {"0": 2, "1": 5}, "%RETRY%g@g": {"0": 0}}},
    ),
    (
        lambda file: ConsumerFilterManager(_CONFIG, file, _CLOCK),
        {"filterDataByTopic": {"T": {"topic": "T", "groupFilterData": {"g": {
            "consumerGroup": "g", "topic": "T", "expression": "a > 1", "expressionType": "SQL92", "bornTime": 1,
            "deadTime": 0,
            "clientVersion": 1, "bloomFilterData": {"bitNum": 100, "bitPos": [1, 2]}}}}}},
    ),
    (
        lambda file: MessageRequestModeManager(file, _CLOCK),
        {"messageRequestModeMap": {"T": {"g": {"consumerGroup": "g", "topic": "T", "mode": "POP", "popShareQueueNum": 0}}}},
    ),
    (
        lambda file: DelayCancelled(file, _CLOCK, lambda: 0),
        {"cancelled": {"1": [1, 2]}, "offsets": [1, 2]},
    ),
)  # fmt: skip


def _tables() -> One:
    def one(data: bytes) -> None:
        if not data:
            return
        make, _ = MANAGERS[data[0] % len(MANAGERS)]
        disk = MemoryDisk()
        disk.write_file("/c/t.json", data[1:])
        try:
            manager = make(ConfigFile(disk, "/c/t.json"))
            manager.load()
        except StoreError as error:
            if "/c/t.json" not in str(error):
                raise Wrong(f"the refusal does not name the file: {error}") from error
            return
        # An accepted table can be written and read again.
        manager.file.persist(manager.encode())
        make(ConfigFile(disk, "/c/t.json")).load()

    return one


def _table_seeds() -> list[bytes]:
    return [bytes((number,)) + msgspec.json.encode(document) for number, (_, document) in enumerate(MANAGERS)]


def _mutate_behind_first(rng: random.Random, data: bytes) -> bytes:
    first = bytes((rng.randrange(len(MANAGERS)),)) if rng.random() < 0.05 else data[:1]
    return first + mutate_json(rng, data[1:])


def _documents() -> One:
    def one(data: bytes) -> None:
        encode_document(decode_document(data))

    return one


def _document_seeds() -> list[bytes]:
    return [
        *(encode_document(document) for _, document in MANAGERS), b'{"offsetTable":{"T@g":{0:2,1:0}}}',
        b'{"delayLevelMaxTable":{}}',
        b'{"a":"\\"{0:1"}', b'{"' + b'\\"' * 500,
    ]  # fmt: skip


def _kv_config() -> One:
    import tempfile
    from pathlib import Path

    path = Path(tempfile.mkdtemp(prefix="fuzz-kv-")) / "kvConfig.json"

    def one(data: bytes) -> None:
        path.write_bytes(data)
        KVConfigManager(NamesrvConfig(kv_config_path=str(path))).load()

    return one


def _kv_seeds() -> list[bytes]:
    return [b'{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"a:4;b:4"},"n":{"k":"v"}}}', b"{}", b'{"configTable":{}}']


ACL = b"""globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
    groupPerms:
      - groupA=DENY
  - {accessKey: rocketmq2, secretKey: "12345678", admin: true}
"""
_YAML = (
    b"- ", b": ", b"\n", b"  ", b"&a ", b"*a", b"!!int ", b"!!python/object:os.system ", b"[", b"]", b"{", b"}", b"|",
    b">", b"'", b'"', b"#",
    b"? ", b"<<: *a", b"---\n", b"...", b"\t", b"null", b"true", b"1e9", b"0x1", b"2001-01-01", b"%TAG", b"[" * 50,
    b"\xff", b"=SUB", b"=PUB|SUB",
    b"accessKey: x", b"10.0.0.{1,2}", b"10.0.0.1-9", b"*",
)  # fmt: skip


def _acl() -> One:
    import tempfile
    from pathlib import Path

    path = Path(tempfile.mkdtemp(prefix="fuzz-acl-")) / "plain_acl.yml"

    def one(data: bytes) -> None:
        path.write_bytes(data)
        access_rules({str(path): read_acl(str(path))})

    return one


TARGETS = (
    Target("config_tables", _tables, _table_seeds, (StoreError,), _mutate_behind_first, grow_with_first_byte,
    ns_per_byte=5_000),
    Target("config_document", _documents, _document_seeds, (ValueError, RecursionError), mutate_json),
    Target("kv_config", _kv_config, _kv_seeds, (ValueError,), mutate_json, weight=0.5),
    Target(
        "acl_file", _acl, lambda: [ACL, b"accounts: []", b"", b"a: &a [1]\nb: *a"], (AclError,),
        lambda rng, data: mutate_text(rng, data, _YAML), ns_per_byte=20_000, weight=0.3,
    ),
)  # fmt: skip
