"""The JSON dialect of a store's small tables, `config/*.json`: read as Apache's writers write it, written as plain JSON.

4.9.4 (fastjson 1) and 5.x (fastjson 2) write keys that are numbers without quotes, `{0:2,1:0}`; both read them quoted too.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

Document = dict[str, Any]

# A string, to step over it, or a bare number that is a key: after `{` or `,` and before `:`.
_STRING_OR_BARE_KEY: Final = re.compile(r'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?\d+)(?=\s*:)', re.DOTALL)
_INDENT: Final = 2


def decode_document(data: bytes) -> Document:
    """The JSON object in `data`, all keys as text. Raises ValueError when it is none."""
    text = _STRING_OR_BARE_KEY.sub(_quote_bare_key, data.decode("utf-8"))
    document = json.loads(text, strict=False)
    if not isinstance(document, dict):
        raise ValueError(f"a JSON object is expected, not {type(document).__name__}")
    return document


def _quote_bare_key(match: re.Match[str]) -> str:
    return match[0] if match[2] is None else f'{match[1]}"{match[2]}"'


def encode_document(document: Mapping[str, Any]) -> bytes:
    """`document` as indented JSON, keys in their order, those that are integers quoted."""
    return msgspec.json.format(msgspec.json.encode(document), indent=_INDENT)
