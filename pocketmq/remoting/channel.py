"""Channel: one connection of a server or of a client.

It splits the received bytes into frames, serves them at once through its dispatcher and collects the answers in `_out`; the
turn's REPLY phase writes the answers of each channel with one call. Reading from a peer is paused while it does not read its
answers (full socket buffer) or has too many unanswered requests.

The resources that a peer can pin are limited (`limits`): bytes of unfinished frames, bytes of unread answers, and the time
that a connection may be silent or slow. A connection beyond a limit is dropped and logged.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Any, Final

from pocketmq.errors import RequestTimeout
from pocketmq.remoting.channels import WRITE_BUFFER_MAX, ChannelClosed, Channels, Lane, NeverHeard, NotReading
from pocketmq.remoting.command import Body, Buffer, RemotingCommand, Response, encode_request
from pocketmq.remoting.dispatch import Dispatcher
from pocketmq.remoting.fair_share import COSTLY_S, MANY_REQUESTS, SERVED_AT_ONCE, UNREAD_SIZE, Unread
from pocketmq.remoting.frame import Frame, FrameBuffer, FrameError
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.hosts import pack_host, plain_host
from pocketmq.remoting.listener import Connection
from pocketmq.remoting.signature import OURSELVES, Sender
from pocketmq.runtime.turn import NEVER

log = logging.getLogger("remoting")

DEFERRED_MAX: Final = 4096
"""Unanswered requests of one connection above which reading from it is paused."""
JOIN_MAX: Final = 64 * 1024
"""Answers up to this total size are joined into one buffer; larger ones (views of pulled records) are not copied."""
UNANSWERED_MAX: Final = 4096
"""Maximum number of unanswered requests from a server to one client."""
LARGE_ANSWER_SIZE: Final = 16 * 1024
"""An answer with a body of this size is sent before the other connections are read."""
OPAQUE_FIRST: Final = 1 << 30
"""First opaque of our requests. Some clients count from 0 and match answers by opaque alone, without the response flag."""

_UNSENT, _DEFERRED, _SUSPENDED, _THROTTLED, _LEFT, _WORKING = 1, 2, 4, 8, 16, 32
"""Reasons why reading is paused: answers are unread, requests are unanswered, the peer asked for too much, its requests are
expensive (`throttle`), requests that were read are not served yet, or the last request is served in slices."""
_NOT_SERVED: Final = _THROTTLED | _WORKING  # reasons for which requests already read are not served either


class Channel(Connection):
    """One connection. `attachments` holds data that handlers keep for the connection, by name."""

    def __init__(self, channels: Channels, dispatcher: Dispatcher, sender: Sender = OURSELVES) -> None:
        self._channels, self._sender = channels, sender
        self._serve = dispatcher.serve
        self._frames = FrameBuffer(channels.frame_size_max, channels.header_size_max, SERVED_AT_ONCE + 1)
        self._out: list[Buffer] = []
        self._waiting: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._opaque = OPAQUE_FIRST
        self._deferred_count = self._unread_because = self._held = 0
        self._is_paused = False
        self._frames_left: list[Frame] = []
        self.is_costly = False
        """Whether it is served from the share of costly connections (`fair_share`)."""
        self._waits_for_share = False
        # Number of buffers of `_out` whose sizes are included in `_measured_bytes`.
        self._measured = self._measured_bytes = 0
        self.unread = Unread()
        self.is_closing = False
        """Whether this side has closed the connection."""
        self.is_closed_by_peer = False
        """Whether the peer has ended it."""
        self.closing_s = float("inf")
        self._on_close: list[Callable[[Channel], None]] = []
        self._transport: Any = None
        self.is_open = False
        self.last_active = self.made_at = 0.0
        self.remote_host, self.remote_port, self.remote_address = "", 0, ""
        self.host_bytes = b"\0" * 8
        self.attachments: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<Channel {self.remote_address}>"

    # Called by asyncio, from here to `resume_writing`; then by the dispatcher, handlers and services

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_MAX)
        peer = transport.get_extra_info("peername") or ("0.0.0.0", 0)
        self.remote_host, self.remote_port = plain_host(peer[0]), peer[1]
        self.remote_address = f"{self.remote_host}:{self.remote_port}"
        self.host_bytes = pack_host(self.remote_host, self.remote_port)
        self.last_active = self.made_at = self._channels.timers.clock.monotonic()
        self.is_open = True
        self._channels.open.add(self)

    def data_received(self, data: bytes) -> None:
        channels = self._channels
        if channels.turn.began_s == NEVER:
            channels.turn.arm()
        self.last_active = channels.clock.monotonic()
        by_lane = 0
        if self.is_costly or self._unread_because & _LEFT:
            self._put_off(data)
            return
        if channels.lane is not None:
            data, by_lane = self._serve_by_lane(channels.lane, data)
            if not data:
                return
        out, frames = self._out, self._frames
        was_empty = not out
        try:
            found = frames.feed(data)
            if frames.held or self._held:
                self._frame_grew(is_new=bool(found))
            count = len(found) + by_lane
            if self.is_costly or (
                count > MANY_REQUESTS and (count > SERVED_AT_ONCE or not channels.share.has_time_for_many)
            ):
                self._frames_left += found
                self._serve_left()
                return
            serve, costly_s = self._serve, self.last_active + COSTLY_S
            for count, frame in enumerate(found, 1):
                serve(self, frame, out)
                if (now_s := monotonic()) > costly_s or self._unread_because & _NOT_SERVED:
                    self.is_costly = now_s > costly_s
                    self._frames_left += found[count:]
                    break
        except FrameError as error:
            self._broken(error)
            return
        if len(found) > MANY_REQUESTS:
            channels.share.charge(now_s - self.last_active)
        if was_empty and out:
            channels.unwritten.append(self)
            if len(out[-1]) >= LARGE_ANSWER_SIZE:
                self.end_large_turn()
        if self._frames_left:
            self._serve_left()

    def _serve_by_lane(self, lane: Lane, data: bytes) -> tuple[bytes, int]:
        """Let the lane serve the first requests of a read; return the bytes of the others, and the number of its answers."""
        out = self._out
        joined, unwritten = self._frames.joined(data) if self._held else data, len(out)
        if joined is None:
            return data, 0
        used = lane(self, joined, 0, out)
        if not used:
            return joined, 0
        if (count := len(out) - unwritten) > MANY_REQUESTS:
            self._channels.share.charge(monotonic() - self.last_active)
        if self._held:
            self._frame_grew(is_new=True)
        if count and not unwritten:
            self._channels.unwritten.append(self)
            if len(out[-1]) >= LARGE_ANSWER_SIZE:
                self.end_large_turn()
        return joined[used:], count

    def _put_off(self, data: bytes) -> None:
        """Serve a read behind the requests that are left, and within the share of costly connections."""
        self._frames.put(data)
        if self._frames.held or self._held:
            self._frame_grew(is_new=self._frames.unsplit != b"")
        self._serve_left()

    def end_large_turn(self) -> None:
        """End the turn after a large answer: this peer reads it while the requests of other peers are served."""
        self._channels.turn.run()
        self.is_costly = self.is_costly or self.has_unread(UNREAD_SIZE)

    @property
    def is_caught_up(self) -> bool:
        """Whether the next byte begins a request, which can be served at once."""
        return not (self._held or self._has_left or self.is_costly)

    def serve_some(self, end_s: float) -> bool:
        """Serve the next few requests that are left, until `end_s`; return whether more can be served now."""
        channels, left, out = self._channels, self._frames_left, self._out
        channels.turn.arm()
        was_empty, serve, count = not out, self._serve, 0
        count_max = SERVED_AT_ONCE if self._can_serve else 0
        try:
            while count < count_max:
                if left:
                    serve(self, left.pop(0), out)
                    count += 1
                elif self._frames.unsplit:
                    count += self._serve_unsplit()
                else:
                    break
                if self._unread_because & _NOT_SERVED or monotonic() > end_s:
                    break
        except FrameError as error:
            self._broken(error)
            return False
        if was_empty and out:
            channels.unwritten.append(self)
        if self.unsent_bytes > WRITE_BUFFER_MAX or (was_empty and out and len(out[-1]) >= LARGE_ANSWER_SIZE):
            channels.turn.run()
        return self._has_left and self._can_serve

    def _serve_unsplit(self) -> int:
        """Let the lane serve the next bytes that are left, and return the number of its answers; or else split them."""
        frames, lane, out = self._frames, self._channels.lane, self._out
        if lane is not None:
            unwritten = len(out)
            if used := lane(self, frames.unsplit, frames.start, out):
                frames.skip(used)
                return max(len(out) - unwritten, 1)
        self._frames_left += frames.split()
        if frames.held:
            self._frame_grew(is_new=True)
        return 0

    @property
    def _has_left(self) -> bool:
        return bool(self._frames_left or self._frames.unsplit)

    @property
    def frames_left(self) -> list[Frame]:
        """Requests that were read and are not served yet."""
        return self._frames_left + self._frames.unsplit_frames()

    def _frame_grew(self, *, is_new: bool) -> None:
        self._held = self._frames.held
        self._channels.frame_grew(self, self._held, is_new=is_new)

    @property
    def _can_serve(self) -> bool:
        return self.is_open and not self._is_paused and not self._unread_because & _NOT_SERVED

    def has_waited(self) -> None:
        """End the wait for the share. Requests still left wait for another reason, such as unread answers."""
        self._waits_for_share = False
        if not self._has_left:
            self._go_on_reading(_LEFT)

    def _serve_left(self) -> None:
        """Serve the requests that were read, within the share of costly connections."""
        if not self._has_left or self._waits_for_share:
            return
        self._waits_for_share = not self._channels.share.serve(self)
        if self._has_left:
            self._stop_reading(_LEFT)
        else:
            self._go_on_reading(_LEFT)

    def _broken(self, error: FrameError) -> None:
        self._frames_left.clear()
        self._frames.clear()
        self._channels.broken(self, error)
        self._channels.turn.run()  # send the answers to the requests before the invalid frame
        self._out += [] if error.foreign is None else [error.foreign.answer]
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        # End of stream, or a reset. For an unreachable peer `exc` is a TimeoutError, which is no ConnectionError.
        self.is_closed_by_peer = not self.is_closing and (exc is None or isinstance(exc, ConnectionError))
        self._channels.forget(self)
        self._out.clear()
        self._frames.clear()
        self._frames_left.clear()
        closed = ChannelClosed if self.is_heard or self.is_closing else NeverHeard
        because = f": {exc}" if exc else ""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(closed(f"connection to {self.remote_address} closed{because}"))
        self._waiting.clear()
        for callback in self._on_close:
            try:
                callback(self)
            except Exception:
                log.exception("a callback for the close of %s failed", self)

    def pause_writing(self) -> None:
        self._is_paused = True
        self._stop_reading(_UNSENT)
        self._channels.stopped_reading(self)

    def resume_writing(self) -> None:
        self._is_paused = False
        self._channels.reads_again(self)
        self._go_on_reading(_UNSENT)
        if self._has_left:
            # Not now: the transport calls this in the middle of a write.
            self._channels.timers.after(0.0, self._serve_left)

    def respond(self, response: Response, opaque: int, serialize_type: int) -> None:
        """Send the answer to a deferred request."""
        if self.is_open:
            if not self._out:
                self._channels.unwritten.append(self)
            response.encode_into(self._out, opaque, serialize_type)
            self._channels.turn.arm()

    def send(self, buffers: Iterable[Buffer]) -> None:
        """Send encoded frames, if the connection is open."""
        if self.is_open:
            if not self._out:
                self._channels.unwritten.append(self)
            self._out.extend(buffers)
            self._channels.turn.arm()

    def deferred_added(self, count: int = 1) -> None:
        self._deferred_count += count
        if self._deferred_count >= DEFERRED_MAX > self._deferred_count - count:
            self._stop_reading(_DEFERRED)

    def deferred_removed(self, count: int = 1) -> None:
        self._deferred_count -= count
        if self._deferred_count < DEFERRED_MAX <= self._deferred_count + count:
            self._go_on_reading(_DEFERRED)

    def response_received(self, command: RemotingCommand) -> None:
        """Complete the pending request that `command` answers; a late answer is dropped."""
        future = self._waiting.pop(command.opaque, None)
        if future is not None and not future.done():
            future.set_result(command)

    @property
    def is_heard(self) -> bool:
        """Whether the peer has sent any data."""
        return self.last_active != self.made_at

    @property
    def unsent_bytes(self) -> int:
        """Bytes not yet written plus bytes not yet read by the peer."""
        out = self._out
        if len(out) > self._measured:
            self._measured_bytes += sum(map(len, out[self._measured :]))
            self._measured = len(out)
        return self._measured_bytes + (self._transport.get_write_buffer_size() if self._is_paused else 0)

    @property
    def unread_bytes(self) -> int:
        """Bytes that the peer had not received a moment ago, with those in the kernel's send buffer."""
        return self.unread.measured(self._transport) if self.is_open and not self._transport.is_closing() else 0

    def has_unread(self, size: int) -> bool:
        """Return whether more than `size` bytes are unread. Asks the kernel only if so many can be unread."""
        return self.unread.size_max > size and self.unread_bytes > size

    @property
    def is_writable(self) -> bool:
        """Whether the peer reads what it is sent."""
        return self.is_open and not self._is_paused and self.unsent_bytes <= WRITE_BUFFER_MAX

    @property
    def is_suspended(self) -> bool:
        """Whether reading is paused by `suspend_reading`."""
        return self._unread_because & _SUSPENDED != 0

    def suspend_reading(self, seconds: float) -> None:
        """Pause reading from a peer whose requests exceed a limit."""
        if not self._unread_because & _SUSPENDED:
            self._stop_reading(_SUSPENDED)
            self._channels.timers.after(seconds, lambda: self._go_on_reading(_SUSPENDED))

    def throttle(self, seconds: float) -> None:
        """Pause serving this peer, whose requests are expensive, so that other peers are served in between."""
        if not self._unread_because & _THROTTLED:
            self._stop_reading(_THROTTLED)
            self._channels.timers.after(seconds, lambda: self._serve_again(_THROTTLED))

    def pause_requests(self, is_paused: bool) -> None:
        """Serve no more of this peer's requests while the last one is served in slices; or serve them again."""
        (self._stop_reading if is_paused else self._serve_again)(_WORKING)

    def _serve_again(self, reason: int) -> None:
        self._go_on_reading(reason)
        self._serve_left()

    def on_close(self, callback: Callable[["Channel"], None]) -> None:
        """Call `callback(channel)` when the connection has ended."""
        self._on_close.append(callback)

    def invoke_oneway(self, code: int, header: CommandHeader | None = None, body: Body = b"") -> None:
        """Send a request without an answer. A server drops it if the peer does not read."""
        if self._channels.is_server and not self.is_writable:
            return
        self.send(encode_request(code, header, body, self._next_opaque(), oneway=True, sender=self._sender))

    def invoke(
        self, code: int, header: CommandHeader | None = None, body: Body = b"", timeout_s: float = 3.0
    ) -> "asyncio.Future[RemotingCommand]":
        """Send a request. The future ends with its answer, RequestTimeout, ChannelClosed or NotReading.

        Raises TypeError or ValueError if the request cannot be encoded; then nothing is sent.
        """
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        if not self.is_open:
            future.set_exception(ChannelClosed(f"connection to {self.remote_address} is closed"))
            return future
        if self._channels.is_server and not (self.is_writable and len(self._waiting) < UNANSWERED_MAX):
            future.set_exception(NotReading(f"{self.remote_address} does not read, or has too many unanswered requests"))
            return future
        opaque = self._next_opaque()
        request = encode_request(code, header, body, opaque, sender=self._sender)
        self._waiting[opaque] = future
        self.send(request)
        timer = self._channels.timers.after(timeout_s, lambda: self._expire(opaque, code, timeout_s))
        future.add_done_callback(lambda _: timer.cancel())
        return future

    def close(self) -> None:
        """Close the connection after pending data has been sent."""
        if self._transport is not None and not self._transport.is_closing():
            self.is_closing = True
            self.closing_s = self._channels.timers.clock.monotonic()
            self.write()
            self._transport.close()

    def abort(self) -> None:
        """Close at once; unsent data is lost."""
        if self._transport is not None:
            self.is_closing = True
            self._transport.abort()

    def write(self) -> None:
        """Pass the pending data to the transport, in one call."""
        if not (out := self._out):
            return
        self._out = []
        self._measured = self._measured_bytes = 0
        transport = self._transport
        if transport.is_closing():
            return
        if len(out) == 1:
            self.unread.size_max += len(out[0])
            transport.write(out[0])
        else:
            size = sum(map(len, out))
            self.unread.size_max += size
            transport.writelines((b"".join(out),) if size <= JOIN_MAX else out)
        if self._is_paused and self.is_open:
            limit = self._channels.limits.max_unsent_bytes_per_connection
            if transport.get_write_buffer_size() > limit:
                self._channels.drop(self, f"more than {limit} bytes of answers are unread (maxUnsentBytesPerConnection)")

    def _stop_reading(self, reason: int) -> None:
        if not self._unread_because and self.is_open and not self._transport.is_closing():
            self._transport.pause_reading()
        self._unread_because |= reason

    def _go_on_reading(self, reason: int) -> None:
        was_unread, self._unread_because = self._unread_because, self._unread_because & ~reason
        if was_unread and not self._unread_because and self.is_open and not self._transport.is_closing():
            self._transport.resume_reading()

    def _next_opaque(self) -> int:
        self._opaque = OPAQUE_FIRST | (self._opaque + 1) & (OPAQUE_FIRST - 1)
        return self._opaque

    def _expire(self, opaque: int, code: int, timeout_s: float) -> None:
        future = self._waiting.pop(opaque, None)
        if future is not None and not future.done():
            future.set_exception(RequestTimeout.of(self.remote_address, code, timeout_s))
