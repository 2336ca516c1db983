"""Check that work is linear, by its CPU time for an input and for one four times as large."""

import contextlib
import gc
import time
from collections.abc import Callable
from typing import Any


def cpu_s(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the least CPU time of some runs of `work`, including runs that end with a ValueError."""
    gc.collect()
    times = []
    for _ in range(repeats):
        begin = time.thread_time()
        with contextlib.suppress(ValueError):
            work()
        times.append(time.thread_time() - begin)
    return min(times)


ROUNDS = 8


def assert_linear(work: Callable[[Any], object], make: Callable[[int], Any], size: int) -> None:
    """Fail if an input four times as large takes far more than four times as long. (Quadratic work takes 16 times.)

    Both are measured in turn until one round agrees, because a busy machine makes even CPU times twice as long.
    """
    small, large = make(size), make(4 * size)
    seen = []
    for _ in range(ROUNDS):
        quick = max(cpu_s(lambda: work(small)), 0.0005)
        slow = cpu_s(lambda: work(large))
        if slow < 9 * quick:
            return
        seen.append(f"{size}: {quick * 1000:.1f} ms, {4 * size}: {slow * 1000:.1f} ms")
    raise AssertionError("; ".join(seen))
