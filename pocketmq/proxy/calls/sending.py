"""SendMessage, EndTransaction and RecallMessage."""

import itertools
from collections.abc import Sequence
from typing import Final

from pocketmq.client.message import encode_properties
from pocketmq.client.route import QUEUES_MAX, WRITE
from pocketmq.client.sending.outgoing import STORED, send_header
from pocketmq.proxy.calls.call import Call, together
from pocketmq.proxy.messages import properties as names
from pocketmq.proxy.messages.incoming import checked_properties, sys_flag, type_of
from pocketmq.proxy.messages.transaction_id import TransactionId
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.status import OK, Refusal, joint_status, remoting_code, status_of
from pocketmq.remoting.bodies import MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from pocketmq.remoting.dispatch import RemotingError
from pocketmq.remoting.handles.recall_handle import decode_recall_handle
from pocketmq.remoting.headers.delay import RecallMessageRequestHeader, RecallMessageResponseHeader
from pocketmq.remoting.headers.send import RecallableSendMessageResponseHeader
from pocketmq.remoting.headers.transaction import EndTransactionRequestHeader
from pocketmq.runtime.peer_text import clipped
from pocketmq.store.format.java_hash import java_hash
from pocketmq.store.format.message import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from pocketmq.store.format.properties import UNIQ_KEY

MESSAGES_MAX: Final = 1024
"""Limit of messages in one call; each is a request to a broker."""
_turn = itertools.count()


async def send_message(call: Call, request: pb.SendMessageRequest) -> pb.SendMessageResponse:
    """Send messages of one topic."""
    messages = request.messages
    if not messages:
        raise Refusal(pb.MESSAGE_CORRUPTED, "no message to send")
    if len(messages) > MESSAGES_MAX:
        raise Refusal(pb.PAYLOAD_TOO_LARGE, f"{len(messages)} messages in one call, the limit is {MESSAGES_MAX}")
    topic = call.session.topic(messages[0].topic)
    if any(call.session.topic(message.topic) != topic for message in messages):
        raise Refusal(pb.MESSAGE_CORRUPTED, "topic in message is not same")
    rows = [checked_properties(message, topic, call.config) for message in messages]
    await _check_types(call, topic, rows)
    counts = await _writable(call, topic)
    entries = await together([_sent(call, topic, counts, one, row) for one, row in zip(messages, rows, strict=True)])
    return pb.SendMessageResponse(status=joint_status([entry.status for entry in entries]), entries=entries)


async def _check_types(call: Call, topic: str, rows: Sequence[dict[str, str]]) -> None:
    """Raise Refusal if the topic does not take messages of these types."""
    if not call.config.enable_topic_message_type_check:
        return
    config = await call.upstream.topic_config(call.session.client, topic)
    if config is None:
        return
    expected = (config.attributes or {}).get("message.type", "NORMAL")
    for row in rows:
        _check_type(expected, type_of(row))


def _check_type(expected: str, actual: str) -> None:
    if expected not in ("MIXED", "UNSPECIFIED", actual):
        raise Refusal(
            pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}",
        )


async def _writable(call: Call, topic: str) -> list[tuple[str, int]]:
    """Return the brokers with writable queues of a topic, and how many each has. Raises Refusal if there are none."""
    route = await call.upstream.route(topic)
    counts = [
        (data.broker_name, min(data.write_queue_nums, QUEUES_MAX))
        for data in route.queue_datas
        if data.perm & WRITE and data.write_queue_nums > 0
    ]
    if not counts:
        raise Refusal(pb.FORBIDDEN, f"no writable queue of topic {topic}")
    return counts


def _queue(topic: str, counts: Sequence[tuple[str, int]], group: str | None) -> MessageQueue:
    """Return the queue of a message group; without one the next queue in turn."""
    total = sum(count for _, count in counts)
    index = next(_turn) % total if group is None else consistent_hash(java_hash(group), total)
    for broker_name, count in counts:
        if index < count:
            return MessageQueue(broker_name, index, topic)
        index -= count
    raise AssertionError("the index is below the total")


async def _sent(
    call: Call, topic: str, counts: Sequence[tuple[str, int]], message: pb.Message, row: dict[str, str]
) -> pb.SendResultEntry:
    try:
        return await _send(call, topic, counts, message, row)
    except Exception as failure:
        return pb.SendResultEntry(status=status_of(failure))


