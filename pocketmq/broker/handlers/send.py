"""SEND_MESSAGE, its V2 with one-letter field names, and SEND_BATCH_MESSAGE.

`send_message` from top to bottom is the path of an ordinary message; rare cases branch off into functions of their own.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Any, Final, NoReturn

from pocketmq.broker.handlers.refusing import existing
from pocketmq.broker.names import DLQ_PREFIX, RETRY_PREFIX, TIMER_TOPIC, WAIT
from pocketmq.broker.put.batch import Member, batch_members
from pocketmq.broker.put.delivery_time import DELAYING_PROPERTIES, TIMER_OUT_MS
from pocketmq.broker.put.put import split_properties
from pocketmq.broker.services import Services
from pocketmq.broker.tables.topic_config import PERM_WRITE, TOPIC_SYS_FLAG_UNIT, topic_name_problem
from pocketmq.broker.transaction.transaction_half import TRAN_MSG
from pocketmq.remoting.after_write import Work, answer_in_slices
from pocketmq.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import Request, Response
from pocketmq.remoting.dispatch import Deferred, RemotingError, Route, routes
from pocketmq.remoting.handles.recall_handle import RecallHandle
from pocketmq.remoting.headers.send import (
    RecallableSendMessageResponseHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from pocketmq.runtime.work_slices import PIECES_MIN
from pocketmq.store.format.message import MULTI_TAGS_FLAG, TRANSACTION_TYPE_MASK, Message, PutResult
from pocketmq.store.format.properties import DELAY, KEYS, UNIQ_KEY, encode_properties

_MSG_REGION_ENTRY: Final = "MSG_REGION\x01"
_PRIORITY: Final = "_SYS_MSG_PRIORITY_"
_LITE_TOPIC: Final = "__LITE_TOPIC"
_SHARDING_KEY: Final = "__SHARDINGKEY"
RARE_PROPERTIES: Final = DELAYING_PROPERTIES | {TRAN_MSG, _PRIORITY, _LITE_TOPIC}
_NOT_IN_BATCH: Final = DELAYING_PROPERTIES | {_PRIORITY, _LITE_TOPIC}
_SUCCESS: Final = ResponseCode.SUCCESS  # faster than an enum look-up per send

_MAX_RECONSUME_VERSION: Final = 121
"""First client version (V3_4_9) whose maxReconsumeTimes in the header is used."""

BATCH_PIECE: Final = 32
"""Members of a batch that are checked or stored in one step."""
BATCH_AT_ONCE_MAX: Final = BATCH_PIECE * (PIECES_MIN - 1)
"""Members of a batch that is stored at once; a larger one is decoded twice, for the check and for the store."""
BATCH_PIECE_SIZE: Final = 8192
"""Bytes of properties of a batch that are checked or stored in one step: each key costs time for the index."""
BATCH_AT_ONCE_SIZE_MAX: Final = 8 * BATCH_PIECE_SIZE
"""Bytes of properties of a batch that is stored at once."""
_INT32_DIGITS: Final = 10
_KEYS_MARK: Final = f"{KEYS}\x01"


def send_message(
    services: Services, request: Request[SendMessageRequestHeader], in_slices: bool = False
) -> Response | Deferred:
    """Store one message, or many if the header marks the body as a batch. `in_slices`: time for many keys is available."""
    topic_config = admit(services, request)
    header = request.header
    if header.batch:
        return _send_batch(services, request, topic_config)
    text = header.properties
    if text is not None and len(text) > BATCH_PIECE_SIZE and _KEYS_MARK in text and not in_slices:
        return answer_in_slices(services.slices, request, _send_long(services, request))
    putter = services.putter
    queue_id = header.queue_id
    if queue_id < 0:
        queue_id = any_queue(topic_config)
    properties, text = split_properties(text)
    is_rare = not RARE_PROPERTIES.isdisjoint(properties)
    if is_rare and (_PRIORITY in properties or _LITE_TOPIC in properties):
        queue_id, text = _by_priority(topic_config, queue_id, properties, text)
    message = Message(
        header.topic,
        queue_id,
        request.body,
        request.channel.host_bytes,
        services.store_host,
        header.flag,
        header.sys_flag,
        header.born_timestamp,
        header.reconsume_times or 0,
        0,
        properties,
        b"" if is_rare else putter.stored_properties(text, properties),
    )
    if topic_config.topic_filter_type != "SINGLE_TAG":
        message.sys_flag |= MULTI_TAGS_FLAG
    if header.topic[0] == "%":
        _redirect_to_dlq(services, request, message)
    if is_rare:
        return _send_rare(services, message, text, queue_id)
    result = putter.put_at_once(message)
    if not result.queue_offset:
        putter.queue_pace.opened(request.channel)
    config = services.config
    response = Response(
        _SUCCESS,
        SendMessageResponseHeader(
            putter.message_id(result.physical_offset), queue_id, result.queue_offset, None, config.region_id, config.trace_on
        ),
    )
    if services.gate.is_open:
        return response
    return services.gate.when_done(
        response, header.topic, message.topic, end_offset=result.end_offset, properties=properties
    )


def _send_long(services: Services, request: Request[SendMessageRequestHeader]) -> Work:
    """Store a message that may have many keys, and end the turn: the work for the index then counts for its slice."""
    answer = send_message(services, request, in_slices=True)
    services.turn.run()
    services.turn.arm()
    return answer
    yield


def _send_rare(services: Services, message: Message, text: str, queue_id: int) -> Response | Deferred:
    """Store a message that is or may be delayed, or a half message. The answer has the ids of the record that waits.

    `text` holds its properties as sent; their stored form is created only here, after the delay is decided.
    """
    putter, config, topic, properties = services.putter, services.config, message.topic, message.properties
    if _is_half(message):
        return _send_half(services, message, text, queue_id)
    if not putter.delay(message):
        message.properties_bytes = putter.stored_properties(text, properties)
    result = putter.put_at_once(message)
    handle = None
    if message.topic == TIMER_TOPIC:
        services.timer_messages.remember(properties, result)
        if UNIQ_KEY in properties and not topic.startswith(RETRY_PREFIX):
            timestamp = str(int(properties[TIMER_OUT_MS]) + 1)
            handle = RecallHandle(topic, config.broker_name, timestamp, properties[UNIQ_KEY]).encode()
    message_id = putter.message_id(result.physical_offset)
    answer = RecallableSendMessageResponseHeader(
        message_id, queue_id, result.queue_offset, None, config.region_id, config.trace_on, handle
    )
    response = Response(_SUCCESS, answer)
    return services.gate.when_done(response, topic, message.topic, end_offset=result.end_offset, properties=properties)


def _by_priority(
    topic_config: TopicConfig, queue_id: int, properties: dict[str, str], text: str
) -> tuple[int, str]:  # fmt: skip
    """Return the queue of a message and its property string. With priority n it goes to queue n, or the last one.

    As in 5.5.0, a delayed, transactional or ordered message has no priority, and the topic's type does not matter.
    """
    if _LITE_TOPIC in properties:
        remark = f"the message is illegal: this broker has no lite topics ({_LITE_TOPIC}={properties[_LITE_TOPIC]})"
        raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, remark)
    asked = properties.get(_PRIORITY, "")
    if not (asked.isascii() and asked.isdigit() and len(asked) <= _INT32_DIGITS):
        return queue_id, text
    others = DELAYING_PROPERTIES | {_SHARDING_KEY}
    if properties.get(TRAN_MSG, "").lower() == "true" or not others.isdisjoint(properties):
        del properties[_PRIORITY]
        return queue_id, encode_properties(properties)
    return max(min(int(asked), topic_config.write_queue_nums - 1), 0), text


def admit(services: Services, request: Request[SendMessageRequestHeader]) -> TopicConfig:
    """Make the first checks in Apache's order and return the topic, created if allowed. Raises RemotingError."""
    header, config = request.header, services.config
    began_s = services.turn.began_s
    waited_s = monotonic() - began_s
    is_late = waited_s * 1000 > config.wait_time_mills_in_send_queue
    is_page_cache_busy = began_s < services.store.commit_log.tail.busy_until_s
    if (is_late or is_page_cache_busy) and config.broker_fast_failure_enable:
        _refuse_late(services, waited_s, is_page_cache_busy)
    topic = header.topic
    topic_config = services.topics.get(topic)
    if config.start_accept_send_request_time_stamp:
        _refuse_before_start(services)
    if not config.broker_permission & PERM_WRITE and topic_config is not None and topic_config.order:
        remark = f"the broker[{services.broker_address}] sending message is forbidden"
        raise RemotingError(ResponseCode.NO_PERMISSION, remark)
    if topic in services.topics.not_allowed_send_topics:
        raise RemotingError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
    if topic_config is None:
        topic_config = _create_topic(services, header)
    if config.trace_topic_enable:
        header.properties = _with_region(header.properties, config.region_id)
    queue_id = header.queue_id
    if queue_id >= topic_config.write_queue_nums and queue_id >= topic_config.read_queue_nums:
        remark = (
            f"request queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:["
            f"{topic_config.read_queue_nums}] writeQueueNums:[{topic_config.write_queue_nums}] "
            f"Producer: {request.channel.remote_address}"
        )
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
    return topic_config


