"""Hand-coded client of the remoting protocol that uses none of PocketMQ's code: tests compare with the bytes on the wire.

It supports what the tests need: JSON headers, a blocking connection, one request at a time or many at once, records of V1
and V2.
"""

import base64
import hmac
import json
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.patience import PATIENCE_S

SEND_MESSAGE_V2 = 310
SEND_BATCH_MESSAGE = 320
PULL_MESSAGE = 11
QUERY_MESSAGE = 12
QUERY_CONSUMER_OFFSET = 14
UPDATE_CONSUMER_OFFSET = 15
UPDATE_AND_CREATE_TOPIC = 17
GET_ALL_TOPIC_CONFIG = 21
SEARCH_OFFSET_BY_TIMESTAMP = 29
GET_MAX_OFFSET = 30
GET_MIN_OFFSET = 31
HEART_BEAT = 34
CONSUMER_SEND_MSG_BACK = 36
END_TRANSACTION = 37
CHECK_TRANSACTION_STATE = 39
GET_ROUTE = 105
GET_CONSUMER_CONNECTION_LIST = 203
GET_PRODUCER_CONNECTION_LIST = 204
RECALL_MESSAGE = 370
SUCCESS = 0

MAGIC_V2 = -626843477  # 5.x, for topics of more than 127 bytes: the topic's length has two bytes
BORN_HOST_V6, STORE_HOST_V6 = 0x10, 0x20
_IN_FLIGHT = 256

_RECORD_HEAD = struct.Struct(">iiiiiqqiq")  # up to and including the born time
_RECORD_TAIL = struct.Struct(">iqi")  # after the store host, up to and including the body's length


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
    raw: bytes
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    store_timestamp_ms: int
    reconsume_times: int
    body: bytes
    properties: dict[str, str]


def encode(code: int, opaque: int, ext: dict[str, object], body: bytes = b"", flag: int = 0) -> bytes:
    fields = {name: str(value) for name, value in ext.items()}
    header = json.dumps({"code": code, "language": "JAVA", "version": 401, "opaque": opaque, "flag": flag,
                         "extFields": fields, "serializeTypeCurrentRPC": "JSON"}).encode()  # fmt: skip
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def sign(ext: dict[str, object], body: bytes, access_key: str, secret_key: str) -> dict[str, object]:
    """Return the fields with access key and signature added."""
    fields = {name: str(value) for name, value in ext.items()} | {"AccessKey": access_key}
    text = "".join(fields[name] for name in sorted(fields)).encode() + body
    return {**fields, "Signature": base64.b64encode(hmac.digest(secret_key.encode(), text, "sha1")).decode()}


def decode(frame: bytes) -> Answer:
    """Decode a frame without its four length bytes."""
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


