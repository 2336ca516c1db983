"""Puts messages into the store: from the header of a send to the log.

Properties are parsed once, and the string that is stored is made from them. A message that is due later is redirected: one
with a delay level to SCHEDULE_TOPIC_XXXX, one with a delivery time to the timer topic (`delivery_time`). With SYNC_FLUSH a
turn of the loop requests one sync, of the highest end offset put in it; `answer_gate` holds the answers back until then.

The stored properties are those that 4.9.4 would store, with or without a final separator: entries without name or value are
left out, the last of several entries with one name counts, CLUSTER is added, WAIT is left out. The string is never empty,
does not end in a zero byte and has no entry that is not read back, since recovery may take such a record for torn. Therefore
a zero byte is refused, with its key; 4.9.4 takes it.
"""

from collections.abc import Callable, Sequence
from typing import Final

from pocketmq.broker.context import Context
from pocketmq.broker.names import POP_CK, WAIT
from pocketmq.broker.put.delivery_time import DELAYING_PROPERTIES, TIMER_PROPERTIES, DeliveryTimes
from pocketmq.broker.put.message_id import message_id_template
from pocketmq.broker.tables.creation_rate import QueuePace
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.runtime.event import Event
from pocketmq.store.format.message import SCHEDULE_TOPIC, TRANSACTION_UNQUEUED_FLAG, Message, PutResult, PutStatus
from pocketmq.store.format.multi_dispatch import INNER_MULTI_QUEUE_OFFSET
from pocketmq.store.format.properties import CRC32, DELAY, REAL_QID, REAL_TOPIC, ZERO, decode_properties, encode_properties

CLUSTER: Final = "CLUSTER"
STALE_IN_COPIES: Final = (CRC32, INNER_MULTI_QUEUE_OFFSET)
"""Properties of a record that do not apply to a copy of it."""

_PUT_OK: Final = PutStatus.PUT_OK  # looked up once: members of an enum are slow to look up in 3.11
_WAIT_TRUE_ENTRY: Final = "\x02WAIT\x01true\x02"


def split_properties(text: str | None) -> tuple[dict[str, str], str]:
    """Return the properties of a property string, and the string, rendered anew if it is odd (see store.properties).

    POP_CK is left out, as in 5.x: a client that forwards a popped message sends its handle along, and a client that pops the
    forwarded message would acknowledge the wrong one with it. Raises RemotingError for a zero byte.
    """
    if not text:
        return {}, ""
    if ZERO in text:
        name = next(entry for entry in text.split("\x02") if ZERO in entry).partition("\x01")[0]
        remark = f"the message is illegal: the property with key {name!r} contains a zero byte"
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
    """Makes the property string that is stored: adds CLUSTER, and leaves out WAIT, which has no meaning once stored."""

    def __init__(self, cluster: str) -> None:
        self._entry = f"{CLUSTER}\x01{cluster}"
        self._entry_behind = "\x02" + self._entry
        self.added = {CLUSTER: cluster}
        """The properties that are added."""

    def __call__(self, text: str, properties: dict[str, str]) -> bytes:
        """Return the stored form of `text`, whose `properties` `split_properties` returned. The order of entries is kept."""
        if not text:
            return self._entry.encode()
        if CLUSTER in properties:
            return self._rendered(properties)
        if WAIT in properties:
            # The place where Java clients put WAIT; any other form is rendered anew.
            stripped = text.replace(_WAIT_TRUE_ENTRY, "\x02", 1)
            if len(stripped) == len(text):
                return self._rendered(properties)
            text = stripped
        return (text + (self._entry if text[-1] == "\x02" else self._entry_behind)).encode()

    def of_member(self, text: str, properties: dict[str, str], batch_properties: dict[str, str]) -> bytes:
        """Return the string of a member of a batch: its own properties, CLUSTER, and those of the header, as in 4.9.4."""
        if batch_properties or CLUSTER in properties:
            return encode_properties(properties | self.added | batch_properties).encode()
        return "\x02".join(part for part in (text.rstrip("\x02"), self._entry) if part).encode()

    def _rendered(self, properties: dict[str, str]) -> bytes:
        kept = {name: value for name, value in properties.items() if name != WAIT}
        return encode_properties(kept | self.added).encode()


class MessagePutter:
    """Puts the messages of clients, as they are or in their delayed form."""

    def __init__(self, context: Context, times: DeliveryTimes) -> None:
        config, store = context.config, context.store
        self._times = times
        self._config = config
        self._store = store
        self._end_offset = 0
        self._requested_offset = 0
        self.put_failed: Event[[]] = Event()
        """Called when the store refuses a message."""
        self.message_id: Callable[[int], str] = message_id_template(context.store_host)
        self.stored_properties = StoredProperties(config.broker_cluster_name)
        self.queue_pace = QueuePace(context.clock)

    def put(self, message: Message) -> PutResult:
        """Store one message, or its delayed form. Raises RemotingError when the store refuses it."""
        if not DELAYING_PROPERTIES.isdisjoint(message.properties):
            self.delay(message)
        return self.put_at_once(message)

    def put_at_once(self, message: Message) -> PutResult:
        """Store one message as it is. Raises RemotingError when the store refuses it."""
        result = self._store.commit_log.put(message)
        if result.status is not _PUT_OK:
            raise self._refusal(result)
        self._end_offset = result.end_offset
        return result

    def put_batch(self, messages: Sequence[Message]) -> PutResult:
        """Store messages of one topic and queue, all or none. Raises RemotingError if the store refuses them."""
        result = self._store.commit_log.put_batch(messages)
        if result.status is not _PUT_OK:
            raise self._refusal(result)
        self._end_offset = result.end_offset
        return result

    def check(self, messages: Sequence[Message]) -> None:
        """Raise RemotingError if one of the messages of a topic exceeds a limit of the store."""
        result = self._store.commit_log.limits.refusal(messages)
        if result is not None:
            raise self._refusal(result)

    def delay(self, message: Message) -> bool:
        """Redirect a message that is due later to SCHEDULE_TOPIC_XXXX (CommitLog.asyncPutMessage of 4.9.4) or to the timer
        topic; a level takes precedence over a time. Return False for a message that is due now, which is not changed.

        The stored string is rendered from all properties, so delivered copies show DELAY, REAL_TOPIC and REAL_QID.
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
            return self._times.redirect_if_delayed(message)
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
        """Return the error for the client: 4.9.4's code and text, followed by the store's reason."""
        self.put_failed()
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

    def note_put(self, end_offset: int) -> None:
        """Note records that were put without this object, up to `end_offset`: they are to be synced, too."""
        self._end_offset = max(self._end_offset, end_offset)

    def end_turn(self) -> None:
        """Request one sync of everything that was put in this turn. Runs in the turn's FLUSH phase with SYNC_FLUSH."""
        if self._end_offset > self._requested_offset:
            self._requested_offset = self._end_offset
            self._store.request_sync(self._end_offset)
