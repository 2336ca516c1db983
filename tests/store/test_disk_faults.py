"""Failure of any call of the disk: clear refusals, no exceptions, no acknowledged message lost, service again afterwards.

A fixed sequence of operations is run once to list the calls of each method, and then again for some of the calls: either
only that call fails, or it and all later calls of the method fail until the fault is removed. Of the calls from the same
place in the code, in the same part of the sequence, the first fails, or the last, if only one call fails. A method called
from many places fails at each of them, alternately once and until the fault is removed. With POCKETMQ_LONG=true, all calls
fail in both ways, and each with every error that it can have.
"""

import sys
from collections import defaultdict
from unittest.mock import patch

import pytest

from pocketmq.store.disk.disk import StoreError
from tests.store.power_cut_disk import METHODS, Fault, PowerCutDisk
from tests.store.simulator import ERROR_TEXTS, Walk
from tests.support.amount import IS_LONG, cases

# Methods that may fail with ENOSPC; every method may fail with EIO.
NEED_ROOM = {"create", "reserve", "warm", "sync", "sync_dir", "write_file", "replace_file", "link", "rename", "make_dirs"}

# A method called from so few places fails at each of them in both ways.
FEW_PLACES = 8


class Life(Walk):
    """The fixed sequence of operations, during which `fault` occurs."""

    def __init__(self, flush_disk_type: str, fault: Fault | None = None) -> None:
        super().__init__(7, flush_disk_type, faults=False)
        self.config.mapped_file_size_commit_log = self.model.log_file_size = 16 << 10
        self.config.message_index_enable = True
        self.fault = fault

    def run(self) -> None:
        if self.fault is not None:
            self.disk.faults.append(self.fault)
        self.load()
        self.live_through((0.1, 0.6))
        self.restart()
        self.live_through((2.0, 11.0, 70.0))
        self.clock.step(4000.0)
        self.turn()
        self.clean(manual=True)
        self.drop_topic()
        self.clock.step(70.0)
        self.round()
        self.disk.note_all_written()
        assert self.disk.unreserved == []

    def live_through(self, steps_s: tuple[float, ...]) -> None:
        for seconds in steps_s:
            self.turn()
            self.turn()
            self.clock.step(seconds)
            self.round()

    def restart(self) -> None:
        """Kill the process and load the store again; the faults remain."""
        faults, calls = self.disk.faults, self.disk.calls
        self.disk = self.disk.killed()
        self.disk.faults, self.disk.calls = faults, calls
        self.load()

    def load(self) -> None:
        """Open the store like `open`, but keep a fault that did not occur for the rest of the sequence."""
        faults = list(self.disk.faults)
        self.open()
        if not any(fault.raised for fault in faults):
            self.disk.faults += faults

    def end(self) -> None:
        """Remove the fault, stop cleanly, and check the store before and after."""
        self.resume()
        self.stop()
        self.open()
        self.resume()


def place() -> tuple[tuple[str, int], ...]:
    """Return the functions and lines, of the store and of the sequence, that led to the present call of the disk."""
    found, frame = [], sys._getframe()
    while frame.f_code is not Life.run.__code__:
        assert frame.f_back is not None
        frame = frame.f_back
        if "/pocketmq/store/" in frame.f_code.co_filename or frame.f_code is Life.run.__code__:
            found.append((frame.f_code.co_qualname, frame.f_lineno))
    return tuple(found)


def calls() -> list[tuple[str, bool, int]]:
    """Return (method, whether its later calls fail too, number of the call) for the calls that are to fail."""
    numbers = defaultdict[tuple[object, ...], list[int]](list)
    enter = PowerCutDisk.enter

    def noted(disk: PowerCutDisk, method: str, path: str) -> None:
        enter(disk, method, path)
        numbers[method, place()].append(disk.calls[method])

    with patch.object(PowerCutDisk, "enter", noted):
        Life("SYNC_FLUSH").run()
    by_method = defaultdict[str, list[list[int]]](list)
    for (method, *_), all_ in numbers.items():
        by_method[str(method)].append(all_)
    return sorted(
        (method, forever, number)
        for method, places in by_method.items()
        for index, all_ in enumerate(places)
        for forever in (False, True)
        if IS_LONG or len(places) < FEW_PLACES or index % 2 == forever
        for number in cases([all_[0 if forever else -1]], all_)
    )


CALLS = calls()


def test_sequence_calls_all_methods_that_can_fail() -> None:
    assert METHODS - {method for method, *_ in CALLS} <= {"warm", "read_range", "rename", "replace_file", "link", "mtime_ms"}


@pytest.mark.parametrize("forever", [False, True], ids=["once", "until it heals"])
@pytest.mark.parametrize("method", sorted({method for method, *_ in CALLS}))
def test_failure_of_each_call_loses_nothing_that_is_acknowledged(method: str, forever: bool) -> None:
    for index, number in enumerate(number for *kind, number in CALLS if kind == [method, forever]):
        codes = (5, 28) if method in NEED_ROOM else (5,)
        for code in cases(codes[index % len(codes) :][:1], codes):
            fault = Fault(method, number, OSError(code, ERROR_TEXTS[code]), forever)
            life = Life("SYNC_FLUSH" if number % 2 else "ASYNC_FLUSH", fault)
            try:
                life.run()
                life.end()
            except (AssertionError, OSError, StoreError) as error:
                story = "\n".join(life.events[-12:])
                raise AssertionError(f"{method} number {number}: {ERROR_TEXTS[code]}: {error}\n{story}") from error


@pytest.mark.parametrize("method", ["sync", "sync_dir", "delete", "write_file", "listdir"])
def test_store_is_complete_after_a_failed_stop(method: str) -> None:
    for number in range(1, 30):
        life = Life("ASYNC_FLUSH")
        life.run()
        fault = Fault(method, number, OSError(5, ERROR_TEXTS[5]))
        life.disk.faults.append(fault)
        life.stop()
        life.open()
        life.resume()
        if not fault.raised:
            break
