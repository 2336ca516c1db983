"""Writes of topics, groups and offsets: off the loop, many changes per write, answered once durable, within limits."""

import asyncio
import errno
import json
import logging
import threading
from collections import Counter
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.bodies import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    encode_body,
)
from pocketmq.remoting.client import RemotingClient
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.headers.consumer import DeleteSubscriptionGroupRequestHeader
from pocketmq.remoting.headers.offset import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from pocketmq.remoting.headers.topic import TopicRequestHeader
from pocketmq.remoting.pop_bodies import MessageRequestMode
from pocketmq.runtime.lifecycle import StartError
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.config_document import SEAL_KEY, decode_document, encode_document, sealed
from tests.broker.data_path import send_header
from tests.broker.running import ask, connected, create_topic, running_broker, until
from tests.broker.test_slow_disk import StuckDisk

CONFIG = "/store/config"
TOPICS, GROUPS = f"{CONFIG}/topics.json", f"{CONFIG}/subscriptionGroup.json"


class CountingDisk(StuckDisk):
    """A disk that counts the replacements of each file and their threads, and refuses some writes."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced: Counter[str] = Counter()
        self.threads: set[int] = set()
        self.refused: str | None = None
        self.refusals_left = 1000

    def replace_file(self, path: str, data: bytes) -> None:
        self.replaced[path] += 1
        self.threads.add(threading.get_ident())
        self.wait()
        if self.refused is not None and self.refused in path and self.refusals_left:
            self.refusals_left -= 1
            raise OSError(errno.EACCES, "Permission denied", path + ".tmp")
        super().replace_file(path, data)

    def begin(self) -> None:
        self.replaced.clear()
        self.threads.clear()


def killed(disk: MemoryDisk) -> MemoryDisk:
    """Return `config/` as the next process finds it if this one is killed now."""
    copy = MemoryDisk()
    for name in disk.listdir(CONFIG):
        if not disk.is_dir(f"{CONFIG}/{name}"):
            copy.write_file(f"{CONFIG}/{name}", bytes(disk.read_file(f"{CONFIG}/{name}")))
    return copy


def heartbeat(*groups: str, client_id: str = "c", subscriptions: int = 0) -> bytes:
    told = [SubscriptionData(f"T{n}", "*") for n in range(subscriptions)]
    consumers = [ConsumerData(group, subscription_data_set=told) for group in groups]
    return encode_body(HeartbeatData(client_id, [], consumers))


async def beat(client: RemotingClient, broker: Broker, *groups: str, **more: Any) -> RemotingCommand:
    return await ask(client, broker, RequestCode.HEART_BEAT, None, heartbeat(*groups, **more))


async def send(client: RemotingClient, broker: Broker, topic: str) -> RemotingCommand:
    return await ask(client, broker, RequestCode.SEND_MESSAGE_V2, send_header(None, topic=topic, queue_id=0), b"x")


async def commit(
    client: RemotingClient, broker: Broker, group: str, topic: str, queue_id: int = 0, at: int = 1
) -> RemotingCommand:
    header = UpdateConsumerOffsetRequestHeader(group, topic, queue_id, at)
    return await ask(client, broker, RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def delete(client: RemotingClient, broker: Broker, topic: str) -> RemotingCommand:
    return await ask(client, broker, RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(topic))


# --- number and threads of writes -----------------------------------------------------------------------------------------


async def test_heartbeat_of_1000_new_groups_writes_each_table_at_most_twice_off_the_loop() -> None:
    disk = CountingDisk()
    async with running_broker(disk=disk) as broker, connected() as client:
        disk.begin()
        assert (await beat(client, broker, *(f"g{n}" for n in range(1000)))).code == 0
        assert 1 <= disk.replaced[TOPICS] <= 2 and 1 <= disk.replaced[GROUPS] <= 2
        assert threading.main_thread().ident not in disk.threads
        found = killed(disk)
        assert {f"g{n}" for n in range(1000)} <= decode_document(found.read_file(GROUPS))["subscriptionGroupTable"].keys()
        assert {f"%RETRY%g{n}" for n in range(1000)} <= decode_document(found.read_file(TOPICS))["topicConfigTable"].keys()


async def test_many_topic_creations_share_one_write_off_the_loop() -> None:
    disk = CountingDisk()
    async with running_broker(disk=disk) as broker, connected() as client, connected() as other:
        await create_topic(client, broker, "Old")
        disk.begin()
        disk.is_free.clear()
        going = [asyncio.ensure_future(send(client, broker, "First"))]
        await until(lambda: disk.replaced[TOPICS] == 1)
        going += [asyncio.ensure_future(send(client, broker, f"T{n}")) for n in range(500)]
        going.append(asyncio.ensure_future(beat(client, broker, *(f"g{n}" for n in range(1000)))))
        await until(lambda: len(broker.services.topics.table) > 1500)
        assert (await send(other, broker, "Old")).code == 0, "others are served while the disk is stuck"
        assert not any(one.done() for one in going)
        disk.is_free.set()
        assert {answer.code for answer in await asyncio.gather(*going)} == {0}
        assert disk.replaced[TOPICS] <= 3 and disk.replaced[GROUPS] <= 2
        assert threading.main_thread().ident not in disk.threads | disk.waiters
        table = decode_document(killed(disk).read_file(TOPICS))["topicConfigTable"]
        assert {"First", *(f"T{n}" for n in range(500))} <= table.keys()


async def test_second_send_to_a_new_topic_waits_like_the_first() -> None:
    disk = CountingDisk()
    async with running_broker(disk=disk) as broker, connected() as client, connected() as other:
        disk.is_free.clear()
        first = asyncio.ensure_future(send(client, broker, "New"))
        await until(lambda: bool(disk.waiters))
        second = asyncio.ensure_future(send(other, broker, "New"))
        beats = [asyncio.ensure_future(beat(one, broker, "g")) for one in (client, other)]
        await until(lambda: broker.services.store.max_offset("New", 0) == 2 and "g" in broker.services.clients.consumers)
        assert not (first.done() or second.done() or any(one.done() for one in beats))
        disk.is_free.set()
        assert {answer.code for answer in await asyncio.gather(first, second, *beats)} == {0}
        assert broker.services.gate.is_open


async def test_each_change_is_on_disk_before_its_answer() -> None:
    disk = CountingDisk()
    async with running_broker(disk=disk) as broker, connected() as client:
        await create_topic(client, broker, "T")
        assert "T" in decode_document(killed(disk).read_file(TOPICS))["topicConfigTable"]
        group = encode_body(SubscriptionGroupConfig("g", retry_max_times=3))
        assert (await ask(client, broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)).code == 0
        assert decode_document(killed(disk).read_file(GROUPS))["subscriptionGroupTable"]["g"]["retryMaxTimes"] == 3
        mode = encode_body(MessageRequestMode("T", "g", "POP", 0))
        assert (await ask(client, broker, RequestCode.SET_MESSAGE_REQUEST_MODE, None, mode)).code == 0
        found = decode_document(killed(disk).read_file(f"{CONFIG}/messageRequestMode.json"))
        assert found["messageRequestModeMap"]["T"]["g"]["mode"] == "POP"
        gone = DeleteSubscriptionGroupRequestHeader("g")
        assert (await ask(client, broker, RequestCode.DELETE_SUBSCRIPTIONGROUP, gone)).code == 0
        assert "g" not in decode_document(killed(disk).read_file(GROUPS))["subscriptionGroupTable"]
        assert (await delete(client, broker, "T")).code == 0
        assert "T" not in decode_document(killed(disk).read_file(TOPICS))["topicConfigTable"]


async def test_stop_waits_for_pending_writes() -> None:
    disk = CountingDisk()
    async with running_broker(disk=disk) as broker:
        broker.services.topics.update(TopicConfig("Late", 1, 1))
    async with running_broker(disk=disk) as broker:
        assert broker.services.topics.get("Late") is not None


# --- failed writes --------------------------------------------------------------------------------------------------------


async def test_change_that_cannot_be_written_is_refused_and_undone(caplog: pytest.LogCaptureFixture) -> None:
    disk = CountingDisk()
    async with running_broker(disk=disk) as broker, connected() as client:
        await create_topic(client, broker, "T", 2)
        await beat(client, broker, "old")
        disk.refused = "/config/"
        body = encode_body(SubscriptionGroupConfig("g"))
        answers = [
            await create_topic(client, broker, "New"),
            await create_topic(client, broker, "T", 7),
            await send(client, broker, "Sent"),
            await delete(client, broker, "T"),
            await beat(client, broker, "new"),
            await ask(client, broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body),
        ]
        for answer in answers:
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert ".json cannot be written (Permission denied)" in (answer.remark or ""), answer.remark
        topics, groups = broker.services.topics.table, broker.services.groups.table
        assert topics["T"].write_queue_nums == 2 and not {"New", "Sent", "%RETRY%new"} & topics.keys()
        assert not {"g", "new"} & groups.keys()
        assert f"{TOPICS} cannot be written" in caplog.text and f"{GROUPS} cannot be written" in caplog.text
        assert (await beat(client, broker, "old")).code == 0, "a known group changes no table"
        disk.refused = None
        assert (await create_topic(client, broker, "New")).code == 0
        assert (await beat(client, broker, "new")).code == 0
        document = decode_document(killed(disk).read_file(TOPICS))["topicConfigTable"]
        assert {"T", "New", "%RETRY%new"} <= document.keys() and "Sent" not in document


async def test_change_after_a_failed_one_is_kept() -> None:
    disk = CountingDisk()
    async with running_broker(disk=disk) as broker, connected() as client, connected() as other:
        disk.refused, disk.refusals_left = "topics", 1
        disk.is_free.clear()
        first = asyncio.ensure_future(create_topic(client, broker, "T", 1))
        await until(lambda: bool(disk.waiters))
        second = asyncio.ensure_future(create_topic(other, broker, "T", 3))
        await until(lambda: broker.services.topics.table["T"].write_queue_nums == 3)
        disk.is_free.set()
        assert (await first).code == ResponseCode.SYSTEM_ERROR and (await second).code == 0
        assert decode_document(killed(disk).read_file(TOPICS))["topicConfigTable"]["T"]["writeQueueNums"] == 3


# --- limits ---------------------------------------------------------------------------------------------------------------


async def test_topics_and_groups_are_limited_and_existing_ones_stay(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    async with running_broker(disk=disk) as broker, connected() as client:
        for n in range(30):
            broker.services.topics.update(TopicConfig(f"T{n}"))
            broker.services.groups.update(SubscriptionGroupConfig(f"g{n}"))
    async with running_broker(disk=disk, max_topics=20, max_subscription_groups=20) as broker, connected() as client:
        assert "T29" in broker.services.topics.table and "g29" in broker.services.groups.table
        for answer in (await create_topic(client, broker, "New"), await send(client, broker, "New")):
            assert answer.code == ResponseCode.SYSTEM_ERROR and "maxTopics=20" in (answer.remark or "")
        assert (await create_topic(client, broker, "T29", 3)).code == 0, "an existing topic may be changed"
        answer = await beat(client, broker, "new", "g29")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "maxSubscriptionGroups=20" in (answer.remark or "") or "maxTopics=20" in (answer.remark or "")
        body = encode_body(SubscriptionGroupConfig("new"))
        answer = await ask(client, broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        assert answer.code == ResponseCode.SYSTEM_ERROR and "maxSubscriptionGroups=20" in (answer.remark or "")
        assert caplog.text.count("maxTopics=20") == 1, "repeated refusals are logged once a minute"


async def test_invalid_consumer_offsets_are_refused_and_their_number_is_limited() -> None:
    async with running_broker(max_consumer_offsets=5) as broker, connected() as client:
        await create_topic(client, broker, "T", 4)
        assert (await commit(client, broker, "g", "NoSuchTopic")).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await commit(client, broker, "g", "T", 4)).code == ResponseCode.SYSTEM_ERROR
        assert (await commit(client, broker, "g", "T", -1)).code == ResponseCode.SYSTEM_ERROR
        assert (await commit(client, broker, "x" * 300, "T")).code == ResponseCode.SYSTEM_ERROR
        assert broker.services.offsets.table == {}
        for n in range(5):
            assert (await commit(client, broker, f"g{n}", "T")).code == 0
        answer = await commit(client, broker, "g5", "T")
        assert answer.code == ResponseCode.SYSTEM_ERROR and "maxConsumerOffsets=5" in (answer.remark or "")
        assert (await commit(client, broker, "g4", "T", at=9)).code == 0, "an existing offset may change"
        assert (await delete(client, broker, "T")).code == 0
        assert broker.services.offsets.table == {}
        await create_topic(client, broker, "T", 4)
        assert (await commit(client, broker, "g5", "T")).code == 0, "there is room again"
        found = await ask(client, broker, RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader("g5", "T", 0))
        assert found.ext["offset"] == "1"


@pytest.mark.parametrize(
    "body, remark",
    [
        (heartbeat(*(f"g{n}" for n in range(6))), "maxGroupsPerHeartbeat=5"),
        (encode_body(HeartbeatData("c", [ProducerData(f"p{n}") for n in range(6)], [])), "maxGroupsPerHeartbeat=5"),
        (heartbeat("a", "b", subscriptions=4), "maxSubscriptionsPerHeartbeat=7"),
        (heartbeat("g" * 256), "256 characters"),
        (heartbeat("g", client_id="c" * 1025), "1025 characters"),
    ],
)
async def test_heartbeat_beyond_a_limit_is_refused(body: bytes, remark: str) -> None:
    limits = {"max_groups_per_heartbeat": 5, "max_subscriptions_per_heartbeat": 7}
    async with running_broker(**limits) as broker, connected() as client:
        answer = await ask(client, broker, RequestCode.HEART_BEAT, None, body)
        assert answer.code == ResponseCode.SYSTEM_ERROR and remark in (answer.remark or "")
        assert not broker.services.clients.consumers and not broker.services.clients.producers


# --- deleting topics, damaged tables --------------------------------------------------------------------------------------


async def test_deleting_a_topic_keeps_queues_of_others_even_if_not_in_the_table() -> None:
    disk = MemoryDisk()
    async with running_broker(disk=disk) as broker, connected() as client:
        for topic in ("T", "Unknown", "Other"):
            assert (await send(client, broker, topic)).code == 0
        broker.services.topics.delete("Unknown")
        assert (await delete(client, broker, "T")).code == 0
        store = broker.services.store
        assert (store.max_offset("T", 0), store.max_offset("Unknown", 0), store.max_offset("Other", 0)) == (0, 1, 1)
        assert (await send(client, broker, "T")).code == 0 and store.max_offset("T", 0) == 1, "the new topic starts empty"
        assert (await ask(client, broker, RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
        assert store.max_offset("Unknown", 0) == 0, "CLEAN_UNUSED_TOPIC deletes queues without topic"


async def test_topic_cannot_be_created_while_it_is_being_deleted() -> None:
    disk = CountingDisk()
    async with running_broker(disk=disk) as broker, connected() as client, connected() as other:
        await send(client, broker, "T")
        disk.is_free.clear()
        going = [asyncio.ensure_future(delete(client, broker, "T")), asyncio.ensure_future(delete(other, broker, "T"))]
        await until(lambda: "T" in broker.services.topics.leaving)
        answer = await send(other, broker, "T")
        assert answer.code == ResponseCode.SYSTEM_BUSY and "deleted" in (answer.remark or "")
        assert not any(one.done() for one in going) and broker.services.store.max_offset("T", 0) == 1
        disk.is_free.set()
        assert {one.code for one in await asyncio.gather(*going)} == {0}
        assert (await send(other, broker, "T")).code == 0 and broker.services.store.max_offset("T", 0) == 1
        assert threading.main_thread().ident not in disk.waiters


@pytest.mark.parametrize("damage", ["bit", "torn", "empty", "rows lost"])
async def test_damaged_topic_table_loses_no_topic(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    async with running_broker(disk=disk) as broker, connected() as client:
        for topic in ("First", "Newest"):
            assert (await create_topic(client, broker, topic, 4)).code == 0
            assert (await send(client, broker, topic)).code == 0
    good = disk.read_file(TOPICS)
    at = good.index(b'"Newest": {') + 1
    damaged = {
        "bit": good[:at] + bytes((good[at] ^ 1,)) + good[at + 1 :],
        "torn": good[: len(good) // 2],
        "empty": b"\0" * len(good),
        "rows lost": sealed_with_rows_lost(good),
    }[damage]
    disk.write_file(TOPICS, damaged)
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        async with running_broker(disk=disk) as broker, connected() as client:
            for topic in ("First", "Newest"):
                assert topic in broker.services.topics.table
                assert broker.services.topics.table[topic].read_queue_nums >= 1
            assert any(TOPICS in record.getMessage() for record in caplog.records)
            assert (await create_topic(client, broker, "Another")).code == 0
            assert (await delete(client, broker, "Another")).code == 0
            assert broker.services.store.max_offset("Newest", 0) == 1, "its messages stay"


def sealed_with_rows_lost(good: bytes) -> bytes:
    """Replace two rows by blanks: the document is still valid JSON of the same size."""
    document = decode_document(good)
    text = good
    for name in ("First", "Newest"):
        begin = text.index(b'    "%s": {' % name.encode())
        end = text.index(b"}", begin) + 1
        end = end + 1 if text[end : end + 1] == b"," else end
        text = text[:begin] + b" " * (end - begin) + text[end:]
    stripped = text.rstrip()
    assert document and len(stripped) == len(good)
    return _without_hanging_comma(text)


def _without_hanging_comma(text: bytes) -> bytes:
    try:
        json.loads(text)
        return text
    except ValueError:
        at = text.rindex(b"},", 0, text.index(SEAL_KEY.encode()) - 10)
        return text[: at + 1] + b" " + text[at + 2 :]


@pytest.mark.parametrize("file", ["topics", "subscriptionGroup", "consumerOffset", "delayOffset", "messageRequestMode"])
async def test_written_tables_have_a_checksum_and_files_without_one_are_read(file: str) -> None:
    disk = MemoryDisk()
    async with running_broker(disk=disk) as broker, connected() as client:
        await create_topic(client, broker, "T")
        await beat(client, broker, "g")
        await commit(client, broker, "g", "T")
        mode = encode_body(MessageRequestMode("T", "g", "POP", 0))
        await ask(client, broker, RequestCode.SET_MESSAGE_REQUEST_MODE, None, mode)
        broker.services.schedule.begin_at(4, 0)
    path = f"{CONFIG}/{file}.json"
    data = disk.read_file(path)
    document = decode_document(data)
    del document[SEAL_KEY]
    assert data == sealed(encode_document(document)), "encoding row by row and as a whole gives the same bytes"
    disk.write_file(path, json.dumps(document).encode())
    try:
        async with running_broker(disk=disk) as broker:
            assert "T" in broker.services.topics.table and "g" in broker.services.groups.table
            assert broker.services.offsets.query("g", "T", 0) == 1
    except StartError as error:
        raise AssertionError(str(error)) from error


async def test_manually_edited_file_is_accepted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    async with running_broker(disk=disk) as broker, connected() as client:
        for topic in ("Kept", "Deleted"):
            await create_topic(client, broker, topic)
    document = decode_document(disk.read_file(TOPICS))
    del document["topicConfigTable"]["Deleted"]
    disk.write_file(TOPICS, json.dumps(document, indent=1).encode())
    async with running_broker(disk=disk) as broker:
        assert "Kept" in broker.services.topics.table and "Deleted" not in broker.services.topics.table
    assert f"{TOPICS} was edited by hand" in caplog.text
