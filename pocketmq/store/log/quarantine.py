"""Quarantine: saves damaged bytes in the middle of the log and replaces them by filler records.

Readers of the log find each record by the size of the one before, so invalid bytes end the log, in Apache's broker as well
as here. Acknowledged records after them must not be lost. The bytes are therefore saved in a separate file, with a line
in `log.jsonl` that says when and why, and replaced by *fillers*: well-formed records that count as rolled back and thus go
to no queue and no index. If the damage extends to the end of a file, that file ends with a BLANK mark as usual.
"""

import json
from collections.abc import Iterator
from typing import Final

from pocketmq.store.disk.disk import Disk
from pocketmq.store.disk.mapped_file import MappedFile
from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.format.layout import (
    BLANK_MAGIC_CODE,
    BLANK_SIZE,
    BLANK_STRUCT,
    HOST_SIZE,
    RECORD_SIZE_MIN,
)
from pocketmq.store.format.message import TRANSACTION_ROLLBACK_TYPE, Message
from pocketmq.store.format.record import encode_record, topic_part

TOPIC: Final = b"PMQ_QUARANTINE"
# A topic has at least one byte.
FILLER_SIZE_MIN: Final = RECORD_SIZE_MIN + 1
# Readers load a whole record into memory.
_FILLER_SIZE_MAX: Final = 1 << 20
_COPY_SIZE: Final = 8 << 20


def filler_record(size: int, physical_offset: int, store_timestamp_ms: int, text: str) -> bytes:
    """Return a record of exactly `size` bytes (at least 92) that is never dispatched; its body is `text`, cut to fit."""
    assert size >= FILLER_SIZE_MIN, f"a record cannot have {size} bytes"
    topic = TOPIC[: size - RECORD_SIZE_MIN]
    body_size = size - RECORD_SIZE_MIN - len(topic)
    body = text.encode("ascii", "replace")[:body_size].ljust(body_size)
    host = bytes(HOST_SIZE)
    message = Message(
        topic.decode(), 0, body, host, host, sys_flag=TRANSACTION_ROLLBACK_TYPE, born_timestamp_ms=store_timestamp_ms
    )
    return encode_record(message, *topic_part(topic), size, 0, physical_offset, store_timestamp_ms)


def apply(files: MappedFileQueue, folder: str, start: int, end: int, why: str, now_ms: int, store_timestamp_ms: int) -> str:
    """Save the log's bytes [start, end) in `folder`, replace them by fillers, and return the path of the saved bytes.

    A record must end at `start` and an intact record begin at `end`, either at least 92 bytes later in the same file or in a
    later file. `store_timestamp_ms` becomes that of the fillers. Both changes are durable on return. Raises OSError.
    """
    path = save(files, folder, start, end, why, now_ms)
    text = f"{end - start} bytes at {start} were invalid: {why}. They are saved in quarantine/{path.rpartition('/')[2]}"
    for file, begin, stop in _parts(files, start, end):
        file_end = file.start_offset + file.size
        view = file.view  # the mapping in which the space is reserved
        file.region.reserve(begin - file.start_offset, stop - file.start_offset)
        if stop == file_end:
            stop = max(begin, stop - BLANK_SIZE)
            if stop - begin < FILLER_SIZE_MIN:
                # Too small for a record.
                stop = begin
            BLANK_STRUCT.pack_into(view, stop - file.start_offset, file_end - stop, BLANK_MAGIC_CODE)
        while begin < stop:
            size = stop - begin
            if size > _FILLER_SIZE_MAX:
                size = min(_FILLER_SIZE_MAX, size - FILLER_SIZE_MIN)
            position = begin - file.start_offset
            view[position : position + size] = filler_record(size, begin, store_timestamp_ms, text)
            begin += size
        file.region.sync(0, file.size)
    return path


def save(files: MappedFileQueue, folder: str, start: int, end: int, why: str, now_ms: int) -> str:
    """Copy the log's bytes [start, end) durably to `folder/<physical offset>.<size>`. Return the path. Raises OSError."""
    disk = files.disk
    path = name = f"{folder}/{start:020}.{end - start}"
    number = 0
    while disk.exists(path):
        # Never overwritten: it may be the original, while the log now has a filler that a crash left incomplete.
        number += 1
        path = f"{name}.{number}"
    region, position = disk.map(path, end - start, create=True), 0
    region.reserve(0, end - start)
    for file, begin, stop in _parts(files, start, end):
        for at in range(begin, stop, _COPY_SIZE):
            until = min(at + _COPY_SIZE, stop)
            data = file.view[at - file.start_offset : until - file.start_offset]
            region.view[position : position + len(data)] = data
            position += len(data)
    region.sync(0, position)
    region.close()
    _log(disk, folder, {"time_ms": now_ms, "start": start, "end": end, "why": why, "file": path.rpartition("/")[2]})
    return path


def _log(disk: Disk, folder: str, line: dict[str, int | str]) -> None:
    path = f"{folder}/log.jsonl"
    before = disk.read_file(path) if disk.exists(path) else b""
    disk.replace_file(path, before + json.dumps(line).encode() + b"\n")
    disk.sync_dir(folder)


def _parts(files: MappedFileQueue, start: int, end: int) -> Iterator[tuple[MappedFile, int, int]]:
    """Yield (file, begin, stop) for each file's part of the log's bytes [start, end)."""
    while start < end:
        file = files.file_at(start)
        assert file is not None, f"{start} is within the log"
        stop = min(end, file.start_offset + file.size)
        yield file, start, stop
        start = stop
