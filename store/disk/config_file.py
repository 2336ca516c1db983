"""The broker's small tables on disk, `config/*.json` (`config_document` says how they are written).

What is written replaces the file in one step, and the file before it stays as `.bak`.

Files of other versions hold keys that we know nothing of (5.x: attributes of topics, a state version). Whoever rewrites a
file hands them on: `persist` does so for the document's own keys, `carry` for whatever lies deeper.

A file whose seal is wrong is taken as far as it goes. One flipped bit is put right; other damage is completed with the rows
that only the `.bak` has; a file that was edited by hand counts as it is. Each is logged with the name of the file.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from pocketmq.store.disk.disk import Disk, StoreError
from pocketmq.store.format.config_document import (
    SEAL_KEY,
    Document,
    check_seal,
    decode_document,
    encode_document,
    is_size_kept,
    repaired,
    sealed,
)

log = logging.getLogger("store")


def carry(found: Mapping[str, Any], written: Mapping[str, Any]) -> Document:
    """`written`, and of `found` (the same object as it was read) whatever keys `written` does not have."""
    return {**found, **written}


class ConfigFile:
    """One file of `config/`. `found` is the document as last loaded or persisted, without its seal."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.found: Document = {}
        self.is_missing = False
        """Whether `load` found nothing, not even a `.bak`."""
        self.is_incomplete = False
        """Whether the newest state may lack in what was loaded: nothing was there, only the `.bak`, or a damaged file."""
        self._disk = disk
        self._persisted = b""
        self._is_damaged = False

    def load(self) -> Document:
        """The document; that of `.bak` when the file is missing, empty or unreadable; `{}` when there is neither.

        Raises StoreError when there is a file but no readable one, so that a damaged table is not taken for an empty one.
        Raises OSError.
        """
        self.found = {}
        reasons, unreadable = [], False
        for path in (self.path, self.path + ".bak"):
            data = self._read(path)
            if data is None:
                reasons.append(f"there is no {path}")
                continue
            # A crash of the machine may leave a file of the right length without its bytes.
            if not data.strip(b"\0 \t\r\n"):
                reasons.append(f"{path} is empty")
                continue
            try:
                self.found = self._decode(path, data)
            except (ValueError, RecursionError) as error:
                reasons.append(f"{path}: {error}")
                unreadable = True
                continue
            if path != self.path:
                self.is_incomplete = True
                self._is_damaged = self._disk.exists(self.path)
                log.warning(
                    "%s cannot be read (%s): %s is used instead, which may lack the newest change",
                    self.path, "; ".join(reasons), path,
                )  # fmt: skip
            return self.found
        if unreadable:
            raise StoreError(
                f"no readable copy of {self.path} ({'; '.join(reasons)}): repair it, or delete it and its .bak: what the "
                "store can tell is made again"
            )
        self.is_missing = self.is_incomplete = True
        if self._disk.exists(self.path):
            log.warning("%s: an empty table is used", "; ".join(reasons))
        return self.found

    def _read(self, path: str) -> bytes | None:
        try:
            return self._disk.read_file(path)
        except FileNotFoundError:
            return None

    def _decode(self, path: str, data: bytes) -> Document:
        """The document without its seal, put right where that can be done. Raises ValueError."""
        problem: ValueError | RecursionError | None = None
        is_sound: bool | None
        try:
            document = decode_document(data)
            is_sound = check_seal(document)
        except (ValueError, RecursionError) as error:
            problem, is_sound = error, False
        if is_sound is not True:
            mended = repaired(data)
            if mended is not None:
                log.warning("%s is damaged: one bit was wrong at byte %d; it is put right", path, mended[1])
                document = decode_document(mended[0])
            elif problem is not None:
                raise problem
            elif is_sound is None:
                pass  # of Apache's broker
            elif is_size_kept(data):
                self._complete(path, document)
            else:
                log.warning("%s was edited by hand, its seal says: it is taken as it is", path)
        document.pop(SEAL_KEY, None)
        return document

    def _complete(self, path: str, document: Document) -> None:
        """Add to a damaged document the rows that only the file before it has."""
        self.is_incomplete = self._is_damaged = True
        log.warning("%s is damaged, its seal says: what can be read of it is used", path)
        before: Document = {}
        data = self._read(self.path + ".bak") if path == self.path else None
        if data is not None:
            try:
                before = decode_document(data)
            except (ValueError, RecursionError):
                return
        for name, rows in before.items():
            present = document.setdefault(name, rows)
            if not isinstance(rows, dict) or not isinstance(present, dict) or present is rows:
                continue
            missing = [key for key in rows if key not in present]
            present.update({key: rows[key] for key in missing})
            if missing:
                log.warning("%s: rows of %s that only %s.bak has are used: %.500s", path, name, path, ", ".join(missing))

    def persist(self, document: Mapping[str, Any]) -> bool:
        """Write `document`, and with it those keys of `found` that it does not have. False: it has not changed since.

        Raises OSError; the file is then what it was.
        """
        complete = carry(self.found, document)
        is_written = self._replace(encode_document(complete))
        self.found = complete
        return is_written

    def _replace(self, data: bytes) -> bool:
        if data == self._persisted:
            return False
        if self._is_damaged:
            # The `.bak` is the better of the two until the new file is there.
            self._disk.rename(self.path, self.path + ".damaged")
            self._is_damaged = False
        is_first = not self._disk.exists(self.path)
        self._disk.replace_file(self.path, sealed(data))
        if is_first and not self._disk.exists(self.path + ".bak"):
            # Of two files one that is lost is missed; of one, none would be.
            self._disk.replace_file(self.path + ".bak", sealed(data))
        self._persisted = data
        return True


class RowsWriter:
    """Writes a file whose one large member is a table: a row is encoded when it changed, the others are kept encoded.

    For one thread at a time, which need not be the one that has the table.
    """

    def __init__(self, file: ConfigFile, table: str, plain: Callable[[Any], Any]) -> None:
        """`table` is the member's key; `plain` makes of what `write` gets for a row what JSON can hold."""
        self._file = file
        self._table = table
        self._plain = plain
        self._rows: dict[str, bytes] = {}

    def write(self, document: Mapping[str, Any], changes: Iterable[tuple[str, Any]]) -> bool:
        """Write `document` with the rows as `changes` leave them; None deletes a row. False and OSError as `persist`."""
        for name, row in changes:
            if row is None:
                self._rows.pop(name, None)
            else:
                self._rows[name] = _row_text(name, self._plain(row))
        file, table = self._file, self._table
        file.found.pop(table, None)
        complete = carry(file.found, document)
        members = [_member_text(name, value) for name, value in complete.items() if name != table]
        if self._rows:
            rows = b",\n".join(self._rows.values())
            members.append(b'  "%s": {\n%s\n  }' % (table.encode(), rows))
        else:
            members.append(b'  "%s": {}' % table.encode())
        return file._replace(b"{\n" + b",\n".join(members) + b"\n}")


def _member_text(name: str, value: Any) -> bytes:
    return encode_document({name: value})[2:-2]


def _row_text(name: str, row: Any) -> bytes:
    """A row as it stands in a document, two levels deep."""
    text = msgspec.json.format(b'{"":{%s:%s}}' % (msgspec.json.encode(name), msgspec.json.encode(row)), indent=2)
    return text[len(b'{\n  "": {\n') : -len(b"\n  }\n}")]
