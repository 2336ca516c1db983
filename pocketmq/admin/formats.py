"""Values in Apache's text forms, and tables of the wire whose keys are message queues."""

import os
import re
from pathlib import Path
from typing import Any

import msgspec

from pocketmq.remoting import fastjson
from pocketmq.remoting.bodies import MessageQueue, TopicConfig
from pocketmq.runtime.peer_text import time_text


def time_millis(timestamp_ms: int) -> str:
    """Return a time as `2026-11-21 03:50:04,078` in local time; an unknown one (0) as an empty text."""
    return "" if timestamp_ms <= 0 else time_text(timestamp_ms, "%Y-%m-%d %H:%M:%S,%f")


def time_seconds(timestamp_ms: int) -> str:
    """Return a time as `2026-11-21 03:50:04` in local time."""
    return time_text(timestamp_ms, "%Y-%m-%d %H:%M:%S")


def permission(perm: int) -> str:
    """Return a topic's permission as RWX: readable, writable, inherited."""
    return "".join(letter if perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))


def by_queue(table: dict[str, Any]) -> list[tuple[MessageQueue, Any]]:
    """Return the rows of a table whose keys are message queues, in the order of topic, broker name and queue id."""
    rows = [(msgspec.json.decode(key, type=MessageQueue), value) for key, value in table.items()]
    return sorted(rows, key=lambda row: (row[0].topic, row[0].broker_name, row[0].queue_id))


def topic_offsets(body: bytes | bytearray | memoryview) -> list[tuple[MessageQueue, dict[str, int]]]:
    """Return queues and their offsets from the answer of GET_TOPIC_STATS_INFO."""
    return by_queue(fastjson.loads(bytes(body)).get("offsetTable") or {})


def topic_config_text(config: TopicConfig) -> str:
    """Return a topic's config as Apache's tool shows it."""
    order = str(config.order).lower()
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={permission(config.perm)}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, order={order}]"
    )


def safe_name(name: str) -> str:
    """Return a file name for a name that a client has chosen."""
    return re.sub(r"[^\w@#.:-]", "_", name).lstrip(".")[:200] or "_"


def write_beside_others(path: Path, data: bytes, mode: int) -> None:
    """Write a file in a folder to which all users may write, without following a symbolic link in its place.

    `mode`: of a new file. Raises OSError.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
