"""Whether work is linear: the CPU time of a text and of one four times as long."""

import contextlib
import gc
import time
from collections.abc import Callable
from typing import Any


def cpu_s(work: Callable[[], object], repeats: int = 3) -> float:
    """The least CPU time of some runs. What `work` refuses with a ValueError counts like what it takes."""
    gc.collect()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        with contextlib.suppress(ValueError):
            work()
        times.append(time.process_time() - begin)
    return min(times)


def assert_linear(work: Callable[[Any], object], make: Callable[[int], Any], size: int) -> None:
    """Fail when four times as much takes far more than four times as long. (16 times would be quadratic.)"""
    small, large = make(size), make(4 * size)
    quick = max(cpu_s(lambda: work(small)), 0.0005)
    slow = cpu_s(lambda: work(large))
    assert slow < 9 * quick, f"{size}: {quick * 1000:.1f} ms, {4 * size}: {slow * 1000:.1f} ms"
