"""CarryingTable: the rows of a JSON table under `config/`, including fields unknown to this version.

Unknown fields (written by a newer broker) are carried along and written back. Rows are replaced, never changed in place:
`put` and `forget` record which rows must be encoded again, for the file and for the wire, and what to restore when the
file cannot be written.
"""

import logging
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec

from pocketmq.store.disk.row_texts import RowTexts

log = logging.getLogger("broker")

S = TypeVar("S", bound=msgspec.Struct)

Kept = tuple[Any, dict[str, Any] | None]
"""A row and its carried unknown fields, if any."""


@cache
def _names(declared: type[msgspec.Struct]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the names of all fields in a document, and of those that may be absent; `fields` is slow."""
    fields = msgspec.structs.fields(declared)
    optional = tuple(field.encode_name for field in fields if field.default is None)
    return frozenset(field.encode_name for field in fields), optional


class CarryingTable(dict[str, S]):
    """Name -> declared struct, plus the unknown fields that the file has for it."""

    def __init__(self, declared: type[S], problem_of: Callable[[str], str | None]) -> None:
        """`problem_of` returns what is wrong with a row's name, or None."""
        super().__init__()
        self._declared = declared
        self._problem_of = problem_of
        # Rows that could not be decoded: they are written back unchanged.
        self._unread: dict[str, Any] = {}
        self._known, self._optional = _names(declared)
        self._extras: dict[str, dict[str, Any]] = {}
        # Previous state of the rows that changed: since the last `take_changes`, and between the last two calls.
        self._before: dict[str, Kept | None] = {}
        self._before_taken: dict[str, Kept | None] = {}
        self._is_taken = False
        # Encoded rows for the wire, and the names of the outdated ones; None: all are outdated.
        self._encoded = RowTexts()
        self._stale: set[str] | None = None

    def decode(self, rows: dict[str, Any]) -> None:
        """Add the rows of a document. A row that cannot be decoded is logged and kept only for writing back."""
        for name, row in rows.items():
            try:
                problem = self._problem_of(name)
                if problem is not None:
                    raise ValueError(problem)
                self[name] = self.converted(row)
            except (ValueError, AttributeError) as error:
                log.error(
                    "%s %r in the config file is ignored, but kept in the file: %s", self._declared.__name__, name, error
                )
                self._unread[name] = row
                continue
            extras = {key: value for key, value in row.items() if key not in self._known}
            if extras:
                self._extras[name] = extras

    def converted(self, row: dict[str, Any]) -> S:
        """Return the row of a document as struct. Raises ValueError or AttributeError."""
        plain = {key: value for key, value in row.items() if value is not None}
        return msgspec.convert(plain, self._declared, strict=False)

    # --- changes --------------------------------------------------------------------------------------------------------

    def put(self, name: str, row: S) -> None:
        """Set a row; its carried fields stay."""
        self.touch(name)
        self[name] = row

    def forget(self, name: str) -> bool:
        """Delete a row and its carried fields. Return False when there is no such row."""
        if name not in self:
            return False
        self.touch(name)
        self._extras.pop(name, None)
        del self[name]
        return True

    def touch(self, name: str) -> None:
        """Record that the row is about to change."""
        self._before.setdefault(name, self._kept(name))
        if self._stale is not None:
            self._stale.add(name)

    def _kept(self, name: str) -> Kept | None:
        row = self.get(name)
        return None if row is None else (row, self._extras.get(name))

    def take_changes(self) -> dict[str, Kept | None]:
        """Return the rows that changed since the last call, None for a deleted row. The first call returns all rows."""
        changes: dict[str, Kept | None]
        if self._is_taken:
            unread = {name: (None, self._unread[name]) for name in self._before if name in self._unread}
            changes = {name: self._kept(name) or unread.get(name) for name in self._before}
        else:
            self._is_taken = True
            changes = {name: (None, row) for name, row in self._unread.items() if name not in self}
            extras = self._extras
            changes |= {name: (row, extras.get(name)) for name, row in self.items()}
        self._before_taken, self._before = self._before, {}
        return changes

    def has_changed(self, name: str) -> bool:
        """Whether the row changed since the last `take_changes`."""
        return name in self._before

    def is_taken(self, name: str) -> bool:
        """Whether the row was returned by the last `take_changes` and is neither confirmed nor restored yet."""
        return name in self._before_taken

    def confirm(self) -> None:
        """Record that the rows of the last `take_changes` are on disk."""
        self._before_taken = {}

    def take_back(self) -> list[str]:
        """Restore the rows of the last `take_changes`, except those changed again since. Return the restored names."""
        restored = []
        for name, kept in self._before_taken.items():
            if name in self._before:
                self._before[name] = kept
                continue
            self.touch(name)
            self._before[name] = kept  # the state in the file
            restored.append(name)
            if kept is None:
                self.pop(name, None)
                self._extras.pop(name, None)
            else:
                self[name] = kept[0]
                if kept[1]:
                    self._extras[name] = kept[1]
        self._before_taken = {}
        return restored

    # --- encoded --------------------------------------------------------------------------------------------------------

    def plain(self, kept: Kept) -> Any:
        """Return a row of `take_changes` as plain values for the file."""
        row, extras = kept
        if row is None:
            return extras
        fields = msgspec.to_builtins(row)
        for name in self._optional:
            if fields[name] is None:
                del fields[name]
        return {**extras, **fields} if extras else fields

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return all rows as plain values, without None values and carried fields."""
        return {name: self.plain((row, None)) for name, row in self.items()}

    def encode(self) -> dict[str, dict[str, Any]]:
        """Return all rows as they are written to the file, including carried fields and undecodable rows."""
        rows = {name: row for name, row in self._unread.items() if name not in self}
        return rows | {name: self.plain((row, self._extras.get(name))) for name, row in self.items()}

    def encoded(self) -> msgspec.Raw:
        """Return all rows as JSON without carried fields. Only rows changed since the last call are encoded again."""
        encoded = self._encoded
        if self._stale is None or len(encoded) + len(self._stale) < len(self):
            encoded.clear()
            self._stale = set(self)
        for name in self._stale:
            row = self.get(name)
            if row is None:
                encoded.forget(name)
            else:
                value = msgspec.json.encode(self.plain((row, None)), order="sorted")
                encoded.put(name, msgspec.json.encode(name) + b":" + value)
        self._stale.clear()
        return msgspec.Raw(b"{%s}" % encoded.joined(b","))
