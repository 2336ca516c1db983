"""ServerCall: one gRPC call, which is one stream of a connection.

Its handler is a coroutine in a task of its own. Each step of it is timed and charged to the connection (`turns`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pocketmq.proxy.http2 import frames, grpc_text
from pocketmq.proxy.http2.grpc_text import MESSAGE_HEAD, Aborted, GrpcStatus
from pocketmq.remoting.channels import ChannelClosed

if TYPE_CHECKING:
    from pocketmq.proxy.http2.connection import Http2Connection

log = logging.getLogger("proxy")

WINDOW: Final = 1 << 18
"""Bytes that a client may send in one call before it is allowed more."""
MESSAGES_MAX: Final = 16
"""Messages of a client's stream that wait for its handler; with more the client is not allowed to send further ones."""
SLICE_S: Final = 0.001
"""Time after which a handler that writes many messages waits for its next turn."""


class Rpc(NamedTuple):
    """How the calls of one method are served. `is_stream`: the client sends messages as long as the call lasts."""

    serve: Callable[["ServerCall"], Coroutine[Any, Any, None]]
    is_stream: bool = False


class ServerCall:
    """One call. `metadata`: its headers; `message`: what the client sent, for a method without a stream of the client."""

    def __init__(self, connection: "Http2Connection", stream: int, metadata: dict[str, str], send_window: int) -> None:
        self.connection, self.stream, self.metadata = connection, stream, metadata
        self.message = b""
        self.is_ended = False
        self.send_window, self.receive_window = send_window, WINDOW
        self.blocked_s = 0.0
        """Since when the message that is written waits for the client to read."""
        self._rpc: Rpc | None = None
        self._received, self._is_complete, self._has_headers = bytearray(), False, False
        self._messages: deque[bytes] = deque()
        self._reading: asyncio.Future[None] | None = None
        self._pending = memoryview(b"")
        self._drained: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_s: float | None = None
        self._began_s = 0.0
        self._credit_s = self._spent_s = 0.0

    @property
    def peer(self) -> tuple[str, int]:
        """Host and port of the client."""
        return self.connection.peer

    @property
    def is_costly(self) -> bool:
        """Whether the connection is served from the share of costly ones."""
        return self.connection.must_share

    def time_remaining(self) -> float | None:
        """Return the seconds until the client gives up; None if it named no time."""
        return None if self._deadline_s is None else self._deadline_s - asyncio.get_running_loop().time()

    # --- what the client sends --------------------------------------------------------------------------------------

    def open(self, rpc: Rpc | None) -> None:
        """Take a call whose headers have arrived. Raises Aborted."""
        if rpc is None:
            raise Aborted(GrpcStatus.UNIMPLEMENTED, "Method not found!")
        grpc_text.check_encoding(self.metadata)
        seconds = grpc_text.timeout_s(self.metadata)
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._deadline_s = loop.time() + seconds
            self._deadline = loop.call_later(seconds, self._is_late)
        self._rpc = rpc
        if rpc.is_stream:
            self.connection.ready(self)
        else:
            self.connection.unfinished.add(self)

    def _is_late(self) -> None:
        self.abort(Aborted(GrpcStatus.DEADLINE_EXCEEDED, "Deadline Exceeded"))

    @property
    def held_size(self) -> int:
        """Bytes that have arrived and are not served."""
        return len(self._received) + len(self.message)

    def data_received(self, data: bytes) -> None:
        """Take the content of a frame. Raises Aborted."""
        rpc = self._rpc
        if rpc is None or (self._is_complete and not rpc.is_stream):
            return
        self._received += data
        while len(self._received) >= MESSAGE_HEAD:
            size, size_max = int.from_bytes(self._received[1:MESSAGE_HEAD], "big"), self.connection.port.message_size_max
            if size > size_max:
                raise grpc_text.too_large(size, size_max)
            end = MESSAGE_HEAD + size
            if len(self._received) < end:
                break
            message = bytes(self._received[MESSAGE_HEAD:end])
            if self._received[0]:
                message = grpc_text.decompressed(message, self.metadata, size_max)
            del self._received[:end]
            self._message_received(message, rpc)
        if rpc.is_stream:
            (self.connection.unfinished.add if self._received else self.connection.unfinished.discard)(self)

    def _message_received(self, message: bytes, rpc: Rpc) -> None:
        if rpc.is_stream:
            self._messages.append(message)
            self._wake_reader()
            return
        self.message, self._is_complete = message, True
        self._received.clear()
        self.connection.unfinished.discard(self)
        self.connection.ready(self)

    def client_is_done(self) -> None:
        """The client has sent all. Raises Aborted if that is not a whole message."""
        was_complete, self._is_complete = self._is_complete, True
        if self._rpc is not None and not self._rpc.is_stream and not was_complete:
            raise Aborted(GrpcStatus.INTERNAL, "the call ended before its message")
        self.connection.half_closed.add(self.stream)
        self._wake_reader()

    @property
    def may_send_more(self) -> bool:
        """Whether the client is to be allowed more bytes."""
        if self._rpc is None or self.stream in self.connection.half_closed:
            return False
        return len(self._messages) < MESSAGES_MAX if self._rpc.is_stream else not self._is_complete

    def _wake_reader(self) -> None:
        if self._reading is not None and not self._reading.done():
            self._reading.set_result(None)

    async def read(self) -> bytes | None:
        """Return the next message of the client's stream; None at its end."""
        while not self._messages:
            if self._is_complete:
                return None
            self._reading = asyncio.get_running_loop().create_future()
            await self._reading
        message = self._messages.popleft()
        self.connection.allow_more(self)
        return message

    # --- what the client is sent ------------------------------------------------------------------------------------

    async def write(self, message: bytes) -> None:
        """Send a message, and return once the client has taken it as far as its window allows. Raises ChannelClosed."""
        if self.is_ended:
            raise ChannelClosed(f"the call of {self.peer[0]}:{self.peer[1]} has ended")
        self._send_headers()
        self._pending = memoryview(b"\0" + len(message).to_bytes(4, "big") + message)
        self.push()
        if self._pending:
            self._drained = asyncio.get_running_loop().create_future()
            self.connection.is_blocked(self)
            try:
                await self._drained
            finally:
                self.connection.is_unblocked(self)
        if monotonic() - self._began_s > SLICE_S:
            await self.connection.turn()

    def _send_headers(self) -> None:
        if not self._has_headers:
            self._has_headers = True
            self.connection.send(frames.frame(frames.HEADERS, frames.END_HEADERS, self.stream, grpc_text.ANSWER_HEADERS))

    def push(self) -> None:
        """Send as much as the client's windows allow."""
        pending, connection = self._pending, self.connection
        while pending and not connection.is_paused:
            size = min(len(pending), self.send_window, connection.send_window, frames.FRAME_SIZE_MAX)
            if size <= 0:
                break
            connection.send(frames.head(frames.DATA, 0, self.stream, size), pending[:size])
            self.send_window -= size
            connection.send_window -= size
            pending = pending[size:]
        self._pending = pending
        if not pending and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    # --- its life ---------------------------------------------------------------------------------------------------

    def start(self, credit_s: float) -> None:
        """Run the handler; `credit_s` of its time has been charged already."""
        assert self._rpc is not None
        self._credit_s = credit_s
        self._task = asyncio.get_running_loop().create_task(_Charged(self, self._run(self._rpc)))

    async def _run(self, rpc: Rpc) -> None:
        try:
            await rpc.serve(self)
            self.end()
        except Aborted as aborted:
            self.end(aborted.code, aborted.text)
        except ChannelClosed as closed:
            log.info("a call ended: %s", closed)
        except Exception:
            log.exception("a call of %s:%d failed", *self.peer)
            self.end(GrpcStatus.UNKNOWN, "Unexpected error in the server")

    def end(self, code: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """Send the status with which the call ends."""
        if self.is_ended:
            return
        block = grpc_text.trailers(code, text)
        if not self._has_headers:
            self._has_headers = True
            block = grpc_text.ANSWER_HEADERS + block
        self.connection.send(frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, self.stream, block))
        if self.stream not in self.connection.half_closed:
            self.connection.send(frames.reset(self.stream, frames.ErrorCode.NO_ERROR))
        self._forget()

    def abort(self, aborted: Aborted) -> None:
        """End the call with a status whatever its handler does."""
        self.end(aborted.code, aborted.text)
        self._cancel()

    def reset(self, code: frames.ErrorCode) -> None:
        """End the call without a status, because the client does not read."""
        if not self.is_ended:
            self.connection.send(frames.reset(self.stream, code))
            self.drop()

    def drop(self) -> None:
        """End the call, whose client is gone or has cancelled it."""
        self._forget()
        self._cancel()

    def _forget(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            self._received, self.message = bytearray(), b""
            self._pending = memoryview(b"")
            if self._deadline is not None:
                self._deadline.cancel()
            if self._spent_s:
                self.connection.turns.ended(self._spent_s)
            self.connection.forget(self)

    def _cancel(self) -> None:
        if self._drained is not None and not self._drained.done():  # the handler waits, or another task
            self._drained.set_exception(ChannelClosed(f"the call of {self.peer[0]}:{self.peer[1]} has ended"))
        if self._task is not None:
            self._task.cancel()

    def step_began(self) -> None:
        """A step of the handler begins now."""
        self._began_s = monotonic()

    def step_ended(self) -> None:
        """Charge the step to the connection, as far as it has not been charged at the start."""
        seconds = monotonic() - self._began_s
        self._spent_s += seconds
        left_s = seconds - self._credit_s
        self._credit_s = max(-left_s, 0.0)
        if left_s > 0:
            self.connection.turns.spend(left_s)


class _Charged(Coroutine[Any, Any, None]):
    """A handler whose steps are timed."""

    def __init__(self, call: ServerCall, handler: Coroutine[Any, Any, None]) -> None:
        self._call, self._handler = call, handler

    def send(self, value: Any) -> Any:
        self._call.step_began()
        try:
            return self._handler.send(value)
        finally:
            self._call.step_ended()

    def throw(self, *error: Any) -> Any:
        self._call.step_began()
        try:
            return self._handler.throw(*error)
        finally:
            self._call.step_ended()

    def close(self) -> None:
        self._handler.close()

    def __await__(self) -> Any:
        return self._handler.__await__()
