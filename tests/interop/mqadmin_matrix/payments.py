"""Test data of a column for the commands about clients and messages: a running push consumer, a producer, and a trace."""

import json
import struct
import threading
from collections.abc import Mapping
from typing import Any, Final

from tests.interop.wire import HEART_BEAT, Answer, Connection, record

TOPIC: Final = "Payments"
GROUP: Final = "Shipping"
PRODUCERS: Final = "Refunds"
TRACES: Final = "Traces"
CLIENT_ID: Final = "10.0.0.9@shipping"
UNIQUE_KEYS: Final = ("AC11000100002A9F0000000000000001", "AC11000100002A9F0000000000000002")
BAD_OFFSET: Final = 0xFFFFFF
_STARTED_MS: Final = 1_795_232_923_377
_RUNNING_INFO, _CONSUME_DIRECTLY, _VIEW = 307, 309, 33
_PROCESS_QUEUE: Final = {
    **{"commitOffset": 2, "cachedMsgMinOffset": 0, "cachedMsgMaxOffset": 0, "cachedMsgCount": 0, "cachedMsgSizeInMiB": 0},
    **{"transactionMsgMinOffset": 0, "transactionMsgMaxOffset": 0, "transactionMsgCount": 0, "locked": False},
    **{"tryUnlockTimes": 0, "lastLockTimestamp": _STARTED_MS, "droped": False, "lastPullTimestamp": _STARTED_MS},
    "lastConsumeTimestamp": _STARTED_MS,
}


def _running_info(broker_name: str) -> bytes:
    info: dict[str, Any] = {
        "jstack": None,
        "properties": {
            **{"PROP_CONSUMEORDERLY": "false", "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
            **{"PROP_CONSUMER_START_TIMESTAMP": str(_STARTED_MS), "PROP_CLIENT_VERSION": "V4_9_4", "consumeThreadMax": "20"},
        },
        "statusTable": {
            TOPIC: {"consumeFailedMsgs": 1, "consumeFailedTPS": 0.25, "consumeOKTPS": 0.5, "consumeRT": 1.5, "pullRT": 2.0,
                    "pullTPS": 0.5}
        },
        "subscriptionSet": [{"classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*",
                             "subVersion": 1, "tagsSet": [], "topic": TOPIC}],
    }  # fmt: skip
    queue = json.dumps({"brokerName": broker_name, "queueId": 0, "topic": TOPIC})
    return json.dumps(info)[:-1].encode() + f', "mqTable": {{{queue}: {json.dumps(_PROCESS_QUEUE)}}}}}'.encode()


class _PushConsumer:
    """A client of the group that answers the requests of brokers, in a thread."""

    def __init__(self, address: str, broker_name: str, signed_as: tuple[str, str]) -> None:
        self._connection = Connection(address, signed_as=signed_as)
        self._info = _running_info(broker_name)
        subscription = {"classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*", "subVersion": 1,
                        "tagsSet": [], "topic": TOPIC}  # fmt: skip
        consumer = {"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "consumeType": "CONSUME_PASSIVELY", "groupName": GROUP,
                    "messageModel": "CLUSTERING", "subscriptionDataSet": [subscription], "unitMode": False}  # fmt: skip
        beat = {"clientID": CLIENT_ID, "consumerDataSet": [consumer], "producerDataSet": []}
        self._connection.ask(HEART_BEAT, {}, json.dumps(beat).encode())
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self._connection.serve(self._answer)

    def _answer(self, asked: Answer) -> bytes | None:
        if asked.code == _RUNNING_INFO:
            return self._info
        if asked.code == _CONSUME_DIRECTLY:
            return b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":0}'
        return None

    def close(self) -> None:
        self._connection.shut_down()
        self._thread.join(20)
        self._connection.close()


class Payments:
    """The topic with two messages that have unique keys, its consumer and producer, and a trace of the first message."""

    def __init__(self, connection: Connection, address: str, broker_name: str, signed_as: tuple[str, str]) -> None:
        connection.create_topic(TOPIC, 1)
        connection.create_topic(TRACES, 1)
        connection.produce(PRODUCERS)
        self._consumer = _PushConsumer(address, broker_name, signed_as)
        sent = [
            connection.send(TOPIC, 0, b"payment %d" % number, {"UNIQ_KEY": key, "KEYS": f"payment-{number}", "TAGS": "card"})
            for number, key in enumerate(UNIQUE_KEYS)
        ]
        connection.commit(GROUP, TOPIC, 0, 1)
        self._offset_id = sent[0].ext["msgId"]
        connection.send(TRACES, 0, _trace(UNIQUE_KEYS[0], self._offset_id), {"KEYS": f"{UNIQUE_KEYS[0]} payment-0"})
        stored = record(connection.ask(_VIEW, {"offset": int(self._offset_id[16:], 16)}).body)
        assert stored.body == b"payment 0"

    @property
    def values(self) -> Mapping[str, str]:
        """The values of some placeholders of a case."""
        return {
            "offset_id": self._offset_id,
            "bad_id": self._offset_id[:16] + struct.pack(">q", BAD_OFFSET).hex().upper(),
            "unique_key": UNIQUE_KEYS[0],
            "client": CLIENT_ID,
        }

    def close(self) -> None:
        self._consumer.close()


def _trace(unique_key: str, offset_id: str) -> bytes:
    events = (
        ("Pub", str(_STARTED_MS), "DefaultRegion", PRODUCERS, TOPIC, unique_key, "card", "payment-0", "127.0.0.1:10911",
         "9", "5", "0", offset_id, "true"),
        ("SubAfter", "request", unique_key, "7", "true", "payment-0", "0", str(_STARTED_MS + 1000), GROUP),
    )  # fmt: skip
    return "".join("\x01".join(event) + "\x02" for event in events).encode()
