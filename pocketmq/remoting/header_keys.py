"""Detection of duplicate keys in JSON headers. Such a header is refused, because readers differ in which value counts.

The number of decoded keys is compared with an upper bound of the keys in the text, found by one search. Only if they differ
is the text parsed key by key.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from pocketmq.remoting.codes import JSON, ROCKETMQ
from pocketmq.remoting.fastjson import DECODE_ERRORS, valid_unicode
from pocketmq.remoting.frame import FrameError
from pocketmq.remoting.header import CommandHeader, is_optional
from pocketmq.remoting.layout import BINARY_FIXED_STRUCT
from pocketmq.runtime.peer_text import clipped

KEY_START: Final = b'"'
KEY_END: Final = b'":'
"""End of a key without white space before its colon."""
TOP_LEVEL_KEYS: Final = 8
"""code, extFields, flag, language, opaque, version, remark and serializeTypeCurrentRPC."""
KEYS_MAX: Final = 8_192
"""Maximum number of keys of a header that is parsed key by key; clients send some twenty."""
_COLON_OF_KEY: Final = re.compile(rb'"[ \t\r\n]*+:')
_OPAQUE: Final = re.compile(rb'"opaque"\s*+:\s*+(-?\d{1,10})\b')
_FLAG: Final = re.compile(rb'"flag"\s*+:\s*+(\d{1,10})\b')
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class HeaderError(FrameError):
    """Header that cannot be read. If it has an opaque, its request is answered with this text and the connection goes on."""


def opaque_and_flag(serialize_type: int, header: bytes) -> tuple[int, int] | None:
    """Return opaque and flag of a header that cannot be read; None if it has no opaque, or several."""
    if serialize_type == ROCKETMQ and len(header) >= BINARY_FIXED_STRUCT.size:
        *_, opaque, flag = BINARY_FIXED_STRUCT.unpack_from(header)
        return opaque, flag
    opaques = set(map(int, _OPAQUE.findall(header))) if serialize_type == JSON else set()
    if len(opaques) != 1 or not -(2**31) <= (opaque := opaques.pop()) < 2**31:
        return None
    flag = 0
    for found in _FLAG.findall(header):
        flag |= int(found)
    return opaque, flag


def unique_keys_check(declared: type[CommandHeader]) -> Callable[[bytes, Any], bool]:
    """Generate `check(header, request)`: whether the keys of a JSON header, decoded to `request`, are certainly unique.

    Generated once per route, because it runs for each request. It counts the fields that are present: those that are not
    None, and those with another default whose key is in the text.
    """
    fields = msgspec.structs.fields(declared)
    absent = [
        f"(h.{field.name} is None)"
        if is_optional(field) and field.default is None
        else f"({(KEY_START + field.encode_name.encode() + KEY_END)!r} not in header)"
        for field in fields
        if not field.required
    ]
    absent += ["(request.remark is None)", "(request.serialize_name is None)"]
    lines = [
        "def check(header, request):",
        " h = request.header",
        f" return header.count({KEY_END!r}) + {' + '.join(absent)} == {TOP_LEVEL_KEYS + len(fields)} and not (",
        "  9 in header or 10 in header or 13 in header or (32 in header and b' :' in header))",
    ]
    scope: dict[str, Any] = {}
    exec("\n".join(lines), scope)
    return scope["check"]  # type: ignore[no-any-return]


def decode_fields(header: bytes) -> dict[str, Any]:
    """Decode a header, which may be not valid Unicode, to a dict. Raises HeaderError also if it has a duplicate key."""
    try:
        try:
            fields = _decode_object(header)
        except (msgspec.DecodeError, UnicodeDecodeError):
            fields = _decode_object(header := valid_unicode(header))
    except DECODE_ERRORS as error:
        raise not_a_command(error) from None
    _refuse_duplicate_keys(header, fields)
    return fields


def _refuse_duplicate_keys(header: bytes, fields: dict[str, Any]) -> None:
    ext = fields.get("extFields")
    distinct = len(fields) + (len(ext) if isinstance(ext, dict) else 0)
    if distinct > KEYS_MAX:
        raise too_many_keys()
    if header.count(KEY_END) == distinct and not (
        (32 in header and b" :" in header)
        or (10 in header and b"\n:" in header)
        or (13 in header and b"\r:" in header)
        or (9 in header and b"\t:" in header)
    ):
        return
    if header.count(b":") > KEYS_MAX and len(_COLON_OF_KEY.findall(header)) > KEYS_MAX:
        raise too_many_keys()
    try:
        json.loads(header, object_pairs_hook=_once, parse_int=len, parse_float=len)
    except (ValueError, RecursionError) as error:
        raise not_a_command(error) from None


def not_a_command(error: Exception) -> HeaderError:
    """Return the error for a header that is no JSON object with the fields of a command."""
    return HeaderError(f"header is not a command in JSON: {clipped(error)}")


def too_many_keys() -> HeaderError:
    """Return the error for a header with more than KEYS_MAX keys."""
    return HeaderError(f"the header has more than {KEYS_MAX} keys")


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise HeaderError(f"duplicate key {clipped(name)!r} in the header")
    return found
