"""`import`: appends exported records to a store that is not in use."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pocketmq.runtime.clock import Clock, SystemClock
from pocketmq.store.disk.config_file import ConfigFile
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.format.message import Message, PutStatus
from pocketmq.store.format.multi_dispatch import LMQ_PREFIX
from pocketmq.store.format.record import PROPERTIES_SIZE_MAX, TOPIC_SIZE_MAX_V2
from pocketmq.store.message_store import MessageStore
from pocketmq.store_tools.files.stopped_store import stopped_store
from pocketmq.store_tools.files.store_files import StoreFiles
from pocketmq.store_tools.transfer.documents import DocumentError, message_of

BODY_SIZE_MAX: Final = 4 << 20  # a broker's maxMessageSize, if nothing else is configured
QUEUE_ID_MAX: Final = 65_535
TOPIC_SIZE_MAX: Final = 127
_LEGAL_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
# Topics named after consumer groups, which may have other characters.
_GROUP_PREFIXES: Final = ("%RETRY%", "%DLQ%", LMQ_PREFIX)
_SHOWN_MAX: Final = 60
_DISPATCH_COUNT: Final = 256
_REFUSALS_TOLD_MAX: Final = 20
_PERM_READ_WRITE: Final = 6


class ImportRules:
    """The broker's rules for topics, queues and sizes."""

    def __init__(self, topics_document: Mapping[str, Any], body_size_max: int = BODY_SIZE_MAX) -> None:
        """`topics_document` is that of config/topics.json; it gives the number of queues of each topic."""
        self._body_size_max = body_size_max
        self._queue_counts: dict[str, int] = {}
        table = topics_document.get("topicConfigTable", {})
        for topic, row in table.items() if isinstance(table, dict) else ():
            counts = [row.get(key) for key in ("readQueueNums", "writeQueueNums")] if isinstance(row, dict) else []
            known = [count for count in counts if isinstance(count, int)]
            if known:
                self._queue_counts[topic] = max(known)

    def problem(self, message: Message) -> str:
        """Return why a broker would not have stored the message, with key, limit and value; "" if it would."""
        return self._topic_problem(message.topic) or self._queue_problem(message) or self._size_problem(message)

    def _topic_problem(self, topic: str) -> str:
        size, is_groups = len(topic.encode(errors="replace")), topic.startswith(_GROUP_PREFIXES)
        size_max = TOPIC_SIZE_MAX_V2 if is_groups else TOPIC_SIZE_MAX
        if not 0 < size <= size_max:
            return f"topic has {size} bytes, 1 to {size_max} are allowed"
        if not is_groups and _LEGAL_TOPIC.fullmatch(topic) is None:
            return f"topic is {topic[:_SHOWN_MAX]!r}, only the characters {_LEGAL_TOPIC.pattern} are allowed"
        if any(ord(character) < ord(" ") for character in topic):
            return f"topic is {topic[:_SHOWN_MAX]!r}, control characters are not allowed"
        return ""

    def _queue_problem(self, message: Message) -> str:
        count = self._queue_counts.get(message.topic)
        if count is not None and not 0 <= message.queue_id < count:
            queues = "one queue" if count == 1 else f"{count} queues"
            return f"queueId is {message.queue_id}, but {message.topic} has {queues} according to config/topics.json"
        if not 0 <= message.queue_id <= QUEUE_ID_MAX:
            return f"queueId is {message.queue_id}, 0 to {QUEUE_ID_MAX} are allowed"
        return ""

    def _size_problem(self, message: Message) -> str:
        body_size, properties_size = len(message.body), len(message.properties_bytes)
        if body_size > self._body_size_max:
            return f"body has {body_size} bytes, --max-message-size allows {self._body_size_max}"
        if properties_size > PROPERTIES_SIZE_MAX:
            return f"properties have {properties_size} bytes, at most {PROPERTIES_SIZE_MAX} are allowed"
        if 0 in message.properties_bytes:
            return f"properties have a zero byte at {message.properties_bytes.index(0)}, which is not allowed"
        return ""


class _TimesOfRecords(Clock):
    """Clock that gives the store the original store time of each imported record, if it is to be kept."""

    def __init__(self) -> None:
        self.store_timestamp_ms: int | None = None

    def message_time_ms(self) -> int:
        given = self.store_timestamp_ms
        return SystemClock().message_time_ms() if given is None else given


