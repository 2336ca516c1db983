"""CommitLog: the append-only sequence of the records of all topics, in files of equal size.

A record never crosses the end of a file: if the next record and an 8-byte mark do not fit, a BLANK mark ends the file. The
log also assigns queue offsets, because a record contains its own; `LogTail` has them, with the records of the present turn.
Disk space is reserved some MiB ahead. If the disk is full, messages are refused with that reason, and incoming messages
trigger a new attempt a few times per second.
"""

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Final

from pocketmq.runtime.clock import Clock
from pocketmq.runtime.refusal_log import RefusalLog
from pocketmq.store.config import MessageStoreConfig
from pocketmq.store.disk.disk import NO_ROOM, Disk, no_room
from pocketmq.store.disk.mapped_file import MappedFile
from pocketmq.store.disk.mapped_file_queue import MappedFileQueue, Spread
from pocketmq.store.disk.open_files import OpenFiles
from pocketmq.store.format.layout import (
    BLANK_MAGIC_CODE,
    BLANK_SIZE,
    BLANK_STRUCT,
    HOST_SIZE,
    MESSAGE_MAGIC_CODE,
    RECORD_FIXED_SIZE,
)
from pocketmq.store.format.message import (
    TRANSACTION_UNQUEUED_FLAG,
    DispatchRequest,
    Message,
    PutResult,
    PutStatus,
    QueueKey,
    folder_problem,
)
from pocketmq.store.format.multi_dispatch import MultiDispatch, further_request
from pocketmq.store.format.properties import KEYS, UNIQ_KEY
from pocketmq.store.format.record import (
    PROPERTIES_SIZE_MAX,
    TOPIC_SIZE_MAX_V2,
    BadRecordError,
    TagsCode,
    bounds,
    decode_dispatch_request,
    encode_record,
    record_size,
    topic_part,
)
from pocketmq.store.log.log_tail import LogTail
from pocketmq.store.log.message_limits import MessageLimits

log = logging.getLogger("store")

# Disk space reserved at once.
_RESERVE_STEP: Final = 4 << 20
_NO_ROOM_S: Final = 0.25  # pause between two attempts to reserve space on a full disk
# A global is faster than enum member access.
_PUT_OK: Final = PutStatus.PUT_OK
_SIZE_WITHOUT_PARTS: Final = RECORD_FIXED_SIZE + 2
# Maximum number of cached encoded topics; beyond it the cache is cleared. The broker's topic limits are far lower.
_PLAIN_TOPICS_MAX = 20_000


