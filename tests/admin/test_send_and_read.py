"""Commands that send, read and look up messages, at the shared servers."""

import json
import os
from pathlib import Path

import pytest

from pocketmq.admin import message_texts
from tests.admin.conftest import Mqadmin


@pytest.fixture(autouse=True)
def bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of the files with bodies."""
    folder = tmp_path / "bodies"
    monkeypatch.setattr(message_texts, "BODIES", folder)
    return folder


def made(mqadmin: Mqadmin, broker: str, topic: str, queues: int = 1) -> str:
    """Create a topic and return its broker's name."""
    mqadmin("updateTopic", "-b", broker, "-t", topic, "-r", str(queues), "-w", str(queues))
    (data,) = mqadmin("topicRoute", "-t", topic, "--json").json["brokerDatas"]
    return str(data["brokerName"])


def test_a_message_is_sent_and_found(mqadmin: Mqadmin, broker: str, bodies: Path) -> None:
    name = made(mqadmin, broker, "Found", 2)
    sent = mqadmin("sendMessage", "-t", "Found", "-p", "schön", "-k", "a b", "-c", "T", "-b", name, "-i", "1", "--json").json
    assert (sent["status"], sent["queue"]["queueId"]) == ("SEND_OK", 1)
    for query in (
        ("queryMsgById", "-i", sent["offset_msg_id"]),
        ("queryMsgById", "-t", "Found", "-i", sent["msg_id"]),
        ("queryMsgByUniqueKey", "-t", "Found", "-i", sent["msg_id"]),
        ("queryMsgByOffset", "-t", "Found", "-b", name, "-i", "1", "-o", "0"),
        ("queryMsgByKey", "-t", "Found", "-k", "b"),
    ):
        (found,) = mqadmin(*query, "--json").json
        assert (found["msgId"], found["body"], found["properties"]["TAGS"]) == (sent["msg_id"], "schön", "T"), query
    assert not bodies.exists(), "with --json the body is in the document"
    shown = mqadmin("queryMsgById", "-i", sent["offset_msg_id"])
    assert f"Message Body Path:   {bodies / sent['msg_id']}\n" in shown.out
    assert "WARN: No Consumer" in shown.out
    assert (bodies / sent["msg_id"]).read_text() == "schön"


def test_a_message_is_sent_to_any_queue_of_a_broker(mqadmin: Mqadmin, broker: str) -> None:
    name = made(mqadmin, broker, "AnyQueue")
    assert mqadmin("sendMessage", "-t", "AnyQueue", "-p", "x", "-b", name).out.splitlines()[1].split()[:3] == [
        *(name, "0", "SEND_OK")
    ]
    assert "The broker[other] not exist" in mqadmin("sendMessage", "-t", "AnyQueue", "-p", "x", "-b", "other").err


def test_a_message_is_sent_again(mqadmin: Mqadmin, broker: str) -> None:
    made(mqadmin, broker, "Again")
    sent = mqadmin("sendMessage", "-t", "Again", "-p", "x", "-k", "key", "-c", "T", "--json").json
    printed = mqadmin("queryMsgById", "-i", sent["offset_msg_id"], "-s", "true")
    assert printed.out.startswith(f"prepare resend msg. originalMsgId={sent['offset_msg_id']}SendResult [sendStatus=SEND_OK")
    found = mqadmin("queryMsgByUniqueKey", "-t", "Again", "-i", sent["msg_id"], "-a", "--json").json
    assert [(one["body"], one["queueOffset"], one["properties"]["KEYS"]) for one in found] == [
        ("x", 0, "key"),
        ("x", 1, "key"),
    ]


def test_a_sent_message_is_traced(mqadmin: Mqadmin, broker: str) -> None:
    made(mqadmin, broker, "Traced")
    sent = mqadmin("sendMessage", "-t", "Traced", "-p", "x", "-m", "true", "--json").json
    (event,) = mqadmin("queryMsgTraceById", "-i", sent["msg_id"], "--json").json
    assert (event["kind"], event["client_host"], event["succeeded"]) == ("Pub", "127.0.0.1", True)
    head, row = mqadmin("queryMsgTraceById", "-i", sent["msg_id"]).out.splitlines()[:2]
    assert head.split() == ["#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"]
    assert row.split()[::6] == ["Pub", "success"]


def test_printing_by_time_and_tag(mqadmin: Mqadmin, broker: str) -> None:
    name = made(mqadmin, broker, "Printed")
    for number in range(5):
        mqadmin("sendMessage", "-t", "Printed", "-p", f"body {number}", "-c", "odd" if number % 2 else "even")
    everything = mqadmin("printMsg", "-t", "Printed", "--json").json
    assert [one["body"] for one in everything] == [f"body {number}" for number in range(5)]
    fourth_ms = everything[3]["storeTimestamp"]
    after = mqadmin("printMsg", "-t", "Printed", "-b", str(fourth_ms), "--json").json
    assert [one["body"] for one in after] == [one["body"] for one in everything if one["storeTimestamp"] >= fourth_ms]
    counted = mqadmin("printMsgByQueue", "-t", "Printed", "-a", name, "-i", "0", "-f", "true", "--json").json
    assert counted == {"messages": [], "tags": {"even": 3, "odd": 2}}
    odd = mqadmin("printMsgByQueue", "-t", "Printed", "-a", name, "-i", "0", "-s", "odd || none", "-p", "true")
    assert odd.out.count("MSGID: ") == 2
    assert odd.out.count("BODY: NOT PRINT BODY") == 2
    few = mqadmin("consumeMessage", "-t", "Printed", "-b", name, "-i", "0", "-o", "2", "-c", "2", "--json").json
    assert [one["body"] for one in few] == ["body 2", "body 3"]
    assert "charset" in mqadmin("printMsg", "-t", "Printed", "-c", "no-such").err
    assert mqadmin("printMsg", "-t", "Printed", "-b", "yesterday").exit_code == 1


