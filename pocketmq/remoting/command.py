"""Commands and the two serialisations of their headers.

`RemotingCommand` is any command with its fields as text. `Request[Header]` is a request whose fields were decoded into the
declared header in one pass. `Response` is the answer of a handler; it is encoded once, when it is sent.
"""

import logging
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, Final, Generic, TypeVar

import msgspec

from pocketmq.remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE, JSON, LANGUAGE, ROCKETMQ, VERSION, LanguageCode, ResponseCode
from pocketmq.remoting.fastjson import DECODE_ERRORS
from pocketmq.remoting.frame import Frame, FrameError, frame_head
from pocketmq.remoting.header import I32, CommandHeader, Language, ext_json, ext_map, from_ext, json_writer
from pocketmq.remoting.header_keys import KEYS_MAX, HeaderError, decode_fields, not_a_command, too_many_keys
from pocketmq.remoting.layout import BINARY_FIXED_STRUCT, CLIENT_FRAME_SIZE_MAX, HEADER_SIZE_MAX
from pocketmq.remoting.signature import OURSELVES, Sender
from pocketmq.runtime.peer_text import QUOTE_SIZE_MAX, clipped, remark_of

log = logging.getLogger("remoting")

H = TypeVar("H", bound=CommandHeader)
Buffer = bytes | memoryview
Body = Buffer | Sequence[Buffer]
"""One buffer or a sequence of buffers: views of store files are sent without a copy."""

_I16 = struct.Struct(">H")
_I32 = struct.Struct(">I")
_LANGUAGE_NAMES = {language.value: language.name for language in LanguageCode}


class _CommandParts:
    """Parts of a command that are not in its header. Slots, not struct fields, so that no header can set them."""

    __slots__ = ("body", "serialize_type")

    body: bytes
    serialize_type: int


class RemotingCommand(_CommandParts, msgspec.Struct, gc=False):
    """A request or response with its fields as a text map."""

    code: I32 = 0
    language: Language = LANGUAGE
    version: I32 = VERSION
    opaque: I32 = 0
    flag: I32 = 0
    remark: str | None = None
    ext: dict[str, str] | None = msgspec.field(name="extFields", default=None)

    @property
    def is_response(self) -> bool:
        return self.flag & FLAG_RESPONSE != 0

    def header(self, declared: type[H]) -> H:
        """Return the fields as `declared`. Raises msgspec.ValidationError naming the field."""
        return from_ext(declared, self.ext or {})


class _RequestParts:
    """Parts of a request that are not in its header: slots, set by the dispatcher."""

    __slots__ = ("body", "channel", "frame")

    body: bytes
    channel: Any
    frame: Frame


_WITHOUT_CONTENT: Final[dict[int, Frame]] = {kind: (kind, b"", b"") for kind in (JSON, ROCKETMQ)}


class Request(_RequestParts, msgspec.Struct, Generic[H], gc=False):
    """A request as handlers get it. `channel` is its connection; `ext()` returns all fields, including undeclared ones."""

    header: H = msgspec.field(name="extFields")
    code: I32
    language: Language
    version: I32
    opaque: I32
    flag: I32
    remark: str | None = None
    serialize_name: str | None = msgspec.field(name="serializeTypeCurrentRPC", default=None)

    @property
    def is_oneway(self) -> bool:
        return self.flag & FLAG_ONEWAY != 0

    @property
    def serialize_type(self) -> int:
        """Serialisation of the request's frame, also used for its answer."""
        return self.frame[0]

    @property
    def size(self) -> int:
        """Bytes of header and body, which a held request keeps in memory."""
        return len(self.frame[1]) + len(self.frame[2])

    def drop_content(self) -> None:
        """Drop the bytes of header and body, a quarter of a held request's memory. `ext()` must not be called afterwards."""
        self.body = b""
        self.frame = _WITHOUT_CONTENT[self.frame[0]]

    def ext(self) -> dict[str, str]:
        """Return all fields as text."""
        serialize_type, header, _ = self.frame
        if serialize_type == JSON:
            with suppress(*DECODE_ERRORS):
                return _decode_ext(header).ext or {}
        return decode_header(serialize_type, header).ext or {}


class _Ext(msgspec.Struct, gc=False):
    ext: dict[str, str] | None = msgspec.field(name="extFields", default=None)


_decode_ext = msgspec.json.Decoder(_Ext).decode


def decode_header(serialize_type: int, header: bytes) -> RemotingCommand:
    """Decode a header of either serialisation.

    Raises HeaderError if it is invalid or has a duplicate key, FrameError if it is of neither serialisation.
    """
    if serialize_type == JSON:
        command = _decode_json(header)
    elif serialize_type == ROCKETMQ:
        command = _decode_binary(header)
    else:
        raise FrameError(f"serialise type {serialize_type} is neither JSON (0) nor ROCKETMQ (1)")
    command.body, command.serialize_type = b"", serialize_type
    return command


