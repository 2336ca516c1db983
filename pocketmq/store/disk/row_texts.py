"""RowTexts: the encoded rows of a large table, in little memory.

The rows of such a table are mostly alike but for their names, such as thousands of topics with the same settings. So a text
is kept as its parts between the occurrences of the name, and rows with the same parts share them.
"""

from typing import Final

import msgspec

_SHARED_SPARE: Final = 64
"""Number of parts kept in addition to one for each row before those no longer used are dropped."""


class RowTexts:
    """Name -> text that contains the name, encoded as JSON, usually twice. In the order in which names were first put."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[bytes, ...]] = {}
        self._shared: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, name: str, text: bytes) -> None:
        """Set the text of a row."""
        parts = tuple(text.split(msgspec.json.encode(name)))
        self._rows[name] = self._shared.setdefault(parts, parts)
        if len(self._shared) > len(self._rows) + _SHARED_SPARE:
            self._shared = {kept: kept for kept in self._rows.values()}

    def forget(self, name: str) -> None:
        """Remove the row, if it exists."""
        self._rows.pop(name, None)

    def clear(self) -> None:
        """Remove all rows."""
        self._rows.clear()
        self._shared.clear()

    def joined(self, separator: bytes) -> bytearray:
        """Return all texts with `separator` between them. Built row by row: a list would double peak memory."""
        out = bytearray()
        for name, parts in self._rows.items():
            if out:
                out += separator
            out += msgspec.json.encode(name).join(parts)
        return out
