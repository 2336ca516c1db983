"""Damage that is followed by valid records: the damaged bytes are saved, and filler records replace them."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.disk.memory_disk import MemoryDisk
from pocketmq.store.disk.open_files import OpenFiles
from pocketmq.store.format.layout import BLANK_SIZE
from pocketmq.store.format.message import TRANSACTION_UNQUEUED_FLAG
from pocketmq.store.format.record import check_record, decode_record, is_blank
from pocketmq.store.log import quarantine
from tests.store.stores import ROOT, small_config

FOLDER = f"{ROOT}/quarantine"
FILE_SIZE = 16 << 10
TMPFS = Path("/dev/shm")


def log_of(disk: MemoryDisk, count: int = 3) -> MappedFileQueue:
    """Return a log of `count` files, each filled with one repeated byte."""
    for number in range(count):
        disk.write_file(f"{ROOT}/commitlog/{number * FILE_SIZE:020}", bytes([number + 65]) * FILE_SIZE)
    files = MappedFileQueue(disk, f"{ROOT}/commitlog", small_config().mapped_file_size_commit_log)
    files.load()
    return files


@pytest.mark.parametrize("size", [92, 93, 105, 106, 300, 5000])
def test_filler_is_a_valid_record_of_any_size_and_in_no_queue(size: int) -> None:
    filler = quarantine.filler_record(size, 4711, 1_700_000_000_000, "what stood here")
    assert len(filler) == size == check_record(memoryview(filler), 0, 4711)
    record = decode_record(memoryview(filler))
    assert quarantine.TOPIC.startswith(record.topic) and record.sys_flag & TRANSACTION_UNQUEUED_FLAG
    assert record.store_timestamp_ms == 1_700_000_000_000 and record.body.rstrip() == b"what stood here"[: len(record.body)]


def test_replaced_bytes_are_saved_and_logged() -> None:
    disk = MemoryDisk()
    files = log_of(disk)
    path = quarantine.apply(files, FOLDER, 1000, 1500, "its CRC is wrong", 5, 4)
    assert path == f"{FOLDER}/{1000:020}.500" and disk.read_file(path) == b"A" * 500
    (line,) = disk.read_file(f"{FOLDER}/log.jsonl").splitlines()
    assert json.loads(line) == {
        "time_ms": 5, "start": 1000, "end": 1500, "why": "its CRC is wrong", "file": f"{1000:020}.500"
    }  # fmt: skip
    log = disk.read_file(f"{ROOT}/commitlog/{0:020}")
    assert log[:1000] + log[1500:] == b"A" * (FILE_SIZE - 500)
    assert check_record(memoryview(log), 1000, 1000) == 500
    assert b"its CRC is wrong" in decode_record(memoryview(log), 1000).body


def test_saved_bytes_are_never_overwritten() -> None:
    disk = MemoryDisk()
    files = log_of(disk)
    first = quarantine.apply(files, FOLDER, 1000, 1500, "once", 5, 4)
    second = quarantine.apply(files, FOLDER, 1000, 1500, "twice", 6, 4)
    assert first != second and disk.read_file(first) == b"A" * 500
    assert len(disk.read_file(f"{FOLDER}/log.jsonl").splitlines()) == 2


@pytest.mark.skipif(not TMPFS.is_dir(), reason="there is no tmpfs at /dev/shm")
def test_lost_pages_of_two_files_on_tmpfs_are_replaced_though_one_may_be_mapped() -> None:
    with tempfile.TemporaryDirectory(dir=TMPFS) as folder:
        paths = [Path(folder) / f"{number * FILE_SIZE:020}" for number in range(2)]
        for path in paths:
            path.touch()
            os.truncate(path, FILE_SIZE)
        files = MappedFileQueue(FileDisk(), folder, FILE_SIZE, open_files=OpenFiles(1))
        files.load()
        quarantine.apply(files, f"{folder}/quarantine", 0, FILE_SIZE + 8000, "lost", 5, 4)
        first, second = (memoryview(path.read_bytes()) for path in paths)
        assert is_blank(first, FILE_SIZE - BLANK_SIZE) and b"lost" in decode_record(first, 0).body
        assert check_record(second, 0, FILE_SIZE) == 8000
        files.close()


def test_large_damage_is_replaced_by_several_fillers_of_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "_FILLER_SIZE_MAX", 1000)
    disk = MemoryDisk()
    files = log_of(disk)
    for end in (3010, 4000, 4001, 4091, 4093):
        quarantine.apply(files, FOLDER, 2000, end, "", 0, 0)
        view, position = memoryview(disk.read_file(f"{ROOT}/commitlog/{0:020}")), 2000
        while position < end:
            size = check_record(view, position, position)
            assert size <= 1000
            position += size
        assert position == end


@pytest.mark.parametrize("start", [100, FILE_SIZE - 8, FILE_SIZE - 99, FILE_SIZE - 100, FILE_SIZE - 101])
@pytest.mark.parametrize("end", [FILE_SIZE, FILE_SIZE + 92, 2 * FILE_SIZE, 2 * FILE_SIZE + 500])
def test_damage_up_to_the_end_of_a_file_ends_with_a_blank_mark(start: int, end: int) -> None:
    disk = MemoryDisk()
    files = log_of(disk)
    path = quarantine.apply(files, FOLDER, start, end, "lost", 0, 0)
    assert disk.read_file(path) == b"".join(bytes([65 + at // FILE_SIZE]) for at in range(start, end))
    position = start
    while position < end:
        view, at = (
            memoryview(disk.read_file(f"{ROOT}/commitlog/{position // FILE_SIZE * FILE_SIZE:020}")),
            position % FILE_SIZE,
        )
        if is_blank(view, at):
            assert len(view) - at < 100 + BLANK_SIZE
            position += len(view) - at
        else:
            position += check_record(view, at, position)
    assert position == end
