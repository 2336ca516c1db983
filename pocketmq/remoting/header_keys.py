"""Detection of duplicate keys in JSON headers. Such a header is refused, because readers differ in which value counts.

The number of decoded keys is compared with an upper bound of the keys in the text, found by one search. Only if they differ
is the text parsed key by key.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from pocketmq.remoting.frame import FrameError
from pocketmq.remoting.header import CommandHeader, is_optional
from pocketmq.runtime.peer_text import clipped

KEY_START: Final = b'"'
KEY_END: Final = b'":'
"""End of a key without white space before its colon."""
TOP_LEVEL_KEYS: Final = 8
"""code, extFields, flag, language, opaque, version, remark and serializeTypeCurrentRPC."""
KEYS_MAX: Final = 8_192
"""Maximum number of keys of a header that is parsed key by key; clients send some twenty."""
_COLON_OF_KEY: Final = re.compile(rb'"[ \t\r\n]*+:')
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


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
    """Decode a header to a dict. Raises FrameError."""
    try:
        return _decode_object(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"header is not a command in JSON: {error}") from None


def refuse_duplicate_keys(header: bytes, fields: dict[str, Any] | None = None) -> None:
    """Raise FrameError if an object in `header` has a duplicate key. `fields`: the decoded header, if available."""
    if fields is None:
        fields = decode_fields(header)
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
        raise FrameError(f"header is not a command in JSON: {error}") from None


def too_many_keys() -> FrameError:
    """Return the error for a header with more than KEYS_MAX keys."""
    return FrameError(f"the header has more than {KEYS_MAX} keys")


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise FrameError(f"duplicate key {clipped(name)!r} in the header")
    return found
