"""Brokers whose `config/` is lost in whole or in part: recovered tables, log messages, and content left unchanged."""

import asyncio
import json
import logging
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.bodies import TopicConfig, decode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.delay_bodies import DelayedMessages
from pocketmq.remoting.headers.delay import DelayedMessageRequestHeader, QueryDelayedRequestHeader
from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.message import SCHEDULE_TOPIC, Message, PutStatus
from pocketmq.store.format.properties import encode_properties
from pocketmq.store.format.record import decode_record
from tests.broker.data_path import TOPIC, DataPath, pull_header
from tests.broker.running import ask, connected, running_broker, until

CONFIG = "/store/config"
HOST = bytes((127, 0, 0, 1, 0, 0, 0, 1))


def put(broker: Broker, topic: str, queue_id: int, body: bytes = b"x", **properties: str) -> None:
    message = Message(
        topic, queue_id, body, HOST, HOST, properties=properties, properties_bytes=encode_properties(properties).encode()
    )
    assert broker.services.store.commit_log.put(message).status is PutStatus.PUT_OK
    broker.services.turn.run()


def delay(broker: Broker, body: str, level: int = 1, **more: str) -> None:
    properties = {"DELAY": str(level), "REAL_TOPIC": "T", "REAL_QID": "0", "UNIQ_KEY": f"u-{body}", **more}
    put(broker, SCHEDULE_TOPIC, level - 1, body.encode(), **{name: value for name, value in properties.items() if value})


def delivered(broker: Broker) -> list[str]:
    store = broker.services.store
    queue = store.queue("T", 0)
    units = [queue.unit_at(at) for at in range(queue.max_offset)] if queue is not None else []
    return [decode_record(view).body.decode() for unit in units if unit and (view := store.message_at(unit[0]))]


def lose(disk: MemoryDisk, *names: str) -> None:
    for name in names:
        for path in (f"{CONFIG}/{name}.json", f"{CONFIG}/{name}.json.bak"):
            if disk.exists(path):
                disk.delete(path)


def told(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)


