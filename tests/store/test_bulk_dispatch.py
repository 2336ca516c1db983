"""Dispatch of record windows compared with dispatch record by record: queues and index must have the same bytes."""

import random
import tarfile
from pathlib import Path

import numpy as np
import pytest

from pocketmq.runtime.clock import VirtualClock
from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.disk.store_checkpoint import StoreCheckpoint
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.layout import HOLE_TAGS_CODE
from pocketmq.store.format.message import DispatchRequest, Message
from pocketmq.store.format.multi_dispatch import MultiDispatch
from pocketmq.store.format.record import decode_dispatch_request, encode_record, record_size, topic_part
from pocketmq.store.format.record_chain import chained
from pocketmq.store.format.record_window import RecordWindow
from pocketmq.store.index.index_service import IndexService
from pocketmq.store.offline.log_walk import LogWalk
from pocketmq.store.queue.bulk_dispatch import BulkDispatcher
from pocketmq.store.queue.consume_queue_ext import ConsumeQueueExtStore
from pocketmq.store.queue.consume_queue_store import ConsumeQueueStore
from pocketmq.store.queue.dispatcher import Dispatcher
from tests.support.amount import cases

GOLDEN = Path(__file__).parent.parent / "golden"
STORES = ("v4_clean", "v4_kill9", "v5_clean", "v5_kill9")
NOW_MS = 1_800_000_000_000
DELAY_LEVELS = DelayLevels()


class Target:
    """Queues and index in a folder."""

    def __init__(self, root: Path, *, ext: bool = False) -> None:
        self.root = root
        disk = FileDisk()
        rows = ConsumeQueueExtStore(disk, str(root / "consumequeue_ext"), 1000, writes=ext)
        self.queues = ConsumeQueueStore(disk, str(root / "consumequeue"), 400, rows)
        checkpoint = StoreCheckpoint(disk, str(root / "checkpoint"))
        self.index = IndexService(
            disk, str(root / "index"), VirtualClock(NOW_MS), checkpoint, slot_count=50, index_count_max=500
        )
        self.queues.load(clean=True)
        self.index.load(clean=True)

    def bulk(self, multi_dispatch: MultiDispatch | None = None) -> BulkDispatcher:
        return BulkDispatcher(self.queues, self.index, DELAY_LEVELS, multi_dispatch)

    def files(self) -> dict[str, bytes]:
        self.queues.close()
        self.index.close()
        paths = [path for path in self.root.rglob("*") if path.is_file() and path.name != "checkpoint"]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in paths}


def one_by_one(target: Target, windows: list[RecordWindow]) -> None:
    """Dispatch in batches; a record with queue offset 0, of a topic that was created again, begins a new batch."""
    dispatcher, batch = Dispatcher(target.queues, target.index), list[DispatchRequest]()
    for window in windows:
        for start in window.starts.tolist():
            view = memoryview(window.data)  # type: ignore[arg-type]
            request = decode_dispatch_request(view, start, DELAY_LEVELS.tags_code)
            if len(batch) == 7 or request.queue_offset == 0:
                dispatcher.dispatch(batch)
                batch = []
            batch.append(request)
    dispatcher.dispatch(batch)