def _with_region(text: str | None, region_id: str) -> str:
    """Return the properties with MSG_REGION, which 5.x always stores: its consumers trace only messages that have it."""
    if text and _MSG_REGION_ENTRY in text:
        return text
    separator = "\x02" if text and text[-1] != "\x02" else ""
    return f"{text or ''}{separator}{_MSG_REGION_ENTRY}{region_id}\x02"


def any_queue(topic_config: TopicConfig) -> int:
    """Return a random queue, for a message without a queue id."""
    return random.randrange(max(topic_config.write_queue_nums, 1))


def _refuse_late(services: Services, waited_s: float, is_page_cache_busy: bool) -> NoReturn:
    """Refuse a send that waited too long: its sender may have given up and sent the message again."""
    if is_page_cache_busy:
        word, limit = "PCBUSY", f"osPageCacheBusyTimeOutMills={services.store.config.os_page_cache_busy_time_out_mills}"
    else:
        word, limit = "TIMEOUT", f"waitTimeMillsInSendQueue={services.config.wait_time_mills_in_send_queue}"
    waited = f"period in queue: {waited_s * 1000:.0f}ms ({limit})"
    remark = f"[{word}_CLEAN_QUEUE]broker busy, start flow control for a while, {waited}"
    raise RemotingError(ResponseCode.SYSTEM_BUSY, remark)


