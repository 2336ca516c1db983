"""Dispatch of frames to handlers by request code.

A handler is a plain function `(services, request) -> Response | Deferred | None`, listed in a `Route` with the code that it
serves and the header that it expects. It may raise `RemotingError(code, remark)`. None sends no answer (oneway codes only).

There are two ways to decode a request. The fast path decodes a JSON header that starts with `{"code":N,`, as those of all
known clients do, directly into the route's header. The general path decodes to text fields first; it serves the binary
serialisation, responses, and headers of any other shape. A test checks that both give the same result.

A header that cannot be read is an error of its request alone, which is answered; further requests are served.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from pocketmq.errors import MQError
from pocketmq.remoting.bodies import REQUEST_BODY_SIZE_MAX, Body, decode_body
from pocketmq.remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE, JSON, ResponseCode
from pocketmq.remoting.command import (
    Buffer,
    RemotingCommand,
    Request,
    Response,
    decode_header,
    request_decoder,
    typed_request,
)
from pocketmq.remoting.fastjson import DECODE_ERRORS
from pocketmq.remoting.frame import HEADER_TOO_LARGE, Frame
from pocketmq.remoting.header import CommandHeader
from pocketmq.remoting.header_keys import HeaderError, decode_fields, opaque_and_flag, unique_keys_check
from pocketmq.runtime.peer_text import clipped

log = logging.getLogger("remoting")

B = TypeVar("B", bound=Body)

_START_SIZE: Final = len(b'{"code":310,')
"""Number of bytes at the start of a JSON header that are looked up to find its route."""


class RemotingError(MQError):
    """Refusal of a request, answered with this code and remark; its connection is then not served for `throttle_s`."""

    def __init__(self, code: int, remark: str, throttle_s: float = 0.0) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.throttle_s = throttle_s


def request_body(request: Request[Any], declared: type[B]) -> B:
    """Decode the body of a request; an empty one counts as `{}`. Raises RemotingError with the invalid field."""
    try:
        return decode_body(declared, request.body or b"{}", REQUEST_BODY_SIZE_MAX)
    except ValueError as error:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"body of request code {request.code}: {clipped(error)}") from None


class Deferred(msgspec.Struct, eq=False):
    """Answer to be sent later. The handler keeps it and calls `complete` once, in the event loop."""

    _channel: Any = None
    _opaque: int = 0
    _serialize_type: int = JSON
    _response: Response | None = None
    is_done: bool = False

    def bind(self, channel: Any, opaque: int, serialize_type: int) -> None:
        """Set the connection of the answer. Called by the dispatcher."""
        self._channel, self._opaque, self._serialize_type = channel, opaque, serialize_type
        if self._response is not None:
            self._send(self._response)
        else:
            channel.deferred_added()

    def hand_to(self, receive: Callable[[Response], object]) -> None:
        """Call `receive` with the answer instead of sending it; at once if it is complete. Replaces `bind`."""
        self.bind(_Receiver(receive), 0, JSON)

    def complete(self, response: Response) -> None:
        """Send the answer; it is dropped if the connection is closed or the request is oneway.

        Never raises, because the caller may complete the answers of many clients in one loop: if this one cannot be sent,
        only its connection is closed.
        """
        if self.is_done:
            return
        self.is_done = True
        if self._channel is None:
            self._response = response
        else:
            self._send(response, was_counted=True)

    def _send(self, response: Response, was_counted: bool = False) -> None:
        channel = self._channel
        try:
            if was_counted:
                channel.deferred_removed()
            channel.respond(response, self._opaque, self._serialize_type)
        except Exception:
            log.exception("closing %s: an answer to it cannot be sent", channel)
            try:
                channel.close()
            except Exception:
                log.exception("%s cannot be closed", channel)


class _Receiver(msgspec.Struct):
    """Stands in for the connection of a Deferred whose answer goes to a function."""

    receive: Callable[[Response], object]

    def respond(self, response: Response, opaque: int, serialize_type: int) -> None:
        self.receive(response)

    def close(self) -> None:
        """Do nothing: there is no connection, and the one of the outer Deferred counts that."""

    deferred_added = deferred_removed = close


def failure(request: Request[Any], error: Exception) -> Response:
    """Return the answer to a request whose handling raised `error`; to be called while it is handled."""
    if not isinstance(error, RemotingError):
        log.exception("request code %d from %s failed", request.code, request.channel)
        return Response(ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {clipped(error)}")
    if error.throttle_s:
        request.channel.throttle(error.throttle_s)
    return Response(error.code, remark=error.remark)


Handler = Callable[[Any, Request[Any]], Response | Deferred | None]


class Route(NamedTuple):
    """Request code with its header class and its handler."""

    code: int
    header: type[CommandHeader]
    handler: Handler


def routes(*rows: Route | Iterable[Route]) -> dict[int, Route]:
    """Return a table of routes by code. A row is a route or several. Raises ValueError for a duplicate code."""
    table: dict[int, Route] = {}
    for row in rows:
        for route in [row] if isinstance(row, Route) else row:
            if route.code in table:
                raise ValueError(f"request code {route.code} is routed twice")
            table[route.code] = route
    return table


_Quick = tuple[Callable[[bytes], Request[Any]], Callable[[bytes, Any], bool], Handler]
"""Decoder of a JSON header, the check of its keys, and the handler."""


class Dispatcher:
    """Serves frames with a table of routes."""

    def __init__(self, services: Any, table: dict[int, Route], refused: frozenset[int] = frozenset()) -> None:
        self._services = services
        self._table = {code: route for code, route in table.items() if code not in refused}
        self._starts: dict[bytes, Route] = {}
        for code, route in self._table.items():
            start = b'{"code":%d' % code
            self._starts[start] = route
            if len(start) < _START_SIZE:  # codes of up to three digits are found without a search for the comma
                self._starts[(start + b',"')[:_START_SIZE]] = route
        # Filled at the first request of each code: decoders are generated code, and most processes see few of the codes.
        self._quick: dict[bytes, _Quick] = {}

    def serve(self, channel: Any, frame: Frame, out: list[Buffer]) -> None:
        """Serve one frame; append the answer to `out` if it is ready. Raises FrameError if the connection must be closed."""
        serialize_type, header, body = frame
        quick = None
        if serialize_type == JSON:
            quick = self._quick.get(header[:_START_SIZE]) or self._quick_of(header)
        try:
            if quick is not None:
                decode, is_unique, handler = quick
                try:
                    request = decode(header)
                except DECODE_ERRORS:
                    quick = None
                else:
                    if request.flag & FLAG_RESPONSE:
                        quick = None
                    elif not is_unique(header, request):
                        decode_fields(header)  # raises HeaderError for a duplicate key
            if quick is None:
                found = self._decode_general(channel, frame, out)
                if found is None:
                    return
                request, handler = found
        except HeaderError as error:
            _answer_unreadable(channel, frame, error, out)
            return
        request.body = body
        request.channel = channel
        request.frame = frame
        try:
            response = handler(self._services, request)
        except Exception as error:
            response = failure(request, error)
        if request.flag & FLAG_ONEWAY or response is None:
            return
        if isinstance(response, Deferred):
            response.bind(channel, request.opaque, serialize_type)
        else:
            response.encode_into(out, request.opaque, serialize_type)

    def _quick_of(self, header: bytes) -> _Quick | None:
        """Return the decoder for the code with which `header` starts; None if its start is not that of a known code."""
        for start in (header[:_START_SIZE], header[: header.find(b",", 0, 24)]):
            if quick := self._quick.get(start):
                return quick
            if route := self._starts.get(start):
                self._quick[start] = quick = (
                    request_decoder(route.header), unique_keys_check(route.header), route.handler,
                )  # fmt: skip
                return quick
        return None

    def _decode_general(self, channel: Any, frame: Frame, out: list[Buffer]) -> tuple[Request[Any], Handler] | None:
        """Return a request and its handler; None if it is a response or was refused. Raises HeaderError and FrameError."""
        serialize_type, header, body = frame
        if serialize_type & HEADER_TOO_LARGE:
            raise HeaderError(body.decode())
        command = decode_header(serialize_type, header)
        command.body = body
        if command.is_response:
            channel.response_received(command)
            return None
        route = self._table.get(command.code)
        if route is None:
            remark = f" request type {command.code} not supported"
            self._refuse(command, serialize_type, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark, out)
            return None
        try:
            return typed_request(command, route.header), route.handler
        except msgspec.ValidationError as error:
            remark = f"header of request code {command.code}: {clipped(error)}"
            self._refuse(command, serialize_type, ResponseCode.SYSTEM_ERROR, remark, out)
            return None

    @staticmethod
    def _refuse(command: RemotingCommand, serialize_type: int, code: int, remark: str, out: list[Buffer]) -> None:
        if not command.flag & FLAG_ONEWAY:
            Response(code, remark=remark).encode_into(out, command.opaque, serialize_type)


def _answer_unreadable(channel: Any, frame: Frame, error: HeaderError, out: list[Buffer]) -> None:
    """Answer a request whose header cannot be read, or fail the request whose answer cannot be read.

    Raises HeaderError if the header does not say which request it is of: its peer could only wait for an answer.
    """
    serialize_type, header, _ = frame
    serialize_type &= ~HEADER_TOO_LARGE
    found = opaque_and_flag(serialize_type, header)
    if found is None:
        raise error
    opaque, flag = found
    log.warning("a request of %s cannot be read: %s", channel, error)
    if flag & FLAG_RESPONSE:
        command = RemotingCommand(ResponseCode.SYSTEM_ERROR, opaque=opaque, flag=FLAG_RESPONSE, remark=str(error))
        command.body, command.serialize_type = b"", serialize_type
        channel.response_received(command)
    elif not flag & FLAG_ONEWAY:
        Response(ResponseCode.SYSTEM_ERROR, remark=str(error)).encode_into(out, opaque, serialize_type)
