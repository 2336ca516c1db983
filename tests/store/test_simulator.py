"""Some seeds of the simulator, and tests that it detects incorrect stores."""

from collections.abc import Callable

import pytest

from pocketmq.store.disk.mapped_file import MappedFile
from pocketmq.store.disk.mapped_file_queue import MappedFileQueue
from pocketmq.store.log.flush import FlushService
from pocketmq.store.queue.consume_queue_store import ConsumeQueueStore
from pocketmq.store.queue.queue_checksums import SumCheck
from pocketmq.store.recovery.clean_stop import CleanStop
from pocketmq.store.recovery.recovery import Recovery
from tests.lane.twins import needs_lane
from tests.store.simulator import Walk, walk
from tests.support.amount import cases

SEEDS = cases(10, 300)
MODES = pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])


@pytest.mark.slow
@pytest.mark.timeout(600)
@MODES
def test_store_keeps_its_guarantees(flush_disk_type: str) -> None:
    results = [walk(seed, flush_disk_type) for seed in range(SEEDS)]
    failed = [
        f"python -m tests.store.simulator --seeds {seed} --flush {flush_disk_type}: {why}"
        for seed, why, *_ in results
        if why
    ]
    assert not failed, "\n".join(failed)
    assert sum(lost for *_, lost, _ in results) > SEEDS, "the disk lost next to nothing: a missing sync would not be noticed"
    assert sum(restarts for *_, restarts in results) > 3 * SEEDS


@needs_lane
@MODES
def test_store_keeps_its_guarantees_with_the_compiled_lane(flush_disk_type: str) -> None:
    walks = [Walk(seed, flush_disk_type, with_lane=True) for seed in range(cases(6, 300))]
    for one in walks:
        one.run()
    assert sum(one.in_lane for one in walks) > 5 * len(walks)


@MODES
def test_a_seed_replays_byte_for_byte(flush_disk_type: str) -> None:
    for seed in range(cases(2, 12)):
        walks = [Walk(seed, flush_disk_type) for _ in range(2)]
        for one in walks:
            one.run()
        assert walks[0].events == walks[1].events
        assert walks[0].digest == walks[1].digest


def _says_so_without_a_sync(service: FlushService, least_pages: int = 0) -> None:
    service.flushed_offset = service._commit_log.max_offset


def _leaves_names(queue: MappedFileQueue) -> None:
    pass


def _leaves_what_is_behind(file: MappedFile, position: int) -> None:
    file.wrote = position
    file.flushed = min(file.flushed, position)


def _syncs_nothing(queues: ConsumeQueueStore, least_pages: int = 0) -> None:
    pass


def _flushes_nothing(file: MappedFile) -> None:
    file.flushed = file.wrote


def _forgets(owner: object, *arguments: object) -> None:
    pass


def _brings_back(recovery: Recovery) -> None:
    pass


@MODES
@pytest.mark.parametrize(
    "owner, name, broken, likely",
    [
        (FlushService, "flush_log", _says_so_without_a_sync, ()),
        (MappedFileQueue, "sync_names", _leaves_names, ()),
        (MappedFile, "truncate", _leaves_what_is_behind, (8, 0)),
        (MappedFile, "flush", _flushes_nothing, ()),
        (ConsumeQueueStore, "flush", _syncs_nothing, (54, 34)),
        (CleanStop, "drop_topics", _forgets, ()),
        (Recovery, "_drop_deleted_topics", _brings_back, (25, 1)),
    ],
)
def test_simulator_detects_an_incorrect_store(
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    broken: Callable[..., None],
    likely: tuple[int, ...],
    flush_disk_type: str,
) -> None:
    """`likely`: seeds to try first, because few others detect it."""
    monkeypatch.setattr(owner, name, broken)
    # Otherwise a start would detect missing units by the checksums and rebuild them.
    monkeypatch.setattr(SumCheck, "go_on", _forgets)
    assert any(walk(seed, flush_disk_type)[1] for seed in (*likely, *range(200)))
