"""Encoders of valid and invalid requests, built from the wire format alone, so that any header can be expressed."""

import itertools
import json
import struct
from collections.abc import Mapping
from typing import Any

JSON, BINARY = 0, 1
_opaque = itertools.count(1)

SEND, PULL, QUERY, HEART_BEAT, UNREGISTER, CONSUMER_LIST = 310, 11, 12, 34, 35, 38
UPDATE_OFFSET, MAX_OFFSET, SEARCH_OFFSET, CREATE_TOPIC = 15, 30, 29, 17
POP, ACK, CHANGE_INVISIBLE, NOTIFICATION, BATCH_ACK = 200_050, 200_051, 200_053, 200_054, 200_151
PUT_KV, GET_KV, REGISTER_BROKER, ROUTE = 100, 101, 103, 105


def raw(header: bytes, body: bytes = b"", kind: int = JSON) -> bytes:
    """Return a frame around any header."""
    return struct.pack(">II", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def frame(code: int, ext: Mapping[str, Any] | None = None, body: bytes = b"", *, flag: int = 0, **fields: Any) -> bytes:
    """Return a request with JSON header; `fields` are set in the header itself."""
    opaque = next(_opaque) & 0x7FFFFFFF
    header: dict[str, Any] = {"code": code, "flag": flag, "language": "JAVA", "opaque": opaque, "version": 401}
    if ext is not None:
        header["extFields"] = {name: str(value) for name, value in ext.items()}
    header |= {"serializeTypeCurrentRPC": "JSON"} | fields
    return raw(json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode(), body)


def binary(code: int, ext: Mapping[str, Any], body: bytes = b"", *, flag: int = 0) -> bytes:
    """Return a request with binary header, which is a third smaller."""
    rows = [(name.encode(), str(value).encode()) for name, value in ext.items()]
    table = b"".join(struct.pack(">H", len(n)) + n + struct.pack(">I", len(v)) + v for n, v in rows)
    fixed = struct.pack(">HBHIII", code & 0xFFFF, 0, 401, next(_opaque) & 0x7FFFFFFF, flag, 0)
    return raw(fixed + struct.pack(">I", len(table)) + table, body, BINARY)


def pull(topic: str, queue_id: int, queue_offset: int, group: str, hold_ms: int = 0, **ext: Any) -> dict[str, Any]:
    """Return the fields of PULL_MESSAGE with its own subscription."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "maxMsgNums": 32,
        "sysFlag": 4 | (2 if hold_ms else 0),
        "commitOffset": 0,
        "suspendTimeoutMillis": hold_ms,
        "subVersion": 0,
        "subscription": "*",
        "expressionType": "TAG",
    } | ext


def send(topic: str, body: bytes = b"x", properties: str = "", **ext: Any) -> bytes:
    """Return a SEND_MESSAGE_V2 request."""
    fields = dict(zip("abcdefgh", ("Hostile", topic, "TBW102", 4, 0, 0, 0, 0), strict=True))
    return frame(SEND, fields | {"i": properties, "j": 0, "k": False, "m": False} | ext, body)


def heartbeat(client_id: str, groups: Any, topic: str = "Hostile", expression: str = "*", kind: str = "TAG") -> bytes:
    """Return a HEART_BEAT request of a client that is a consumer of all `groups`."""
    rows = []
    for group in groups:
        wanted = {"topic": topic, "subString": expression, "expressionType": kind, "subVersion": next(_opaque)}
        rows.append(
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [wanted],
            }
        )
    body = {"clientID": client_id, "consumerDataSet": rows, "producerDataSet": []}
    return frame(HEART_BEAT, {}, json.dumps(body).encode())


def registration(broker_name: str, address: str, body: bytes, compressed: bool = False, version: int = 401) -> bytes:
    """Return a REGISTER_BROKER request of a master."""
    ext = {
        "brokerName": broker_name,
        "brokerAddr": address,
        "clusterName": "DefaultCluster",
        "haServerAddr": address,
        "brokerId": 0,
        "compressed": str(compressed).lower(),
        "bodyCrc32": 0,
    }
    return frame(REGISTER_BROKER, ext, body, version=version)


def topic_table(names: Any) -> bytes:
    """Return the body of a registration with these topics."""
    row = {"readQueueNums": 8, "writeQueueNums": 8, "perm": 6, "topicSysFlag": 0, "topicFilterType": "SINGLE_TAG"}
    table = {name: row | {"topicName": name} for name in names}
    version = {"counter": next(_opaque), "timestamp": next(_opaque)}
    wrapper = {"topicConfigTable": table, "dataVersion": version}
    return json.dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []}).encode()
