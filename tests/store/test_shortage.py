"""Lack of descriptors or memory: it does not count as a failed sync or a broken store, and lasting refusals are logged."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pocketmq.store.disk.file_disk import FileDisk
from pocketmq.store.format.message import PutStatus
from pocketmq.store.message_store import MessageStore
from tests.store.power_cut_disk import Fault, PowerCutDisk
from tests.store.stores import ROOT, SteppedClock, bodies, message, open_store

SHORTAGES = [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN]

# A store in a process without free descriptors: it creates queues and log files, syncs, reads and stops.
CHILD = """
import os, queue, resource, sys
from tests.patience import PATIENCE_S
from tests.store.stores import bodies, message, open_store
from pocketmq.store.disk.file_disk import FileDisk

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
changes = dict(flush_disk_type="SYNC_FLUSH", mapped_file_open_max=8)
store = open_store(FileDisk(), root=sys.argv[1], **changes)
answers = queue.Queue()
store.flushed.subscribe(lambda end, error: answers.put((end, error)))
store.start()
taken = []
def put_and_sync(topics):
    for number in topics:
        result = store.commit_log.put(message(f"T{number}", 0, b"%d" % number + bytes(600), KEYS="k"))
        assert result.reason == "", result.reason
        store.dispatch()
    store.request_sync(result.end_offset)
    end = 0
    while end < result.end_offset:
        end, error = answers.get(timeout=PATIENCE_S)
        assert error is None, error
put_and_sync(range(10))
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for _ in range(3):
    put_and_sync(range(40))
    store.checkpoint_service.flush_queues(thorough=True)
    assert [len(bodies(store, f"T{number}")) for number in range(40)].count(0) == 0
