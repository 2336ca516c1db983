"""Http2Connection: one connection of a gRPC client, which is HTTP/2 (RFC 9113), with its calls.

What a peer can pin is limited: calls at a time, bytes of header blocks and of unfinished messages, answers that it does not
read. A costly connection is served from the same share of the loop's time as those of the remoting port
(`remoting/fair_share`): its frames are read, its calls started and its long answers continued in turn with others.
"""

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pocketmq.proxy.http2 import frames, grpc_text
from pocketmq.proxy.http2.call import WINDOW, ServerCall
from pocketmq.proxy.http2.frames import Broken, ErrorCode, Frame, Setting
from pocketmq.proxy.http2.grpc_text import Aborted, GrpcStatus
from pocketmq.proxy.http2.hpack import BadBlock, Decoder
from pocketmq.proxy.http2.paced import PacedConnection
from pocketmq.remoting.hosts import plain_host

if TYPE_CHECKING:
    from pocketmq.proxy.http2.port import Http2Port

CONNECTION_WINDOW: Final = 1 << 20
"""Bytes that a client may send in all its calls before it is allowed more."""
WRITE_BUFFER_MAX: Final = 1 << 18
"""Unsent bytes above which nothing is read from the peer, and no answer is written."""
BLOCK_SIZE_MAX: Final = 1 << 22
"""A header block of more bytes is not even skipped."""


