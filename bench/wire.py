"""Minimal remoting client over a plain socket, to create topics on any broker and to ask it for its runtime information."""

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

ANSWER_MAX_S = 60
"""Long enough for a list of 10,000 topics."""


def call(address: str, code: int, fields: dict[str, str]) -> tuple[int, str]:
    """Send one request with JSON header; return the response's code and remark."""
    answer, _ = request(address, code, fields)
    return answer["code"], answer.get("remark", "")


def runtime_info(address: str) -> dict[str, str]:
    """Return the table of GET_BROKER_RUNTIME_INFO, like `mqadmin brokerStatus`."""
    answer, body = request(address, 28, {})
    if answer["code"] != 0:
        raise RuntimeError(f"{address} refused GET_BROKER_RUNTIME_INFO: {answer}")
    table: dict[str, str] = json.loads(body)["table"]
    return table


def request(address: str, code: int, fields: dict[str, str], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
    """Send one request with JSON header; return the response's header and body."""
    host, port = address.rsplit(":", 1)
    header = {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 1, "version": 401}
    encoded = json.dumps(header | {"serializeTypeCurrentRPC": "JSON"}).encode()
    with socket.create_connection((host, int(port)), timeout=ANSWER_MAX_S) as connection:
        connection.sendall(struct.pack(">II", 4 + len(encoded) + len(body), len(encoded)) + encoded + body)
        reader = connection.makefile("rb")
        size, mark = struct.unpack(">II", reader.read(8))
        data, header_size = reader.read(size - 4), mark & 0xFFFFFF
    return json.loads(data[:header_size]), data[header_size:]


def create_topic(address: str, topic: str, queues: int) -> None:
    """Send UPDATE_AND_CREATE_TOPIC, like `mqadmin updateTopic -b`."""
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    code, remark = call(address, 17, fields)
    if code != 0:
        raise RuntimeError(f"{address} refused the topic {topic}: code {code} {remark}")


def create_topics(address: str, topics: Sequence[str], queues: int) -> None:
    """Send one UPDATE_AND_CREATE_TOPIC_LIST, like 5.x's `mqadmin updateTopicList -b`."""
    config = {"readQueueNums": queues, "writeQueueNums": queues, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    body = json.dumps({"topicConfigList": [{"topicName": topic, **config} for topic in topics]}).encode()
    answer, _ = request(address, 18, {}, body)
    if answer["code"] != 0:
        raise RuntimeError(f"{address} refused {len(topics):,} topics: code {answer['code']} {answer.get('remark', '')}")