def _decode_json(header: bytes) -> RemotingCommand:
    """Decode a JSON header. Field values may also be numbers, as the C++ client writes them; null means absent."""
    fields = {name: value for name, value in decode_fields(header).items() if value is not None}
    try:
        return msgspec.convert(fields, RemotingCommand)
    except msgspec.ValidationError:
        pass
    try:
        ext = fields.get("extFields")
        if ext is not None:
            fields["extFields"] = {name: _text(value) for name, value in ext.items() if value is not None}
        return msgspec.convert(fields, RemotingCommand, strict=False)
    except (*DECODE_ERRORS, AttributeError) as error:
        raise not_a_command(error) from None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _decode_binary(header: bytes) -> RemotingCommand:
    try:
        code, language, version, opaque, flag = BINARY_FIXED_STRUCT.unpack_from(header)
        remark, position = _take(header, BINARY_FIXED_STRUCT.size, _I32)
        ext_bytes, position = _take(header, position, _I32)
        ext: dict[str, str] = {}
        at = 0
        while at < len(ext_bytes):
            key, at = _take(ext_bytes, at, _I16)
            value, at = _take(ext_bytes, at, _I32)
            name = key.decode(errors="replace")
            if name in ext:
                raise HeaderError(f"duplicate key {clipped(name)!r} in the header")
            ext[name] = value.decode(errors="replace")
            if len(ext) > KEYS_MAX:
                raise too_many_keys()
    except struct.error as error:
        raise HeaderError(f"binary header cannot be read: {error}") from None
    language_name = _LANGUAGE_NAMES.get(language, LanguageCode.OTHER.name)
    return RemotingCommand(code, language_name, version, opaque, flag, remark.decode(errors="replace") or None, ext or None)


def _take(data: bytes, position: int, length_format: struct.Struct) -> tuple[bytes, int]:
    (length,) = length_format.unpack_from(data, position)
    start = position + length_format.size
    if length > len(data) - start:
        raise HeaderError(f"length {length} runs over the end of a binary header of {len(data)} bytes")
    return data[start : start + length], start + length


def _encode_binary(
    code: int, sender: Sender, opaque: int, flag: int, remark: str | None, ext: dict[str, str] | None
) -> bytes:
    entries = bytearray()
    for name, value in (ext or {}).items():
        name_bytes, value_bytes = name.encode(), value.encode()
        entries += _I16.pack(len(name_bytes)) + name_bytes + _I32.pack(len(value_bytes)) + value_bytes
    remark_bytes = (remark or "").encode()
    fixed = BINARY_FIXED_STRUCT.pack(code, LanguageCode[sender.language].value, sender.version, opaque, flag)
    return b"".join((fixed, _I32.pack(len(remark_bytes)), remark_bytes, _I32.pack(len(entries)), entries))


_JSON_TAIL = b',"serializeTypeCurrentRPC":"JSON","version":%d}'


def _remark_json(remark: str) -> bytes:
    return b',"remark":' + msgspec.json.encode(remark)


_kept_remark_json: Callable[[str], bytes] = lru_cache(maxsize=256)(_remark_json)
"""The same for short remarks, which repeat: those of pull answers."""


_JSON_REQUEST = b'{"code":%d%b,"flag":%d,"language":"%b","opaque":%d' + _JSON_TAIL


def _encode_json(code: int, sender: Sender, opaque: int, flag: int, ext: bytes | None) -> bytes:
    ext_fields = b"" if ext is None else b',"extFields":' + ext
    return _JSON_REQUEST % (code, ext_fields, flag, sender.language.encode(), opaque, sender.version)


_BEFORE_FIELDS = '{"code":%d'
_AFTER_FIELDS = f',"flag":1,"language":"{LANGUAGE}","opaque":%d%b' + (_JSON_TAIL % VERSION).decode()
_JSON_RESPONSE = (_BEFORE_FIELDS + _AFTER_FIELDS).encode()


@cache
def _response_writer(declared: type[CommandHeader]) -> Callable[[CommandHeader, int, int, bytes], bytes]:
    """Return the encoder of a response with a header of this class: `write(header, code, opaque, remark)`."""
    return json_writer(declared, _BEFORE_FIELDS + ',"extFields":', _AFTER_FIELDS, "code, opaque, remark")


