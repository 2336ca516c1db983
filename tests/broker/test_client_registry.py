import pytest
from data_path import DataPath, StubChannel

from broker.client_registry import CLIENT_EXPIRED_S
from remoting.bodies import (
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    decode_body,
    encode_body,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.consumer import ConsumerGroupRequestHeader, UnregisterClientRequestHeader


def heartbeat(client_id, topics=("T",), group="cg", version=1, **fields):
    subscriptions = [SubscriptionData(topic, sub_version=version) for topic in topics]
    return encode_body(HeartbeatData(client_id, [], [ConsumerData(group, subscription_data_set=subscriptions, **fields)]))


def notified(channel):
    return [
        command.ext["consumerGroup"] for command in channel.take() if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    ]


@pytest.fixture
async def path():
    return DataPath()


@pytest.fixture
def channels():
    return StubChannel(1), StubChannel(2)


def beat(path, channel, body):
    path.ask(RequestCode.HEART_BEAT, None, body, channel)
    path.turn()


def ids(path, group="cg"):
    answer = path.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupRequestHeader(group))
    return decode_body(ConsumerIdList, answer.body).consumer_id_list if answer.code == 0 else answer


async def test_the_group_hears_of_who_comes_and_goes(path, channels):
    first, second = channels
    beat(path, first, heartbeat("c1"))
    assert notified(first) == ["cg"]
    beat(path, second, heartbeat("c2"))
    assert (notified(first), notified(second)) == (["cg"], ["cg"])
    beat(path, second, heartbeat("c2"))
    assert (notified(first), notified(second)) == ([], [])
    assert ids(path) == ["c1", "c2"]
    path.ask(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader("c2", consumer_group="cg"), b"", second)
    path.turn()
    assert notified(first) == ["cg"]
    assert ids(path) == ["c1"]


async def test_a_closed_connection_leaves_its_groups(path, channels):
    first, second = channels
    beat(path, first, heartbeat("c1"))
    beat(path, second, heartbeat("c2"))
    beat(path, second, heartbeat("c2", group="other"))
    notified(first)
    second.close()
    path.turn()
    assert notified(first) == ["cg"]
    assert ids(path) == ["c1"]
    assert ids(path, "other").code == ResponseCode.SYSTEM_ERROR
    assert ids(path, "other").remark == "no consumer for this group, other"


async def test_a_client_without_heartbeats_expires_and_its_connection_closes(path, channels):
    first, second = channels
    beat(path, first, heartbeat("c1"))
    beat(path, second, heartbeat("c2"))
    path.clock.seconds += CLIENT_EXPIRED_S - 1
    beat(path, first, heartbeat("c1"))
    path.services.clients.scan()
    assert second.is_open
    path.clock.seconds += 2
    first.take()
    path.services.clients.scan()
    path.turn()
    assert first.is_open and not second.is_open
    assert notified(first) == ["cg"]
    assert ids(path) == ["c1"]


async def test_a_jump_of_the_calendar_expires_nobody(path, channels):
    beat(path, channels[0], heartbeat("c1"))
    path.clock.advance(400 * 86_400_000)
    path.services.clients.scan()
    assert ids(path) == ["c1"]


async def test_only_a_change_of_topics_is_told(path, channels):
    first, _ = channels
    beat(path, first, heartbeat("c1", ["T"], version=1))
    notified(first)
    beat(path, first, heartbeat("c1", ["T"], version=5))
    assert notified(first) == []
    assert path.services.clients.find_subscription("cg", "T").sub_version == 5
    beat(path, first, heartbeat("c1", ["T"], version=4))  # overtaken on its way
    assert path.services.clients.find_subscription("cg", "T").sub_version == 5
    beat(path, first, heartbeat("c1", ["T", "U"], version=6))
    assert notified(first) == ["cg"]
    assert path.services.clients.groups_of_topic("U") == {"cg"}
    beat(path, first, heartbeat("c1", ["U"], version=6))
    assert notified(first) == ["cg"]
    assert path.services.clients.find_subscription("cg", "T") is None


@pytest.mark.parametrize("switch", ["broker", "group"])
async def test_notifications_can_be_switched_off(channels, switch):
    path = DataPath({"notify_consumer_ids_changed_enable": switch != "broker"})
    if switch == "group":
        path.services.groups.find("cg").notify_consumer_ids_changed_enable = False
    beat(path, channels[0], heartbeat("c1"))
    assert notified(channels[0]) == []


async def test_a_first_heartbeat_makes_the_group_and_its_retry_topic(path, channels):
    beat(path, channels[0], heartbeat("c1", group="new"))
    assert path.services.groups.get("new").retry_max_times == 16
    retry = path.services.topics.get("%RETRY%new")
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)


async def test_one_client_id_counts_once(path, channels):
    for channel in channels:
        beat(path, channel, heartbeat("same"))
    assert ids(path) == ["same"]


CPP_BODY = b"""{"clientID":"cpp","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"cg","messageModel":1,
"subscriptionDataSet":[{"classFilterMode":false,"codeSet":["65"],"subString":"A","subVersion":"1700000000000","topic":"T"}]}],
"producerDataSet":[{"groupName":"pg"}]}"""


async def test_the_cpp_client_s_heartbeat(path, channels):
    beat(path, channels[0], CPP_BODY)
    group = path.services.clients.consumer_group("cg")
    assert (group.consume_type, group.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert group.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
    assert group.subscriptions["T"].sub_version == 1_700_000_000_000
    assert [client.client_id for client in path.services.clients.producer_clients("pg")] == ["cpp"]


async def test_producers_come_and_go(path, channels):
    body = encode_body(HeartbeatData("p", [ProducerData("pg")], []))
    for channel in channels:
        beat(path, channel, body)
    assert len(path.services.clients.producer_clients("pg")) == 2
    channels[0].close()
    path.ask(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader("p", producer_group="pg"), b"", channels[1])
    assert path.services.clients.producer_clients("pg") == []
    assert path.services.clients.producers == {}


async def test_what_does_not_fit_in_a_heartbeat_is_named(path):
    answer = path.call(RequestCode.HEART_BEAT, None, b"{nonsense")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark.startswith("body of code 34: ")


async def test_a_client_id_that_two_connections_have_is_the_one_heard_from_last(path, channels):
    first, second = channels
    producer = encode_body(HeartbeatData("p1", [ProducerData("g1"), ProducerData("g2")], []))
    beat(path, first, producer)
    path.clock.seconds += 1
    beat(path, second, producer)
    clients = path.services.clients
    assert clients.find_producer("p1") is second
    path.clock.seconds += 1
    beat(path, first, producer)
    assert clients.find_producer("p1") is first
    first.close()
    assert clients.find_producer("p1") is second
    second.close()
    assert clients.find_producer("p1") is None
