"""Reading and writing of Java's `.properties` format.

The syntax is that of `java.util.Properties`: `key=value`, `key: value` or `key value`; `#` and `!` begin comments; a
backslash at the end of a line continues it, white space at the start of the next line is dropped; `\\t \\n \\r \\f \\uXXXX`
are escapes, a backslash before anything else is dropped; white space at the end of a value belongs to the value. Unlike
Java, valid UTF-8 is read as UTF-8, because people write it; other bytes are read as Latin-1.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_BLANKS: Final = " \t\f"
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_NAMED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def load(path: Path) -> dict[str, str]:
    """Read a file. Raises OSError, or ValueError with the line number."""
    return loads(decode(path.read_bytes()))


def decode(data: bytes) -> str:
    """Decode the bytes of a file or of a request body: UTF-8, else Latin-1."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def loads(text: str) -> dict[str, str]:
    """Parse text; the last value of a repeated key counts. Raises ValueError with the line number."""
    return {key: value for _, key, _, value in entries(text)}


def entries(text: str) -> Iterator[tuple[int, str, bool, str]]:
    """Yield (line number, key, whether a separator follows, value) of each entry. Raises ValueError with the line number."""
    for number, _, line in _spans(text):
        yield number, *_entry(number, line)


def _entry(number: int, line: str) -> tuple[str, bool, str]:
    """Return (key, whether a separator follows, value) of a logical line that starts at line `number`. Raises ValueError."""
    key = _KEY.match(line)
    assert key is not None  # the pattern matches the empty string too
    separator = _SEPARATOR.match(line, key.end())
    assert separator is not None
    try:
        return _unescape(key.group()), key.end() < len(line), _unescape(line[separator.end() :])
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from None


def dumps(properties: Mapping[str, str]) -> str:
    """Return text, in the given order, that `loads` and Java read back to `properties`."""
    return "".join(f"{_escape(key, is_key=True)}={_escape(value)}\n" for key, value in properties.items())


def edited(text: str, changes: Mapping[str, str]) -> str:
    """Return `text` with the values of `changes`. Comments and order are kept; new keys are appended."""
    lines = _LINE_END.split(text)
    replaced: set[str] = set()
    for first, last, line in reversed(list(_spans(text))):
        # A continued line that starts with `#` or is empty still belongs to an entry.
        key, _, _ = _entry(first, line)
        if key in changes:
            # Only the last line of a repeated key counts: the earlier ones are removed.
            lines[first - 1 : last] = [] if key in replaced else [dumps({key: changes[key]}).rstrip("\n")]
            replaced.add(key)
    kept = "\n".join(lines)
    if kept and not kept.endswith("\n"):
        kept += "\n"
    return kept + dumps({key: value for key, value in changes.items() if key not in replaced})


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (first line, last line, joined text) of each entry."""
    begun: str | None = None
    first = number = 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if begun is None:
            if not line or line[0] in "#!":
                continue
            first = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun = (begun or "") + line[:-1]
            continue
        yield first, number, (begun or "") + line
        begun = None
    if begun:
        yield first, number, begun


def _unescape(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        escaped = match.group(1)
        if escaped == "u":
            raise ValueError("\\u is not followed by four hexadecimal digits")
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        return _NAMED.get(escaped, escaped)

    # Java writes characters outside the basic plane as a surrogate pair of two \u escapes.
    return _ESCAPE.sub(replaced, text).encode("utf-16", "surrogatepass").decode("utf-16") if "\\" in text else text


def _escape(text: str, is_key: bool = False) -> str:
    out = "".join(_WRITTEN.get(character, character) for character in text)
    if is_key:
        return re.sub(r"([ =:#!])", r"\\\1", out)
    return "\\" + out if out.startswith(" ") else out