class CommitLog:
    """Append-only log of records. Not thread-safe, except for `refuse` and the methods that prepare the next file."""

    def __init__(
        self, config: MessageStoreConfig, disk: Disk, clock: Clock, tags_code: TagsCode, open_files: OpenFiles | None = None
    ) -> None:
        directory, *more_directories = config.commit_log_directories
        self.mapped_files = MappedFileQueue(
            disk, directory, config.mapped_file_size_commit_log, random_access=not config.data_read_ahead_enable,
            open_files=open_files, reserve_step=_RESERVE_STEP,
            spread=Spread(more_directories, partial(_directory_for, config, disk)) if more_directories else None,
        )  # fmt: skip
        self.tail = LogTail(config, self._request_at)
        # Why nothing may be appended at the moment, or None; set by `refuse`.
        self.refusal: str | None = None
        self.last_store_timestamp_ms = 0
        self.refusals: dict[str, str] = {}  # cause -> reason
        self.refusal_log = RefusalLog(log, "messages are refused", now=clock.monotonic)
        self._no_room = ""
        self._no_room_until = 0.0
        self._config = config
        self._disk = disk
        self._clock = clock
        self._tags_code = tags_code
        self.limits = MessageLimits(config)
        self._body_size_max = config.max_message_size
        # Topic -> encoded topic field, for topics that fit into records of version 1.
        self._plain_topics: dict[str, bytes] = {}
        # Topic -> why messages to it are refused.
        self.refused_topics: dict[str, str] = {}
        self.multi_dispatch: MultiDispatch | None = None
        if config.enable_multi_dispatch:
            self.multi_dispatch = MultiDispatch(with_lmq=config.enable_lmq, lmq_max=config.max_lmq_consume_queue_num)
        self.plain_end = 0
        """Physical offset up to which a put needs no further checks; 0 while messages need them."""
        self._next: MappedFile | None = None
        self._next_warmed = 0  # bytes of the next file that have been written to the disk as zeros
        # Guards these three, the last file and the refusals against concurrent use by the loop and other threads.
        self._lock = threading.Lock()

    # --- appending -------------------------------------------------------------------------------------------------

    def put(self, message: Message) -> PutResult:
        """Append one message. This is the fast path; other cases (end of file, refusals, ...) go to `put_batch`."""
        topic, tail = message.topic, self.tail
        topic_bytes = self._plain_topics.get(topic)
        body_size, properties_size = len(message.body), len(message.properties_bytes)
        physical_offset = tail.end_offset
        if (
            topic_bytes is None
            or physical_offset + (size := _SIZE_WITHOUT_PARTS + body_size + len(topic_bytes) + properties_size)
            > self.plain_end
            or body_size > self._body_size_max
            or properties_size > PROPERTIES_SIZE_MAX
            or message.sys_flag & TRANSACTION_UNQUEUED_FLAG
            or len(message.born_host) + len(message.store_host) != 2 * HOST_SIZE
        ):
            result = self.put_batch((message,))
            result.physical_offsets = None
            return result
        store_timestamp_ms = self._clock.message_time_ms()
        if store_timestamp_ms < self.last_store_timestamp_ms:
            store_timestamp_ms = self.last_store_timestamp_ms
        self.last_store_timestamp_ms = store_timestamp_ms

        key = (topic, message.queue_id)
        next_offset = tail.queue_offsets.cells.get(key)
        queue_offset = 0 if next_offset is None else next_offset.value
        # Everything that can fail comes first, e.g. a number out of its field's range: a partial put would shift later
        # records.
        record = encode_record(
            message, MESSAGE_MAGIC_CODE, topic_bytes, size, queue_offset, physical_offset, store_timestamp_ms
        )
        properties = message.properties
        request = DispatchRequest(
            topic, message.queue_id, physical_offset, size, self._tags_code(topic, properties, store_timestamp_ms),
            store_timestamp_ms, queue_offset, message.sys_flag, properties.get(KEYS), properties.get(UNIQ_KEY),
        )  # fmt: skip
        if next_offset is None:
            tail.queue_offsets[key] = 1
        else:
            next_offset.value = queue_offset + 1
        tail.add(size, (record,), (request,))
        return PutResult(_PUT_OK, physical_offset, physical_offset + size, queue_offset, store_timestamp_ms, size)

    def put_batch(self, messages: Sequence[Message]) -> PutResult:
        """Append messages of one topic and queue as consecutive records of one file, all or none."""
        assert messages, "a batch has at least one message"
        if self.refusal is not None:
            return self._refused(next(iter(self.refusals), ""), self.refusal)
        next_offsets: dict[QueueKey, int] = {}
        further: Sequence[list[tuple[QueueKey, int]]] = ()
        try:
            if self.multi_dispatch is not None:
                offsets = self.tail.queue_offsets
                further = [self.multi_dispatch.assign(message, offsets, next_offsets) for message in messages]
        except ValueError as error:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=str(error))
        topic = messages[0].topic
        if topic in self.refused_topics:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=self.refused_topics[topic])
        magic_code, topic_bytes = self._topic_part(topic)
        topic_size = len(topic_bytes)
        sizes = [record_size(message, topic_size) for message in messages]
        size = sum(sizes)
        refused = self.limits.refusal(messages, size) or self._make_room(size + BLANK_SIZE)
        if refused is not None:
            return refused
        time_ms = self.last_store_timestamp_ms = max(self._clock.message_time_ms(), self.last_store_timestamp_ms)
        start = self.tail.end_offset
        # As in `put`, nothing may change before all records are encoded.
        records, requests = self._encoded(messages, magic_code, topic_bytes, sizes, time_ms, next_offsets)
        physical_offsets = [request.physical_offset for request in requests]
        first = requests[0].queue_offset
        for request, others in zip(tuple(requests), further, strict=False):
            requests += [further_request(request, *other) for other in others]
        self.tail.queue_offsets.update(next_offsets)
        self.tail.add(size, records, requests)
        return PutResult(_PUT_OK, start, start + size, first, time_ms, size, physical_offsets)

    def _encoded(
        self,
        messages: Sequence[Message],
        magic_code: int,
        topic_bytes: bytes,
        sizes: Sequence[int],
        time_ms: int,
        next_offsets: dict[QueueKey, int],
    ) -> tuple[list[bytes], list[DispatchRequest]]:
        """Encode messages of one topic and queue as the next records. The queue's next offset goes into `next_offsets`.

        Messages often have the same properties object, whose look-ups are made once.
        """
        topic, queue_id, physical_offset = messages[0].topic, messages[0].queue_id, self.tail.end_offset
        key = (topic, queue_id)
        queue_offset = first_offset = self.tail.queue_offsets.get(key, 0)
        records, requests, properties = [], [], None
        for message, size in zip(messages, sizes, strict=True):
            sys_flag = message.sys_flag
            own_offset = queue_offset
            if sys_flag & TRANSACTION_UNQUEUED_FLAG:
                own_offset = 0
            else:
                queue_offset += 1
            records.append(encode_record(message, magic_code, topic_bytes, size, own_offset, physical_offset, time_ms))
            if message.properties is not properties:
                properties = message.properties
                tags_code = self._tags_code(topic, properties, time_ms)
                keys, uniq_key = properties.get(KEYS), properties.get(UNIQ_KEY)
            requests.append(
                DispatchRequest(
                    topic, queue_id, physical_offset, size, tags_code, time_ms, own_offset, sys_flag, keys, uniq_key
                )
            )
            physical_offset += size
        if queue_offset != first_offset:
            next_offsets[key] = queue_offset
        return records, requests

    def append_raw(self, data: memoryview) -> int:
        """Append bytes of the master's log, which may begin and end within records, as far as the last file has room.

        Returns their number. If OSError is raised, nothing was appended. The log must have a file (`begin_raw`).
        """
        file = self.tail.file
        assert file is not None, "the log has a file"
        if file.full:
            file = self._roll()
        size = min(len(data), file.size - file.wrote)
        file.reserve(file.wrote + size)
        file.write(data[:size])
        self.tail.continue_in(file)
        return size

    def begin_raw(self, physical_offset: int) -> None:
        """Let an empty log begin at `physical_offset`, where a file must begin. Raises OSError."""
        with self._lock:
            self._write_to(self.mapped_files.writable(physical_offset))

    def is_plain_topic(self, topic: str) -> bool:
        """Return whether records of the topic may be put as ordinary ones: version 1, and not refused."""
        return self._topic_part(topic)[0] == MESSAGE_MAGIC_CODE and topic not in self.refused_topics

    def _request_at(self, physical_offset: int) -> DispatchRequest:
        record = self.record_at(physical_offset)
        assert record is not None, "a record of this turn is in the log"
        return decode_dispatch_request(record, 0, self._tags_code)

    def _topic_part(self, topic: str) -> tuple[int, bytes]:
        plain = self._plain_topics.get(topic)
        if plain is not None:
            return MESSAGE_MAGIC_CODE, plain
        name = topic.encode()
        is_legal = 0 < len(name) <= self.limits.topic_size_max and folder_problem(topic) is None
        if not is_legal or topic in self.refused_topics:
            return 0, bytes(TOPIC_SIZE_MAX_V2)  # refused by the caller
        magic_code, part = topic_part(name)
        if magic_code == MESSAGE_MAGIC_CODE:
            if len(self._plain_topics) >= _PLAIN_TOPICS_MAX:
                self._plain_topics.clear()
            self._plain_topics[topic] = part
        return magic_code, part

    # --- refusing --------------------------------------------------------------------------------------------------

    def refuse(self, cause: str, reason: str | None) -> None:
        """Refuse all messages with `reason` because of `cause`, or end that if `reason` is None. Thread-safe."""
        with self._lock:
            self.refusals.pop(cause, None)
            if reason is not None:
                self.refusals[cause] = reason
            else:
                self.refusal_log.over(cause)
            self.refusal = next(iter(self.refusals.values()), None)
            self._update_plain_end()

    def _refused(self, cause: str, reason: str, status: PutStatus = PutStatus.SERVICE_NOT_AVAILABLE) -> PutResult:
        """Log and return the refusal of a message for a reason on the broker's side."""
        self.refusal_log.refused(cause, reason)
        return PutResult(status, reason=reason)

    def _update_plain_end(self) -> None:
        """Update the position up to which `put` needs no further checks."""
        last, is_free = self.tail.file, self.refusal is None and self.multi_dispatch is None
        self.plain_end = last.start_offset + last.reserved - BLANK_SIZE if last is not None and is_free else 0

    def _make_room(self, size: int) -> PutResult | None:
        """Reserve `size` bytes at the log's end, beginning a new file if necessary. Return None or the refusal."""
        file, end_offset = self.tail.file, self.tail.end_offset + size
        if file is not None and end_offset <= file.start_offset + file.reserved:
            return None
        now = self._clock.monotonic()
        if now < self._no_room_until:
            return self._refused("no room", self._no_room)
        began_s = monotonic()
        try:
            if file is None or end_offset > file.start_offset + file.size:
                file = self._roll()
                end_offset = file.end_offset + size
            file.reserve(end_offset - file.start_offset)
            with self._lock:
                self._update_plain_end()
        except OSError as error:
            if error.errno not in NO_ROOM:
                return self._refused("next file", f"next CommitLog file: {error}", PutStatus.CREATE_MAPPED_FILE_FAILED)
            directory = file.path.rpartition("/")[0] if file is not None else self.mapped_files.directory
            self._no_room = no_room(self._disk, directory, "CommitLog", error)
            self._no_room_until = now + _NO_ROOM_S
            return self._refused("no room", self._no_room)
        self.refusal_log.over("no room")
        self.refusal_log.over("next file")
        self.tail.note_wait(began_s, monotonic() - began_s)
        return None

    # --- files -----------------------------------------------------------------------------------------------------

    def _roll(self) -> MappedFile:
        """Switch to the next file. It is created before the last one is closed, so a failure changes nothing.

        The directory entries of the earlier files must be durable first, or a power cut could leave a log without its
        beginning. Usually the flush thread has synced them, unless a whole file was filled between two of its rounds.
        """
        self.tail.write()
        self.mapped_files.sync_names()
        with self._lock:
            last, files = self.tail.file, self.mapped_files
            if last is None:
                return self._write_to(files.writable())
            start_offset = last.start_offset + last.size
            prepared, self._next = self._next, None
            if prepared is not None and prepared.start_offset != start_offset:
                prepared.close()
                prepared = None
            file = prepared or files.create(start_offset)
            if last.wrote < last.size:
                last.reserve(last.wrote + BLANK_SIZE)
                # Only the mark is written; the rest stays zero.
                BLANK_STRUCT.pack_into(last.view, last.wrote, last.size - last.wrote, BLANK_MAGIC_CODE)
                last.wrote = last.size
            return self._write_to(files.add(file))

    def _write_to(self, file: MappedFile) -> MappedFile:
        """Make `file` the last file, which stays mapped and, with lockMappedFileEnable, locked in memory."""
        last = self.tail.file
        self.tail.continue_in(file)
        self._update_plain_end()
        file.pinned = True
        _ = file.view  # maps it, if recovery accessed many files
        if last is not None:
            last.pinned = False
            last.region.end_writing()
        if self._config.lock_mapped_file_enable:
            try:
                file.region.lock_memory()
                if last is not None:
                    last.region.lock_memory(False)
            except OSError as error:
                log.warning("lockMappedFileEnable: %s", error)
        return file

    def prepare_next_file(self) -> None:
        """Create the next file once the last is half full, to save the loop the wait. Called by the flush thread.

        A failed creation is ignored here and reported when the loop needs the file. Raises OSError if the directory entries
        of the earlier files cannot be synced: a power cut could then keep the new file and lose those.
        """
        self.mapped_files.sync_names()
        with self._lock:
            last = self.tail.file
            if last is None or last.wrote * 2 < last.size:
                return
            start_offset = last.start_offset + last.size
            if self._next is None or self._next.start_offset < start_offset:
                self._next_warmed = 0
                with suppress(OSError):
                    self._next = self.mapped_files.create(start_offset)

    def warm_next_file(self, step_size: int) -> bool:
        """Write the next `step_size` zero bytes of the next file to the disk. Return whether more are left.

        Called by the flush thread. Raises OSError if the sync fails, as the file may already be the last one and have
        records.
        """
        file = self._next
        if file is None or self._next_warmed == file.size:
            return False
        start, end = self._next_warmed, min(self._next_warmed + step_size, file.size)
        try:
            file.reserve(end)
        except OSError as error:
            log.warning("the next CommitLog file cannot be pre-written: %s", error)
            self._next_warmed = file.size
            return False
        file.region.warm(start, end)
        self._next_warmed = end
        return end < file.size

    def recovered(self, last_store_timestamp_ms: int) -> None:
        """Start appending at the end that recovery found. Store times continue from the last record's."""
        if files := self.mapped_files.files:
            with self._lock:
                self._write_to(files[-1])
        self.last_store_timestamp_ms = last_store_timestamp_ms

    def close(self) -> None:
        if self._next is not None:
            self._next.close()
        self.tail.file = self._next = None
        self.mapped_files.close()

    # --- reading ---------------------------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """Physical offset of the first byte that has not been deleted."""
        return self.mapped_files.min_offset

    @property
    def max_offset(self) -> int:
        """End offset of the last record, which may not be written yet."""
        return self.tail.end_offset

    def record_at(self, physical_offset: int) -> memoryview | None:
        """Return the record at `physical_offset`, or None if none begins there. Unwritten records are written first."""
        file = self.mapped_files.file_at(physical_offset)
        if file is None:
            return None
        position = physical_offset - file.start_offset
        if position >= file.wrote:
            self.tail.write()
        try:
            size = bounds(file.view[: file.wrote], position)[0]
        except BadRecordError:
            return None
        return file.view[position : position + size]


def _directory_for(config: MessageStoreConfig, disk: Disk, start_offset: int) -> str:
    """Return the folder of a new file, the next that is not nearly full, as in Java's MultiPathMappedFileQueue."""
    writable = sorted(set(config.commit_log_directories) - set(config.read_only_commit_log_directories))
    limit = config.disk_space_clean_forcibly_ratio / 100
    usable = [path for path in writable if disk.usage(path) <= limit] or writable
    return usable[start_offset // config.mapped_file_size_commit_log % len(usable)]
