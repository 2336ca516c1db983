"""ConsumerOffsetManager: the consumer offset of each group in each queue, in `config/consumerOffset.json`.

Commits change memory only; the file is written every `flushConsumerOffsetInterval` and at a clean stop. A crash therefore
sets consumers back by some seconds: they receive messages again and miss none.

A tool may *reset* an offset. Until the queue's consumer has taken the new offset up, commits of the group there are ignored.

The broker's own offsets of popped and revived messages depend on records that were just put (`commit_when_synced`). They may
reach the disk only after these records: the table is then written as it was at a moment up to which the log is synced.

The file also has the position in the log up to which the offsets cover it, so that a start can take later pops from the log
(`broker.pop.pop_positions`). A slave's copy covers what its own log had when the master was asked.
"""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any, Final

import msgspec

from pocketmq.broker.tables.config_manager import ConfigManager
from pocketmq.broker.tables.limit_refusals import LimitRefusals
from pocketmq.broker.tables.row_limits import QUEUE_NUMS_MAX, name_problem
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.store.disk.config_file import ConfigFile, RowsWriter
from pocketmq.store.format.message import QUEUE_OFFSET_MAX
from pocketmq.store.format.multi_dispatch import LMQ_PREFIX

log = logging.getLogger("broker")

TOPIC_GROUP_SEPARATOR: Final = "@"
LOG_END_KEY: Final = "pocketmqLogEnd"
OWN_GROUPS: Final = frozenset(("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_REVIVE_GROUP"))
"""The broker's own groups; their offsets are kept even beyond maxConsumerOffsets."""


