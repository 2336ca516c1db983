import pytest

from pocketmq.remoting.bodies import ConsumerData, HeartbeatData, SubscriptionData, TopicConfig, encode_body
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.store.format.message import PutResult, PutStatus
from pocketmq.store.format.properties import decode_properties
from tests.broker.data_path import STORE_HOST, TOPIC, DataPath, pull_header, records


@pytest.fixture
async def path():
    path = DataPath()
    for tag in "ABABA":
        path.send(f"TAGS\x01{tag}", tag.encode())
    return path


def bodies(answer):
    return [record.body for record in records(answer.body)]


def ext(answer):
    """Return suggestWhichBrokerId, nextBeginOffset, minOffset and maxOffset of an answer."""
    return tuple(int(answer.ext[name]) for name in ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"))


async def test_pulled_messages_equal_the_stored_records(path):
    answer = path.pull()
    assert (answer.code, answer.remark, ext(answer)) == (0, "FOUND", (0, 5, 0, 5))
    assert records(answer.body) == path.stored()
    assert bodies(path.pull(1, max_msg_nums=2)) == [b"B", b"A"]


async def test_lite_pull_answers_as_pull(path):
    answer = path.call(RequestCode.LITE_PULL_MESSAGE, pull_header(3, sys_flag=4 | 16))
    assert bodies(answer) == [b"B", b"A"]


@pytest.mark.parametrize(("expression", "found"), [("A", 3), ("B", 2), ("A || B", 5), ("*", 5), (None, 5)])
async def test_pull_is_filtered_by_tags(path, expression, found):
    answer = path.pull(subscription=expression)
    assert len(bodies(answer)) == found
    assert ext(answer)[1] == 5


async def test_filtered_messages_are_skipped(path):
    answer = path.pull(subscription="C")
    assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert ext(answer)[1] == 5


@pytest.mark.parametrize(
    ("queue_id", "queue_offset", "code", "remark", "next_offset"),
    [
        (0, 5, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 5),
        (0, 9999, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 5),
        (0, -1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
        (1, 0, ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", 0),
        (1, 9999, ResponseCode.PULL_OFFSET_MOVED, "NO_MESSAGE_IN_QUEUE", 0),
    ],
)
async def test_offsets_out_of_range_are_corrected(path, queue_id, queue_offset, code, remark, next_offset):
    answer = path.pull(queue_offset, queue_id=queue_id)
    assert (answer.code, answer.remark, ext(answer)[1]) == (code, remark, next_offset)
    assert answer.body == b""


async def test_pull_commits_its_offset(path):
    path.pull(3, sys_flag=4 | 1, commit_offset=3)
    assert path.services.offsets.query("cg", TOPIC, 0) == 3
    path.pull(4, sys_flag=4, commit_offset=4)
    assert path.services.offsets.query("cg", TOPIC, 0) == 3


async def test_pulls_are_counted(path):
    path.pull()
    path.pull(5)
    assert path.services.stats.get_total.nums == 5


# --- checks ----------------------------------------------------------------------------------------------------------


async def test_pull_without_read_permission_is_refused(path):
    path.services.config.broker_permission = 2
    assert path.pull().code == ResponseCode.NO_PERMISSION
    path.services.config.broker_permission = 6
    path.services.groups.find("cg").consume_enable = False
    assert path.pull().code == ResponseCode.NO_PERMISSION
    path.services.topics.update(TopicConfig("WriteOnly", perm=2))
    assert path.pull(topic="WriteOnly", consumer_group="other").code == ResponseCode.NO_PERMISSION


async def test_unknown_topics_groups_and_queues_are_refused(path):
    assert path.pull(topic="NoSuch").code == ResponseCode.TOPIC_NOT_EXIST
    for queue_id in (-1, 4):
        answer = path.pull(queue_id=queue_id)
        assert answer.code == ResponseCode.SYSTEM_ERROR and f"queueId[{queue_id}] is illegal" in answer.remark
    path.services.config.auto_create_subscription_group = False
    assert path.pull(consumer_group="nobody").code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_expression_without_tags_is_refused(path):
    assert path.pull(subscription="||").code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


# --- the subscription of heartbeats ----------------------------------------------------------------------------------


def heartbeat(path, topic=TOPIC, expression="A", version=7, **fields):
    data = ConsumerData("cg", subscription_data_set=[SubscriptionData(topic, expression, sub_version=version)], **fields)
    path.ask(RequestCode.HEART_BEAT, None, encode_body(HeartbeatData("c", [], [data])))


async def test_pull_without_subscription_uses_that_of_the_heartbeat(path):
    assert path.pull(sys_flag=0).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    heartbeat(path, topic="Other")
    assert path.pull(sys_flag=0).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    heartbeat(path)
    assert bodies(path.pull(sys_flag=0, sub_version=7)) == [b"A", b"A", b"A"]
    assert path.pull(sys_flag=0, sub_version=8).code == ResponseCode.SUBSCRIPTION_NOT_LATEST


async def test_broadcasting_can_be_forbidden(path):
    heartbeat(path, message_model="BROADCASTING")
    assert path.pull(sys_flag=0).code == 0
    path.services.groups.find("cg").consume_broadcast_enable = False
    assert path.pull(sys_flag=0).code == ResponseCode.NO_PERMISSION


async def test_lite_pulls_can_be_forbidden(path):
    path.services.config.lite_pull_message_enable = False
    answer = path.call(RequestCode.LITE_PULL_MESSAGE, pull_header(3, sys_flag=4 | 16))
    assert answer.code == ResponseCode.NO_PERMISSION and "litePullMessageEnable=false" in answer.remark
    assert bodies(path.pull(3)) == [b"B", b"A"]


async def test_corrected_offset_stores_an_offset_moved_event(path):
    assert path.pull(9999).code == ResponseCode.PULL_OFFSET_MOVED
    (record,) = path.stored("OFFSET_MOVED_EVENT")
    assert record.body == (
        b'{"consumerGroup":"cg","messageQueue":{"brokerName":"b","queueId":0,"topic":"T"},'
        b'"offsetNew":5,"offsetRequest":9999}'
    )
    assert decode_properties(record.properties) == {"KEYS": "cg", "DELAY": "0", "TAGS": "cg"}
    assert record.born_host == record.store_host == STORE_HOST
    assert path.pull(5).code == ResponseCode.PULL_NOT_FOUND
    assert len(path.stored("OFFSET_MOVED_EVENT")) == 1


async def test_corrected_offset_is_answered_when_the_event_cannot_be_stored(path, monkeypatch):
    refused = PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
    monkeypatch.setattr(path.store.commit_log, "put", lambda message: refused)
    assert ext(path.pull(9999)) == (0, 5, 0, 5)