def _refuse_before_start(services: Services) -> None:
    start_ms = services.config.start_accept_send_request_time_stamp
    if services.clock.message_time_ms() < start_ms:
        remark = f"broker unable to service, until startAcceptSendRequestTimeStamp={start_ms}"
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)


def _create_topic(services: Services, header: SendMessageRequestHeader) -> TopicConfig:
    """Create the missing topic of a send. Raises RemotingError when its name is invalid or creation is not allowed."""
    topic = header.topic
    problem = topic_name_problem(topic)
    if problem is not None:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, problem)
    sys_flag = TOPIC_SYS_FLAG_UNIT if header.unit_mode else 0
    created = services.topics.create_on_send(topic, header.default_topic, header.default_topic_queue_nums, sys_flag)
    if created is None and topic.startswith(RETRY_PREFIX):
        created = services.topics.create_on_send_back(topic, 1)
    if created is None:
        remark = (
            f"topic[{topic}] not exist, apply first please! (default topic {header.default_topic!r} does not exist or lacks "
            "the inherit permission, or autoCreateTopicEnable=false)"
        )
        raise RemotingError(ResponseCode.TOPIC_NOT_EXIST, remark)
    return created


def _is_half(message: Message) -> bool:
    """Whether it is a half message, and not a consumed transactional message sent back by a client before 4.6.1."""
    properties = message.properties
    is_given_back = message.reconsume_times > 0 and properties.get(DELAY, "0") != "0"
    return properties.get(TRAN_MSG, "").lower() == "true" and not is_given_back


