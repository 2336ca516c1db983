"""`import`: appends exported records to a store that is not in use."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pocketmq.runtime.clock import Clock, SystemClock
from pocketmq.store.disk.config_file import ConfigFile
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.format.message import PutStatus
from pocketmq.store.message_store import MessageStore
from pocketmq.store_tools.files.stopped_store import stopped_store
from pocketmq.store_tools.files.store_files import StoreFiles
from pocketmq.store_tools.transfer.documents import DocumentError, message_of
from pocketmq.store_tools.transfer.import_rules import BODY_SIZE_MAX, ImportRules

_DISPATCH_COUNT: Final = 256
_REFUSALS_TOLD_MAX: Final = 20
_PERM_READ_WRITE: Final = 6


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
        for line_number, document in _documents(lines, result):
            _put(store, rules, clock, line_number, document, keep_times, result)
            if result.imported % _DISPATCH_COUNT == 0:
                store.dispatch()
        store.dispatch()
        _add_topics(root, store, result)
    finally:
        clock.store_timestamp_ms = None
        store.shutdown()
    return result


def _documents(lines: Iterable[str], result: ImportResult) -> Iterator[tuple[int, dict[str, Any]]]:
    for line_number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            result.refuse(line_number, f"not valid JSON: {error}")
            continue
        if isinstance(document, dict):
            yield line_number, document
        else:
            result.refuse(line_number, f"expected a JSON object, not {type(document).__name__}")


def _put(
    store: MessageStore,
    rules: ImportRules,
    clock: _TimesOfRecords,
    line_number: int,
    document: dict[str, Any],
    keep_times: bool,
    result: ImportResult,
) -> None:
    try:
        message, store_timestamp_ms = message_of(document)
    except DocumentError as error:
        result.refuse(line_number, str(error))
        return
    problem = rules.problem(message)
    if problem:
        result.refuse(line_number, problem)
        return
    clock.store_timestamp_ms = store_timestamp_ms if keep_times else None
    put = store.commit_log.put(message)
    if put.status is not PutStatus.PUT_OK:
        result.refuse(line_number, put.reason or put.status.value)
        return
    result.imported += 1
    result.raised += keep_times and put.store_timestamp_ms != store_timestamp_ms


def _add_topics(root: str, store: MessageStore, result: ImportResult) -> None:
    """Add missing topics to the topic table, because a broker serves only topics in its table."""
    counts: dict[str, int] = {}
    for queue in store.queues:
        if not queue.topic.startswith("%LMQ%"):
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