assert store.writeable
store.shutdown()
assert not os.path.exists(sys.argv[1] + "/abort")
print("all stored")
"""


def test_process_without_descriptors_can_store_and_read(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, f"{tmp_path}/store"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "all stored\n", done.stderr
    store = open_store(FileDisk(), root=f"{tmp_path}/store")
    assert [len(bodies(store, f"T{number}")) for number in range(40)] == [4] * 10 + [3] * 30
    store.shutdown()


@pytest.mark.parametrize("method", ["sync", "sync_dir"])
@pytest.mark.parametrize("code", SHORTAGES)
def test_sync_that_fails_for_lack_of_resources_is_retried(code: int, method: str, caplog: pytest.LogCaptureFixture) -> None:
    disk, clock = PowerCutDisk(), SteppedClock()
    store = open_store(disk, clock, flush_disk_type="SYNC_FLUSH")
    answers: list[tuple[int, OSError | None]] = []
    store.flushed.subscribe(lambda end, error: answers.append((end, error)))
    end = store.commit_log.put(message()).end_offset
    store.dispatch()
    store.request_sync(end)
    fault = Fault(method, 1, OSError(code, os.strerror(code)), forever=True)
    disk.faults.append(fault)
    for _ in range(20):
        store.flush_service.run_once()
        store.checkpoint_service.run_once()
        clock.step(7)
    assert fault.raised > 20 and answers == [], "not answered, and no failure either"
    assert store.writeable and store.commit_log.put(message()).status is PutStatus.PUT_OK
    lines = [record.message for record in caplog.records if "the log is not synced yet" in record.message]
    assert os.strerror(code) in lines[0] and 2 <= len(lines) <= 4, "at once, and each minute"
    assert any("queues and index are not synced yet" in record.message for record in caplog.records)
    disk.faults.clear()
    caplog.clear()
    store.flush_service.run_once()
    assert answers == [(end, None)]
    store.checkpoint_service.run_once()
    assert sum("resolved: " in record.message for record in caplog.records) == 2
    store.shutdown()
    assert not disk.exists(f"{ROOT}/abort")


def test_stop_waits_briefly_for_missing_resources() -> None:
    disk = PowerCutDisk()
    store = open_store(disk)
    store.commit_log.put(message())
    disk.faults += [Fault(method, 1, OSError(errno.EMFILE, "Too many open files")) for method in ("sync", "sync_dir")]
    store.shutdown()
    assert not disk.exists(f"{ROOT}/abort")


@pytest.mark.parametrize("method", ["create", "reserve"])
def test_temporary_failure_to_create_a_file_refuses_only_one_message(method: str) -> None:
    disk, clock = PowerCutDisk(), SteppedClock()
    store = open_store(disk, clock)
    store.commit_log.put(message(body=bytes(12_000)))
    store.dispatch()
    for path in ("commitlog", "consumequeue"):
        disk.faults.append(Fault(method, 1, OSError(errno.EMFILE, "Too many open files"), path=path))
    refused = store.commit_log.put(message("new", body=bytes(12_000)))
    assert refused.status is PutStatus.CREATE_MAPPED_FILE_FAILED and "Too many open files" in refused.reason
    assert store.commit_log.put(message("new", body=bytes(12_000))).status is PutStatus.PUT_OK
    assert store.dispatch() == [], "its queue has to wait"
    clock.step(0.3)
    assert [arrival.topic for arrival in store.dispatch()] == ["new"]
    assert store.commit_log.put(message("new", body=b"last")).status is PutStatus.PUT_OK
    store.dispatch()
    assert [len(body) for body in bodies(store, "new")] == [12_000, 4]


# --- refusals that last ---------------------------------------------------------------------------------------------


def no_room(store: MessageStore, disk: PowerCutDisk) -> None:
    disk.faults.append(Fault("reserve", 1, OSError(errno.ENOSPC, "No space left"), forever=True, path="commitlog"))


def no_room_for_queues(store: MessageStore, disk: PowerCutDisk) -> None:
    disk.faults.append(Fault("reserve", 1, OSError(errno.ENOSPC, "No space left"), forever=True, path="consumequeue"))
    store.commit_log.put(message())
    store.dispatch()


def failed_sync(store: MessageStore, disk: PowerCutDisk) -> None:
    disk.faults.append(Fault("sync", 1, OSError(errno.EIO, "Input/output error")))
    store.commit_log.put(message())
    with pytest.raises(OSError, match="Input"):
        store.flush_queues()
    store.flush_service.fail(OSError(errno.EIO, "Input/output error"))


def full_disk(store: MessageStore, disk: PowerCutDisk) -> None:
    disk.used = 0.95
    store.clean()


def deleted_file(store: MessageStore, disk: PowerCutDisk) -> None:
    store.commit_log.put(message())
    store.dispatch()
    disk.delete(f"{ROOT}/commitlog/{0:020}")
    store.checkpoint_service.run_once()


@pytest.mark.parametrize("cause", [no_room, no_room_for_queues, failed_sync, full_disk, deleted_file])
def test_a_refusal_that_lasts_is_logged_at_once_and_each_minute(
    cause: Callable[[MessageStore, PowerCutDisk], None], caplog: pytest.LogCaptureFixture
) -> None:
    disk, clock = PowerCutDisk(), SteppedClock()
    store = open_store(disk, clock)
    cause(store, disk)
    for second in range(150):
        assert store.commit_log.put(message()).reason, "refused"
        if second == 0:
            assert sum("messages are refused" in record.message for record in caplog.records) == 1
        clock.step(1)
        store.checkpoint_service.run_once()
    told = [record.message for record in caplog.records if "messages are refused" in record.message]
    reason = store.commit_log.put(message()).reason
    assert len(told) == 3 and reason in told[0]
    assert all(f"{count} times in the last 60 s" in line for count, line in zip((59, 60), told[1:], strict=True))


def test_end_of_a_refusal_is_logged_once_even_if_it_is_intermittent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, clock = PowerCutDisk(), SteppedClock()
    store = open_store(disk, clock)
    for _ in range(10):
        disk.used = 0.95
        store.clean()
        store.commit_log.put(message())
        disk.used = 0.1
        store.clean()
        assert store.commit_log.put(message()).status is PutStatus.PUT_OK
        clock.step(1)
    told = [record.message for record in caplog.records if "messages are refused" in record.message]
    assert len(told) == 2 and told[1].startswith("resolved: ") and "(1 times" in told[1]


def test_puts_are_refused_if_a_log_file_was_deleted_under_a_running_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SteppedClock()
    store = open_store(FileDisk(), clock, root=f"{tmp_path}/store")
    for number in range(3):
        store.commit_log.put(message(body=b"%d" % number))
    store.dispatch()
    shutil.rmtree(tmp_path / "store/consumequeue/T")
    store.commit_log.put(message(body=b"3"))
    store.dispatch()
    store.flush_queues()
    assert bodies(store) == [b"0", b"1", b"2", b"3"], "what is mapped is still read"
    (tmp_path / f"store/commitlog/{0:020}").unlink()
    store.checkpoint_service.run_once()
    refused = store.commit_log.put(message())
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE and "deleted while the broker was running" in refused.reason
    assert any(f"{0:020} was deleted" in record.message for record in caplog.records)