def _send_half(services: Services, message: Message, text: str, queue_id: int) -> Response | Deferred:
    """Store a half message. An invalid delay is refused now, because clients do not wait for the answer to a commit."""
    putter, config, topic, properties = services.putter, services.config, message.topic, message.properties
    if config.reject_transaction_message:
        remark = f"the broker[{services.broker_address}] sending transaction message is forbidden"
        raise RemotingError(ResponseCode.NO_PERMISSION, f"{remark} (rejectTransactionMessage=true)")
    if not DELAYING_PROPERTIES.isdisjoint(properties):
        putter.delay(Message(topic, queue_id, b"", message.born_host, message.store_host, properties=dict(properties)))
    wait = properties.get(WAIT)  # WAIT is removed before storing
    result = services.transactions.prepare(message, text)
    answer = SendMessageResponseHeader(
        putter.message_id(result.physical_offset),
        queue_id,
        result.queue_offset,
        properties.get(UNIQ_KEY),
        config.region_id,
        config.trace_on,
    )
    response = Response(_SUCCESS, answer)
    if services.gate.is_open:
        return response
    asked = {} if wait is None else {WAIT: wait}
    return services.gate.when_done(response, topic, end_offset=result.end_offset, properties=asked)


def _redirect_to_dlq(services: Services, request: Request[SendMessageRequestHeader], message: Message) -> None:
    """Redirect a message to the DLQ if it is sent to a retry topic and has reached the maximum number of attempts. Clients
    send to the retry topic themselves when their CONSUMER_SEND_MSG_BACK failed."""
    topic = message.topic
    if not topic.startswith(RETRY_PREFIX):
        return
    group = topic[len(RETRY_PREFIX) :]
    _, reconsume_times_max = retrying_group(services, request, group)
    if message.reconsume_times >= reconsume_times_max:
        message.topic = services.topics.create_on_send_back(DLQ_PREFIX + group, 1).topic_name
        message.queue_id = 0


def retrying_group(services: Services, request: Request[Any], group: str) -> tuple[SubscriptionGroupConfig, int]:
    """Return the config of a group, and the attempts after which its messages go to the DLQ. Raises RemotingError."""
    remark = f"subscription group not exist, {group}"
    group_config = existing(services.groups.find(group), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    asked: int | None = request.header.max_reconsume_times
    if request.version >= _MAX_RECONSUME_VERSION and asked is not None:
        return group_config, asked
    return group_config, group_config.retry_max_times


def _send_batch(
    services: Services, request: Request[SendMessageRequestHeader], topic_config: TopicConfig
) -> Response | Deferred:
    """Store the members of a batch as separate messages. Raises RemotingError for what no batch may be."""
    header = request.header
    batch_properties, _ = split_properties(header.properties)
    if header.topic.startswith(RETRY_PREFIX):
        raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}")
    if header.sys_flag & TRANSACTION_TYPE_MASK or TRAN_MSG in batch_properties:
        raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal: a batch cannot be part of a transaction")
    size, size_max = len(request.body), services.store.config.max_message_size
    if size > size_max:
        remark = f"the message is illegal: the batch has {size} bytes, maxMessageSize allows {size_max}"
        raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, remark)
    _refuse_single(batch_properties)
    queue_id = any_queue(topic_config) if header.queue_id < 0 else header.queue_id
    flags = header.sys_flag | (MULTI_TAGS_FLAG if topic_config.topic_filter_type != "SINGLE_TAG" else 0)
    make = _member_maker(services, request, queue_id, flags, batch_properties)
    return answer_in_slices(services.slices, request, _store_batch(services, request, make, queue_id, batch_properties))


