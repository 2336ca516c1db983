"""Life cycle of a server process: start the service, wait for a signal, stop the service.

Exit codes: 0 stopped by a signal; 1 could not start or did not stop in time; 2 invalid command line or config.
A second SIGTERM or SIGINT during the stop ends the process at once. SIGHUP, which is sent when a terminal closes, often
twice, only stops the service; it stays ignored if the process was started with it ignored (`nohup`). Certificates and
access rules are read again without a signal.
"""

import asyncio
import contextlib
import errno
import gc
import logging
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, Protocol, TypeVar

from pocketmq.runtime.error_text import reason
from pocketmq.runtime.freed_memory import FreedMemory
from pocketmq.runtime.process_start import end_with_parent

log = logging.getLogger("runtime")

STOP_MAX_S: Final = 20.0
"""Maximum time for a service to stop."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a server."""
    return _SIGNALS if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*_SIGNALS, signal.SIGHUP)


class StopRequest:
    """Waits for a signal that stops the process, in programs without an event loop.

    The handler writes to a pipe. With a `threading.Event` it would deadlock whenever the signal arrives while the main
    thread holds the lock of the event within `wait`.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        for number in stop_signals():
            signal.signal(number, self._ask)

    def wait(self, timeout_s: float) -> bool:
        """Wait until a signal has arrived, at most `timeout_s`. Returns whether one has."""
        return bool(select.select([self._reader], [], [], timeout_s)[0])

    def _ask(self, number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):  # the pipe is full of earlier requests
            os.write(self._writer, b"x")


class StartError(Exception):
    """The service cannot start for a reason that its operator can fix; shown as one line, without a traceback."""


class Service(Protocol):
    """Service that `run` can run. `stop` is called once, also after a failed `start`."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


S = TypeVar("S", bound=Service)


@contextlib.contextmanager
def listening(host: str, port: int, key: str) -> Iterator[None]:
    """Turn an OSError of listening on `host:port` into a StartError that names them and the config key of the port."""
    try:
        yield
    except OSError as error:
        why = reason(error)
        if error.errno == errno.EADDRINUSE:
            why = f"the port is taken; give another one with --port or {key}, or 0 for any free port"
        elif error.errno == errno.EADDRNOTAVAIL:
            why = "this machine does not have that address; see bindAddress"
        elif error.errno == errno.EACCES:
            why = f"no permission; only privileged users may listen on ports below 1024, see --port or {key}"
        elif isinstance(error, socket.gaierror):
            why += "; see bindAddress"
        raise StartError(f"cannot listen on {host}:{port} ({key}={port}): {why}") from error


def run(service: S, program: str, on_ready: Callable[[S], None] = lambda service: None) -> int:
    """Run `service` on uvloop (asyncio where there is none) until SIGTERM, SIGINT or SIGHUP. Returns the exit code."""
    end_with_parent()
    _allow_descriptors()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(service, program, on_ready))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _allow_descriptors() -> None:
    """Raise the soft limit of open files (often 1024) to the hard limit: each connection and mapped file takes one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS reports "unlimited" but refuses to set it
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop  # type: ignore[no-any-return]


async def _serve(service: S, program: str, on_ready: Callable[[S], None]) -> int:
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    for number in stop_signals():
        loop.add_signal_handler(number, asked.set)
    asking = asyncio.ensure_future(asked.wait())
    starting = asyncio.ensure_future(service.start())
    await asyncio.wait({starting, asking}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
    exit_code = 0
    if not starting.cancelled():
        exit_code = _report_start(starting.exception(), program)
        if exit_code == 0:
            # Objects created by start-up are permanent; excluding them shortens full garbage collections.
            gc.freeze()
            on_ready(service)
            freed_memory = FreedMemory(loop)
            await asking
            freed_memory.stop()
    asking.cancel()
    for number in _SIGNALS:
        loop.remove_signal_handler(number)
    try:
        await asyncio.wait_for(service.stop(), STOP_MAX_S)
    except TimeoutError:
        log.error("%s did not stop within %g s", program, STOP_MAX_S)
        exit_code = 1
    except Exception:
        log.exception("%s failed while it stopped", program)
        exit_code = 1
    return exit_code


def _report_start(failure: BaseException | None, program: str) -> int:
    if failure is None:
        return 0
    if isinstance(failure, (StartError, OSError)):
        sys.stderr.write(f"{program}: error: cannot start: {reason(failure)}\n")
    else:
        log.error("%s cannot start", program, exc_info=failure)
    return 1