def test_bodies_that_are_not_text(mqadmin: Mqadmin, broker: str) -> None:
    made(mqadmin, broker, "Binary")
    mqadmin("sendMessage", "-t", "Binary", "-p", b"\xff\xfe".decode("latin-1"))
    text = mqadmin("printMsg", "-t", "Binary", "-c", "latin-1").out
    assert "body=[-61, -65, -61, -66]" in text, "Java's bytes have a sign"


def test_a_birth_time_that_is_no_date_is_shown_as_a_number(
    mqadmin: Mqadmin, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may send any."""
    name = made(mqadmin, broker, "Odd")
    with monkeypatch.context() as patch:
        patch.setattr("pocketmq.client.sending.outgoing.now_ms", lambda: 1 << 62)
        mqadmin("sendMessage", "-t", "Odd", "-p", "x", "-b", name, "-i", "0")
    printed = mqadmin("queryMsgByOffset", "-t", "Odd", "-b", name, "-i", "0", "-o", "0")
    assert f"Born Timestamp:      {1 << 62}\n" in printed.out, printed.err


def test_commands_that_measure_send_times(mqadmin: Mqadmin, broker: str) -> None:
    name = made(mqadmin, broker, "Timed", 2)
    timed = mqadmin("checkMsgSendRT", "-t", "Timed", "-a", "3", "--json").json
    assert [(one["queueId"], one["succeeded"]) for one in timed["messages"]] == [(0, "true"), (1, "true"), (0, "true")]
    assert timed["avgRtMs"] == pytest.approx(sum(one["rtMs"] for one in timed["messages"][1:]) / 2)
    assert mqadmin("checkMsgSendRT", "-t", "Timed", "-a", "1").out.endswith("Avg RT: NaN\n")
    assert mqadmin("sendMsgStatus", "-b", name, "-c", "2").out.count("SendResult [sendStatus=SEND_OK, ") == 2
    rounds = mqadmin("clusterRT", "-a", "2", "-i", "0", "-r", "2")
    head, *rows = rounds.out.splitlines()
    assert head.startswith("#Cluster Name             #Broker Name              #RT   #successCount")
    assert [row.split()[1::2] for row in rows] == [[name, "2"]] * 2
    assert mqadmin("clusterRT", "-a", "2", "-r", "1", "-p", "true", "-m", "here").out.split("|")[1:4:2] == ["here", name]
    assert "cluster [Missing] not exist" in mqadmin("clusterRT", "-c", "Missing").err


def test_a_link_in_the_place_of_a_body_is_not_followed(mqadmin: Mqadmin, broker: str, bodies: Path, tmp_path: Path) -> None:
    made(mqadmin, broker, "Linked")
    sent = mqadmin("sendMessage", "-t", "Linked", "-p", "x", "--json").json
    bodies.mkdir()
    precious = tmp_path / "precious"
    precious.write_text("precious")
    os.symlink(precious, bodies / sent["msg_id"])
    printed = mqadmin("queryMsgById", "-i", sent["offset_msg_id"])
    assert "Message Body Path:   not written" in printed.out
    assert str(bodies / sent["msg_id"]) in printed.err
    assert precious.read_text() == "precious"


def test_a_link_in_the_place_of_an_export_is_not_followed(mqadmin: Mqadmin, broker: str, tmp_path: Path) -> None:
    precious, link = tmp_path / "precious", tmp_path / "topic.json"
    precious.write_text("precious")
    link.symlink_to(precious)
    printed = mqadmin("exportMetadata", "-b", broker, "-t", "-f", str(tmp_path))
    assert precious.read_text() == "precious"
    assert str(link) in printed.err


def test_queue_units_end_at_the_queues_end(mqadmin: Mqadmin, broker: str) -> None:
    made(mqadmin, broker, "Units")
    mqadmin("sendMessage", "-t", "Units", "-p", "x")
    units = mqadmin("queryCq", "-t", "Units", "-q", "0", "-i", "0", "--json").json
    assert (units["minQueueIndex"], units["maxQueueIndex"], len(units["queueData"])) == (0, 1, 1)
    beyond = mqadmin("queryCq", "-t", "Units", "-q", "0", "-i", "7", "--json")
    assert beyond.exit_code == 1
    assert "Index 7" in json.loads(beyond.out)["error"]["message"]
