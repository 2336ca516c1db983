"""Codec for the small tables of a store, `config/*.json`: reads the JSON dialect of Apache's brokers, writes plain JSON.

4.9.4 (fastjson 1) and 5.x (fastjson 2) write integer keys without quotes, `{0:2,1:0}`; both accept quoted ones.

Documents written by PocketMQ end with an additional member, the seal: the size of the document as `encode_document` writes
it, and a checksum. Apache's readers ignore unknown keys, and their writers drop the seal; a document without one is used as
it is. With a seal a single flipped bit is corrected (`repaired`). Other damage keeps the size of the document; that
distinguishes it from an edit by hand, which usually changes the size.
"""

import json
import re
import zlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

Document = dict[str, Any]

SEAL_KEY: Final = "pocketmqSeal"

# A string, which is skipped, or an unquoted number that is a key: after `{` or `,` and before `:`. An unterminated string
# extends to the end of the text, so that it is not scanned again from each of its quotes.
_STRING_OR_BARE_KEY: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|([{,]\s*)(-?\d+)(?=\s*:)', re.DOTALL)
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_INDENT: Final = 2
_SEAL_HEAD: Final = b'\n  "' + SEAL_KEY.encode() + b'": "'
_SEAL_TAIL: Final = b'"\n}'


def decode_document(data: bytes) -> Document:
    """Return the JSON object in `data`, with all keys as str. Raises ValueError if it is not one."""
    text = _STRING_OR_BARE_KEY.sub(_quote_bare_key, data.decode("utf-8"))
    document = json.loads(text, strict=False)
    if _SURROGATE.search(text):
        # A lone surrogate cannot be encoded as UTF-8; Java writes a question mark in its place.
        document = json.loads(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))
    if not isinstance(document, dict):
        raise ValueError(f"a JSON object is expected, not {type(document).__name__}")
    return document


def _quote_bare_key(match: re.Match[str]) -> str:
    return match[0] if match[2] is None else f'{match[1]}"{match[2]}"'


def encode_document(document: Mapping[str, Any]) -> bytes:
    """Encode `document` as indented JSON; keys keep their order, and integer keys are quoted."""
    return msgspec.json.format(msgspec.json.encode(document), indent=_INDENT)


# --- the seal ---------------------------------------------------------------------------------------------------------


def sealed(data: bytes) -> bytes:
    """Add the seal as last member to a document made by `encode_document`."""
    comma = b"" if data == b"{}" else b","
    return b"".join((data[:-1].rstrip(), comma, _SEAL_HEAD, _seal_text(data).encode(), _SEAL_TAIL))


def seal_of(document: Mapping[str, Any]) -> str:
    """Return the correct seal for `document`, ignoring an existing one."""
    return _seal_text(encode_document({key: value for key, value in document.items() if key != SEAL_KEY}))


def check_seal(document: Mapping[str, Any]) -> bool | None:
    """Return whether the document matches its seal; None without a seal, as in files of Apache's brokers."""
    if SEAL_KEY not in document:
        return None
    try:
        return bool(document[SEAL_KEY] == seal_of(document))
    except (ValueError, OverflowError):  # text or a number that cannot be encoded, so PocketMQ did not write it
        return False


def is_size_kept(data: bytes) -> bool:
    """Return whether sealed `data` has the size recorded in its seal: damage keeps the size, an edit seldom does."""
    cut = _cut(data)
    return cut is not None and cut[1].split(b" ")[-1] == b"%d" % len(cut[0])


def repaired(data: bytes) -> tuple[bytes, int] | None:
    """Return (sealed `data` with a single flipped bit corrected, position of its byte); None for any other damage."""
    mended = _with_seal_repaired(data)
    if mended is not None:
        return mended
    cut = _cut(data)
    if cut is None:
        return None
    body, seal = cut
    try:
        flip = _flipped_bit(int(seal[:8], 16) ^ zlib.crc32(body), len(body))
    except ValueError:
        return None
    # The last two bytes of the body, a line break and the closing brace, follow the seal in the file.
    if flip is None or flip[0] >= len(body) - 2:
        return None
    at, mask = flip
    whole = data[:at] + bytes((data[at] ^ mask,)) + data[at + 1 :]
    return (whole, at) if sealed(body[:at] + whole[at : at + 1] + body[at + 1 :]) == whole else None


def _with_seal_repaired(data: bytes) -> tuple[bytes, int] | None:
    """Do the same for a flipped bit in the seal itself: the document is intact, so its seal can be computed again."""
    for digit_count in range(1, 11):
        cut_at = len(data) - len(_SEAL_HEAD) - len(_SEAL_TAIL) - 9 - digit_count - 1
        body = data[: max(cut_at, 0)] + b"\n}"
        if cut_at < 1 or len(str(len(body))) != digit_count:
            continue
        again = sealed(body)
        if len(again) != len(data):
            continue
        wrong = [at for at in range(cut_at, len(data)) if again[at] != data[at]]
        if len(wrong) == 1 and (again[wrong[0]] ^ data[wrong[0]]).bit_count() == 1:
            return again, wrong[0]
    return None


def _seal_text(data: bytes) -> str:
    return f"{zlib.crc32(data):08x} {len(data)}"


def _cut(data: bytes) -> tuple[bytes, bytes] | None:
    """Return (document before it was sealed, its seal); None if there is no seal at the end, where PocketMQ writes it."""
    head = data.rfind(_SEAL_HEAD)
    if head < 1 or not data.endswith(_SEAL_TAIL):
        return None
    body = data[: head - 1] + b"\n}" if data[head - 1 : head] != b"{" else b"{}"
    return body, data[head + len(_SEAL_HEAD) : -len(_SEAL_TAIL)]


def _flipped_bit(syndrome: int, size: int) -> tuple[int, int] | None:
    """Return (position, mask) of the bit in `size` bytes whose flip changes their CRC by `syndrome`; None without one."""
    # The CRC's table by bytes: it begins and ends with all bits inverted.
    table = [zlib.crc32(bytes((byte ^ 0xFF,))) ^ 0xFF000000 for byte in range(256)]
    of_high_byte = {entry >> 24: (entry, index) for index, entry in enumerate(table)}
    of_bit = {table[1 << bit]: 1 << bit for bit in range(8)}
    # From the last byte backwards: each step undoes the effect on the CRC of one byte after the flipped one.
    for at in range(size - 1, -1, -1):
        if syndrome in of_bit:
            return at, of_bit[syndrome]
        entry, index = of_high_byte[syndrome >> 24]
        syndrome = (syndrome ^ entry) << 8 & 0xFFFFFFFF | index
    return None
