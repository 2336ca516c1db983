"""PacedConnection: a connection whose frames are read, calls started and long answers continued in turn with others.

A connection that costs little is served at once. A costly one waits for the share of the loop's time that all costly
connections of the process have together (`remoting/fair_share`), and is not read meanwhile.
"""

import asyncio
from abc import abstractmethod
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pocketmq.proxy.http2.frames import FrameBuffer
from pocketmq.proxy.http2.turns import Turns
from pocketmq.remoting.fair_share import FairShare, Unread
from pocketmq.remoting.listener import Connection

if TYPE_CHECKING:
    from pocketmq.proxy.http2.call import ServerCall

AT_ONCE_S: Final = 0.001
FEW_S: Final = 0.0002
"""Time for which the frames of a read are served at once; the shorter one if costly connections wait."""
BLOCKED_MAX: Final = 16
"""Calls whose answers the client does not read; with so many no further one of its calls is started."""


class PacedConnection(Connection):
    """Base of a connection of the port. `turns`: what it has cost."""

    def __init__(self, share: FairShare) -> None:
        self._unread = Unread()
        self.is_open = self.is_costly = self.is_closing = False
        self.is_paused = False
        """Whether no answers can be written, because those before are unsent."""
        self.turns = Turns(share)
        self.blocked: dict[ServerCall, None] = {}
        """Calls whose answers wait for the client to read them."""
        self.progress_s = monotonic()
        """When the client last completed a message or began to send one."""
        self.progress_bytes = 0
        """Bytes received since then."""
        self._share, self._buffer = share, FrameBuffer()
        self._starts: deque[ServerCall] = deque()
        self._resumed: deque[asyncio.Future[None]] = deque()
        self._waits_for_share = self._is_woken = self._is_reading_paused = False
        self._transport: Any = None

    @abstractmethod
    def _serve_frame(self) -> bool:
        """Serve the next frame; return False if none is complete, or it ends the connection."""

    def pause_writing(self) -> None:
        self.is_paused = True
        self._pause_reading()

    def resume_writing(self) -> None:
        self.is_paused = False
        self.wake()

    def serve_some(self, end_s: float) -> bool:
        """Go on with what waits, until `end_s`; return whether more can be done now."""
        while self.is_open and not self.is_paused and not self.is_closing:
            if self._resumed:
                future = self._resumed.popleft()
                if not future.done():
                    future.set_result(None)
                    end_s -= self.turns.call_s
            elif self._starts and self._may_start:
                call = self._starts.popleft()
                if not call.is_ended:
                    end_s -= self.turns.call_s
                    self._start(call)
            elif not self._serve_frame():
                return False
            if monotonic() > end_s:
                return bool(self._resumed or (self._starts and self._may_start) or self._buffer.has_frame)
        return False

    @property
    def must_share(self) -> bool:
        """Whether the connection is served from the share of costly ones."""
        return self.is_costly or self.turns.is_costly

    @property
    def _may_start(self) -> bool:
        return len(self.blocked) < BLOCKED_MAX

    def _start(self, call: "ServerCall") -> None:
        credit_s = self.turns.call_s
        self.turns.spend(credit_s)
        call.start(credit_s)

    def ready(self, call: "ServerCall") -> None:
        """Start a call whose message is there, in its turn."""
        self.progress_s = monotonic()
        self.progress_bytes = 0
        self._starts.append(call)

    async def turn(self) -> None:
        """Return when it is the connection's turn again."""
        if not self.must_share:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        self._resumed.append(future)
        self.wake()
        await future

    def wake(self) -> None:
        """Serve what has become possible, in a turn of its own."""
        if self.is_open and not self._waits_for_share and not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._woken)

    def _woken(self) -> None:
        self._is_woken = False
        if not self.is_open or self.is_closing:
            return
        for call in list(self.blocked):
            call.push()
        self._serve()

    def _serve(self) -> None:
        """Serve what has arrived or become possible: at once, or within the share of costly connections."""
        if self._waits_for_share:
            return
        began_s = monotonic()
        if self.must_share:
            self._serve_by_share()
        elif self.serve_some(began_s + (AT_ONCE_S if self._share.has_time_for_many else FEW_S)):
            self._share.charge(monotonic() - began_s)
            self._serve_by_share()
        else:
            self._read_again()
        self.turns.used(monotonic() - began_s)

    def _serve_by_share(self) -> None:
        self._waits_for_share = not self._share.serve(self)
        if self._waits_for_share:
            self._pause_reading()
        else:
            self._read_again()

    def has_waited(self) -> None:
        """End the wait for the share."""
        self._waits_for_share = False
        self._read_again()

    def _read_again(self) -> None:
        if self._is_reading_paused and self.is_open and not self.is_paused and not self._transport.is_closing():
            self._is_reading_paused = False
            self._transport.resume_reading()

    def _pause_reading(self) -> None:
        if not self._is_reading_paused and not self._transport.is_closing():
            self._is_reading_paused = True
            self._transport.pause_reading()

    def _end_turns(self) -> None:
        """Forget all that waits for a turn."""
        for future in self._resumed:
            future.cancel()
        self._starts.clear()

    @property
    def unread_bytes(self) -> int:
        """Bytes that the peer had not received a moment ago."""
        return self._unread.measured(self._transport) if self.is_open and not self._transport.is_closing() else 0

    def has_unread(self, size: int) -> bool:
        """Return whether more than `size` bytes wait for the peer."""
        return self.is_open and self._transport.get_write_buffer_size() > size