class Http2Connection(PacedConnection):
    """One connection. `calls`: those that run, by stream."""

    def __init__(self, port: "Http2Port") -> None:
        super().__init__(port.share)
        self.port = port
        self.peer = "0.0.0.0", 0
        self.calls: dict[int, ServerCall] = {}
        self.half_closed: set[int] = set()
        """Streams of calls whose client has sent all."""
        self.unfinished: set[ServerCall] = set()
        """Calls whose message has not arrived as a whole."""
        self.send_window, self._receive_window = frames.WINDOW_DEFAULT, frames.WINDOW_DEFAULT
        self.heard_s = monotonic()
        """When bytes last came."""
        self.pinged_s: float | None = None
        self._decoder = Decoder()
        self._initial_window = frames.WINDOW_DEFAULT
        self._last_stream = 0
        self._block: bytearray | None = None
        self._block_of = 0, 0
        self._block_size = 0
        self._out: list[bytes | memoryview] = []
        self._on_close: list[Callable[..., None]] = []

    def __repr__(self) -> str:
        return "<gRPC connection {}:{}>".format(*self.peer)

    # --- called by asyncio and the listener -------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_MAX)
        peer = transport.get_extra_info("peername") or ("0.0.0.0", 0)
        self.peer = plain_host(peer[0]), peer[1]
        self.is_open = True
        self.port.open.add(self)

    def data_received(self, data: bytes) -> None:
        self.heard_s = now_s = monotonic()
        if self.is_closing:
            return
        self.pinged_s = None
        if not self.is_unfinished:
            self.progress_s, self.progress_bytes = now_s, 0
        self.progress_bytes += len(data)
        self._buffer.feed(data)
        self._serve()
        self.port.holds(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        for call in list(self.calls.values()):
            call.drop()
        self._buffer.clear()
        self._out.clear()
        self._end_turns()
        self.port.forget(self)
        for callback in self._on_close:
            callback(self)

    def on_close(self, callback: Callable[..., None]) -> None:
        self._on_close.append(callback)

    @property
    def held_size(self) -> int:
        """Bytes that have arrived and are not served; each call that waits for its message counts as one more."""
        size = len(self._buffer) + len(self._block or b"") + len(self.unfinished)
        return size + sum(one.held_size for one in (*self.unfinished, *self._starts))

    @property
    def is_unfinished(self) -> bool:
        """Whether the peer has to send more before it can be served."""
        if self._waits_for_share or self.is_paused:
            return False
        return len(self._buffer) > 0 or self._block is not None or bool(self.unfinished)

    # --- frames from the peer ---------------------------------------------------------------------------------------

    def _serve_frame(self) -> bool:
        try:
            return self._served()
        except Broken as broken:
            self._break(broken)
            return False

    def _served(self) -> bool:
        """Serve the next frame; return False if none is complete. Raises Broken."""
        had_begun = self._buffer.has_begun
        frame = self._buffer.next()
        if not had_begun and self._buffer.has_begun:
            self.send(self.port.greeting)
            self._receive_window = CONNECTION_WINDOW
        if frame is None:
            return False
        if self._block is not None and (frame.kind != frames.CONTINUATION or frame.stream != self._block_of[0]):
            raise Broken(ErrorCode.PROTOCOL_ERROR, "a header block is interrupted by another frame")
        serve = _SERVED.get(frame.kind)
        if serve is not None:
            serve(self, frame)
        return True

    def _headers(self, frame: Frame) -> None:
        if not frame.stream & 1:
            raise Broken(
                ErrorCode.PROTOCOL_ERROR, f"headers on stream {frame.stream}; clients open streams with odd numbers"
            )
        self._block, self._block_of, self._block_size = bytearray(), (frame.stream, frame.flags & frames.END_STREAM), 0
        self._more_headers(frame, frames.unpadded(frame))

    def _continuation(self, frame: Frame) -> None:
        if self._block is None:
            raise Broken(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._more_headers(frame, frame.content)

    def _more_headers(self, frame: Frame, content: bytes) -> None:
        assert self._block is not None
        self._block_size += len(content)
        if self._block_size > BLOCK_SIZE_MAX:
            raise Broken(ErrorCode.ENHANCE_YOUR_CALM, f"a header block of more than {BLOCK_SIZE_MAX} bytes")
        is_too_large = self._block_size > 2 * self.port.metadata_size_max
        self._block = bytearray() if is_too_large else self._block + content
        if not frame.flags & frames.END_HEADERS:
            return
        block, self._block = bytes(self._block), None
        stream, is_last = self._block_of
        if is_too_large:  # what it would have left in the decoder's table is lost
            if stream > self._last_stream and len(self.calls) < self.port.streams_max:
                self._last_stream = stream
                self._open(stream, None, bool(is_last))
            text = f"metadata of {self._block_size} bytes, the limit is {self.port.metadata_size_max} (grpcMaxMetadataSize)"
            raise Broken(ErrorCode.ENHANCE_YOUR_CALM, text)
        try:
            fields = self._decoder.decode(block, self.port.metadata_size_max)
        except BadBlock as bad:
            raise Broken(ErrorCode.COMPRESSION_ERROR, str(bad)) from None
        call = self.calls.get(stream)
        if call is not None:
            self._client_is_done(call)
        elif stream > self._last_stream:
            self._last_stream = stream
            self._open(stream, None if fields is None else grpc_text.metadata_of(fields), bool(is_last))

    def _open(self, stream: int, metadata: dict[str, str] | None, is_last: bool) -> None:
        """Begin a call."""
        port = self.port
        if len(self.calls) >= port.streams_max:
            self.send(frames.reset(stream, ErrorCode.REFUSED_STREAM))
            port.refused(self, f"more than {port.streams_max} calls at a time (grpcMaxStreamsPerConnection)")
            return
        call = self.calls[stream] = ServerCall(self, stream, metadata or {}, self._initial_window)
        port.call_count += 1
        if is_last:
            self.half_closed.add(stream)
        try:
            if metadata is None:
                text = f"received metadata larger than {port.metadata_size_max} bytes"
                raise Aborted(GrpcStatus.RESOURCE_EXHAUSTED, text)
            if port.call_count > port.calls_max:
                port.refused(self, f"{port.calls_max} calls are open (grpcMaxCalls)")
                raise Aborted(GrpcStatus.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!")
            if metadata.get(":method") != "POST" or not metadata.get("content-type", "").startswith("application/grpc"):
                raise Aborted(GrpcStatus.INTERNAL, "not a call of gRPC")
            call.open(port.rpcs.get(metadata.get(":path", "")))
        except Aborted as aborted:
            call.abort(aborted)
        if is_last:
            self._client_is_done(call)

    def _client_is_done(self, call: ServerCall) -> None:
        try:
            if not call.is_ended:
                call.client_is_done()
        except Aborted as aborted:
            call.abort(aborted)

    def _data(self, frame: Frame) -> None:
        size = len(frame.content)
        self._receive_window -= size
        if self._receive_window < 0:
            raise Broken(ErrorCode.FLOW_CONTROL_ERROR, "more data than the connection's window allows")
        if self._receive_window < CONNECTION_WINDOW // 2:
            self.send(frames.window_update(0, CONNECTION_WINDOW - self._receive_window))
            self._receive_window = CONNECTION_WINDOW
        content, call = frames.unpadded(frame), self.calls.get(frame.stream)
        if call is None:
            if frame.stream > self._last_stream or not frame.stream:
                raise Broken(ErrorCode.PROTOCOL_ERROR, f"data on stream {frame.stream}, which was not opened")
            return
        call.receive_window -= size
        if call.receive_window < 0:
            raise Broken(ErrorCode.FLOW_CONTROL_ERROR, "more data than the window of a call allows")
        try:
            call.data_received(content)
        except Aborted as aborted:
            call.abort(aborted)
        if frame.flags & frames.END_STREAM:
            self._client_is_done(call)
        else:
            self.allow_more(call)

    def allow_more(self, call: ServerCall) -> None:
        """Allow the client to send more in a call, once half of what it was allowed is used."""
        if call.receive_window < WINDOW // 2 and not call.is_ended and call.may_send_more:
            self.send(frames.window_update(call.stream, WINDOW - call.receive_window))
            call.receive_window = WINDOW

    def _reset(self, frame: Frame) -> None:
        if len(frame.content) != 4:
            raise Broken(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM of a wrong size")
        if frame.stream > self._last_stream or not frame.stream:
            raise Broken(ErrorCode.PROTOCOL_ERROR, f"RST_STREAM of stream {frame.stream}, which was not opened")
        call = self.calls.get(frame.stream)
        if call is not None:
            call.drop()

    def _settings(self, frame: Frame) -> None:
        content = frame.content
        if frame.stream or len(content) % 6 or (frame.flags & frames.ACK and content):
            raise Broken(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS of a wrong size, or of a stream")
        if frame.flags & frames.ACK:
            return
        for at in range(0, len(content), 6):
            name, value = int.from_bytes(content[at : at + 2], "big"), int.from_bytes(content[at + 2 : at + 6], "big")
            if name == Setting.INITIAL_WINDOW_SIZE:
                if value > frames.WINDOW_MAX:
                    raise Broken(ErrorCode.FLOW_CONTROL_ERROR, f"a window of {value} bytes")
                for call in self.calls.values():
                    call.send_window += value - self._initial_window
                self._initial_window = value
        self.send(frames.frame(frames.SETTINGS, frames.ACK))
        self._push_blocked()

    def _ping(self, frame: Frame) -> None:
        if len(frame.content) != 8 or frame.stream:
            raise Broken(ErrorCode.FRAME_SIZE_ERROR, "PING of a wrong size, or of a stream")
        if not frame.flags & frames.ACK:
            self.send(frames.frame(frames.PING, frames.ACK, 0, frame.content))

    def _window_update(self, frame: Frame) -> None:
        if len(frame.content) != 4:
            raise Broken(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong size")
        more = int.from_bytes(frame.content, "big") & frames.WINDOW_MAX
        if not frame.stream:
            self.send_window += more
            if not more or self.send_window > frames.WINDOW_MAX:
                raise Broken(ErrorCode.FLOW_CONTROL_ERROR, "a window that is too large, or grows by nothing")
            self._push_blocked()
            return
        call = self.calls.get(frame.stream)
        if call is None:
            if frame.stream > self._last_stream:
                raise Broken(ErrorCode.PROTOCOL_ERROR, f"a window for stream {frame.stream}, which was not opened")
            return
        call.send_window += more
        if not more or call.send_window > frames.WINDOW_MAX:
            call.reset(ErrorCode.FLOW_CONTROL_ERROR)
        else:
            call.push()

    def _push_blocked(self) -> None:
        for call in list(self.blocked):
            if self.send_window <= 0:
                break
            call.push()

    def _push_promise(self, frame: Frame) -> None:
        raise Broken(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE of a client")

    def _break(self, broken: Broken) -> None:
        """End the connection of a peer that violates the protocol."""
        self.port.refused(self, str(broken))
        self.close(broken.code)

    # --- to the peer ------------------------------------------------------------------------------------------------

    def send(self, *data: bytes | memoryview) -> None:
        """Send bytes at the end of this turn of the loop."""
        if not self._out:
            self.port.unwritten(self)
        self._out += data

    def flush(self) -> None:
        """Pass on what was sent in this turn, in one call."""
        if self._out and self.is_open and not self._transport.is_closing():
            out, self._out = self._out, []
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
        else:
            self._out.clear()

    def is_blocked(self, call: ServerCall) -> None:
        """Note a call whose answer waits for the peer."""
        call.blocked_s = monotonic()
        self.blocked[call] = None
        self.port.blocked_grew(self)

    def has_waited(self) -> None:
        super().has_waited()
        self.port.holds(self)

    def is_unblocked(self, call: ServerCall) -> None:
        """The answer has been sent, or the call has ended."""
        if call in self.blocked:
            del self.blocked[call]
            self.port.blocked_count -= 1
            self.wake()

    def forget(self, call: ServerCall) -> None:
        """Remove a call that has ended."""
        self.half_closed.discard(call.stream)
        self.unfinished.discard(call)
        self.is_unblocked(call)
        if self.calls.pop(call.stream, None) is not None:
            self.port.call_count -= 1

    def ping(self) -> None:
        """Ask the peer whether it is there."""
        self.pinged_s = monotonic()
        self.send(frames.frame(frames.PING, content=b"pocketmq"))

    def go_away(self) -> None:
        """Tell the peer to make no more calls."""
        self.send(frames.go_away(self._last_stream, ErrorCode.NO_ERROR))

    def close(self, code: ErrorCode = ErrorCode.NO_ERROR) -> None:
        """Tell the peer why, and close once it has read what it was sent."""
        if self.is_open and not self.is_closing:
            self.send(frames.go_away(self._last_stream, code))
            self.flush()
            self.is_closing = True
            for call in list(self.calls.values()):
                call.drop()
            self._buffer.clear()
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


_SERVED: Final[dict[int, Callable[[Http2Connection, Frame], None]]] = {
    frames.DATA: Http2Connection._data,
    frames.HEADERS: Http2Connection._headers,
    frames.RST_STREAM: Http2Connection._reset,
    frames.SETTINGS: Http2Connection._settings,
    frames.PUSH_PROMISE: Http2Connection._push_promise,
    frames.PING: Http2Connection._ping,
    frames.WINDOW_UPDATE: Http2Connection._window_update,
    frames.CONTINUATION: Http2Connection._continuation,
}
"""Frames of other kinds are ignored: priorities, the client's GOAWAY, and those of later extensions."""
