"""One record in several queues, and the same queues after a rebuild from the log."""

import pytest

from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.format.message import SCHEDULE_TOPIC, Message, PutStatus
from pocketmq.store.format.multi_dispatch import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, MultiDispatch
from pocketmq.store.format.properties import decode_properties
from pocketmq.store.message_store import MessageStore
from tests.store.stores import ROOT, bodies, message, open_store, records

LMQ = {"enable_multi_dispatch": True, "enable_lmq": True}


def to(queues: str, body: bytes, topic: str = "T", queue_id: int = 3) -> Message:
    return message(topic, queue_id, body, INNER_MULTI_DISPATCH=queues)


def filled(disk: MemoryDisk, **changes: object) -> MessageStore:
    store = open_store(disk, **(LMQ | changes))
    for number, queues in enumerate(("%LMQ%a,%LMQ%b", "%LMQ%b", "", "%LMQ%b,Plain")):
        assert store.commit_log.put(to(queues, b"%d" % number)).status is PutStatus.PUT_OK
    store.dispatch()
    return store


def check(store: MessageStore) -> None:
    assert bodies(store, "T", 3) == [b"0", b"1", b"2", b"3"]
    assert bodies(store, "%LMQ%a") == [b"0"]
    assert bodies(store, "%LMQ%b") == [b"0", b"1", b"3"]
    assert bodies(store, "Plain", 3) == [b"3"]
    found = [decode_properties(record.properties).get(INNER_MULTI_QUEUE_OFFSET) for record in records(store, "T", 3)]
    assert found == ["0,0", "1", None, "2,0"]


def test_each_name_gets_a_unit_and_its_offset_is_stored() -> None:
    store = filled(MemoryDisk())
    check(store)
    assert {(one.topic, one.queue_id) for one in store.queues} == {("T", 3), ("%LMQ%a", 0), ("%LMQ%b", 0), ("Plain", 3)}


def test_a_rebuild_makes_the_same_queues() -> None:
    disk = MemoryDisk()
    filled(disk).shutdown()
    disk.delete_tree(f"{ROOT}/consumequeue")
    store = open_store(disk, **LMQ)
    check(store)
    store.commit_log.put(to("%LMQ%b", b"new"))
    store.dispatch()
    assert bodies(store, "%LMQ%b") == [b"0", b"1", b"3", b"new"]


def test_multi_dispatch_is_ignored_if_it_is_disabled() -> None:
    store = open_store(MemoryDisk())
    store.commit_log.put(to("%LMQ%a", b"x"))
    store.dispatch()
    assert [queue.topic for queue in store.queues] == ["T"]


def test_batch_has_consecutive_offsets_in_the_additional_queues() -> None:
    store = open_store(MemoryDisk(), **LMQ)
    store.commit_log.put_batch([to("%LMQ%a", b"%d" % number) for number in range(3)])
    store.dispatch()
    assert bodies(store, "%LMQ%a") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("name", ["", "../x", "a b", "T", "x" * 256])
def test_refusal_of_an_invalid_queue_name_contains_the_name(name: str) -> None:
    store = open_store(MemoryDisk(), **LMQ)
    result = store.commit_log.put(to(f"%LMQ%a,{name}", b"x"))
    assert result.status is PutStatus.MESSAGE_ILLEGAL
    assert repr(name) in result.reason and INNER_MULTI_DISPATCH in result.reason
    assert store.commit_log.put(to("%LMQ%a", b"x")).queue_offset == 0
    store.dispatch()
    assert bodies(store, "%LMQ%a") == [b"x"]


def test_number_of_light_queues_is_limited() -> None:
    store = open_store(MemoryDisk(), max_lmq_consume_queue_num=2, **LMQ)
    assert store.commit_log.put(to("%LMQ%a,%LMQ%b", b"x")).status is PutStatus.PUT_OK
    refused = store.commit_log.put(to("%LMQ%c", b"x"))
    assert refused.status is PutStatus.MESSAGE_ILLEGAL and "maxLmqConsumeQueueNum allows 2" in refused.reason
    assert store.commit_log.put(to("%LMQ%b", b"x")).status is PutStatus.PUT_OK


@pytest.mark.parametrize("topic", [SCHEDULE_TOPIC, "%RETRY%g"])
def test_delayed_and_retried_messages_are_in_their_own_queue_only(topic: str) -> None:
    store = open_store(MemoryDisk(), **LMQ)
    store.commit_log.put(to("%LMQ%a", b"x", topic))
    store.dispatch()
    assert [queue.topic for queue in store.queues] == [topic]


def test_dropping_topics_leaves_light_queues() -> None:
    store = filled(MemoryDisk())
    assert store.drop_topics({"T"}) == ["Plain"]
    assert bodies(store, "%LMQ%a") == [b"0"]


def test_light_queues_whose_offsets_restarted_at_0_are_rebuilt_in_order() -> None:
    disk = MemoryDisk()
    store = filled(disk)
    store.commit_log.tail.queue_offsets.pop(("%LMQ%b", 0))  # 4.9.4 loses it at a restart
    store.commit_log.put(to("%LMQ%b", b"4"))
    store.commit_log.put(to("%LMQ%b", b"5"))
    store.dispatch()
    store.shutdown()
    disk.delete_tree(f"{ROOT}/consumequeue")
    store = open_store(disk, **LMQ)
    assert bodies(store, "%LMQ%b") == [b"0", b"1", b"3", b"4", b"5"]
    store.commit_log.put(to("%LMQ%b", b"6"))
    store.dispatch()
    assert bodies(store, "%LMQ%b") == [b"0", b"1", b"3", b"4", b"5", b"6"]


@pytest.mark.parametrize("offsets", ["", "1", "1,x", "1,2,3"])
def test_inconsistent_multi_dispatch_properties_give_no_units(offsets: str) -> None:
    units = MultiDispatch(with_lmq=True, lmq_max=9).units_of(
        {INNER_MULTI_DISPATCH: "%LMQ%a,b", INNER_MULTI_QUEUE_OFFSET: offsets}, 1
    )
    assert list(units) == ([(("%LMQ%a", 0), 1)] if offsets == "1,x" else [])
