"""What we know of a store from the last time that all of it was known: `cleanStop.json`, written at a clean stop and after a
recovery.

Queues and index are found by looking at their folders, and a folder that somebody deleted is not missed by looking. So
this file remembers where each queue and each index file ended. It is never more than a *lower bound*: another broker may
have gone on with the store, or a crash come later. Only after a clean stop, and when the log ends where it ended then, is it
the truth itself, and nothing needs to be read.

Two more things are kept here because a crash must not make them forgotten: which queues are being made again, and up to
which physical offset the records of a deleted topic belong to its past.

The document ends with a seal, the checksum of what is before it: a file that was damaged is not believed.
"""

import re
import threading
from collections.abc import Iterable, Set
from typing import Final

import msgspec
from isal.isal_zlib import crc32

from pocketmq.store.disk.disk import Disk
from pocketmq.store.index.index_file import IndexFile
from pocketmq.store.index.index_service import IndexService
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_store import ConsumeQueueStore
from pocketmq.store.queue.queue_checksums import SumsByTopic, take

FILE_NAME: Final = "cleanStop.json"
_FORMAT: Final = 2
# Without a seal.
_FIRST_FORMAT_HEAD: Final = b'{"format":1,'
_SEAL: Final = re.compile(rb',"seal":"([0-9a-f]{8})"\}\Z')
# The loop saves when a topic is deleted, the checkpoint thread now and then.
_saving: Final = threading.Lock()


class QueueEnd(msgspec.Struct, frozen=True, array_like=True):
    """Of one queue: first and next queue offset, and the physical offset behind its newest record."""

    min_offset: int
    max_offset: int
    max_physical_offset: int

    @classmethod
    def of(cls, queue: ConsumeQueue) -> "QueueEnd":
        return cls(queue.min_offset, queue.max_offset, queue.max_physical_offset)


class IndexEnd(msgspec.Struct, frozen=True, array_like=True):
    """Of one index file: its name, the number of its next entry, and the physical offset of its newest record."""

    name: str
    index_count: int
    end_physical_offset: int

    @classmethod
    def of(cls, file: IndexFile) -> "IndexEnd":
        return cls(file.path.rpartition("/")[2], file.index_count, file.end_physical_offset)


class CleanStop(msgspec.Struct, rename="camel"):
    """`log_end` is behind the last record, which begins at `last_record` (-1: there is none)."""

    format: int = _FORMAT
    # Written at a clean stop. Else a broker ran, or runs, on what is said here.
    clean: bool = False
    log_begin: int = 0
    log_end: int = 0
    last_record: int = -1
    # Sizes of the files that were configured; 0: nothing is known of the store.
    log_file_size: int = 0
    index_file_size: int = 0
    # Topic -> queue id -> end. JSON has text for keys.
    queues: dict[str, dict[int, QueueEnd]] = {}
    # Topic -> queue id -> checksums of its files.
    sums: SumsByTopic = {}
    # None: there is no index (messageIndexEnable=false).
    index: list[IndexEnd] | None = None
    # (topic, queue id) of queues that are being made again from the whole log.
    rebuilding: list[tuple[str, int]] = []
    # Topic -> physical offset: its records before that are no part of it any more.
    dropped: dict[str, int] = {}

    def queue_ends(self) -> dict[tuple[str, int], QueueEnd]:
        return {(topic, queue_id): end for topic, by_id in self.queues.items() for queue_id, end in by_id.items()}

    def renewed(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        rebuilding: Iterable[tuple[str, int]] = (),
    ) -> "CleanStop":
        """The same with what is in queues and index now, not from a clean stop; what was being rebuilt counts as done."""
        ends: dict[str, dict[int, QueueEnd]] = {}
        for queue in queues:
            if queue.max_offset:
                ends.setdefault(queue.topic, {})[queue.queue_id] = QueueEnd.of(queue)
        begin, end = commit_log.min_offset, commit_log.max_offset
        for topic, past_end in tuple(self.dropped.items()):
            self.dropped[topic] = min(past_end, end)
            if self.dropped[topic] <= begin:
                del self.dropped[topic]
        return CleanStop(
            log_begin=begin,
            log_end=self.log_end,
            last_record=self.last_record,
            log_file_size=commit_log.mapped_files.file_size,
            index_file_size=0 if index is None else index.file_size,
            queues=ends,
            sums=take(queues.disk, queues),
            rebuilding=sorted(rebuilding),
            index=None if index is None else [IndexEnd.of(file) for file in tuple(index.files)],
            # The same table: a topic that is deleted before this is saved is deleted in it, too.
            dropped=self.dropped,
        )

    def save(self, disk: Disk, root: str) -> None:
        """Replace the file atomically and durably. Any thread may. Raises OSError."""
        with _saving:
            disk.replace_file(f"{root}/{FILE_NAME}", encode(self))

    def drop_topics(self, topics: Set[str], log_end: int, disk: Disk, root: str) -> None:
        """Let everything of `topics` that the log holds be their past, durably, before their queues are deleted.

        The rest of the file stays as it is: more than that is not known to be on the disk. Raises OSError.
        """
        self.dropped.update(dict.fromkeys(topics, log_end))
        with _saving:
            saved = load(disk, root)[0] or CleanStop()
            saved.dropped.update(dict.fromkeys(topics, log_end))
            disk.replace_file(f"{root}/{FILE_NAME}", encode(saved))


def encode(known: CleanStop) -> bytes:
    """The document as it is stored."""
    known.format = _FORMAT
    data = msgspec.json.encode(known)
    return b'%b,"seal":"%08x"}' % (data[:-1], crc32(data))


def decode(data: bytes) -> CleanStop:
    """What a stored document says. Raises ValueError when it is damaged, or of a format that is not known."""
    seal = _SEAL.search(data)
    if seal is not None:
        data = data[: seal.start()] + b"}"
        if crc32(data) != int(seal[1], 16):
            raise ValueError("its seal is wrong")
    elif not data.startswith(_FIRST_FORMAT_HEAD):
        raise ValueError("it has no seal" if data else "it is empty")
    try:
        found = msgspec.json.decode(data, type=CleanStop)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    if found.format not in (1, _FORMAT):
        raise ValueError(f"its format is {found.format}, {_FORMAT} is the newest that is known")
    return found


def load(disk: Disk, root: str) -> tuple[CleanStop | None, str]:
    """What was left here, and what is wrong with it; None when there is nothing that can be believed. Raises OSError."""
    path = f"{root}/{FILE_NAME}"
    if not disk.exists(path):
        return None, f"{FILE_NAME} is missing: only its .bak is there" if disk.exists(f"{path}.bak") else ""
    try:
        return decode(disk.read_file(path)), ""
    except ValueError as error:
        return None, f"{FILE_NAME} is damaged: {error}"
