import pytest

from pocketmq.broker.clients.client_registry import CLIENT_EXPIRED_S
from pocketmq.remoting.bodies import (
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    decode_body,
    encode_body,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.consumer import ConsumerGroupRequestHeader, UnregisterClientRequestHeader
from tests.broker.data_path import DataPath, StubChannel, until


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


async def test_group_is_notified_of_joining_and_leaving_consumers(path, channels):
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


async def test_closed_connection_is_removed_from_its_groups(path, channels):
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


async def test_client_without_heartbeats_expires_and_its_connection_is_closed(path, channels):
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


async def test_calendar_step_expires_no_client(path, channels):
    beat(path, channels[0], heartbeat("c1"))
    path.clock.advance(400 * 86_400_000)
    path.services.clients.scan()
    assert ids(path) == ["c1"]


async def test_only_a_change_of_topics_is_notified(path, channels):
    first, _ = channels
    beat(path, first, heartbeat("c1", ["T"], version=1))
    notified(first)
    beat(path, first, heartbeat("c1", ["T"], version=5))
    assert notified(first) == []
    assert path.services.clients.find_subscription("cg", "T").sub_version == 5
    beat(path, first, heartbeat("c1", ["T"], version=4))  # an older heartbeat that arrives late
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


async def test_first_heartbeat_creates_the_group_and_its_retry_topic(path, channels):
    beat(path, channels[0], heartbeat("c1", group="new"))
    assert path.services.groups.get("new").retry_max_times == 16
    retry = path.services.topics.get("%RETRY%new")
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)


async def test_client_id_on_two_connections_counts_once(path, channels):
    for channel in channels:
        beat(path, channel, heartbeat("same"))
    assert ids(path) == ["same"]


CPP_BODY = b"""{"clientID":"cpp","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"cg","messageModel":1,
"subscriptionDataSet":[{"classFilterMode":false,"codeSet":["65"],"subString":"A","subVersion":"1700000000000","topic":"T"}]}],
"producerDataSet":[{"groupName":"pg"}]}"""


async def test_heartbeat_of_the_cpp_client_is_understood(path, channels):
    beat(path, channels[0], CPP_BODY)
    group = path.services.clients.consumers.get("cg")
    assert (group.consume_type, group.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert group.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
    assert group.subscriptions["T"].sub_version == 1_700_000_000_000
    assert [client.client_id for client in path.services.clients.producer_clients("pg")] == ["cpp"]


async def test_producers_are_registered_and_unregistered(path, channels):
    body = encode_body(HeartbeatData("p", [ProducerData("pg")], []))
    for channel in channels:
        beat(path, channel, body)
    assert len(path.services.clients.producer_clients("pg")) == 2
    channels[0].close()
    path.ask(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader("p", producer_group="pg"), b"", channels[1])
    assert path.services.clients.producer_clients("pg") == []
    assert path.services.clients.producers == {}


async def test_malformed_heartbeat_is_refused_naming_the_field(path):
    answer = path.call(RequestCode.HEART_BEAT, None, b"{nonsense")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark.startswith("body of request code 34: ")


async def test_shared_producer_client_id_is_found_at_the_latest_heartbeat(path, channels):
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


async def test_group_that_changes_many_times_in_a_turn_is_notified_once(path):
    channels = [StubChannel(port) for port in range(1, 201)]
    for number, channel in enumerate(channels):
        path.ask(RequestCode.HEART_BEAT, None, heartbeat(f"c{number}"), channel)
        channel.take()
    path.turn()
    await until(lambda: all(channel.out for channel in channels))
    assert [notified(channel) for channel in channels] == [["cg"]] * 200


async def test_large_group_is_notified_less_often_but_of_the_last_change(path):
    channels = [StubChannel(port) for port in range(1, 101)]
    for number, channel in enumerate(channels):
        beat(path, channel, heartbeat(f"c{number}"))
    total = sum(len(notified(channel)) for channel in channels)
    assert total < 1000, "5,050 if each of 100 joins notified all"
    path.clock.seconds += 2
    await until(lambda: all(channel.out for channel in channels))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_producer_groups": 2}, "maxProducerGroups"),
        ({"max_groups_per_connection": 2}, "maxGroupsPerConnection"),
        ({"max_client_registrations": 2}, "maxClientRegistrations"),
    ],
)
async def test_producer_groups_are_limited_and_removed_with_their_connection(channels, settings, words):
    path = DataPath(settings)
    attacker, healthy = channels

    def groups(first, count):
        return encode_body(HeartbeatData("p", [ProducerData(f"g{n}") for n in range(first, first + count)], []))

    beat(path, attacker, groups(0, 2))
    assert [answer.code for answer in attacker.take()] == [0]
    beat(path, attacker, groups(0, 3))
    (answer,) = attacker.take()
    assert answer.code == ResponseCode.SYSTEM_ERROR and words in answer.remark
    assert len(path.services.clients.producers) == 2
    beat(path, attacker, groups(0, 2))
    assert [answer.code for answer in attacker.take()] == [0], "registered groups are still served"
    attacker.close()
    assert path.services.clients.producers == {}
    beat(path, healthy, groups(7, 2))
    assert [answer.code for answer in healthy.take()] == [0]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (heartbeat("c" * 256), "clientID has 256 characters, the limit is 255"),
        (encode_body(HeartbeatData("c", [ProducerData("g" * 256)], [])), "group name has 256 characters, the limit is 255"),
        (heartbeat("c", ["T" * 1000] * 1100), "subscriptions of one group have 1101100 characters, the limit is 1048576"),
    ],
)
async def test_too_long_heartbeat_fields_are_refused_with_the_limit(path, body, words):
    answer = path.call(RequestCode.HEART_BEAT, None, body)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, words)
    assert path.services.clients.consumers == {} and path.services.clients.producers == {}


async def test_producer_that_changes_its_client_id_is_found_by_the_new_one_only(path, channels):
    for client_id in ("old", "new"):
        beat(path, channels[0], encode_body(HeartbeatData(client_id, [ProducerData("g")], [])))
    clients = path.services.clients
    assert clients.find_producer("new") is channels[0]
    assert clients.find_producer("old") is None
