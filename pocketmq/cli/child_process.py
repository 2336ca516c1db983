"""Processes that end with this process, also if it is killed.

The kernel ends a process when the *thread* that started it ends (`runtime.process_start`). So one thread, which lives as
long as this process, starts all of them.
"""

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import IO, Any

from pocketmq.runtime import process_start

Process = subprocess.Popen[bytes]
_Jobs = SimpleQueue[tuple[Callable[[], Process], Future[Process]]]


def start(command: Sequence[str], output: IO[bytes]) -> Process:
    """Start a server in a session of its own: Ctrl-C at the terminal reaches only this process, which stops it in order."""
    return _start(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)


def start_program(command: Sequence[str], **options: Any) -> Process:
    """Start any program, such as a JVM, with the options of `subprocess.Popen`."""
    return _start([sys.executable, "-I", "-S", process_start.__file__, *command], **options)


def _start(command: Sequence[str], env: Mapping[str, str] | None = None, **options: Any) -> Process:
    environment = {**(os.environ if env is None else env), process_start.PARENT: str(os.getpid())}
    started: Future[Process] = Future()
    _jobs(os.getpid()).put((lambda: subprocess.Popen(command, env=environment, **options), started))
    return started.result()


@functools.cache
def _jobs(pid: int) -> _Jobs:
    """Return the queue of the starting thread of process `pid`: a fork has none yet."""
    jobs: _Jobs = SimpleQueue()
    threading.Thread(target=_work, args=(jobs,), name="server-starter", daemon=True).start()
    return jobs


def _work(jobs: _Jobs) -> None:
    while True:
        begin, started = jobs.get()
        try:
            started.set_result(begin())
        except BaseException as failure:
            started.set_exception(failure)
