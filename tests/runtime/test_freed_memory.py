"""Return of freed memory to the operating system."""

import asyncio
import subprocess
import sys

import pytest

from pocketmq.runtime.freed_memory import private_bytes

SERVICE = """
import os, signal

class Service:
    async def start(self): pass
    async def stop(self): pass

async def work_and_stop():
    kept = await work()  # alive until the end
    os.kill(os.getpid(), signal.SIGTERM)
    return kept

def ready(service):
    global task
    task = asyncio.get_running_loop().create_task(work_and_stop())

sys.exit(lifecycle.run(Service(), "program", ready))
"""

needs_glibc = pytest.mark.skipif(
    sys.platform != "linux" or private_bytes() is None, reason="glibc's mallopt and malloc_trim"
)


async def numbers_printed_by(program: str) -> list[int]:
    """Run a program as a service in its own process until its coroutine `work` ends; return the numbers it prints."""
    run = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program + SERVICE], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    return [int(word) for word in run.stdout.split()]


PROGRAM = """
import asyncio, ctypes, sys, time
from pocketmq.runtime import freed_memory, lifecycle

freed_memory.LOOK_S = 0.05
ctypes.CDLL(None).mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD: blocks lie in the heap, as small ones do

async def work():
    blocks = [bytes(2_000) for _ in range(40_000)]
    kept = blocks[::2_000] + [bytes(2_000)]
    blocks.clear()
    high = freed_memory.private_bytes()
    end = time.monotonic() + 60
    while time.monotonic() < end and freed_memory.private_bytes() > high - (50 << 20):
        await asyncio.sleep(0.05)
    print(high - freed_memory.private_bytes(), flush=True)
    return kept
"""


@needs_glibc
async def test_freed_pages_between_live_blocks_are_given_back():
    (given_back,) = await numbers_printed_by(PROGRAM)
    assert given_back >= 50 << 20


LARGE_PROGRAM = """
import asyncio, sys
from pocketmq.runtime import freed_memory, lifecycle

def write():
    low = freed_memory.private_bytes()
    b"x" * int(8e6)  # freed: by default the C library now keeps up to twice as much
    large = [b"x" * int(1e6 + number) for number in range(12)]
    large.clear()
    print(freed_memory.private_bytes() - low, flush=True)

async def work():
    await asyncio.sleep(freed_memory.LOOK_S + 1)
    await asyncio.to_thread(write)
"""


@needs_glibc
async def test_large_blocks_of_a_thread_are_given_back_at_once():
    (kept,) = await numbers_printed_by(LARGE_PROGRAM)
    assert kept < 4 << 20


SCATTERED_PROGRAM = """
import asyncio, random, sys, time
from pocketmq.runtime import freed_memory, lifecycle

freed_memory.LOOK_S = 0.05

async def work():
    while "ctypes" not in sys.modules:  # imported by the first look
        await asyncio.sleep(0.05)
    low = freed_memory.private_bytes()
    blocks = [bytes(400) if number % 20 else (number,) * (1 + number // 20 % 10) for number in range(150_000)]
    random.Random(1).shuffle(blocks)
    print(freed_memory.private_bytes() - low)
    blocks.clear()
    end = time.monotonic() + 60
    while time.monotonic() < end and freed_memory.private_bytes() > low + (10 << 20):
        await asyncio.sleep(0.05)
    print(freed_memory.private_bytes() - low, flush=True)
"""


@needs_glibc
async def test_free_lists_of_tuples_do_not_keep_arenas_allocated():
    peak, left = await numbers_printed_by(SCATTERED_PROGRAM)
    assert peak >= 50 << 20
    assert left <= 10 << 20
