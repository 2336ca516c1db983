"""Minimal remoting client over a plain socket, to create a topic on any broker and to ask it for its runtime information."""

import json
import socket
import struct
from typing import Any


def call(address: str, code: int, fields: dict[str, str]) -> tuple[int, str]:
    """Send one request with JSON header; return the response's code and remark."""
    answer, _ = _call(address, code, fields)
    return answer["code"], answer.get("remark", "")


def runtime_info(address: str) -> dict[str, str]:
    """Return the table of GET_BROKER_RUNTIME_INFO, like `mqadmin brokerStatus`."""
    answer, body = _call(address, 28, {})
    if answer["code"] != 0:
        raise RuntimeError(f"{address} refused GET_BROKER_RUNTIME_INFO: {answer}")
    table: dict[str, str] = json.loads(body)["table"]
    return table


def _call(address: str, code: int, fields: dict[str, str]) -> tuple[dict[str, Any], bytes]:
    """Send one request with JSON header; return the response's header and body."""
    host, port = address.rsplit(":", 1)
    request = {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 1, "version": 401}
    header = json.dumps(request | {"serializeTypeCurrentRPC": "JSON"}).encode()
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">II", 4 + len(header), len(header)) + header)
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
