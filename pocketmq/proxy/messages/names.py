"""Names of topics and groups: from gRPC's resources to those of the remoting protocol, checked."""

from functools import lru_cache
from typing import Final

from pocketmq.client.message_check import GROUP_SIZE_MAX, LEGAL_NAME, TOPIC_SIZE_MAX
from pocketmq.proxy.proto import messaging_pb2 as pb
from pocketmq.proxy.status import Refusal
from pocketmq.runtime.peer_text import clipped

_CHARACTERS: Final = "characters, out of letters, digits, %, |, - and _"
_SYSTEM_TOPICS: Final = frozenset(
    (
        *("TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        *("RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"),
        *("CHECKPOINT_TOPIC",),
    )
)
_SYSTEM_PREFIXES: Final = ("rmq_sys_", "%SYS%")
_SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
_CHECKED_MAX: Final = 4096
"""Number of names of each kind that are known to be legal. Refusals are not kept."""


def topic_name(resource: pb.Resource, namespace: str = "") -> str:
    """Return the topic's name in the remoting protocol. Raises Refusal for names that clients may not use."""
    return _checked_topic(_with_namespace(resource, namespace))


def group_name(resource: pb.Resource, namespace: str = "") -> str:
    """Return the consumer group's name in the remoting protocol. Raises Refusal for names that clients may not use."""
    return _checked_group(_with_namespace(resource, namespace))


@lru_cache(_CHECKED_MAX)
def _checked_topic(name: str) -> str:
    _check("topic", name, TOPIC_SIZE_MAX, pb.ILLEGAL_TOPIC)
    if name in _SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIXES):
        raise Refusal(pb.ILLEGAL_TOPIC, f"cannot access system topic: {name}")
    return name


@lru_cache(_CHECKED_MAX)
def _checked_group(name: str) -> str:
    _check("group", name, GROUP_SIZE_MAX, pb.ILLEGAL_CONSUMER_GROUP)
    if name.startswith(_SYSTEM_GROUP_PREFIX):
        raise Refusal(pb.ILLEGAL_CONSUMER_GROUP, f"cannot use system consumer group: {name}")
    return name


def _check(what: str, name: str, size_max: int, code: pb.Code) -> None:
    if not name or len(name) > size_max or LEGAL_NAME.fullmatch(name) is None:
        raise Refusal(code, f"the {what} name {clipped(name)!r} must have 1 to {size_max} {_CHARACTERS}")


def resource_of(name: str) -> pb.Resource:
    """Return the resource of a remoting name: what precedes the first % of `NAMESPACE%NAME` is its namespace."""
    namespace, separator, rest = name.partition("%")
    return pb.Resource(resource_namespace=namespace, name=rest) if separator and namespace else pb.Resource(name=name)


def _with_namespace(resource: pb.Resource, namespace: str) -> str:
    namespace = resource.resource_namespace or namespace
    return f"{namespace}%{resource.name}" if namespace else str(resource.name)