class Log:
    """Records in memory, each with the next queue offset of its queue unless another is given."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.next: dict[tuple[str, int], int] = {}

    def append(
        self, topic: str = "T", queue_id: int = 0, properties: bytes = b"", sys_flag: int = 0, queue_offset: int = -1
    ) -> None:
        if queue_offset < 0:
            queue_offset = self.next.get((topic, queue_id), 0)
        if not sys_flag & 4:
            self.next[topic, queue_id] = queue_offset + 1
        one = Message(topic, queue_id, b"body", bytes(8), bytes(8), sys_flag=sys_flag, properties_bytes=properties)
        magic_code, part = topic_part(topic.encode())
        place = len(self.data)
        self.data += encode_record(
            one, magic_code, part, record_size(one, len(part)), queue_offset, place, NOW_MS + 9 * place
        )

    def windows(self, size: int = 1 << 20) -> list[RecordWindow]:
        found, place = list[RecordWindow](), 0
        while place < len(self.data):
            data = np.frombuffer(self.data, np.uint8)[place : place + size]
            found.append(RecordWindow(data, place, *chained(data, place)))
            assert len(found[-1])
            place += int(found[-1].starts[-1] + found[-1].sizes[-1])
        return found


def random_log(seed: int) -> Log:
    chance = random.Random(seed)
    log = Log()
    topics = ["T", "Topic-two", "SCHEDULE_TOPIC_XXXX", "%RETRY%" + "g" * 130, "Ünïcode"]
    for _ in range(300):
        topic, queue_id = chance.choice(topics), chance.choice((0, 1, -1, 7))
        words = [chance.choice(("a", "key-1", "", "ключ", "😀", "bad\udcff")) for _ in range(chance.randrange(4))]
        entries = [
            ("UNIQ_KEY", chance.choice(("", f"U{len(log.data)}", "é"))),
            ("KEYS", " ".join(words)),
            ("TAGS", chance.choice(("", "A", "TagB", "zwölf", "x" * 300))),
            ("DELAY", chance.choice(("", "1", "5", "99", "0", "-1", "x"))),
            ("KEYS", chance.choice(("", "", "", "last"))),
        ]
        chance.shuffle(entries)
        text = "\x02".join(f"{name}\x01{value}" for name, value in entries if value or chance.random() < 0.5)
        sys_flag = chance.choice((0, 0, 0, 0, 1, 4, 8, 12))
        queue_offset = 0 if chance.random() < 0.02 else -1
        log.append(topic, queue_id, text.encode("utf-8", "surrogateescape"), sys_flag, queue_offset)
    return log


@pytest.mark.parametrize("seed", range(cases(8, 25)))
def test_bulk_dispatch_of_random_logs_writes_the_same_bytes(tmp_path: Path, seed: int) -> None:
    windows = random_log(seed).windows(random.Random(seed).choice((600, 5000, 1 << 20)))
    ours, theirs = Target(tmp_path / "bulk", ext=seed % 5 == 0), Target(tmp_path / "single", ext=seed % 5 == 0)
    bulk = ours.bulk()
    assert sum(bulk.dispatch(window) for window in windows) == 300
    one_by_one(theirs, windows)
    assert bulk.behind == bulk.beyond == {}
    for window in windows:
        bulk.dispatch(window)
    assert ours.files() == theirs.files()


@pytest.mark.parametrize("name", STORES)
def test_bulk_dispatch_of_golden_logs_writes_the_same_bytes(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    with tarfile.open(GOLDEN / name / "store.tar.gz") as archive:
        for member in archive:
            if member.isfile() and "commitlog/" in member.name and (content := archive.extractfile(member)):
                (folder / Path(member.name).name).write_bytes(content.read())
    size = next(folder.iterdir()).stat().st_size
    files = MappedFileQueue(FileDisk(), str(folder), size)
    files.load()
    windows = list(LogWalk(files, files.min_offset, window_size=50_000))
    ours, theirs = Target(tmp_path / "bulk"), Target(tmp_path / "single")
    bulk = ours.bulk()
    for window in windows:
        bulk.dispatch(window)
    one_by_one(theirs, windows)
    assert bulk.behind == {} and sum(map(len, windows)) > 290
    assert ours.files() == theirs.files()


def units(target: Target, topic: str = "T", queue_id: int = 0) -> list[tuple[int, int, int]]:
    queue = target.queues.queues[topic, queue_id]
    found = [queue.unit_at(queue_offset) for queue_offset in range(queue.min_offset, queue.max_offset)]
    return [unit for unit in found if unit is not None]


def test_incomplete_queue_is_reported_and_continues_once_the_gap_is_filled(tmp_path: Path) -> None:
    log, target = Log(), Target(tmp_path)
    for queue_offset in (0, 1, 4, 5):
        log.append(queue_offset=queue_offset)
    log.append("Other")
    bulk = target.bulk()
    bulk.dispatch(log.windows()[0])
    assert (bulk.behind, bulk.beyond) == ({("T", 0): 2}, {("T", 0): 4})
    assert len(units(target)) == 2 and len(units(target, "Other")) == 1
    target.queues.queues["T", 0].fill_hole(bulk.beyond["T", 0], 150, 91)
    bulk.dispatch(log.windows()[0])
    (window,) = log.windows()
    places, sizes = window.physical_offsets.tolist(), window.sizes.tolist()
    expected = [(place, size, 0) for place, size in zip(places[:4], sizes[:4], strict=True)]
    assert units(target) == [*expected[:2], *[(150, 91, HOLE_TAGS_CODE)] * 2, *expected[2:]]
    again = Target(tmp_path)
    assert len(units(again)) == 6 and again.queues.queues["T", 0].max_physical_offset == places[3] + sizes[3]


def test_empty_queue_begins_at_the_offset_of_its_first_record_and_is_reported(tmp_path: Path) -> None:
    log, target = Log(), Target(tmp_path)
    log.append(queue_offset=30)
    log.append()
    bulk = target.bulk()
    bulk.dispatch(log.windows()[0])
    queue = target.queues.queues["T", 0]
    assert (queue.min_offset, queue.max_offset, bulk.behind, bulk.beyond) == (30, 32, {("T", 0): 0}, {("T", 0): 30})


def test_queue_that_begins_after_its_first_record_in_the_log_is_reported(tmp_path: Path) -> None:
    log, target = Log(), Target(tmp_path)
    for queue_offset in (4, 5, 6):
        log.append(queue_offset=queue_offset)
    target.queues.find_or_create("T", 0).begin_at(5)  # the file with its fifth unit is gone
    bulk = target.bulk()
    bulk.dispatch(log.windows()[0])
    assert bulk.behind == {("T", 0): 4}


def test_records_missing_from_a_deleted_topic_are_not_reported(tmp_path: Path) -> None:
    log, target = Log(), Target(tmp_path)
    for queue_offset in (0, 5, 6, 0, 1):
        log.append(queue_offset=queue_offset)
    bulk = target.bulk()
    bulk.dispatch(log.windows()[0])
    assert bulk.behind == bulk.beyond == {} and len(units(target)) == 2


def test_only_the_requested_range_is_dispatched(tmp_path: Path) -> None:
    log, target = Log(), Target(tmp_path)
    for number in range(10):
        log.append("T", number % 2, b"UNIQ_KEY\x01U%d" % number)
    (window,) = log.windows()
    from_offset = int(window.physical_offsets[4])
    assert target.bulk().dispatch(window, only={("T", 1)}, with_index=False) == 10
    assert len(units(target, queue_id=1)) == 5 and ("T", 0) not in target.queues.queues
    assert target.index.files == []
    assert target.bulk().dispatch(window, from_offset=from_offset, only=set()) == 6
    assert target.index.find("T", "U4", 64, 0, 1 << 62) == [from_offset]
    assert target.index.find("T", "U3", 64, 0, 1 << 62) == []
    target.queues.broken.add(("T", 0))
    target.bulk().dispatch(window)
    assert ("T", 0) not in target.queues.queues


def test_multi_dispatched_records_get_units_in_all_their_queues(tmp_path: Path) -> None:
    log, target = Log(), Target(tmp_path)
    for number in range(4):
        log.append(properties=b"INNER_MULTI_DISPATCH\x01%%LMQ%%a,b\x02INNER_MULTI_QUEUE_OFFSET\x01%d,%d" % (number, number))
        log.append("T", 1)
    bulk = target.bulk(MultiDispatch(with_lmq=True, lmq_max=10))
    bulk.dispatch(log.windows()[0])
    assert bulk.behind == {}
    assert units(target) == units(target, "%LMQ%a") == units(target, "b") and len(units(target)) == 4
