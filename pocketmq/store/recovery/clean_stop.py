"""CleanStop: `cleanStop.json`, the last fully known state of a store, written at a clean stop and after a recovery.

Queues and index files are found by listing their folders, which does not reveal a deleted one. This file therefore records
where each of them ended. These ends are only a *lower bound*, because another broker may have used the store, or a crash may
have followed. Only after a clean stop, and if the log still ends at the recorded position, are they exact, and nothing needs
to be read.

It also has two facts that must survive a crash: which queues are being rebuilt, and up to which physical offset the records
of a deleted topic belong to the deleted topic.

The document ends with a seal, a checksum of the rest; a damaged file is ignored.
"""

import re
import threading
from collections.abc import Iterable, Set
from typing import Final

import msgspec
from isal.isal_zlib import crc32

from pocketmq.store.disk.disk import Disk
from pocketmq.store.index.index_file import IndexFile
from pocketmq.store.parts import StoreParts
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.queue_checksums import SumsByTopic

FILE_NAME: Final = "cleanStop.json"
_FORMAT: Final = 2
# Beginning of documents in format 1, which has no seal.
_FIRST_FORMAT_HEAD: Final = b'{"format":1,'
_SEAL: Final = re.compile(rb',"seal":"([0-9a-f]{8})"\}\Z')
# Both the loop (when a topic is deleted) and the checkpoint thread save the file.
_saving: Final = threading.Lock()


class QueueEnd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """State of one queue: first and next queue offset, and the end offset of its newest record."""

    min_offset: int
    max_offset: int
    max_physical_offset: int

    @classmethod
    def of(cls, queue: ConsumeQueue) -> "QueueEnd":
        return cls(queue.min_offset, queue.max_offset, queue.max_physical_offset)


class IndexEnd(msgspec.Struct, frozen=True, array_like=True):
    """State of one index file: name, number of its next entry, and physical offset of its newest record."""

    name: str
    index_count: int
    end_physical_offset: int

    @classmethod
    def of(cls, file: IndexFile) -> "IndexEnd":
        return cls(file.path.rpartition("/")[2], file.index_count, file.end_physical_offset)


class CleanStop(msgspec.Struct, rename="camel"):
    """Recorded state of a store. `log_end` is the end of the last record, which begins at `last_record` (-1: none)."""

    format: int = _FORMAT
    # Whether it was written at a clean stop. Otherwise a broker has used the store since.
    clean: bool = False
    log_begin: int = 0
    log_end: int = 0
    last_record: int = -1
    # Configured file sizes; 0: nothing is known about the store.
    log_file_size: int = 0
    index_file_size: int = 0
    # Topic -> queue id -> end. Nested, because JSON keys are strings.
    queues: dict[str, dict[int, QueueEnd]] = {}
    # Topic -> queue id -> checksums of its files.
    sums: SumsByTopic = {}
    # None without an index (messageIndexEnable=false).
    index: list[IndexEnd] | None = None
    # (topic, queue id) of the queues that are being rebuilt from the whole log.
    rebuilding: list[tuple[str, int]] = []
    # Topic -> physical offset: records before it belong to a deleted topic of that name.
    dropped: dict[str, int] = {}

    def queue_ends(self) -> dict[tuple[str, int], QueueEnd]:
        return {(topic, queue_id): end for topic, by_id in self.queues.items() for queue_id, end in by_id.items()}

    def renewed(self, store: StoreParts, sums: SumsByTopic, rebuilding: Iterable[tuple[str, int]] = ()) -> "CleanStop":
        """Return a copy with the present state of queues and index, without `clean`; the others replace the old ones."""
        ends: dict[str, dict[int, QueueEnd]] = {}
        for queue in store.queues:
            if queue.max_offset:
                ends.setdefault(queue.topic, {})[queue.queue_id] = QueueEnd.of(queue)
        begin, end = store.commit_log.min_offset, store.commit_log.max_offset
        for topic, past_end in tuple(self.dropped.items()):
            self.dropped[topic] = min(past_end, end)
            if self.dropped[topic] <= begin:
                del self.dropped[topic]
        return CleanStop(
            log_begin=begin,
            log_end=self.log_end,
            last_record=self.last_record,
            log_file_size=store.commit_log.mapped_files.file_size,
            index_file_size=0 if store.index is None else store.index.file_size,
            queues=ends,
            sums=sums,
            rebuilding=sorted(rebuilding),
            index=None if store.index is None else [IndexEnd.of(file) for file in tuple(store.index.files)],
            # Shared, not copied: a topic deleted before the copy is saved must be in it, too.
            dropped=self.dropped,
        )

    def save(self, disk: Disk, root: str) -> None:
        """Replace the file atomically and durably. Thread-safe. Raises OSError."""
        with _saving:
            disk.replace_file(f"{root}/{FILE_NAME}", encode(self))

    def drop_topics(self, topics: Set[str], log_end: int, disk: Disk, root: str) -> None:
        """Record durably that all records of `topics` in the log belong to deleted topics, before their queues are deleted.

        The rest of the file is unchanged, because newer state is not known to be on the disk. Raises OSError.
        """
        self.dropped.update(dict.fromkeys(topics, log_end))
        with _saving:
            saved = load(disk, root)[0] or CleanStop()
            saved.dropped.update(dict.fromkeys(topics, log_end))
            disk.replace_file(f"{root}/{FILE_NAME}", encode(saved))


def encode(known: CleanStop) -> bytes:
    """Return the document in stored form, with its seal."""
    known.format = _FORMAT
    data = msgspec.json.encode(known)
    return b'%b,"seal":"%08x"}' % (data[:-1], crc32(data))


def decode(data: bytes) -> CleanStop:
    """Decode a stored document. Raises ValueError if it is damaged or has an unknown format."""
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
        raise ValueError(f"its format is {found.format}, the newest known format is {_FORMAT}")
    return found


def load(disk: Disk, root: str) -> tuple[CleanStop | None, str]:
    """Return (the saved state or None if it is missing or damaged, what is wrong with it). Raises OSError."""
    path = f"{root}/{FILE_NAME}"
    if not disk.exists(path):
        return None, f"{FILE_NAME} is missing: only its .bak exists" if disk.exists(f"{path}.bak") else ""
    try:
        return decode(disk.read_file(path)), ""
    except ValueError as error:
        return None, f"{FILE_NAME} is damaged: {error}"
