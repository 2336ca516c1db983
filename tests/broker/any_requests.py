"""Generator of random requests, most of them plausible, with the fields of the declared request headers.

Damaged frames are tested by tests/remoting/test_fuzz.py; here each frame is valid, and only values of fields are unusual.
"""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from pocketmq.broker.handlers import ROUTES
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.frame import Frame
from pocketmq.remoting.header import I32, _kind

_OFTEN = [code for code in ROUTES if code in (10, 310, 320, 11, 36, 37, 14, 15, 200050, 200051, 200052, 200053)]
_TOPICS = [
    "T", "T2", "%RETRY%g", "%RETRY%g_T", "%RETRY%g+T", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "TBW102",
    "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "rmq_sys_REVIVE_LOG_c",
    "%LMQ%x", "a/b", "..", "", "x" * 128, "x" * 300, "T\0", "Tü",
]  # fmt: skip
_GROUPS = ["g", "g2", "CID_RMQ_SYS_TRANS", "", "x" * 256, "a b", "%RETRY%g", "TOOLS_CONSUMER"]
_TEXTS = ["", "0", "1", "-1", "true", "k1", "UA", "\0", "x" * 1000, "ü", "{}", "null", "9" * 30, "1 2 3 4 5 6 7 8", "b"]
_EXPRESSIONS = ["", "*", "TagA", "TagA||TagB", "TAG", "SQL92", "a > 1", "a='b' AND c IS NOT NULL"]
_NAMES = [
    "KEYS", "TAGS", "UNIQ_KEY", "DELAY", "WAIT", "TRAN_MSG", "PGROUP", "TIMER_DELAY_SEC", "TIMER_DELAY_MS",
    "TIMER_DELIVER_MS", "__STARTDELIVERTIME", "REAL_TOPIC", "REAL_QID", "CLUSTER", "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_ROLL_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "__transactionId__", "PMQ_DUE_MS", "PMQ_COPY_OF",
    "PMQ_STORED_MS", "POP_CK", "1ST_POP_TIME", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "REPLY_TO_CLIENT", "TTL", "a", "__CRC32#",
]  # fmt: skip
_VALUES = [
    "true", "k1", "k1 k2", "1", "2", "19", "0", "-1", "1000", "1700000005000", "UA", "T", "g", "c1", "9" * 20, "ü", "x y",
    "T*UA", "%LMQ%x,T2", "0,1", "TagA",
]  # fmt: skip
_BODY_NAMES = [
    "topic", "brokerName", "queueId", "consumerGroup", "groupName", "clientId", "clientID", "mqSet", "subscriptionDataSet",
    "subString", "consumerDataSet", "producerDataSet", "messageModel", "offsetTable", "topicConfigTable", "dataVersion",
    "perm", "readQueueNums", "attributes", "acks", "retry", "so", "bitSet", "pt", "topicConfigList", "groupConfigList",
]  # fmt: skip
_INTS = [0, 1, 2, 4, 8, 15, 16, 31, 32, 33, 100, 1000, 65536, -1, -2, 2**31 - 1, -(2**31)]
_LONGS = [*_INTS, 2**63 - 1, -(2**63), 2**53, 1_700_000_000_000, 10**10]
_NUMBERS: dict[str, list[int]] = {  # the key is a part of the field's name
    "flag": [0] * 6 + [1, 2, 4, 8, 12, 16, 48, -1],
    "reconsume": [0, 0, 1, 2, 15, 16, 2**31 - 1, -1],
    "queue_nums": [1, 4, 8],
    "queue_id": [0, 0, 1, 2, 3, 4, -1],
    "commit_or_rollback": [8, 8, 12, 0, 5],
    "invisible": [0, 1, 1000, 60_000, -1, 2**40],
    "_nums": list(range(33)),
    "timestamp": [0, 1000, 1_700_000_000_000, 1_700_000_060_000, -1],
}


