import pytest

from pocketmq.broker.polling.long_polling import PERIOD_S, WOKEN_AT_ONCE
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.data_path import TOPIC, DataPath, StubChannel, pull_header, records, send_header, until

SUSPEND = 2 | 4


@pytest.fixture
async def path():
    return DataPath()


@pytest.fixture
def consumer():
    return StubChannel(5)


def hold(path, channel, queue_offset=0, **fields):
    path.ask(RequestCode.PULL_MESSAGE, pull_header(queue_offset, **({"sys_flag": SUSPEND} | fields)), b"", channel)


async def test_held_pull_is_answered_when_a_message_arrives(path, consumer):
    hold(path, consumer)
    assert consumer.take() == [] and path.services.holds.count == 1
    path.ask(RequestCode.SEND_MESSAGE_V2, send_header(), b"news")
    assert consumer.take() == []
    path.turn()
    (answer,) = consumer.take()
    assert (answer.code, answer.ext["nextBeginOffset"]) == (0, "1")
    assert [record.body for record in records(answer.body)] == [b"news"]
    assert path.services.holds.count == 0


async def test_only_pulls_of_the_grown_queue_are_woken(path, consumer):
    hold(path, consumer, queue_id=1)
    hold(path, consumer, topic="%RETRY%none", queue_id=0)
    path.send(queue_id=0)
    assert path.services.holds.count == 1  # the retry topic does not exist: answered at once
    path.send(queue_id=1)
    assert path.services.holds.count == 0


async def test_tag_filter_decides_which_pulls_are_woken(path, consumer):
    hold(path, consumer, subscription="A")
    path.send("TAGS\x01B")
    path.send()
    assert path.services.holds.count == 1
    for tag in "BA":
        path.ask(RequestCode.SEND_MESSAGE_V2, send_header(f"TAGS\x01{tag}"), tag.encode())
    path.turn()
    (answer,) = consumer.take()
    assert [record.body for record in records(answer.body)] == [b"A"]
    assert answer.ext["nextBeginOffset"] == "4"


async def test_many_messages_of_a_turn_wake_a_pull_once_only(path, consumer):
    hold(path, consumer)
    for _ in range(5):
        path.ask(RequestCode.SEND_MESSAGE_V2, send_header(), b"x")
    path.turn()
    (answer,) = consumer.take()
    assert len(records(answer.body)) == 5


async def test_with_many_woken_pulls_a_queue_is_served_once_per_period(path):
    consumers = [StubChannel(number) for number in range(2)]
    for queue_offset in range(WOKEN_AT_ONCE):
        hold(path, consumers[0], queue_offset)
        path.send()
        assert len(consumers[0].take()) == 1
    hold(path, consumers[0], WOKEN_AT_ONCE)
    hold(path, consumers[1], queue_id=1)
    for _ in range(3):
        path.send()
    path.send(queue_id=1)
    assert len(consumers[1].take()) == 1  # this queue was not served yet
    assert consumers[0].take() == []
    await until(lambda: consumers[0].out)
    (answer,) = consumers[0].take()
    assert len(records(answer.body)) == 3


async def test_with_few_woken_pulls_no_queue_waits_for_the_next_period(path, consumer):
    for queue_offset in range(2 * WOKEN_AT_ONCE):
        hold(path, consumer, queue_offset)
        path.send()
        assert len(consumer.take()) == 1
        path.clock.seconds += PERIOD_S / (WOKEN_AT_ONCE - 1)


async def test_pulls_of_a_queue_are_woken_in_order_of_arrival(path, consumer):
    for group in ("g1", "g2", "g3"):
        hold(path, consumer, consumer_group=group)
    path.send()
    assert [answer.opaque for answer in consumer.take()] == [1, 2, 3]


@pytest.mark.parametrize(("enabled", "suspend_ms", "wait_s"), [(True, 300, 0.3), (False, 60_000, 1.0)])
async def test_held_pull_is_answered_at_its_deadline_without_messages(consumer, enabled, suspend_ms, wait_s):
    path = DataPath({"long_polling_enable": enabled})
    hold(path, consumer, suspend_timeout_millis=suspend_ms)
    (deadline_s,) = [row.deadline_s for queue in path.services.holds.places.values() for row in queue]
    assert deadline_s == pytest.approx(path.clock.seconds + wait_s)
    path.clock.seconds = deadline_s
    await until(lambda: consumer.out)
    (answer,) = consumer.take()
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "0")
    assert path.services.holds.count == 0


async def test_each_held_pull_has_its_own_deadline(path, consumer):
    hold(path, consumer, suspend_timeout_millis=60_000)
    hold(path, consumer, suspend_timeout_millis=20)
    path.clock.seconds += 1
    await until(lambda: consumer.out)
    assert [answer.opaque for answer in consumer.take()] == [2]
    assert path.services.holds.count == 1


async def test_calendar_step_ends_no_held_pull(path, consumer):
    hold(path, consumer)
    path.clock.advance(400 * 86_400_000)
    path.turn()
    assert path.services.holds.count == 1


async def test_pull_of_unwanted_messages_only_gets_the_next_offset(path, consumer):
    hold(path, consumer, subscription="A", suspend_timeout_millis=20)
    path.send("TAGS\x01B")
    path.clock.seconds += 1
    await until(lambda: consumer.out)
    (answer,) = consumer.take()
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "1")


async def test_held_pull_gets_the_next_offset_5_s_after_unwanted_messages(path, consumer):
    hold(path, consumer, subscription="A", suspend_timeout_millis=15_000)
    path.send("TAGS\x01B")
    (held,) = path.services.holds.places[TOPIC, 0]
    assert held.deadline_s == path.clock.seconds + 5
    path.clock.seconds += 1
    path.send("TAGS\x01B")
    assert held.deadline_s == path.clock.seconds + 4


async def test_pull_without_suspend_flag_is_not_held(path):
    assert path.pull(sys_flag=4).code == ResponseCode.PULL_NOT_FOUND


async def test_pull_with_an_invalid_offset_is_not_held(path):
    assert path.pull(77, sys_flag=SUSPEND).code == ResponseCode.PULL_OFFSET_MOVED


async def test_a_held_pull_commits_once(path, consumer):
    hold(path, consumer, sys_flag=SUSPEND | 1, commit_offset=5)
    assert path.services.offsets.query("cg", TOPIC, 0) == 5
    path.services.offsets.commit("cg", TOPIC, 0, 9)
    path.send()
    assert path.services.offsets.query("cg", TOPIC, 0) == 9


async def test_a_closed_connection_leaves_no_held_pull(path, consumer):
    other = StubChannel(6)
    for queue_id in range(3):
        hold(path, consumer, queue_id=queue_id)
    hold(path, other)
    consumer.close()
    assert path.services.holds.count == 1
    path.send()
    assert len(other.take()) == 1
    assert consumer.out == []
    assert path.services.holds.places == {} and path.services.holds._channels == {}


async def test_held_pull_of_a_deleted_topic_is_answered(path, consumer):
    hold(path, consumer)
    path.services.topics.delete(TOPIC)
    path.services.holds.wake_all(TOPIC)
    (answer,) = consumer.take()
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("key", ["max_held_requests", "max_held_requests_per_connection"])
async def test_pulls_beyond_the_limit_are_answered_at_once_and_reading_pauses(consumer, key):
    path = DataPath({key: 1})
    hold(path, consumer)
    hold(path, consumer)
    assert [answer.code for answer in consumer.take()] == [ResponseCode.PULL_NOT_FOUND]
    assert consumer.is_suspended
