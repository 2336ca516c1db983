"""CarryingTable: the rows of a table of `config/`, with what a newer broker wrote beside the fields that we know.

A row is replaced, not changed in place: by `put` and `forget` the table knows which rows must be encoded anew, for its file
and for the wire, and what to restore when the file cannot be written.
"""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

log = logging.getLogger("broker")

S = TypeVar("S", bound=msgspec.Struct)

Kept = tuple[Any, dict[str, Any] | None]
"""A row and what is carried beside it."""


class CarryingTable(dict[str, S]):
    """Name -> declared struct, and what else stood beside its fields in the file."""

    def __init__(self, declared: type[S], problem_of: Callable[[str], str | None]) -> None:
        """`problem_of` says what is wrong with a name, if anything is."""
        super().__init__()
        self._declared = declared
        self._problem_of = problem_of
        # What could not be read is not ours to delete.
        self._unread: dict[str, Any] = {}
        fields = msgspec.structs.fields(declared)
        self._known = {field.encode_name for field in fields}
        self._optional = [field.encode_name for field in fields if field.default is None]
        self._extras: dict[str, dict[str, Any]] = {}
        # What was there before, of the rows that changed: since the last `take_changes`, and between the last two.
        self._before: dict[str, Kept | None] = {}
        self._before_taken: dict[str, Kept | None] = {}
        self._is_taken = False
        # Encoded rows for the wire, and which of them are out of date; None: all.
        self._encoded: dict[str, bytes] = {}
        self._stale: set[str] | None = None

    def decode(self, rows: dict[str, Any]) -> None:
        """Add the rows of a document; one that does not fit is left out and logged."""
        for name, row in rows.items():
            try:
                problem = self._problem_of(name)
                if problem is not None:
                    raise ValueError(problem)
                plain = {key: value for key, value in row.items() if value is not None}
                self[name] = msgspec.convert(plain, self._declared, strict=False)
            except (ValueError, AttributeError) as error:
                log.error("%s %r in the config file: %s; left alone", self._declared.__name__, name, error)
                self._unread[name] = row
                continue
            extras = {key: value for key, value in row.items() if key not in self._known}
            if extras:
                self._extras[name] = extras

    # --- changes --------------------------------------------------------------------------------------------------------

    def put(self, name: str, row: S) -> None:
        """Set a row; what is carried beside it stays."""
        self.touch(name)
        self[name] = row

    def forget(self, name: str) -> bool:
        """Delete a row with all that was carried beside it. False when there is none."""
        if name not in self:
            return False
        self.touch(name)
        self._extras.pop(name, None)
        del self[name]
        return True

    def touch(self, name: str) -> None:
        """The row will change."""
        self._before.setdefault(name, self._kept(name))
        if self._stale is not None:
            self._stale.add(name)

    def _kept(self, name: str) -> Kept | None:
        row = self.get(name)
        return None if row is None else (row, self._extras.get(name))

    def take_changes(self) -> dict[str, Kept | None]:
        """The rows that changed since the last call, None for one that is gone; at first all."""
        changes: dict[str, Kept | None]
        if self._is_taken:
            changes = {name: self._kept(name) or self._unread_row(name) for name in self._before}
        else:
            self._is_taken = True
            changes = {name: (None, row) for name, row in self._unread.items() if name not in self}
            extras = self._extras
            changes |= {name: (row, extras.get(name)) for name, row in self.items()}
        self._before_taken, self._before = self._before, {}
        return changes

    def _unread_row(self, name: str) -> Kept | None:
        return (None, self._unread[name]) if name in self._unread else None

    def has_changed(self, name: str) -> bool:
        """Whether the row changed since the last `take_changes`."""
        return name in self._before

    def is_taken(self, name: str) -> bool:
        """Whether the last `take_changes` told of the row, which is neither confirmed nor taken back."""
        return name in self._before_taken

    def confirm(self) -> None:
        """What the last `take_changes` told of is on the disk."""
        self._before_taken = {}

    def take_back(self) -> list[str]:
        """Restore what the last `take_changes` told of, but for rows that changed again since; which rows changed so."""
        restored = []
        for name, kept in self._before_taken.items():
            if name in self._before:
                self._before[name] = kept
                continue
            self.touch(name)
            self._before[name] = kept  # which is what the file has
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
        """A row of `take_changes` as it is written."""
        row, extras = kept
        if row is None:
            return extras
        fields = msgspec.to_builtins(row)
        for name in self._optional:
            if fields[name] is None:
                del fields[name]
        return {**extras, **fields} if extras else fields

    def rows(self) -> dict[str, dict[str, Any]]:
        """All rows in plain values, None left out, without what is carried."""
        return {name: self.plain((row, None)) for name, row in self.items()}

    def encode(self) -> dict[str, dict[str, Any]]:
        """The rows as they are written, with what is carried."""
        rows = {name: row for name, row in self._unread.items() if name not in self}
        return rows | {name: self.plain((row, self._extras.get(name))) for name, row in self.items()}

    def encoded(self) -> msgspec.Raw:
        """All rows as JSON, without what is carried; only those are encoded that changed since the last call."""
        encoded = self._encoded
        if self._stale is None or len(encoded) + len(self._stale) < len(self):
            encoded.clear()
            self._stale = set(self)
        for name in self._stale:
            row = self.get(name)
            if row is None:
                encoded.pop(name, None)
            else:
                encoded[name] = (
                    msgspec.json.encode(name) + b":" + msgspec.json.encode(self.plain((row, None)), order="sorted")
                )
        self._stale.clear()
        return msgspec.Raw(b"{" + b",".join(encoded.values()) + b"}")