async def _send(
    call: Call, topic: str, counts: Sequence[tuple[str, int]], message: pb.Message, row: dict[str, str]
) -> pb.SendResultEntry:
    queue = _queue(topic, counts, row.get(names.SHARDING_KEY))
    try:
        text = encode_properties(row)
    except ValueError as error:
        raise Refusal(pb.MESSAGE_PROPERTIES_TOO_LARGE, clipped(error)) from None
    header = send_header(
        row.get(names.PRODUCER_GROUP, topic), topic, queue, text, 0,
        sys_flag=sys_flag(message), default_topic_queue_nums=4, reconsume_times=int(row.get(names.RECONSUME_TIME, 0)),
    )  # fmt: skip
    answer = await call.session.invoke(
        topic, queue.broker_name, RequestCode.SEND_MESSAGE_V2, header, message.body, _timeout_s(call)
    )
    if answer.code not in STORED:
        raise RemotingError(answer.code, answer.remark or f"the broker answered with code {answer.code}")
    return _entry(answer, queue.broker_name, topic, row)


def _entry(answer: RemotingCommand, broker_name: str, topic: str, row: dict[str, str]) -> pb.SendResultEntry:
    stored = answer.header(RecallableSendMessageResponseHeader)
    code = remoting_code(answer.code)
    entry = pb.SendResultEntry(
        status=OK if code == pb.OK else pb.Status(code=code, message=answer.remark or STORED[ResponseCode(answer.code)]),
        message_id=row[UNIQ_KEY],
        offset=stored.queue_offset,
        recall_handle=stored.recall_handle or "",
    )
    if row.get(names.TRANSACTION_PREPARED) == "true":
        physical_offset = int(stored.msg_id[-16:], 16)  # an offsetMsgId ends with it
        group = row.get(names.PRODUCER_GROUP, topic)
        stored_id = stored.transaction_id or row[UNIQ_KEY]
        entry.transaction_id = str(TransactionId(broker_name, physical_offset, stored.queue_offset, group, stored_id))
    return entry


def _timeout_s(call: Call) -> float:
    return 3.0 if call.deadline_ms is None else max(min(call.deadline_ms / 1000, 30.0), 0.1)


def consistent_hash(value: int, buckets: int) -> int:
    """Return the bucket of a hash as Guava's Hashing.consistentHash does, so that both fronts choose the same queue."""
    state = value & 0xFFFFFFFFFFFFFFFF
    candidate = 0
    while True:
        state = (2862933555777941757 * state + 1) & 0xFFFFFFFFFFFFFFFF
        following = int((candidate + 1) / (((state >> 33) + 1) / float(1 << 31)))
        if not 0 <= following < buckets:
            return candidate
        candidate = following


async def end_transaction(call: Call, request: pb.EndTransactionRequest) -> pb.EndTransactionResponse:
    """Commit or roll back a transaction; without a decision the broker asks again later."""
    topic = call.session.topic(request.topic)
    place = TransactionId.parse(request.transaction_id)
    endings = {pb.COMMIT: TRANSACTION_COMMIT_TYPE, pb.ROLLBACK: TRANSACTION_ROLLBACK_TYPE}
    if request.resolution not in endings:
        return pb.EndTransactionResponse(status=OK)
    header = EndTransactionRequestHeader(
        place.producer_group, place.queue_offset, place.commit_log_offset, endings[request.resolution], request.message_id,
        from_transaction_check=request.source == pb.SOURCE_SERVER_CHECK, transaction_id=place.stored_id, topic=topic,
    )  # fmt: skip
    await call.session.call(topic, place.broker_name, RequestCode.END_TRANSACTION, header)
    return pb.EndTransactionResponse(status=OK)


async def recall_message(call: Call, request: pb.RecallMessageRequest) -> pb.RecallMessageResponse:
    """Recall a delayed message that is not delivered yet."""
    topic = call.session.topic(request.topic)
    config = await call.upstream.topic_config(call.session.client, topic)
    kind = (config.attributes or {}).get("message.type", "NORMAL") if config is not None else "DELAY"
    if call.config.enable_topic_message_type_check:
        _check_type(kind, "DELAY")
    try:
        broker_name = decode_recall_handle(request.recall_handle).broker_name
    except ValueError as error:
        raise Refusal(pb.BAD_REQUEST, str(error)) from None
    header = RecallMessageRequestHeader(topic, request.recall_handle, topic)
    answer = await call.session.call(topic, broker_name, RequestCode.RECALL_MESSAGE, header)
    return pb.RecallMessageResponse(status=OK, message_id=answer.header(RecallMessageResponseHeader).msg_id)