def properties_text(properties: dict[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def send_fields(topic: str, queue_id: int, properties: dict[str, str] | None = None, sys_flag: int = 0) -> dict[str, object]:
    """Return the header of SEND_MESSAGE_V2, by its one-letter names."""
    return {"a": "wire-producer", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": sys_flag,
            "g": int(time.time() * 1000), "h": 0, "i": properties_text(properties or {}), "j": 0, "k": "false",
            "m": "false"}  # fmt: skip


def batch_body(messages: list[tuple[bytes, dict[str, str]]]) -> bytes:
    """Return the body of SEND_BATCH_MESSAGE."""
    parts = []
    for body, properties in messages:
        text = properties_text(properties).encode()
        parts.append(struct.pack(">iiiii", 22 + len(body) + len(text), 0, 0, 0, len(body)) + body)
        parts.append(struct.pack(">h", len(text)) + text)
    return b"".join(parts)


def record(data: bytes, at: int = 0) -> Record:
    """Decode the record that begins at ``at``."""
    size, magic, _, queue_id, _, queue_offset, physical_offset, sys_flag, _ = _RECORD_HEAD.unpack_from(data, at)
    raw = data[at : at + size]
    store_time_at = _RECORD_HEAD.size + (20 if sys_flag & BORN_HOST_V6 else 8)
    tail_at = store_time_at + 8 + (20 if sys_flag & STORE_HOST_V6 else 8)
    reconsume_times, _, body_size = _RECORD_TAIL.unpack_from(raw, tail_at)
    body_at = tail_at + _RECORD_TAIL.size
    topic_at = body_at + body_size + (2 if magic == MAGIC_V2 else 1)
    topic_size = int.from_bytes(raw[body_at + body_size : topic_at], "big")
    pairs = raw[topic_at + topic_size + 2 :].decode().split("\x02")
    return Record(
        raw, raw[topic_at : topic_at + topic_size].decode(), queue_id, queue_offset, physical_offset, sys_flag,
        int.from_bytes(raw[store_time_at : store_time_at + 8], "big"), reconsume_times, raw[body_at : body_at + body_size],
        dict(pair.split("\x01", 1) for pair in pairs if "\x01" in pair),
    )  # fmt: skip


def query_fields(topic: str, key: str) -> dict[str, object]:
    """Return the fields of QUERY_MESSAGE for a key, at any time."""
    return {"topic": topic, "key": key, "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1 << 62}


def records(body: bytes) -> list[Record]:
    """Decode the records of a pull response."""
    found, at = [], 0
    while at < len(body):
        found.append(record(body, at))
        at += len(found[-1].raw)
    return found


class Connection:
    """A blocking connection with one request in flight. `signed_as`: access key and secret key."""

    def __init__(self, address: str, timeout_s: float = 10, signed_as: tuple[str, str] | None = None) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._file = self._socket.makefile("rb")
        self._opaque = 0
        self._signed_as = signed_as
        self.notices: list[Answer] = []
        """Requests from the broker received while an answer was awaited."""

    def call(self, code: int, ext: dict[str, object], body: bytes = b"") -> Answer:
        self._opaque += 1
        if self._signed_as is not None:
            ext = sign(ext, body, *self._signed_as)
        self._socket.sendall(encode(code, self._opaque, ext, body))
        while True:
            size = int.from_bytes(self._file.read(4), "big")
            answer = decode(self._file.read(size))
            if answer.flag & 1 and answer.opaque == self._opaque:
                return answer
            self.notices.append(answer)

    def ask_many(self, requests: list[tuple[int, dict[str, object], bytes]]) -> list[Answer]:
        """Make calls that must succeed, many in flight; return the answers in the order of the requests."""
        answers: list[Answer] = []
        for start in range(0, len(requests), _IN_FLIGHT):
            part = requests[start : start + _IN_FLIGHT]
            first = self._opaque + 1
            self._opaque += len(part)
            self._socket.sendall(b"".join(encode(code, first + n, ext, body) for n, (code, ext, body) in enumerate(part)))
            came: dict[int, Answer] = {}
            while len(came) < len(part):
                answer = decode(self._file.read(int.from_bytes(self._file.read(4), "big")))
                if answer.flag & 1:
                    assert answer.code == SUCCESS, answer
                    came[answer.opaque] = answer
            answers += [came[first + n] for n in range(len(part))]
        return answers

    def ask(self, code: int, ext: dict[str, object], body: bytes = b"") -> Answer:
        """Make a call that must succeed."""
        answer = self.call(code, ext, body)
        assert answer.code == SUCCESS, (code, ext, answer)
        return answer

    def create_topic(self, topic: str, queues: int, **extra: str) -> None:
        self.ask(UPDATE_AND_CREATE_TOPIC, {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", **extra,
        })  # fmt: skip

    def send(
        self, topic: str, queue_id: int, body: bytes, properties: dict[str, str] | None = None, sys_flag: int = 0
    ) -> Answer:
        return self.ask(SEND_MESSAGE_V2, send_fields(topic, queue_id, properties, sys_flag), body)

    def send_batch(self, topic: str, queue_id: int, messages: list[tuple[bytes, dict[str, str]]]) -> Answer:
        return self.ask(SEND_BATCH_MESSAGE, {**send_fields(topic, queue_id), "m": "true"}, batch_body(messages))

    def min_offset(self, topic: str, queue_id: int) -> int:
        return int(self.ask(GET_MIN_OFFSET, {"topic": topic, "queueId": queue_id}).ext["offset"])

    def max_offset(self, topic: str, queue_id: int) -> int:
        return int(self.ask(GET_MAX_OFFSET, {"topic": topic, "queueId": queue_id}).ext["offset"])

    def wait_for_max_offset(self, topic: str, queue_id: int, offset: int) -> None:
        """Wait until the queue has `offset` messages: Apache adds a message to its queue after it has answered the send."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.max_offset(topic, queue_id)) < offset:
            assert time.monotonic() < deadline, (topic, queue_id, found, offset)
            time.sleep(0.01)

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int, **extra: str) -> int:
        fields = {"topic": topic, "queueId": queue_id, "timestamp": time_ms, **extra}
        return int(self.ask(SEARCH_OFFSET_BY_TIMESTAMP, fields).ext["offset"])

    def query(self, topic: str, key: str) -> list[Record]:
        """Return the records with a key, or with this unique key."""
        answer = self.call(QUERY_MESSAGE, query_fields(topic, key))
        return records(answer.body) if answer.code == SUCCESS else []

    def topic_table(self) -> dict[str, dict[str, Any]]:
        """Return the configurations of all topics."""
        table: dict[str, dict[str, Any]] = json.loads(self.ask(GET_ALL_TOPIC_CONFIG, {}).body)["topicConfigTable"]
        return table

    def commit(self, group: str, topic: str, queue_id: int, consumer_offset: int) -> None:
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": consumer_offset}
        self.ask(UPDATE_CONSUMER_OFFSET, fields)

    def send_back(self, group: str, sent: Record, delay_level: int) -> None:
        """Send a message back: to the retry topic after the delay, or with level -1 to the dead letters."""
        self.ask(CONSUMER_SEND_MSG_BACK, {"offset": sent.physical_offset, "group": group, "delayLevel": delay_level,
                 "originMsgId": "", "originTopic": sent.topic, "unitMode": "false", "maxReconsumeTimes": 16})  # fmt: skip

    def end_transaction(self, producer_group: str, half: Record, sys_flag: int, *, asked: bool = False) -> None:
        """End a transaction by the offsets of its half message; `asked` uses the form of an answer to a check."""
        self.ask(END_TRANSACTION, {"producerGroup": producer_group, "tranStateTableOffset": half.queue_offset,
                 "commitLogOffset": half.physical_offset, "commitOrRollback": sys_flag,
                 "fromTransactionCheck": str(asked).lower(), "msgId": half.properties["UNIQ_KEY"],
                 "topic": half.properties["REAL_TOPIC"], "transactionId": half.properties["UNIQ_KEY"]})  # fmt: skip

    def consumer_offset(self, group: str, topic: str, queue_id: int) -> int:
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
        return int(self.ask(QUERY_CONSUMER_OFFSET, fields).ext["offset"])

    def subscribe(self, group: str, topic: str, sql: str | None = None, version: int = 0) -> None:
        """Send a consumer's heartbeat, because only known groups may pull."""
        subscription = {"classFilterMode": False, "codeSet": [], "expressionType": "SQL92" if sql else "TAG",
                        "subString": sql or "*", "subVersion": version, "tagsSet": [], "topic": topic}  # fmt: skip
        consumer = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "consumeType": "CONSUME_ACTIVELY",
                    "groupName": group, "messageModel": "CLUSTERING", "subscriptionDataSet": [subscription],
                    "unitMode": False}  # fmt: skip
        beat = {"clientID": f"wire-{group}", "consumerDataSet": [consumer], "producerDataSet": []}
        self.ask(HEART_BEAT, {}, json.dumps(beat).encode())

    def produce(self, group: str) -> None:
        """Send a producer's heartbeat, because only known producers are asked about transactions."""
        beat = {"clientID": f"wire-{group}", "consumerDataSet": [], "producerDataSet": [{"groupName": group}]}
        self.ask(HEART_BEAT, {}, json.dumps(beat).encode())

    def pull(
        self, group: str, topic: str, queue_id: int, queue_offset: int, count: int = 32, expression: str = "*"
    ) -> Answer:
        return self.call(PULL_MESSAGE, {
            "consumerGroup": group, "topic": topic, "queueId": queue_id, "queueOffset": queue_offset,
            "maxMsgNums": count, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": expression,
            "subVersion": 0, "expressionType": "TAG",
        })  # fmt: skip

    def read_queue(
        self, topic: str, queue_id: int, group: str = "wire-reader", count: int = 32, expression: str = "*"
    ) -> list[Record]:
        """Read all records of a queue that match the tags, from its minimum to its maximum offset."""
        self.subscribe(group, topic)
        found: list[Record] = []
        at, end = self.min_offset(topic, queue_id), self.max_offset(topic, queue_id)
        while at < end:
            answer = self.pull(group, topic, queue_id, at, count, expression)
            if answer.code == SUCCESS:
                found += records(answer.body)
            else:
                assert expression != "*", (topic, queue_id, at, end, answer)
            assert int(answer.ext["nextBeginOffset"]) > at, (topic, queue_id, at, end, answer)
            at = int(answer.ext["nextBeginOffset"])
        return found

    def read_queue_by_subscription(self, group: str, topic: str, queue_id: int, version: int) -> list[Record]:
        """Read all records of a queue that match the group's subscription, which was sent with a heartbeat."""
        found: list[Record] = []
        at, end = self.min_offset(topic, queue_id), self.max_offset(topic, queue_id)
        while at < end:
            answer = self.call(PULL_MESSAGE, {
                "consumerGroup": group, "topic": topic, "queueId": queue_id, "queueOffset": at, "maxMsgNums": 32,
                "sysFlag": 0, "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": version,
            })  # fmt: skip
            found += records(answer.body)
            assert int(answer.ext["nextBeginOffset"]) > at, (topic, queue_id, at, end, answer)
            at = int(answer.ext["nextBeginOffset"])
        return found

    def serve(self, answer: Callable[[Answer], bytes | None]) -> None:
        """Answer the broker's requests until the connection ends; `answer` returns a body, or None for a one-way request."""
        self._socket.settimeout(None)
        while len(head := self._file.read(4)) == 4:
            asked = decode(self._file.read(int.from_bytes(head, "big")))
            body = None if asked.flag & 1 else answer(asked)
            if body is not None:
                self._socket.sendall(encode(SUCCESS, asked.opaque, {}, body, flag=1))

    def shut_down(self) -> None:
        """End the connection while another thread may be reading from it."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
