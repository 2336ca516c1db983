"""Limits of names and values in the tables of topics and groups, for rows from clients, tools and other brokers alike."""

import re
from typing import Any, Final

import msgspec

from pocketmq.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from pocketmq.store.format.message import folder_problem

QUEUE_NUMS_MAX: Final = 65_536
PERM_MAX: Final = 15
_INT_MAX: Final = (1 << 31) - 1
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def name_problem(topic: str) -> str | None:
    """Return why no topic of this broker can have the name, or None. 4.9.4 does not restrict names made from groups."""
    problem = folder_problem(topic)
    if problem is None and _UNPRINTABLE.search(topic):
        problem = f"topic {topic!r} has characters that cannot be printed"
    return problem


def topic_problem(name: str, topic: TopicConfig) -> str | None:
    """Return what is wrong with a topic's row, or None."""
    if topic.topic_name != name:
        return f"topicName={topic.topic_name[:200]!r} of topic {name[:200]!r}: expected the same"
    for key, queue_nums in (("readQueueNums", topic.read_queue_nums), ("writeQueueNums", topic.write_queue_nums)):
        if not 0 <= queue_nums <= QUEUE_NUMS_MAX:
            return f"{key}={_shown(queue_nums)} of topic {name}: expected 0 to {QUEUE_NUMS_MAX}"
    if not 0 <= topic.perm <= PERM_MAX:
        return f"perm={_shown(topic.perm)} of topic {name}: expected 0 to {PERM_MAX}"
    return _number_problem(topic, f"topic {name}") or name_problem(name)


def group_row_problem(name: str, group: SubscriptionGroupConfig) -> str | None:
    """Return what is wrong with a group's row, apart from its name, or None."""
    if group.group_name != name:
        return f"groupName={group.group_name[:200]!r} of group {name[:200]!r}: expected the same"
    if group.retry_queue_nums > QUEUE_NUMS_MAX:
        return f"retryQueueNums={_shown(group.retry_queue_nums)} of group {name}: expected at most {QUEUE_NUMS_MAX}"
    return _number_problem(group, f"group {name}")


def _number_problem(row: msgspec.Struct, owner: str) -> str | None:
    """Return a text that names a number of the row beyond `_INT_MAX`, as no Java client could read it; None without one."""
    for field in msgspec.structs.fields(type(row)):
        value: Any = getattr(row, field.name)
        if isinstance(value, int) and not -_INT_MAX <= value <= _INT_MAX:
            return f"{field.encode_name}={_shown(value)} of {owner}: expected at most {_INT_MAX}"
    return None


def _shown(number: int) -> str:
    """Return the number as text; Python does not print numbers of thousands of digits."""
    return str(number) if number.bit_length() < 128 else "a larger number"
