"""The remoting protocol by hand, with nothing of ours in it: what the tests believe is the bytes on the wire.

Only what the tests need: JSON headers, one request at a time on a blocking connection, V1 records with IPv4 hosts.
"""

import json
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

SEND_MESSAGE_V2 = 310
PULL_MESSAGE = 11
QUERY_CONSUMER_OFFSET = 14
UPDATE_AND_CREATE_TOPIC = 17
GET_MAX_OFFSET = 30
GET_MIN_OFFSET = 31
HEART_BEAT = 34
GET_ROUTE = 105
SUCCESS = 0

_RECORD_HEAD = struct.Struct(">iiiiiqqiq8sq8siqi")  # up to and with the body's length


@dataclass(frozen=True, slots=True)
class Answer:
    opaque: int
    flag: int
    code: int
    remark: str
    ext: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Record:
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    store_timestamp_ms: int
    reconsume_times: int
    body: bytes
    properties: dict[str, str]


def encode(code: int, opaque: int, ext: dict[str, object], body: bytes = b"") -> bytes:
    fields = {name: str(value) for name, value in ext.items()}
    header = json.dumps({"code": code, "language": "JAVA", "version": 401, "opaque": opaque, "flag": 0,
                         "extFields": fields, "serializeTypeCurrentRPC": "JSON"}).encode()  # fmt: skip
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def decode(frame: bytes) -> Answer:
    """A frame without its four length bytes."""
    header_size = int.from_bytes(frame[:4], "big")
    assert header_size >> 24 == 0, "the answer to a JSON request is JSON"
    header: dict[str, Any] = json.loads(frame[4 : 4 + header_size])
    return Answer(
        header["opaque"],
        header["flag"],
        header["code"],
        header.get("remark") or "",
        header.get("extFields") or {},
        frame[4 + header_size :],
    )


def send_fields(topic: str, queue_id: int, properties: dict[str, str] | None = None) -> dict[str, object]:
    """The header of SEND_MESSAGE_V2, under its letters."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in (properties or {}).items())
    return {"a": "wire-producer", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0,
            "g": int(time.time() * 1000), "h": 0, "i": text, "j": 0, "k": "false", "m": "false"}  # fmt: skip


def records(body: bytes) -> list[Record]:
    """The records of a pull answer."""
    found, at = [], 0
    while at < len(body):
        head = _RECORD_HEAD.unpack_from(body, at)
        size, queue_id, queue_offset, physical_offset, sys_flag = head[0], head[3], head[5], head[6], head[7]
        rest = body[at + _RECORD_HEAD.size : at + size]
        body_size = head[-1]
        topic_size = rest[body_size]
        topic = rest[body_size + 1 : body_size + 1 + topic_size].decode()
        pairs = rest[body_size + 1 + topic_size + 2 :].decode().split("\x02")
        properties = dict(pair.split("\x01", 1) for pair in pairs if pair)
        found.append(Record(topic, queue_id, queue_offset, physical_offset, sys_flag, head[10], head[12],
                            rest[:body_size], properties))  # fmt: skip
        at += size
    return found


class Connection:
    """A blocking connection with one request in flight."""

    def __init__(self, address: str, timeout_s: float = 10) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._file = self._socket.makefile("rb")
        self._opaque = 0

    def call(self, code: int, ext: dict[str, object], body: bytes = b"") -> Answer:
        self._opaque += 1
        self._socket.sendall(encode(code, self._opaque, ext, body))
        while True:
            size = int.from_bytes(self._file.read(4), "big")
            answer = decode(self._file.read(size))
            if answer.flag & 1 and answer.opaque == self._opaque:  # else a notice from the broker
                return answer

    def ask(self, code: int, ext: dict[str, object], body: bytes = b"") -> Answer:
        """A call that must succeed."""
        answer = self.call(code, ext, body)
        assert answer.code == SUCCESS, (code, ext, answer)
        return answer

    def create_topic(self, topic: str, queues: int) -> None:
        self.ask(UPDATE_AND_CREATE_TOPIC, {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
        })  # fmt: skip

    def send(self, topic: str, queue_id: int, body: bytes, properties: dict[str, str] | None = None) -> Answer:
        return self.ask(SEND_MESSAGE_V2, send_fields(topic, queue_id, properties), body)

    def min_offset(self, topic: str, queue_id: int) -> int:
        return int(self.ask(GET_MIN_OFFSET, {"topic": topic, "queueId": queue_id}).ext["offset"])

    def max_offset(self, topic: str, queue_id: int) -> int:
        return int(self.ask(GET_MAX_OFFSET, {"topic": topic, "queueId": queue_id}).ext["offset"])

    def consumer_offset(self, group: str, topic: str, queue_id: int) -> int:
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
        return int(self.ask(QUERY_CONSUMER_OFFSET, fields).ext["offset"])

    def subscribe(self, group: str, topic: str) -> None:
        """A heart beat of a consumer: a broker lets only known groups pull."""
        subscription = {"classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*",
                        "subVersion": 0, "tagsSet": [], "topic": topic}  # fmt: skip
        consumer = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "consumeType": "CONSUME_ACTIVELY",
                    "groupName": group, "messageModel": "CLUSTERING", "subscriptionDataSet": [subscription],
                    "unitMode": False}  # fmt: skip
        beat = {"clientID": f"wire-{group}", "consumerDataSet": [consumer], "producerDataSet": []}
        self.ask(HEART_BEAT, {}, json.dumps(beat).encode())

    def pull(self, group: str, topic: str, queue_id: int, queue_offset: int, count: int = 32) -> Answer:
        return self.call(PULL_MESSAGE, {
            "consumerGroup": group, "topic": topic, "queueId": queue_id, "queueOffset": queue_offset,
            "maxMsgNums": count, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*",
            "subVersion": 0, "expressionType": "TAG",
        })  # fmt: skip

    def read_queue(self, topic: str, queue_id: int, group: str = "wire-reader") -> list[Record]:
        """Every record of a queue, from its minimum offset to its maximum."""
        self.subscribe(group, topic)
        found: list[Record] = []
        at, end = self.min_offset(topic, queue_id), self.max_offset(topic, queue_id)
        while at < end:
            answer = self.pull(group, topic, queue_id, at)
            assert answer.code == SUCCESS, (topic, queue_id, at, end, answer)
            found += records(answer.body)
            at = int(answer.ext["nextBeginOffset"])
        return found

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