class ConsumerOffsetManager(ConfigManager):
    """Consumer offsets by `topic@group`, then queue id."""

    def __init__(
        self, file: ConfigFile, clock: Clock, *, with_lmq: bool = False, count_max: int = 500_000,
        log_end: Callable[[], int] = lambda: 0, flushed_offset: Callable[[], int] = lambda: 0, is_copy: bool = False,
    ) -> None:  # fmt: skip
        """`with_lmq` (enableLmq): `file` is lmqConsumerOffset.json, where groups %LMQ%... have a table of their own.

        `count_max` (maxConsumerOffsets) limits new offsets; those read from the file are always kept. `log_end` and
        `flushed_offset` return the ends of the log and of its synced part (physical offsets). `is_copy`: a slave's table.
        """
        super().__init__(file, clock)
        self.table: dict[str, dict[int, int]] = {}
        self._with_lmq = with_lmq
        self.resets: dict[tuple[str, str, int], int] = {}
        """(group, topic, queue id) -> reset offset that the consumer has not taken up yet. Not persisted, as in Apache."""
        self._pull_offsets: dict[tuple[str, str, int], int] = {}
        self._note_lane_pulls: Callable[[], None] = lambda: None
        self.is_behind_lane = False
        """Whether the compiled lane has answered pulls whose offsets are not noted yet."""
        self._unread: dict[str, Any] = {}
        self._rows = RowsWriter(file, "offsetTable", lambda row: row)
        self._count = 0
        self._count_max = count_max
        self._refusals = LimitRefusals(clock)
        self._copy_refusals = RefusalLog(log)
        # Rows to write; the first snapshot takes all.
        self._changed: dict[str, None] = {}
        self._is_taken = False
        # Rows once committed by `commit_when_synced`: their state is copied when the snapshot is taken.
        self._strict: set[str] = set()
        self._waits_for_sync = False
        # A snapshot, and the log offset that must be synced before it is written.
        self._unwritten: tuple[int, Callable[[], object]] | None = None
        self._log_end = log_end
        self._flushed_offset = flushed_offset
        self._is_copy = is_copy
        self.covered_to: int | None = None
        """Physical offset up to which pops in the log are covered by the offsets loaded or copied; None if unknown."""

    def commit_when_synced(self, group: str, topic: str, queue_id: int, consumer_offset: int) -> None:
        """Like `commit`, for an offset that is valid only once the records put so far are synced."""
        # Must come before the commit: the writing thread reads both.
        self._strict.add(f"{topic}@{group}")
        self.commit(group, topic, queue_id, consumer_offset)
        self._waits_for_sync = True

    def commit(self, group: str, topic: str, queue_id: int, consumer_offset: int) -> None:
        """Set the consumer offset of `group`; a lower one than before is allowed. Ignored while a reset is pending.

        Raises RemotingError for a new offset beyond maxConsumerOffsets.
        """
        if self.resets and (group, topic, queue_id) in self.resets:
            return
        key = f"{topic}@{group}"
        queues = self.table.get(key)
        if queues is None or queue_id not in queues:
            if self._count >= self._count_max and group not in OWN_GROUPS:
                limit = f"maxConsumerOffsets={self._count_max}"
                self._refusals.refuse(f"{limit}: the broker has {self._count} consumer offsets and takes no more")
            self._count += 1
            if queues is None:
                queues = self.table[key] = {}
        queues[queue_id] = consumer_offset
        self._changed[key] = None

    def merge(self, table: dict[str, dict[int, int]], covered_to: int | None = None) -> None:
        """Take another broker's possible offsets, by `topic@group` and queue id; others stay. `covered_to` is the field."""
        if covered_to is not None:
            self.covered_to = covered_to
        left_out = 0
        for key, queues in table.items():
            own = self.table.get(key, {})
            if queues.items() <= own.items():
                continue
            topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
            taken = {} if name_problem(topic) or name_problem(group) else dict(filter(_is_possible, queues.items()))
            added = len(taken.keys() - own.keys())
            if not taken or (added and self._count + added > self._count_max and group not in OWN_GROUPS):
                left_out += len(queues)
                continue
            self._count += added
            self.table.setdefault(key, own).update(taken)
            self._changed[key] = None
        if left_out:
            reason = f"{left_out} consumer offsets of the master are left out: impossible, or beyond maxConsumerOffsets"
            self._copy_refusals.refused(None, f"{reason}={self._count_max}")

    def use_lane_pulls(self, note: Callable[[], None]) -> None:
        """Let `note` call `pulled` for pulls that the compiled lane has answered, before other offsets are noted or read."""
        self._note_lane_pulls = note

    @property
    def pull_offsets(self) -> dict[tuple[str, str, int], int]:
        """(group, topic, queue id) -> next offset to pull. Messages from the consumer offset up to it are in flight."""
        if self.is_behind_lane:
            self._note_lane_pulls()
        return self._pull_offsets

    @property
    def room(self) -> int:
        """Number of new offsets that can be committed."""
        return self._count_max - self._count

    def pulled(self, key: tuple[str, str, int], queue_offset: int) -> None:
        """Remember the offset from which a group pulls next, as long as there is room; `key`: group, topic, queue id."""
        if self.is_behind_lane:
            self._note_lane_pulls()
        offsets = self._pull_offsets
        if key in offsets or len(offsets) < self._count_max:
            offsets[key] = queue_offset

    def reset(self, group: str, topic: str, queue_id: int, consumer_offset: int) -> None:
        """Set the consumer offset of `group`, overriding the group's own commits until `take_reset`."""
        self.resets.pop((group, topic, queue_id), None)
        self.pull_offsets.pop((group, topic, queue_id), None)
        self.commit(group, topic, queue_id, consumer_offset)
        self.resets[group, topic, queue_id] = consumer_offset

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return and clear the pending reset offset, or None: the caller passes it on to the queue's consumer."""
        return self.resets.pop((group, topic, queue_id), None)

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the consumer offset, or -1."""
        queues = self.table.get(f"{topic}@{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """Return queue id -> consumer offset of `group` in `topic`; not to be changed."""
        return self.table.get(f"{topic}@{group}", {})

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which `group` has offsets (Java: whichTopicByConsumer)."""
        end = TOPIC_GROUP_SEPARATOR + group
        return [key[: -len(end)] for key in self.table if key.endswith(end)]

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets in `topic` (Java: whichGroupByTopic)."""
        start = topic + TOPIC_GROUP_SEPARATOR
        return [key[len(start) :] for key in self.table if key.startswith(start)]

    def delete_group(self, group: str) -> None:
        """Forget all offsets of `group`."""
        self._forget(0, group, [f"{topic}@{group}" for topic in self.topics_of(group)])

    def delete_topic(self, topic: str) -> None:
        """Forget all offsets in `topic`: if it is created again, its queues start at 0."""
        self._forget(1, topic, [f"{topic}@{group}" for group in self.groups_of(topic)])

    def _forget(self, place: int, name: str, keys: list[str]) -> None:
        """Forget the rows `keys`, and what is known of queues with `name` at that place of their keys."""
        for pending in self.resets, self.pull_offsets:
            for queue in [queue for queue in pending if queue[place] == name]:
                del pending[queue]
        for key in keys:
            self._count -= len(self.table.pop(key))
            self._changed[key] = None

    def persist(self) -> None:
        """Write the file, unless the state depends on records that are not synced."""
        if not self._waits_for_sync or self._log_end() <= self._flushed_offset():
            if self._unwritten is not None:  # dropped: write all rows, because the snapshot's are not in the file
                self._unwritten, self._is_taken = None, False
            super().persist()

    def persist_in(self, executor: Executor) -> None:
        """Write the file from another thread if anything was committed since the last write."""
        if self._unwritten is None and self._changed:
            end_offset = self._log_end() if self._waits_for_sync else 0
            self._unwritten = end_offset, self.snapshot()
        if self._unwritten is not None and self._unwritten[0] <= self._flushed_offset():
            executor.submit(self._try, self._unwritten[1])
            self._unwritten = None

    def snapshot(self) -> Callable[[], object]:
        """Return a function that writes the changed rows.

        Rows are copied when they are written; rows that depend on the log's sync are copied now.
        """
        changed, self._changed, self._waits_for_sync = self._changed, {}, False
        table, strict, unread = self.table, self._strict, dict[str, Any]()
        if not self._is_taken:
            self._is_taken = True
            changed, unread = dict.fromkeys(table), self._unread
        copied = {key: table[key].copy() for key in changed.keys() & strict if key in table}

        def rows() -> Iterator[tuple[str, Any]]:
            for key, row in unread.items():
                yield key, msgspec.Raw(msgspec.json.encode(row))
            for key in changed:
                queues = copied.get(key)
                if queues is None and (live := table.get(key)) is not None:
                    queues = live.copy()
                    if key in strict:
                        continue  # strict only since the snapshot: written with the next one
                if queues is not None or key not in unread:
                    yield key, queues

        covered_to = self.covered_to if self._is_copy else self._log_end()
        document: dict[str, Any] = {LOG_END_KEY: covered_to} if covered_to else {}
        if not self._with_lmq:
            return lambda: self._rows.write(document, rows())
        light = {key: queues[0] for key, queues in table.items() if _is_light(key) and 0 in queues}
        document["lmqOffsetTable"] = light
        return lambda: self._rows.write(document, ((key, None if key in light else row) for key, row in rows()))

    def encode(self) -> dict[str, Any]:
        table = {key: dict(queues) for key, queues in self.table.items()}
        if not self._with_lmq:
            return {"offsetTable": self._unread | table}
        light = {key: table.pop(key)[0] for key in [key for key, queues in table.items() if _is_light(key) and 0 in queues]}
        return {"lmqOffsetTable": light, "offsetTable": self._unread | table}

    def decode(self, document: dict[str, Any]) -> None:
        self.covered_to = found if isinstance(found := document.get(LOG_END_KEY), int) else None
        rows = dict((document.get("offsetTable") or {}).items())
        if self._with_lmq:
            rows.update({key: {0: found} for key, found in (document.get("lmqOffsetTable") or {}).items()})
        for key, queues in rows.items():
            try:
                if TOPIC_GROUP_SEPARATOR not in key:
                    raise ValueError("the key is not topic@group")
                self.table[key] = {int(queue_id): int(consumer_offset) for queue_id, consumer_offset in queues.items()}
            except (AttributeError, TypeError, ValueError) as error:
                log.error("%s: offsets of %r are ignored, but kept in the file: %s", self.file.path, key, error)
                self._unread[key] = queues
        self._count = sum(map(len, self.table.values()))


def _is_light(key: str) -> bool:
    return key.partition(TOPIC_GROUP_SEPARATOR)[2].startswith(LMQ_PREFIX)


def _is_possible(one: tuple[int, int]) -> bool:
    queue_id, consumer_offset = one
    return 0 <= queue_id < QUEUE_NUMS_MAX and 0 <= consumer_offset <= QUEUE_OFFSET_MAX
