"""Messages of gRPC producers: their checks, and the properties under which they are stored."""

import re
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from pocketmq.client.message import now_ms
from pocketmq.proxy.config import GrpcConfig
from pocketmq.proxy.messages import properties as names
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.status import Refusal
from pocketmq.runtime.peer_text import clipped
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.message import COMPRESSED_FLAG, TRANSACTION_PREPARED_TYPE
from pocketmq.store.format.properties import DELAY, KEYS, TAGS, UNIQ_KEY

_CONTROL: Final = re.compile(r"[\0-\x1f\x7f]")
SECONDS_MAX: Final = (1 << 63) // 1_000_000_000
"""Limit of times from clients: more seconds than this do not fit into 64 bits of nanoseconds."""


def milliseconds(time_or_duration: Duration | Timestamp) -> int:
    """Return a Timestamp or a Duration in ms, within SECONDS_MAX."""
    seconds = max(min(time_or_duration.seconds, SECONDS_MAX), -SECONDS_MAX)
    return int(seconds * 1000 + time_or_duration.nanos // 1_000_000)


def checked_properties(message: pb.Message, topic: str, config: GrpcConfig) -> dict[str, str]:
    """Return the properties of a message to send. Raises Refusal."""
    system = message.system_properties
    _check_body(message, config)
    result = dict(message.user_properties)
    _check_user_properties(result, system, config)
    if not system.message_id.strip():
        raise Refusal(pb.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    result[UNIQ_KEY] = _plain(system.message_id, "message id", pb.ILLEGAL_MESSAGE_ID)
    _set_tag_and_keys(result, system)
    if system.HasField("message_group"):
        result[names.SHARDING_KEY] = _message_group(system.message_group, config)
    if system.HasField("priority"):
        if system.priority < 0:
            raise Refusal(pb.BAD_REQUEST, f"the priority {system.priority} is below 0")
        result[names.PRIORITY] = str(system.priority)
    if system.HasField("lite_topic"):
        raise Refusal(pb.ILLEGAL_LITE_TOPIC, "lite topics are not supported")
    _set_delivery(result, system, config)
    _set_transaction(result, system, topic, config)
    _set_origin(result, system)
    return result


def _set_tag_and_keys(result: dict[str, str], system: pb.SystemProperties) -> None:
    if system.HasField("tag"):
        if not system.tag.strip() or "|" in system.tag:
            raise Refusal(pb.ILLEGAL_MESSAGE_TAG, f"the tag {clipped(system.tag)!r} is blank or contains '|'")
        result[TAGS] = _plain(system.tag, "tag", pb.ILLEGAL_MESSAGE_TAG)
    if system.keys:
        if not all(key.strip() for key in system.keys):
            raise Refusal(pb.ILLEGAL_MESSAGE_KEY, "a key cannot be blank")
        result[KEYS] = _plain(" ".join(system.keys), "keys", pb.ILLEGAL_MESSAGE_KEY)


def _set_origin(result: dict[str, str], system: pb.SystemProperties) -> None:
    """Set what a client says of the message's earlier life."""
    if system.HasField("delivery_attempt"):
        result[names.RECONSUME_TIME] = str(system.delivery_attempt)
    if system.HasField("trace_context"):
        result[names.TRACE_CONTEXT] = _plain(system.trace_context, "trace context", pb.BAD_REQUEST)
    if system.born_host:
        result[names.BORN_HOST] = _plain(system.born_host, "born host", pb.BAD_REQUEST)
    if system.HasField("born_timestamp"):
        result[names.BORN_TIMESTAMP] = str(milliseconds(system.born_timestamp))


def _check_body(message: pb.Message, config: GrpcConfig) -> None:
    size = len(message.body)
    if size > config.max_message_size:
        raise Refusal(
            pb.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {config.max_message_size}, it has {size} bytes"
        )
    if not size and config.enable_message_body_empty_check:
        raise Refusal(pb.MESSAGE_BODY_EMPTY, "message body cannot be empty")


def _check_user_properties(user: dict[str, str], system: pb.SystemProperties, config: GrpcConfig) -> None:
    if len(user) > config.user_property_max_num:
        raise Refusal(
            pb.MESSAGE_PROPERTIES_TOO_LARGE,
            f"too many user properties, max is {config.user_property_max_num} (userPropertyMaxNum), there are {len(user)}",
        )
    size = len("".join((*user, *user.values(), system.tag, *system.keys)).encode())
    if size > config.max_user_property_size:
        raise Refusal(
            pb.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the total size of user property is too large, max is {config.max_user_property_size} (maxUserPropertySize), "
            f"it has {size} bytes",
        )
    for name, value in user.items():
        if name in names.SYSTEM:
            raise Refusal(pb.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        if not name or not value:
            raise Refusal(pb.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the user property {clipped(name)!r} has no name or no value")
        _plain(name, "name of a user property", pb.ILLEGAL_MESSAGE_PROPERTY_KEY)
        _plain(value, f"user property {clipped(name)}", pb.ILLEGAL_MESSAGE_PROPERTY_KEY)


def _plain(text: str, what: str, code: pb.Code) -> str:
    if _CONTROL.search(text):
        raise Refusal(code, f"the {what} {clipped(text)!r} contains a control character")
    return text


def _message_group(group: str, config: GrpcConfig) -> str:
    if not group.strip():
        raise Refusal(pb.ILLEGAL_MESSAGE_GROUP, "message group cannot be blank")
    if len(group.encode()) >= config.max_message_group_size:
        raise Refusal(
            pb.ILLEGAL_MESSAGE_GROUP,
            f"message group exceed the max size {config.max_message_group_size} (maxMessageGroupSize)",
        )
    return _plain(group, "message group", pb.ILLEGAL_MESSAGE_GROUP)


def _set_delivery(result: dict[str, str], system: pb.SystemProperties, config: GrpcConfig) -> None:
    if not system.HasField("delivery_timestamp"):
        return
    due_ms = milliseconds(system.delivery_timestamp)
    if due_ms <= 0:
        raise Refusal(pb.ILLEGAL_DELIVERY_TIME, f"the delivery time {due_ms} ms is not after 1970")
    if config.use_delay_level:
        result[DELAY] = str(_level(due_ms - now_ms(), DelayLevels(config.message_delay_level)))
    else:
        result[names.TIMER_DELIVER_MS] = str(due_ms)


def _level(delay_ms: int, levels: DelayLevels) -> int:
    """Return the shortest level that is longer than a delay, else the longest one, as Apache's proxy does."""
    by_delay = sorted((one_ms, level) for level, one_ms in enumerate(levels.delays_ms, 1))
    return next((level for one_ms, level in by_delay if one_ms > delay_ms), by_delay[-1][1])


def _set_transaction(result: dict[str, str], system: pb.SystemProperties, topic: str, config: GrpcConfig) -> None:
    if system.message_type != pb.TRANSACTION:
        return
    result[names.TRANSACTION_PREPARED] = "true"
    result[names.PRODUCER_GROUP] = topic
    if not system.HasField("orphaned_transaction_recovery_duration"):
        return
    seconds = system.orphaned_transaction_recovery_duration.seconds
    if seconds > config.max_transaction_recovery_second:
        raise Refusal(
            pb.BAD_REQUEST,
            f"max transaction recovery time is {config.max_transaction_recovery_second} s (maxTransactionRecoverySecond), "
            f"asked are {seconds} s",
        )
    if seconds > 0:
        result[names.CHECK_IMMUNITY_TIME] = str(seconds)


def sys_flag(message: pb.Message) -> int:
    """Return the sysFlag of a message to send."""
    system = message.system_properties
    flag = COMPRESSED_FLAG if system.body_encoding == pb.GZIP else 0
    return flag | (TRANSACTION_PREPARED_TYPE if system.message_type == pb.TRANSACTION else 0)


def type_of(properties: dict[str, str]) -> str:
    """Return the message type that the properties show, by its name in the topic attribute `message.type`."""
    if properties.get(names.TRANSACTION_PREPARED) == "true":
        return "TRANSACTION"
    if any(name in properties for name in names.DELAYING):
        return "DELAY"
    if names.SHARDING_KEY in properties:
        return "FIFO"
    return "PRIORITY" if names.PRIORITY in properties else "NORMAL"
