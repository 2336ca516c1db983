"""Values in Apache's text forms, and files in folders that all users share."""

import os
import re
from pathlib import Path
from typing import Any

from pocketmq.remoting.bodies import TopicConfig
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


def java_text(value: Any) -> str:
    """Return a value as Java shows it."""
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)


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