def _member_maker(
    services: Services, request: Request[Any], queue_id: int, sys_flag: int, batch_properties: dict[str, str]
) -> Callable[[Member], Message]:
    """Return a function that makes the message of a member of a batch."""
    header, born_host, store_host = request.header, request.channel.host_bytes, services.store_host
    topic, born_timestamp_ms, reconsume_times = header.topic, header.born_timestamp, header.reconsume_times or 0
    of_member = services.putter.stored_properties.of_member

    def make(member: Member) -> Message:
        flag, body, (properties, text) = member
        stored = of_member(text, properties, batch_properties)
        return Message(
            topic, queue_id, body, born_host, store_host, flag, sys_flag, born_timestamp_ms, reconsume_times, 0, properties,
            stored,
        )  # fmt: skip

    return make


def _store_batch(
    services: Services,
    request: Request[Any],
    make: Callable[[Member], Message],
    queue_id: int,
    batch_properties: dict[str, str],
) -> Work:
    """Check all members of a batch, then store them, in pieces: a batch may have as many members as maxMessageSize allows.

    Up to BATCH_AT_ONCE_MAX, with properties of BATCH_AT_ONCE_SIZE_MAX, are stored as consecutive records, all or none. Only
    a failure of the store can end a larger one halfway, and its sender is told. Pieces of one with more properties end their
    turn at once, so that the work for the index counts for their slice.
    """
    putter, config, topic = services.putter, services.config, request.header.topic
    count, size, kept = 0, 0, list[Message]()
    for piece in _pieces(batch_members(request.body)):
        messages = []
        for member in piece:
            _refuse_single(member[2][0])
            messages.append(make(member))
        putter.check(messages)
        count += len(messages)
        size += sum(len(message.properties_bytes) for message in messages)
        is_at_once = count <= BATCH_AT_ONCE_MAX and size <= BATCH_AT_ONCE_SIZE_MAX
        kept = kept + messages if is_at_once else []
        yield
    pieces: Iterable[list[Message]] = [kept]
    if not kept:
        pieces = (list(map(make, piece)) for piece in _pieces(batch_members(request.body)))
    first: PutResult | None = None
    end_offset, message_ids = 0, []
    for messages in pieces:
        if first is not None:
            yield
        result = putter.put_batch(messages)
        assert result.physical_offsets is not None
        if size > BATCH_AT_ONCE_SIZE_MAX:
            services.turn.run()
        services.turn.arm()
        first, end_offset = first or result, result.end_offset
        message_ids.append(",".join(map(putter.message_id, result.physical_offsets)))
    assert first is not None
    if not first.queue_offset:
        putter.queue_pace.opened(request.channel)
    answer = SendMessageResponseHeader(
        ",".join(message_ids), queue_id, first.queue_offset, None, config.region_id, config.trace_on
    )
    return services.gate.when_done(Response(_SUCCESS, answer), topic, end_offset=end_offset, properties=batch_properties)


def _pieces(members: Iterator[Member]) -> Iterator[list[Member]]:
    """Yield pieces of a batch: of BATCH_PIECE members, or fewer when they have BATCH_PIECE_SIZE bytes of properties."""
    piece, size = list[Member](), 0
    for member in members:
        piece.append(member)
        size += len(member[2][1])
        if len(piece) == BATCH_PIECE or size >= BATCH_PIECE_SIZE:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _refuse_single(properties: dict[str, str]) -> None:
    """Refuse delays and priorities in a batch. Apache ignores them, which is never intended."""
    if not _NOT_IN_BATCH.isdisjoint(properties):
        name = next(name for name in properties if name in _NOT_IN_BATCH)
        what = "be delayed" if name in DELAYING_PROPERTIES else "have a priority or a lite topic"
        remark = f"the message is illegal: a batch cannot {what} ({name}={properties[name]})"
        raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, remark)


ROUTES = routes(
    Route(RequestCode.SEND_MESSAGE, SendMessageRequestHeader, send_message),
    Route(RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2, send_message),
    Route(RequestCode.SEND_BATCH_MESSAGE, SendMessageRequestHeaderV2, send_message),
)