@dataclass
class ImportResult:
    """Result of an import. `raised`: records that got the store time of the previous record, since times never decrease."""

    imported: int = 0
    refused: int = 0
    raised: int = 0
    topics_added: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def refuse(self, line_number: int, why: str) -> None:
        self.refused += 1
        if len(self.refusals) < _REFUSALS_TOLD_MAX:
            self.refusals.append(f"line {line_number} refused: {why}")

    def __str__(self) -> str:
        parts = [f"{self.imported:,} records imported, {self.refused:,} refused"]
        if self.raised:
            parts.append(f"{self.raised:,} store times raised to that of the previous record")
        if self.topics_added:
            parts.append(f"added to config/topics.json: {', '.join(self.topics_added)}")
        return "; ".join(parts)


def import_records(
    root: str,
    lines: Iterable[str],
    commit_log_folder: str | None,
    *,
    keep_times: bool,
    delay_levels: str | None = None,
    body_size_max: int = BODY_SIZE_MAX,
) -> ImportResult:
    """Append the messages described by `lines`. A missing store is created. Raises StoreError, OSError.

    A message that a broker would not have stored is refused before any of it is written.
    """
    root = os.path.normpath(os.path.expanduser(root))
    is_there = any(map(os.path.isdir, (commit_log_folder or f"{root}/commitlog").split(",")))
    clock = _TimesOfRecords()
    store = stopped_store(root, StoreFiles(root, commit_log_folder) if is_there else None, clock, delay_levels)
    if commit_log_folder:
        store.config.store_path_commit_log = commit_log_folder
    result = ImportResult()
    rules = ImportRules(ConfigFile(FileDisk(), f"{root}/config/topics.json").load(), body_size_max)
    store.load()
    try:
        store.start()
        for line_number, message, store_timestamp_ms in _messages(lines, rules, result):
            clock.store_timestamp_ms = store_timestamp_ms if keep_times else None
            put = store.commit_log.put(message)
            if put.status is not PutStatus.PUT_OK:
                result.refuse(line_number, put.reason or put.status.value)
                continue
            result.imported += 1
            result.raised += keep_times and put.store_timestamp_ms != store_timestamp_ms
            if result.imported % _DISPATCH_COUNT == 0:
                store.dispatch()
        store.dispatch()
        _add_topics(root, store, result)
    finally:
        clock.store_timestamp_ms = None
        store.shutdown()
    return result


def _messages(lines: Iterable[str], rules: ImportRules, result: ImportResult) -> Iterator[tuple[int, Message, int]]:
    """Yield (line number, message, store time) of the lines that can be imported."""
    for line_number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            message, store_timestamp_ms = message_of(_document(line))
            problem = rules.problem(message)
        except DocumentError as error:
            problem = str(error)
        if problem:
            result.refuse(line_number, problem)
        else:
            yield line_number, message, store_timestamp_ms


def _document(line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise DocumentError(f"expected a JSON object, not {type(document).__name__}")
    return document


def _add_topics(root: str, store: MessageStore, result: ImportResult) -> None:
    """Add missing topics to the topic table, because a broker serves only topics in its table."""
    counts: dict[str, int] = {}
    for queue in store.queues:
        if not queue.topic.startswith(LMQ_PREFIX):
            counts[queue.topic] = max(counts.get(queue.topic, 0), queue.queue_id + 1)
    table = ConfigFile(FileDisk(), f"{root}/config/topics.json")
    document = table.load()
    known = document.get("topicConfigTable", {})
    result.topics_added = sorted(set(counts) - set(known))
    added = {
        topic: {
            "order": False,
            "perm": _PERM_READ_WRITE,
            "readQueueNums": counts[topic],
            "topicFilterType": "SINGLE_TAG",
            "topicName": topic,
            "topicSysFlag": 0,
            "writeQueueNums": counts[topic],
        }
        for topic in result.topics_added
    }
    if added:
        version = document.get("dataVersion", {})
        moved = {"counter": version.get("counter", 0) + 1, "timestamp": SystemClock().message_time_ms()}
        table.persist({"dataVersion": {**version, **moved}, "topicConfigTable": {**known, **added}})