async def test_new_store_logs_no_lost_tables(caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker():
        assert "missing" not in told(caplog)


async def test_topics_and_groups_are_recovered_from_the_queues(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    async with running_broker(disk=disk) as broker:
        for topic, queue_id in (("T", 0), ("T", 6), ("%RETRY%g", 1), ("%DLQ%h", 0), ("rmq_sys_sync_other", 0)):
            put(broker, topic, queue_id)
        broker.services.offsets.commit("reader", "T", 9, 1)
    lose(disk, "topics", "subscriptionGroup")
    async with running_broker(disk=disk) as broker:
        topics, groups = broker.services.topics.table, broker.services.groups.table
        numbers = {name: (topics[name].read_queue_nums, topics[name].write_queue_nums, topics[name].perm) for name in topics}
        assert numbers["T"] == (10, 10, 6), "the offset table has a queue without files"
        assert numbers["%RETRY%g"] == (2, 2, 6) and numbers["%DLQ%h"] == (1, 1, 6)
        assert "rmq_sys_sync_other" not in topics, "created by its user"
        assert groups["g"].retry_queue_nums == 2 and {"h", "reader"} <= set(groups)
        assert broker.services.store.max_offset("T", 6) == 1
    said = told(caplog)
    for expected in ("topics.json is missing", "topic T is recovered", "topic %RETRY%g", "group g is", "group reader is"):
        assert said.count(expected) == 1
    assert "consumerOffset" not in said
    caplog.clear()
    async with running_broker(disk=disk) as broker:
        assert broker.services.topics.table["T"].read_queue_nums == 10
    assert "recovered" not in told(caplog), "the recovered tables were written"


async def test_lost_consumer_offsets_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    async with running_broker(disk=disk) as broker:
        put(broker, "T", 0)
        broker.services.topics.update(TopicConfig("T", 1, 1))
        broker.services.groups.find("g")
        broker.services.offsets.commit("g", "T", 0, 1)
    lose(disk, "consumerOffset")
    async with running_broker(disk=disk):
        assert "consumer offsets are lost" in told(caplog)
        assert "topics.json" not in told(caplog)


async def test_offsets_are_kept_when_light_queues_are_enabled(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    async with running_broker(disk=disk) as broker:
        put(broker, "T", 0)
        broker.services.groups.find("g")
        broker.services.offsets.commit("g", "T", 0, 1)
    async with running_broker(disk=disk, store={"enable_lmq": True}) as broker:
        assert broker.services.offsets.query("g", "T", 0) == 1
        broker.services.offsets.commit("%LMQ%g", "%LMQ%x", 0, 5)
    assert "consumer offsets are lost" not in told(caplog)
    async with running_broker(disk=disk, store={"enable_lmq": True}) as broker:
        assert broker.services.offsets.query("%LMQ%g", "%LMQ%x", 0) == 5
        assert broker.services.offsets.query("g", "T", 0) == 1


# --- delay levels -----------------------------------------------------------------------------------------------------


async def restarted_without_delay_offsets(
    disk: MemoryDisk, clock: VirtualClock, expected: set[str], **store: Any
) -> list[str]:
    """Return the bodies that are delivered after the restart, in order."""
    lose(disk, "delayOffset")
    disk.delete("/store/config/levelmark")
    async with running_broker(disk=disk, clock=clock, store=store) as broker:
        before = len(delivered(broker))
        clock.advance(3_600_000)
        await until(lambda: expected <= set(delivered(broker)[before:]))
        await asyncio.sleep(0)
        return delivered(broker)[before:]


async def test_mark_replaces_the_lost_delay_offset_file(caplog: pytest.LogCaptureFixture) -> None:
    disk, clock = MemoryDisk(), VirtualClock()
    async with running_broker(disk=disk, clock=clock) as broker:
        delay(broker, "past", UNIQ_KEY="")
        clock.advance(1000)
        await until(lambda: delivered(broker) == ["past"])
        delay(broker, "new", UNIQ_KEY="")
    lose(disk, "delayOffset")
    async with running_broker(disk=disk, clock=clock) as broker:
        clock.advance(3_600_000)
        await until(lambda: len(delivered(broker)) > 1)
        assert delivered(broker) == ["past", "new"]
    assert "delayOffset.json is missing" in caplog.text and "continues at queue offset 1 of 2" in caplog.text


@pytest.mark.parametrize("count, waiting", [(1, 0), (3, 0), (40, 0), (0, 1), (0, 40), (1, 1), (40, 1), (1, 40), (37, 23)])
async def test_level_continues_after_the_last_delivered_message(
    count: int, waiting: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk, clock = MemoryDisk(), VirtualClock()
    async with running_broker(disk=disk, clock=clock) as broker:
        for number in range(count):
            delay(broker, f"past {number}", UNIQ_KEY="" if number % 3 == 1 else f"u{number}")
        clock.advance(1000)
        await until(lambda: len(delivered(broker)) == count)
        for number in range(waiting):
            delay(broker, f"new {number}")
    expected = {f"new {number}" for number in range(waiting)}
    came = await restarted_without_delay_offsets(disk, clock, expected)
    again = [body for body in came if body.startswith("past")]
    assert [body for body in came if body.startswith("new")] == [f"new {number}" for number in range(waiting)]
    assert len(again) <= 3, "only those without a key after the newest with a key"
    assert "delay level 1 continues at queue offset" in told(caplog)


@pytest.mark.parametrize("how", ["no index", "no keys"])
async def test_level_without_evidence_is_delivered_again(how: str, caplog: pytest.LogCaptureFixture) -> None:
    disk, clock = MemoryDisk(), VirtualClock()
    store = {"message_index_enable": how != "no index"}
    async with running_broker(disk=disk, clock=clock, store=store) as broker:
        for number in range(5):
            delay(broker, str(number), **({"UNIQ_KEY": ""} if how == "no keys" else {}))
        clock.advance(1000)
        await until(lambda: len(delivered(broker)) == 5)
    assert await restarted_without_delay_offsets(disk, clock, set("01234"), **store) == list("01234")
    assert "delivered messages are delivered again" in told(caplog)


async def test_key_shared_by_two_messages_does_not_prove_delivery() -> None:
    disk, clock = MemoryDisk(), VirtualClock()
    async with running_broker(disk=disk, clock=clock) as broker:
        delay(broker, "first", UNIQ_KEY="same")
        clock.advance(1000)
        await until(lambda: len(delivered(broker)) == 1)
        delay(broker, "between")
        delay(broker, "sent twice", UNIQ_KEY="same")
    came = await restarted_without_delay_offsets(disk, clock, {"between", "sent twice"})
    assert came[-2:] == ["between", "sent twice"]


async def test_early_delivery_does_not_prove_delivery_of_earlier_messages() -> None:
    disk, clock = MemoryDisk(), VirtualClock()
    async with running_broker(disk=disk, clock=clock) as broker, connected() as client:
        for body in ("past", "first", "second"):
            delay(broker, body)
            if body == "past":
                clock.advance(1000)
                await until(lambda: len(delivered(broker)) == 1)
        answer = await ask(client, broker, RequestCode.QUERY_DELAYED, QueryDelayedRequestHeader(msg_id="u-second"))
        (second,) = decode_body(DelayedMessages, answer.body).messages
        at_once = DelayedMessageRequestHeader(second.physical_offset)
        assert (await ask(client, broker, RequestCode.DELIVER_DELAYED_NOW, at_once)).code == 0
        assert delivered(broker) == ["past", "second"]
    lose(disk, "delayCancelled")
    assert await restarted_without_delay_offsets(disk, clock, {"first", "second"}) == ["first", "second"]


async def test_retries_of_one_message_are_distinguished() -> None:
    disk, clock = MemoryDisk(), VirtualClock()
    async with running_broker(disk=disk, clock=clock) as broker:
        delay(broker, "at level 1", UNIQ_KEY="same")
        clock.advance(1000)
        await until(lambda: len(delivered(broker)) == 1)
        delay(broker, "at level 2", level=2, UNIQ_KEY="same")
    assert await restarted_without_delay_offsets(disk, clock, {"at level 2"}) == ["at level 2"]


# --- content of other versions ----------------------------------------------------------------------------------------


async def test_unused_files_of_other_versions_are_not_changed() -> None:
    disk = MemoryDisk()
    names = ("consumerFilter.json", "topicQueueMapping.json")
    for name in (*names, "timermetrics", "transactionMetrics"):
        disk.write_file(f"{CONFIG}/{name}", b"as it was: " + name.encode())
    async with running_broker(disk=disk) as broker:
        put(broker, "T", 0)
        broker.services.offsets.commit("g", "T", 0, 1)
    for name in (*names, "timermetrics", "transactionMetrics"):
        assert disk.read_file(f"{CONFIG}/{name}") == b"as it was: " + name.encode()
        assert not disk.exists(f"{CONFIG}/{name}.bak")


async def test_tables_in_rocksdb_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    disk.write_file(f"{CONFIG}/topics/CURRENT", b"MANIFEST-000005\n")
    disk.write_file("/store/rocksdbstore/000012.sst", b"x")
    async with running_broker(disk=disk):
        said = told(caplog)
        assert f"{CONFIG}/topics is a RocksDB database" in said and "rocksdbstore has data" in said


async def test_empty_rocksdbstore_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    disk.write_file("/store/rocksdbstore/CURRENT", b"MANIFEST-000005\n")
    disk.write_file("/store/rocksdbstore/000004.log", b"")
    async with running_broker(disk=disk):
        assert "RocksDB" not in told(caplog)


async def test_topic_with_batch_queues_is_kept_and_its_sends_refused(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    path = "/store/batchconsumequeue/B/1/00000000000000000000"
    disk.write_file(path, b"units")
    row = {"topicName": "Named", "attributes": {"queue.type": "BatchCQ"}}
    disk.write_file(f"{CONFIG}/topics.json", json.dumps({"topicConfigTable": {"Named": row}}).encode())
    async with running_broker(disk=disk) as broker:
        store = broker.services.store
        for topic in ("B", "Named"):
            result = store.commit_log.put(Message(topic, 0, b"x", HOST, HOST))
            assert result.status is PutStatus.MESSAGE_ILLEGAL and f"topic {topic} has queue.type=BatchCQ" in result.reason
            assert f"topic {topic} has queue.type=BatchCQ" in told(caplog)
        store.drop_topics({"Other"})
    assert disk.read_file(path) == b"units"
    assert not disk.is_dir("/store/consumequeue/B"), "5.x would not start"


async def test_queues_rebuilt_from_the_log_exclude_batch_topics() -> None:
    disk = MemoryDisk()
    async with running_broker(disk=disk) as broker:
        for topic in ("B", "T"):
            put(broker, topic, 1)
    disk.delete_tree("/store/consumequeue")
    disk.write_file("/store/batchconsumequeue/B/1/00000000000000000000", b"units")
    lose(disk, "topics")
    async with running_broker(disk=disk) as broker:
        assert broker.services.store.max_offset("T", 1) == 1
        topic_config = broker.services.topics.table["B"]
        assert topic_config.attributes == {"queue.type": "BatchCQ"} and topic_config.read_queue_nums == 2
    assert not disk.is_dir("/store/consumequeue/B")


async def test_pulls_from_a_batch_topic_are_refused() -> None:
    path = DataPath()
    path.services.topics.update(TopicConfig(TOPIC, 4, 4))
    path.store.commit_log.refused_topics[TOPIC] = "topic T is not served"
    answer = path.call(RequestCode.PULL_MESSAGE, pull_header(queue_offset=7))
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "topic T is not served")
