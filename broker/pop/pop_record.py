"""What popping writes down, and what it hands out (Apache: PopCheckPoint, AckMsg, ExtraInfoUtil).

Who pops messages of a queue has them for the *invisible time*. A *check point* says which ones were handed out, an *ack*
which of them are consumed. Both are messages of the revive topic, timed so that the check point comes out of the timer one
second before the invisible time is over, and the acks when it is: `pop_revive` reads them there, side by side. So a
broker that starts, ours or Apache's, finds in the log all that it needs.

A message is handed out with a *handle*, eight fields with spaces between; the client gives it back with the ack.
"""

from typing import Final, NamedTuple

import msgspec

from pocketmq.broker.names import RETRY_PREFIX
from pocketmq.broker.put.delivery_time import TIMER_DELAY_MS, TIMER_DELIVER_MS
from pocketmq.store.format.message import Message
from pocketmq.store.format.properties import TAGS, UNIQ_KEY, encode_properties

REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
ORDER_REVIVE_QUEUE: Final = 999
"""The revive queue in handles of messages that were popped in order: nothing is written down for these."""
FIRST_POP_TIME: Final = "1ST_POP_TIME"
CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
AHEAD_MS: Final = 1000
"""How long a check point comes before the invisible time is over."""
ACK_AHEAD_MS: Final = 500
"""How long before that its acks come, if they wait for longer than both: a delay counts from some ms later on, when the ack
is stored."""
MESSAGES_MAX: Final = 32
"""In one check point: its bit map has 32 bits."""


def retry_topic_of(topic: str, group: str, *, with_v2: bool) -> str:
    """Where messages of `topic` that `group` did not consume in time go; `with_v2` is enableRetryTopicV2.

    What was in such a topic stays in it.
    """
    return f"{RETRY_PREFIX}{group}{'+' if with_v2 else '_'}{topic}" if not topic.startswith(RETRY_PREFIX) else topic


def normal_topic_of(topic: str, group: str) -> str:
    """The topic of which `topic` is the retry topic for `group`, or itself; also where no group is named."""
    for separator in "_+" if group else "":
        prefix = f"{RETRY_PREFIX}{group}{separator}"
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


def retry_flag(topic: str) -> str:
    """How handles and lists tell a topic from its retry topics: `0`, `1` for the older form of these, `2` for the newer."""
    if not topic.startswith(RETRY_PREFIX):
        return "0"
    return "2" if "+" in topic else "1"


class CheckPoint(msgspec.Struct, omit_defaults=False):
    """Messages that a group popped from one queue; the names of the fields are the record's.

    `so` start offset, `pt` pop time, `it` invisible time, `bm` bit map of what is acknowledged, `n` how many messages,
    `d` their queue offsets from `so` on, `rp` how often it was put again since it could not be revived.
    """

    so: int
    pt: int
    it: int
    q: int
    t: str
    c: str
    bn: str | None = None
    n: int = 0
    bm: int = 0
    ro: int = 0
    d: list[int] | None = None
    rp: str | None = None

    @property
    def key(self) -> tuple[str, str, int, int, int]:
        """What an ack names it by."""
        return self.t, self.c, self.q, self.so, self.pt

    @property
    def revive_ms(self) -> int:
        """When the messages are to be seen again."""
        return self.pt + self.it

    def queue_offsets(self) -> list[int]:
        """Of the messages."""
        return [self.so + difference for difference in (self.d or range(self.n))]

    def message(self, topic: str, queue_id: int, due_ms: int, host: bytes, now_ms: int, *, is_delay: bool) -> Message:
        """The record to be put: the messages are seen again at `due_ms`, with `is_delay` however the calendar is set."""
        key = f"{self.t}@{self.q}@{self.so}@{self.c}@{self.pt}@{self.bn}@{CHECK_POINT_TAG}"
        return _message(self, topic, queue_id, CHECK_POINT_TAG, key, due_ms - AHEAD_MS, host, now_ms, is_delay)


class Ack(msgspec.Struct, omit_defaults=True):
    """Acknowledges one message, `ao`, or those of the list `aol`; else as in `CheckPoint`."""

    ao: int
    so: int
    c: str
    t: str
    q: int
    pt: int
    bn: str | None = None
    aol: list[int] | None = None

    @property
    def key(self) -> tuple[str, str, int, int, int]:
        """Of its check point."""
        return self.t, self.c, self.q, self.so, self.pt

    def queue_offsets(self) -> list[int]:
        """Of the messages."""
        return [self.ao] if self.aol is None else self.aol

    def message(self, topic: str, queue_id: int, due_ms: int, host: bytes, now_ms: int, *, is_delay: bool) -> Message:
        """The record to be put, as in `CheckPoint`."""
        key = f"{self.t}@{self.q}@{self.ao}@{self.c}@{self.pt}@{self.bn}@{ACK_TAG}"
        tag = ACK_TAG if self.aol is None else BATCH_ACK_TAG
        if due_ms - now_ms > AHEAD_MS + ACK_AHEAD_MS:
            due_ms -= ACK_AHEAD_MS
        else:
            is_delay = False
        return _message(self, topic, queue_id, tag, key, due_ms, host, now_ms, is_delay)


def _message(
    body: CheckPoint | Ack, topic: str, queue_id: int, tag: str, key: str, due_ms: int, host: bytes, now_ms: int,
    is_delay: bool,
) -> Message:  # fmt: skip
    properties = {TAGS: tag, UNIQ_KEY: key, TIMER_DELIVER_MS: str(due_ms)}
    if is_delay:
        properties[TIMER_DELAY_MS] = str(due_ms - now_ms)  # counts before the time, which is for Apache's broker
    return Message(
        topic,
        queue_id,
        msgspec.json.encode(body),
        host,
        host,
        born_timestamp_ms=now_ms,
        properties=properties,
        properties_bytes=encode_properties(properties).encode(),
    )


_check_point = msgspec.json.Decoder(CheckPoint, strict=False)
_ack = msgspec.json.Decoder(Ack, strict=False)


def read_revive_record(tag: str | None, body: bytes) -> CheckPoint | Ack:
    """What a record of the revive topic says. Raises ValueError for one that says nothing."""
    if tag == CHECK_POINT_TAG:
        return _check_point.decode(body)
    if tag in (ACK_TAG, BATCH_ACK_TAG):
        return _ack.decode(body)
    raise ValueError(f"tag {tag!r} is none of {CHECK_POINT_TAG}, {ACK_TAG}, {BATCH_ACK_TAG}")


class Handle(NamedTuple):
    """By what a client acknowledges a message. `start_offset` is the check point's, `queue_offset` the message's."""

    start_offset: int
    pop_time_ms: int
    invisible_time_ms: int
    revive_queue: int
    flag: str
    broker_name: str
    queue_id: int = 0
    queue_offset: int = -1

    @classmethod
    def parse(cls, text: str) -> "Handle":
        """Raises ValueError naming what does not fit; the last two fields may be missing."""
        fields = text.split(" ")
        if len(fields) < 6:
            raise ValueError(f"handle {text!r} has {len(fields)} fields, 6 to 8 are needed")
        start_offset, pop_time_ms, invisible_time_ms, revive_queue = map(int, fields[:4])
        queue_id = int(fields[6]) if len(fields) > 6 else 0
        queue_offset = int(fields[7]) if len(fields) > 7 else -1
        return cls(
            start_offset, pop_time_ms, invisible_time_ms, revive_queue, fields[4], fields[5], queue_id, queue_offset
        )  # fmt: skip

    def __str__(self) -> str:
        return " ".join(map(str, self))