class AnyRequests:
    """Endless random requests of one seed. Later ones use values of earlier answers: message ids, offsets, pop handles."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._message_ids, self._offsets, self._handles = ["UA"], [0], ["0 0 0 0 0 b 0 0"]

    def __iter__(self) -> Iterator[tuple[RequestCode, Frame]]:
        choice, chance = self.random.choice, self.random.random
        codes = list(ROUTES)
        while True:
            code = RequestCode(choice(_OFTEN) if chance() < 0.5 else choice(codes))
            fields = msgspec.structs.fields(ROUTES[code].header)
            ext = {field.encode_name: self._value(field) for field in fields if chance() < 0.99}
            body = choice([b"", b"hello", self.random.randbytes(40), json.dumps(self._table()).encode()])
            header = {
                "code": code,
                "extFields": ext,
                "flag": choice([0, 0, 0, 2]),
                "language": choice(["JAVA", "GO", "CPP"]),
            }
            header |= {"opaque": 1, "serializeTypeCurrentRPC": "JSON", "version": choice([401, 401, 473, 120])}
            yield code, (0, json.dumps(header, separators=(",", ":")).encode(), body)

    def answered(self, answer: RemotingCommand) -> None:
        """Collect values of this answer for later requests."""
        ext = answer.ext or {}
        message_id = ext.get("msgId", "").partition(",")[0]
        if len(message_id) == 32 and answer.is_response:
            self._message_ids.append(message_id)
            self._offsets += [int(message_id[16:], 16), int(ext.get("queueOffset", 0))]
        for place in ext.get("startOffsetInfo", "").split(";"):
            if place.count(" ") == 2:
                flag, queue_id, offset = place.split(" ")
                times = ext["popTime"], ext["invisibleTime"], ext["reviveQid"]
                self._handles.append(" ".join((offset, *times, flag, "b", queue_id, offset)))

    def _value(self, field: Any) -> str:
        kind, name, choice, chance = _kind(field.type), field.name, self.random.choice, self.random.random
        if kind is bool:
            return choice(["true", "false"])
        if kind is str:
            return choice(_TEXTS) if chance() < 0.04 else self._text(name)
        for part, numbers in _NUMBERS.items():
            if part in name:
                return str(choice(numbers))
        if "offset" in name and chance() < 0.7:
            return str(choice(self._offsets[-30:]) + choice([0, 0, 0, 1, -1]))
        is_int = field.type in (I32, I32 | None)
        return str(choice(_INTS if is_int else _LONGS)) if chance() < 0.98 else str(2**70)

    def _text(self, name: str) -> str:
        choice, chance = self.random.choice, self.random.random
        lists: dict[str, Callable[[], str]] = {
            "default_topic": lambda: "TBW102",
            "topic": lambda: choice(_TOPICS) if chance() < 0.2 else "T",
            "group": lambda: choice(_GROUPS) if chance() < 0.2 else "g",
            "properties": self._properties,
            "exp": lambda: choice(_EXPRESSIONS),
            "subscription": lambda: choice(_EXPRESSIONS),
            "msg_id": lambda: choice(self._message_ids[-50:]),
            "extra_info": lambda: choice(self._handles[-30:]) + choice(["", "", "", "0", " 1", "x"]),
            "client_id": lambda: "c1",
        }
        return next((make() for part, make in lists.items() if part in name), choice(_TEXTS))

    def _properties(self) -> str:
        choice = self.random.choice
        entries = [
            choice(_NAMES) + choice(["\x01"] * 12 + ["", "\x01\x01"]) + choice(_VALUES) for _ in range(choice(range(6)))
        ]
        return "\x02".join(entries) + choice(["", "\x02", "\x02\x02"])

    def _table(self, depth: int = 0) -> Any:
        choice, kind = self.random.choice, self.random.random()
        if depth > 3 or depth and kind < 0.4:
            return choice([0, 1, -1, 2**40, True, None, "", "T", "g", "c1", 1.5, "127.0.0.1:10911"])
        if kind < 0.6:
            return [self._table(depth + 1) for _ in range(choice(range(3)))]
        return {choice(_BODY_NAMES): self._table(depth + 1) for _ in range(choice(range(1, 7)))}
