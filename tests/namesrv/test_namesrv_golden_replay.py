"""Replay of requests that Apache's brokers and mqadmin sent to Apache's name server; the answers must be the same.

Each recording contains complete exchanges in order. State that was created before the recording began is derived from the
recorded answer; the comparison then verifies only the format of our answer, not its content.
"""

import base64
import gzip
import json
from pathlib import Path

import pytest

from pocketmq.namesrv.handlers import ROUTES
from pocketmq.namesrv.live_broker import BrokerIdentity
from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from pocketmq.remoting.codes import RequestCode as Code
from pocketmq.remoting.command import decode_header
from pocketmq.remoting.frame import FrameBuffer

FOLDER = Path(__file__).parents[1] / "golden" / "wire"


def exchanges(name):
    """Yield (recording, request frame, (answer, its body) or None) of each exchange."""
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt") as file:
        for row in map(json.loads, file):
            answer = row["response"] and decoded(base64.b64decode(row["response"]))
            yield row["from"], base64.b64decode(row["request"]), answer


def decoded(frame):
    ((kind, header, body),) = FrameBuffer().feed(frame)
    return decode_header(kind, header), body


def content(code, body):
    """Return a body in a comparable form: topic names, whose order is arbitrary, are sorted."""
    if not body or code == Code.GET_NAMESRV_CONFIG:
        return None
    value = fastjson.loads(body)
    if isinstance(value, dict) and "topicList" in value:
        value["topicList"] = sorted(value["topicList"])
    return value


def assert_same(code, ours, recorded):
    answer, body = recorded
    assert (ours.code, ours.remark, ours.flag, ours.opaque) == (answer.code, answer.remark, answer.flag, answer.opaque)
    assert (ours.ext or {}) == (answer.ext or {})
    assert content(code, ours.body) == content(code, body)


def test_replay_of_a_brokers_registrations_in_both_serialisations(namesrv):
    codes = []
    for _, frame, recorded in exchanges("namesrv_registration"):
        command, _ = decoded(frame)
        ours = namesrv.serve(frame)
        codes.append(command.code)
        if recorded is None:
            assert ours is None
        else:
            assert_same(command.code, ours, recorded)
    assert codes.count(Code.REGISTER_BROKER) > 10
    assert len(namesrv.routes.topics()) > 8


def state_behind(namesrv, code, request, answer, body):
    """Create the state from which the name server gives this answer."""
    counter = state_behind.counter = getattr(state_behind, "counter", 0) + 1

    def enter(broker, topics, broker_id, address):
        wrapper = TopicConfigSerializeWrapper(topics, DataVersion(counter, 0))
        identity = BrokerIdentity(broker["cluster"], broker["brokerName"], address, int(broker_id))
        namesrv.routes.register(identity, "", wrapper, [], None)

    value = content(code, body)
    if code == Code.GET_ROUTEINFO_BY_TOPIC:
        namesrv.routes.delete_topic(request.ext["topic"], None)
        for broker in value["brokerDatas"] if value else ():
            (queues,) = [row for row in value["queueDatas"] if row["brokerName"] == broker["brokerName"]]
            topic = TopicConfig(
                request.ext["topic"], queues["readQueueNums"], queues["writeQueueNums"], queues["perm"],
                topic_sys_flag=queues["topicSysFlag"],
            )  # fmt: skip
            for broker_id, address in broker["brokerAddrs"].items():
                enter(broker, {topic.topic_name: topic}, broker_id, address)
    elif code == Code.GET_BROKER_CLUSTER_INFO:
        for broker in value["brokerAddrTable"].values():
            for broker_id, address in broker["brokerAddrs"].items():
                enter(broker, {}, broker_id, address)
    elif code == Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
        broker = {"cluster": "GoldenCluster", "brokerName": "golden-a"}
        enter(broker, {name: TopicConfig(name) for name in value["topicList"]}, 0, "127.0.0.1:18811")
    elif code in (Code.WIPE_WRITE_PERM_OF_BROKER, Code.ADD_WRITE_PERM_OF_BROKER):
        count = int(answer.ext.get("wipeTopicCount") or answer.ext.get("addTopicCount"))
        if count:
            broker = {"cluster": "GoldenCluster", "brokerName": request.ext["brokerName"]}
            enter(broker, {f"t{n}": TopicConfig(f"t{n}") for n in range(count)}, 0, "127.0.0.1:18811")


RECORDED = list(exchanges("namesrv_mqadmin"))


@pytest.mark.parametrize("recording", sorted({name for name, *_ in RECORDED}))
def test_replay_of_mqadmin_requests(namesrv, recording):
    if recording.endswith("updateOrderConf_get"):
        namesrv.services.kv_config.put("ORDER_TOPIC_CONFIG", "AdmOrdered", "golden-a:4")
    for name, frame, recorded in RECORDED:
        if name != recording:
            continue
        request, _ = decoded(frame)
        # Each exchange was recorded in a state of its own: remove the brokers of the previous exchange.
        for broker_name, broker in namesrv.routes.brokers().items():
            for broker_id, address in broker.broker_addrs.items():
                namesrv.routes.unregister(BrokerIdentity(broker.cluster, broker_name, address, int(broker_id)))
        state_behind(namesrv, request.code, request, *recorded)
        assert_same(request.code, namesrv.serve(frame), recorded)


def test_recordings_contain_the_request_codes_of_mqadmin():
    asked = {decoded(frame)[0].code for _, frame, _ in RECORDED}
    assert asked >= {100, 101, 102, 105, 106, 205, 206, 216, 318, 319, 327}
    assert asked <= set(ROUTES)
