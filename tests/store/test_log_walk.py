"""Scans over logs of several small files: where they end, and that no bytes make them fail."""

import random
from pathlib import Path

import pytest

from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.format.layout import BLANK_MAGIC_CODE, BLANK_STRUCT
from pocketmq.store.format.message import Message
from pocketmq.store.format.record import BadRecordError, check_record, encode_record, is_blank, record_size, topic_part
from pocketmq.store.offline.log_walk import UNWRITTEN, LogWalk, first_valid
from tests.support.memory import resident_memory

FILE_SIZE = 4096


class Log:
    """A log in files of 4 KiB, in memory until it is opened."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.files: list[bytearray] = [bytearray(FILE_SIZE)]
        self.position = first
        self.starts: list[int] = []

    def append(self, body: bytes = b"body", topic: str = "T") -> None:
        magic_code, part = topic_part(topic.encode())
        one = Message(topic, 0, body, bytes(8), bytes(8), properties_bytes=b"A\x01b")
        size = record_size(one, len(part))
        at = self.position % FILE_SIZE
        if size + 8 > FILE_SIZE - at:
            BLANK_STRUCT.pack_into(self.files[-1], at, FILE_SIZE - at, BLANK_MAGIC_CODE)
            self.position += FILE_SIZE - at
            self.files.append(bytearray(FILE_SIZE))
            at = 0
        record = encode_record(one, magic_code, part, size, len(self.starts), self.position, 7)
        self.files[-1][at : at + size] = record
        self.starts.append(self.position)
        self.position += size

    def open(self, folder: Path) -> MappedFileQueue:
        folder.mkdir(exist_ok=True)
        for number, data in enumerate(self.files):
            (folder / f"{self.first + number * FILE_SIZE:020}").write_bytes(data)
        files = MappedFileQueue(FileDisk(), str(folder), FILE_SIZE)
        files.load()
        return files


def scanned(files: MappedFileQueue, start: int, window_size: int = 1000) -> tuple[list[int], LogWalk]:
    scan = LogWalk(files, start, window_size=window_size)
    found: list[int] = []
    for window in scan:
        found += window.physical_offsets.tolist()
        assert scan.position == found[-1] + window.sizes[-1]
    return found, scan


def one_by_one(log: Log, start: int) -> tuple[list[int], int]:
    """Return the records that a scan record by record finds, and where it ends."""
    found: list[int] = []
    while (number := (start - log.first) // FILE_SIZE) < len(log.files):
        view, at = memoryview(log.files[number]), (start - log.first) % FILE_SIZE
        try:
            size = check_record(view, at, start)
        except BadRecordError:
            if not is_blank(view, at):
                break
            start += FILE_SIZE - at
            continue
        found.append(start)
        start += size
    return found, start


@pytest.mark.parametrize("window_size", [1, 100, 1000, 1 << 20])
@pytest.mark.parametrize("first", [0, 5 * FILE_SIZE])
def test_a_scan_goes_over_files_and_records_larger_than_its_window(tmp_path: Path, window_size: int, first: int) -> None:
    log = Log(first)
    for n in range(60):
        log.append(bytes([n]) * (n * 37 % 1500))
    found, scan = scanned(log.open(tmp_path), first, window_size)
    assert found == log.starts and len(log.files) > 5
    assert (scan.position, scan.reason) == (log.position, UNWRITTEN)
    found, _ = scanned(log.open(tmp_path), log.starts[40], window_size)
    assert found == log.starts[40:]


def test_a_log_ends_behind_the_blank_of_its_last_file(tmp_path: Path) -> None:
    log = Log()
    while len(log.files) == 1:
        log.append()
    del log.files[1:]
    found, scan = scanned(log.open(tmp_path), 0)
    assert found == log.starts[:-1]
    assert (scan.position, scan.reason) == (FILE_SIZE, "")


def test_a_log_ends_in_front_of_a_file_that_does_not_begin_with_a_record(tmp_path: Path) -> None:
    log = Log()
    while len(log.files) < 3:
        log.append()
    log.files[1][:4] = b"junk"
    found, scan = scanned(log.open(tmp_path), 0)
    assert found == [start for start in log.starts if start < FILE_SIZE]
    assert scan.position == FILE_SIZE and "total size" in scan.reason


def test_a_scan_of_nothing_ends_at_its_start(tmp_path: Path) -> None:
    for start in (0, 4000, FILE_SIZE, 10**12):
        found, scan = scanned(Log().open(tmp_path), start)
        assert (found, scan.position) == ([], start)


def test_scan_reports_why_a_record_is_invalid(tmp_path: Path) -> None:
    log = Log()
    for _ in range(5):
        log.append(b"body")
    log.files[0][log.starts[3] + 88] ^= 1
    files = log.open(tmp_path)
    found, scan = scanned(files, 0)
    assert found == log.starts[:3] and scan.position == log.starts[3] and "CRC" in scan.reason
    assert first_valid(files, scan.position + 1) == log.starts[4]
    assert first_valid(files, log.starts[4] + 1) is None
    unchecked = LogWalk(files, 0, check_crc=False)
    assert [offset for window in unchecked for offset in window.physical_offsets.tolist()] == log.starts


def test_next_valid_record_may_be_in_a_later_file_and_is_never_stale(tmp_path: Path) -> None:
    log = Log()
    while len(log.files) < 3:
        log.append(bytes(300))
    second = next(start for start in log.starts if start > FILE_SIZE)
    # A whole record that claims another offset, and one that is torn.
    log.files[1][: second - FILE_SIZE] = log.files[0][: second - FILE_SIZE]
    log.files[1][second - FILE_SIZE + 100] ^= 1
    files = log.open(tmp_path)
    last_of_first = max(start for start in log.starts if start < FILE_SIZE)
    assert first_valid(files, last_of_first + 1) == log.starts[log.starts.index(second) + 1]
    assert first_valid(files, -5 + 1) == 0


@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_next_valid_record_is_found_behind_a_hole_in_the_file(tmp_path: Path, before: int) -> None:
    file_size, begin = 1 << 30, (512 << 20) - before
    record = encode_record(Message("T", 0, bytes(400), bytes(8), bytes(8)), *topic_part(b"T"), 400 + 91 + 1, 0, begin, 7)
    path = tmp_path / f"{0:020}"
    with open(path, "wb") as file:
        # The first two bytes of its size are zeros, and may be part of the hole.
        file.seek(begin + min(before, 2))
        file.write(record[min(before, 2) :])
        file.truncate(file_size)
    files = MappedFileQueue(FileDisk(), str(tmp_path), file_size)
    files.load()
    resident = resident_memory()
    assert first_valid(files, 88 + 1) == begin
    assert first_valid(files, begin + 1) is None
    assert resident_memory() - resident < 64 << 20, "the hole was read"


def test_a_record_in_a_body_is_no_record_of_the_log(tmp_path: Path) -> None:
    log = Log()
    log.append(b"x")
    inner = Message("T", 0, b"inner", bytes(8), bytes(8))
    at = log.position + 88
    log.append(encode_record(inner, topic_part(b"T")[0], b"\x01T", record_size(inner, 2), 0, at, 7))
    log.append(b"y")
    assert scanned(log.open(tmp_path), 0)[0] == log.starts


@pytest.mark.parametrize("seed", range(150))
def test_scan_of_a_damaged_log_ends_as_a_scan_record_by_record(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = Log(chance.choice((0, FILE_SIZE)))
    while len(log.files) < 3:
        log.append(chance.randbytes(chance.randrange(300)), chance.choice(("T", "a-longer-topic", "x" * 200)))
    for _ in range(chance.choice((1, 2, 30))):
        data, at = chance.choice(log.files), chance.randrange(FILE_SIZE)
        damage = chance.choice((chance.randbytes(1), bytes(chance.randrange(1, 600)), chance.randbytes(8)))
        data[at : at + len(damage)] = damage[: FILE_SIZE - at]
    files = log.open(tmp_path)
    found, scan = scanned(files, log.first, chance.choice((1, 500, 1 << 20)))
    assert (found, scan.position) == one_by_one(log, log.first)
    after = first_valid(files, scan.position + 1)
    assert after is None or one_by_one(log, after)[0]


@pytest.mark.parametrize("seed", range(20))
def test_scan_of_random_bytes_finds_no_record(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = Log()
    log.files = [bytearray(chance.randbytes(FILE_SIZE))]
    magic = topic_part(b"T")[0].to_bytes(4, "big", signed=True)
    for at in range(0, FILE_SIZE - 112, 112):
        # Valid magic codes and offsets, with sizes and flags that may be invalid.
        log.files[0][at : at + 4] = chance.choice(((112).to_bytes(4, "big"), (91).to_bytes(4, "big"), chance.randbytes(4)))
        log.files[0][at + 4 : at + 8] = magic
        log.files[0][at + 28 : at + 36] = at.to_bytes(8, "big")
    files = log.open(tmp_path)
    assert scanned(files, 0)[0] == [] and first_valid(files, 0 + 1) is None
