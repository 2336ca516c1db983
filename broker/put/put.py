"""What happens to a message between its header and the log, and between the log and its answer.

On the way in: properties are read once and their stored form is made; a message that is due later is put aside, with a delay
level into SCHEDULE_TOPIC_XXXX, else into the timer topic (`delivery_time`).

On the way out: with SYNC_FLUSH the answer waits for the disk. A turn asks for one sync, of the highest end offset that was
put in it; the flush thread tells once a round how far the log is durable, and all answers up to there leave together.

Stored are the properties that 4.9.4 would store, whether or not a separator ended what came: entries without name or value
are left out, of a name given twice the last one counts, CLUSTER is added, WAIT is left out. The string is never empty, and
neither ends in a zero byte nor has an entry that is not read back: recovery may take such a record for torn. For that a
zero byte is refused, by key, where 4.9.4 takes it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.names import POP_CK
from pocketmq.broker.put.delivery_time import DELAYING_PROPERTIES, TIMER_PROPERTIES, DeliveryTimes
from pocketmq.broker.put.message_id import message_id_template
from pocketmq.broker.tables.creation_rate import QueuePace
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.command import Response
from pocketmq.remoting.dispatch import Deferred, RemotingError
from pocketmq.runtime.timers import Timer, Timers
from pocketmq.store.format.message import SCHEDULE_TOPIC, TRANSACTION_UNQUEUED_FLAG, Message, PutResult, PutStatus
from pocketmq.store.format.multi_dispatch import INNER_MULTI_QUEUE_OFFSET
from pocketmq.store.format.properties import CRC32, DELAY, REAL_QID, REAL_TOPIC, ZERO, decode_properties, encode_properties
from pocketmq.store.message_store import MessageStore

log = logging.getLogger("broker")

CLUSTER: Final = "CLUSTER"
WAIT: Final = "WAIT"
STALE_IN_COPIES: Final = (CRC32, INNER_MULTI_QUEUE_OFFSET)
"""Properties of a record that say nothing true of a copy of it."""

_PUT_OK: Final = PutStatus.PUT_OK  # 0.05 us less than by way of the enum (3.11)
_WAIT_TRUE_ENTRY: Final = "\x02WAIT\x01true\x02"


def split_properties(text: str | None) -> tuple[dict[str, str], str]:
    """Name -> value of a property string, and the string: itself, or made anew where it is odd (see store.properties).

    Left out is POP_CK, as 5.x does: who forwards what it popped sends the handle along, and clients that pop the message
    again believe it, and acknowledge the wrong one. Well-formed text goes a quick way: 1.0 us for 4 entries, not 1.6. Raises
    RemotingError for a zero byte.
    """
    if not text:
        return {}, ""
    if ZERO in text:
        name = next(entry for entry in text.split("\x02") if ZERO in entry).partition("\x01")[0]
        remark = f"the message is illegal: a zero byte stands in the properties, in that of key {name!r}"
        raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, remark)
    properties: dict[str, str] = {}
    entries = (text[:-1] if text[-1] == "\x02" else text).split("\x02")
    try:
        for entry in entries:
            name, value = entry.split("\x01")
            if name and value:
                properties[name] = value
        if len(properties) == len(entries) and POP_CK not in properties:
            return properties, text
    except ValueError:  # an entry without value, or with two
        properties = decode_properties(text)
    properties.pop(POP_CK, None)
    return properties, encode_properties(properties)


class StoredProperties:
    """Makes the property string that is stored: CLUSTER is added, WAIT is left out (it means nothing once stored)."""

    def __init__(self, cluster: str) -> None:
        self._entry = f"{CLUSTER}\x01{cluster}"
        self._entry_behind = "\x02" + self._entry
        self.added = {CLUSTER: cluster}
        """What it adds."""

    def __call__(self, text: str, properties: dict[str, str]) -> bytes:
        """`properties` are those of `text`, both from `split_properties`. The order of the entries stays."""
        if not text:
            return self._entry.encode()
        if CLUSTER in properties:
            return self._rendered(properties)
        if WAIT in properties:
            # Where Java clients put it; anything else is rendered anew.
            stripped = text.replace(_WAIT_TRUE_ENTRY, "\x02", 1)
            if len(stripped) == len(text):
                return self._rendered(properties)
            text = stripped
        return (text + (self._entry if text[-1] == "\x02" else self._entry_behind)).encode()

    def of_member(self, text: str, properties: dict[str, str], batch_properties: dict[str, str]) -> bytes:
        """The string of a batch's member: its own, CLUSTER, and what the header says for the whole batch, as in 4.9.4."""
        if batch_properties or CLUSTER in properties:
            return encode_properties(properties | self.added | batch_properties).encode()
        return "\x02".join(part for part in (text.rstrip("\x02"), self._entry) if part).encode()

    def _rendered(self, properties: dict[str, str]) -> bytes:
        kept = {name: value for name, value in properties.items() if name != WAIT}
        return encode_properties(kept | self.added).encode()