class Response(msgspec.Struct, eq=False):
    """Answer of a handler."""

    code: int = 0
    header: CommandHeader | None = None
    body: Body = b""
    remark: str | None = None

    def encode_into(self, out: list[Buffer], opaque: int, serialize_type: int) -> None:
        """Append the buffers of the frame to `out`; those of an error if this answer cannot be encoded."""
        try:
            header, remark, body = self.header, self.remark, self.body
            if serialize_type == ROCKETMQ:
                ext = None if header is None else ext_map(header)
                remark = None if remark is None else remark_of(remark)
                head = _encode_binary(self.code, OURSELVES, opaque, FLAG_RESPONSE, remark, ext)
            else:  # a shorter form of `_encode_json`, because every answer takes this path
                if remark is None:
                    remark_field = b""
                elif len(remark) <= QUOTE_SIZE_MAX:
                    remark_field = _kept_remark_json(remark)
                else:
                    remark_field = _remark_json(remark_of(remark))
                if header is None:
                    head = _JSON_RESPONSE % (self.code, opaque, remark_field)
                else:
                    head = _response_writer(type(header))(header, self.code, opaque, remark_field)
            if len(head) > HEADER_SIZE_MAX:
                raise ValueError(f"its header has {len(head)} bytes, the limit is {HEADER_SIZE_MAX}")
            _frame_into(out, serialize_type, head, body)
        except Exception as error:
            log.exception("an answer of code %s cannot be encoded", self.code)
            remark = f"the answer cannot be encoded: {clipped(error)}".encode(errors="replace").decode()
            if serialize_type == ROCKETMQ:
                head = _encode_binary(ResponseCode.SYSTEM_ERROR, OURSELVES, opaque, FLAG_RESPONSE, remark, None)
            else:
                head = _JSON_RESPONSE % (ResponseCode.SYSTEM_ERROR, opaque, _remark_json(remark))
            _frame_into(out, serialize_type, head, b"")


def encode_request(
    code: int,
    header: CommandHeader | None,
    body: Body,
    opaque: int,
    *,
    oneway: bool = False,
    serialize_type: int = JSON,
    sender: Sender = OURSELVES,
) -> list[Buffer]:
    """Return the buffers of a request frame, signed if the sender has credentials.

    Raises TypeError or ValueError if it cannot be encoded. Checked here, because an error at the write would also fail the
    other requests written together with it.
    """
    _check_body(body)
    flag = FLAG_ONEWAY if oneway else 0
    if sender.credentials is not None:
        ext = sender.credentials.signed({} if header is None else ext_map(header), _joined(body))
    elif serialize_type == ROCKETMQ and header is not None:
        ext = ext_map(header)
    else:
        ext = None
    if serialize_type == ROCKETMQ:
        head = _encode_binary(code, sender, opaque, flag, None, ext)
    elif ext is not None:
        head = _encode_json(code, sender, opaque, flag, msgspec.json.encode(ext))
    else:
        head = _encode_json(code, sender, opaque, flag, None if header is None else ext_json(header))
    if len(head) > HEADER_SIZE_MAX:
        raise ValueError(f"the header of request code {code} has {len(head)} bytes, the limit is {HEADER_SIZE_MAX}")
    out: list[Buffer] = []
    _frame_into(out, serialize_type, head, body)
    size = sum(map(len, out))
    if size > CLIENT_FRAME_SIZE_MAX:
        raise ValueError(f"the request has {size} bytes, the limit of a frame is {CLIENT_FRAME_SIZE_MAX}: send less at once")
    return out


def _check_body(body: Any) -> None:
    """Raise TypeError unless the buffers of `body` are bytes or memoryviews of bytes."""
    for buffer in body if isinstance(body, (list, tuple)) else (body,):
        if isinstance(buffer, bytes) or (isinstance(buffer, memoryview) and buffer.nbytes == len(buffer)):
            continue
        raise TypeError(f"the body of a request must be bytes, or a memoryview of bytes, not {type(buffer).__name__}")


def _joined(body: Body) -> bytes:
    return bytes(body) if isinstance(body, (bytes, memoryview)) else b"".join(body)


def _frame_into(out: list[Buffer], serialize_type: int, head: bytes, body: Body) -> None:
    if not body:
        out.append(frame_head(serialize_type, len(head), 0) + head)
    elif isinstance(body, (bytes, memoryview)):
        out.append(frame_head(serialize_type, len(head), len(body)) + head)
        out.append(body)
    else:
        out.append(frame_head(serialize_type, len(head), sum(map(len, body))) + head)
        out.extend(body)


def request_decoder(declared: type[H]) -> Callable[[bytes], Request[H]]:
    """Return a function that decodes a JSON header into `Request[declared]` and raises msgspec.DecodeError."""
    return msgspec.json.Decoder(Request[declared], strict=False).decode  # type: ignore[valid-type]


def typed_request(command: RemotingCommand, declared: type[H]) -> Request[H]:
    """Return `command` as a typed request. Works for any serialisation, for numeric values and for absent extFields.

    The caller sets the slots.
    """
    return Request(
        from_ext(declared, command.ext or {}),
        command.code,
        command.language,
        command.version,
        command.opaque,
        command.flag,
        command.remark,
    )
