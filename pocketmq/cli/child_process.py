"""Server processes that end with this process, also if it is killed.

The kernel ends a server when the *thread* that started it ends (`runtime.lifecycle`). So one thread, which lives as long as
this process, starts all of them.
"""

import functools
import os
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import IO

from pocketmq.runtime.lifecycle import PARENT

Process = subprocess.Popen[bytes]
_Jobs = SimpleQueue[tuple[Sequence[str], IO[bytes], Future[Process]]]


def start(command: Sequence[str], output: IO[bytes]) -> Process:
    """Start a server in a session of its own: Ctrl-C at the terminal reaches only this process, which stops it in order."""
    started: Future[Process] = Future()
    _jobs(os.getpid()).put((command, output, started))
    return started.result()


@functools.cache
def _jobs(pid: int) -> _Jobs:
    """Return the queue of the starting thread of process `pid`: a fork has none yet."""
    jobs: _Jobs = SimpleQueue()
    threading.Thread(target=_work, args=(jobs,), name="server-starter", daemon=True).start()
    return jobs


def _work(jobs: _Jobs) -> None:
    while True:
        command, output, started = jobs.get()
        try:
            started.set_result(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, PARENT: str(os.getpid())},
                    start_new_session=True,
                )
            )
        except BaseException as failure:
            started.set_exception(failure)