def waits_for_store(properties: dict[str, str]) -> bool:
    """Whether the sender wants to wait for disk and slaves: WAIT absent, or `true`."""
    wait = properties.get(WAIT)
    return wait is None or wait.lower() == "true"


class _Unsynced(NamedTuple):
    end_offset: int
    deadline_s: float
    deferred: Deferred
    response: Response


class MessagePutter:
    """Puts messages and holds the answers back that promise a sync."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        store_host: bytes,
        timers: Timers,
        loop: asyncio.AbstractEventLoop,
        times: DeliveryTimes,
    ) -> None:
        self._times = times
        self._config = config
        self._store = store
        self._put_message = store.put_message
        self._timers = timers
        self._loop = loop
        self._end_offset = 0
        self._requested_offset = 0
        self._unsynced: deque[_Unsynced] = deque()
        self._timer: Timer | None = None
        self.on_put_failed: Callable[[], None] = lambda: None
        self.message_id: Callable[[int], str] = message_id_template(store_host)
        self.stored_properties = StoredProperties(config.broker_cluster_name)
        self.queue_pace = QueuePace(timers.clock)
        self.is_sync_flush = store.config.flush_disk_type == "SYNC_FLUSH"
        self.is_sync_master = store.config.broker_role == "SYNC_MASTER"
        self.is_immediate = not (self.is_sync_flush or self.is_sync_master)
        """Whether a stored message can be answered at once."""
        if self.is_sync_flush:
            store.on_flushed = self._on_flushed

    # --- in ----------------------------------------------------------------------------------------------------------

    def put(self, message: Message) -> PutResult:
        """Store one message, or its delayed form. Raises RemotingError when the store refuses it."""
        if not DELAYING_PROPERTIES.isdisjoint(message.properties):
            self.delay(message)
        return self.put_at_once(message)

    def put_at_once(self, message: Message) -> PutResult:
        """Store one message as it is. Raises RemotingError when the store refuses it."""
        result = self._put_message(message)
        if result.status is not _PUT_OK:
            raise self._refusal(result)
        self._end_offset = result.end_offset
        return result

    def put_batch(self, messages: Sequence[Message]) -> PutResult:
        """Store messages of one topic and queue, all or none. Raises RemotingError when the store refuses them."""
        result = self._store.put_messages(messages)
        if result.status is not _PUT_OK:
            raise self._refusal(result)
        self._end_offset = result.end_offset
        return result

    def put_alike(self, message: Message, bodies: Sequence[bytes]) -> None:
        """Store a message with each of the bodies, all or none. Raises RemotingError when the store refuses them."""
        result = self._store.put_alike(message, bodies)
        if result.status is not _PUT_OK:
            raise self._refusal(result)
        self._end_offset = result.end_offset

    def delay(self, message: Message) -> bool:
        """Turn a message that is due later into its form in SCHEDULE_TOPIC_XXXX (CommitLog.asyncPutMessage of 4.9.4) or in
        the timer topic. A level counts before a time. False: it is to be delivered at once, and is as it was.

        The stored string is made anew from all properties, so delivered copies show DELAY, REAL_TOPIC and REAL_QID.
        """
        properties = message.properties
        try:
            level = int(properties.get(DELAY, 0))
        except ValueError:
            remark = f"property {DELAY}={properties[DELAY]!r} is not a delay level"
            raise RemotingError(ResponseCode.SYSTEM_ERROR, remark) from None
        if message.sys_flag & TRANSACTION_UNQUEUED_FLAG:
            return False
        if level <= 0:
            return self._times.put_aside(message)
        for name in TIMER_PROPERTIES:
            properties.pop(name, None)
        level = self._store.delay_levels.clamp(level)
        properties.setdefault(CLUSTER, self._config.broker_cluster_name)
        properties[DELAY] = str(level)
        properties[REAL_TOPIC] = message.topic
        properties[REAL_QID] = str(message.queue_id)
        message.topic = SCHEDULE_TOPIC
        message.queue_id = level - 1
        message.properties_bytes = encode_properties(properties).encode()
        return True

    def _refusal(self, result: PutResult) -> RemotingError:
        """The error that a client gets, by 4.9.4's table, with the store's reason behind Apache's words."""
        self.on_put_failed()
        reason = f" ({result.reason})" if result.reason else ""
        match result.status:
            case PutStatus.MESSAGE_ILLEGAL | PutStatus.PROPERTIES_SIZE_EXCEEDED:
                size_max = self._store.config.max_message_size
                remark = (
                    "the message is illegal, maybe msg body or properties length not matched. "
                    f"msg body length limit {size_max}B, msg properties length limit 32KB.{reason}"
                )
                return RemotingError(ResponseCode.MESSAGE_ILLEGAL, remark)
            case PutStatus.CREATE_MAPPED_FILE_FAILED:
                remark = f"create mapped file failed, server is busy or broken.{reason}"
                return RemotingError(ResponseCode.SYSTEM_ERROR, remark)
            case PutStatus.SERVICE_NOT_AVAILABLE:
                return RemotingError(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now.{reason}")
            case _:
                return RemotingError(ResponseCode.SYSTEM_ERROR, f"UNKNOWN_ERROR{reason}")

    # --- out ---------------------------------------------------------------------------------------------------------

    def when_safe(self, end_offset: int, properties: dict[str, str], response: Response) -> Response | Deferred:
        """The answer to a stored message, once what its sender wants is so: on disk (SYNC_FLUSH), at a slave (SYNC_MASTER).

        There are no slaves: a sync master says so, with the message stored, as Apache's does without one.
        """
        if not waits_for_store(properties):
            return response
        if self.is_sync_master:
            response.code = ResponseCode.SLAVE_NOT_AVAILABLE
        return self.when_synced(end_offset, response)

    def when_synced(self, end_offset: int, response: Response) -> Response | Deferred:
        """The same, whoever should have a copy."""
        if not self.is_sync_flush:
            return response
        timeout_s = self._store.config.sync_flush_timeout / 1000
        deadline_s = self._timers.clock.monotonic() + timeout_s
        deferred = Deferred()
        self._unsynced.append(_Unsynced(end_offset, deadline_s, deferred, response))
        if self._timer is None:
            self._timer = self._timers.after(timeout_s, self._time_out)
        return deferred

    def end_turn(self) -> None:
        """Ask for one sync of all that was put. To be run in the turn's FLUSH phase."""
        if self.is_sync_flush and self._end_offset > self._requested_offset:
            self._requested_offset = self._end_offset
            self._store.request_sync(self._end_offset)

    def close(self) -> None:
        """Answer nobody any more; the store has synced or failed by now."""
        if self._timer is not None:
            self._timer.cancel()
        self._unsynced.clear()

    def _on_flushed(self, flushed_offset: int, error: OSError | None) -> None:
        """In the flush thread: once a round."""
        try:
            self._loop.call_soon_threadsafe(self._flushed, flushed_offset, error)
        except RuntimeError:
            log.info("synced up to %d after the loop ended", flushed_offset)

    def _flushed(self, flushed_offset: int, error: OSError | None) -> None:
        """Everything before `flushed_offset` is durable, or, with an error, never will be."""
        unsynced = self._unsynced
        while unsynced and unsynced[0].end_offset <= flushed_offset:
            row = unsynced.popleft()
            if error is None:
                row.deferred.complete(row.response)
            else:
                remark = f"service not available now. (the log cannot be synced: {error})"
                row.deferred.complete(Response(ResponseCode.SERVICE_NOT_AVAILABLE, remark=remark))

    def _time_out(self) -> None:
        """Tell those who waited too long: stored, with ids, but not known to be on disk."""
        unsynced, now = self._unsynced, self._timers.clock.monotonic()
        while unsynced and unsynced[0].deadline_s <= now:
            row = unsynced.popleft()
            row.response.code = ResponseCode.FLUSH_DISK_TIMEOUT
            row.deferred.complete(row.response)
        self._timer = None
        if unsynced:
            self._timer = self._timers.after(unsynced[0].deadline_s - now, self._time_out)
