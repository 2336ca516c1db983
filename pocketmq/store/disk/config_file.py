"""ConfigFile: one of the broker's small tables on disk, `config/*.json` (format: `config_document`).

A write replaces the file atomically; the previous file is kept as `.bak`.

Files of other versions may have unknown keys (5.x: attributes of topics, a state version). `persist` preserves those of the
document, its callers those of nested objects.

A file with a wrong seal (checksum) is used as far as possible. A single flipped bit is corrected; after other damage, rows
that only the `.bak` has are added; a file edited by hand is used as it is. Each case is logged with the name of the file.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from pocketmq.store.disk.disk import Disk, StoreError
from pocketmq.store.disk.row_texts import RowTexts
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


class ConfigFile:
    """A file in `config/`. `found` is the document as last loaded or persisted, without its seal."""

    def __init__(self, disk: Disk, path: str, *, is_private: bool = False) -> None:
        """`is_private`: only the owner may read the file."""
        if is_private:
            disk.keep_private(path)
        self.path = path
        self.found: Document = {}
        self.is_missing = False
        """Whether `load` found neither the file nor a `.bak`."""
        self.is_incomplete = False
        """Whether the loaded document may lack the newest changes: no file, only the `.bak`, or a damaged file was found."""
        self._disk = disk
        self._persisted_digest = b""
        self._is_damaged = False

    def load(self) -> Document:
        """Return the document, that of `.bak` if the file is missing, empty or unreadable, or `{}` if neither exists.

        Raises StoreError if files exist but none is readable, so that a damaged table is not treated as empty; OSError.
        """
        self.found = {}
        reasons, unreadable = [], False
        for path in (self.path, self.path + ".bak"):
            data = self._read(path)
            if data is None:
                reasons.append(f"there is no {path}")
                continue
            # A power cut may leave a file with the right length but without its bytes.
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
                f"no readable copy of {self.path} ({'; '.join(reasons)}): repair it, or delete it and its .bak; "
                "it is then rebuilt from the store as far as possible"
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
        """Return the document without its seal, repaired if possible. Raises ValueError."""
        problem: ValueError | RecursionError | None = None
        is_valid: bool | None
        try:
            document = decode_document(data)
            is_valid = check_seal(document)
        except (ValueError, RecursionError) as error:
            problem, is_valid = error, False
        if is_valid is not True:
            mended = repaired(data)
            if mended is not None:
                log.warning("%s is damaged: one bit was wrong at byte %d; it is corrected", path, mended[1])
                document = decode_document(mended[0])
            elif problem is not None:
                raise problem
            elif is_valid is None:
                pass  # written by Apache's broker, without a seal
            elif is_size_kept(data):
                self._complete(path, document)
            else:
                log.warning("%s was edited by hand, according to its checksum; it is used as it is", path)
        document.pop(SEAL_KEY, None)
        return document

    def _complete(self, path: str, document: Document) -> None:
        """Add the rows to a damaged document that only the previous file has."""
        self.is_incomplete = self._is_damaged = True
        log.warning("%s is damaged, according to its checksum; its readable part is used", path)
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
                log.warning("%s: rows of %s are restored from %s.bak: %.500s", path, name, path, ", ".join(missing))

    def persist(self, document: Mapping[str, Any]) -> bool:
        """Write `document` plus the keys that only `found` has. Return False if nothing has changed.

        Raises OSError; the file is then unchanged.
        """
        complete = {**self.found, **document}
        is_written = self._replace(encode_document(complete))
        self.found = complete
        return is_written

    def _replace(self, data: bytes) -> bool:
        digest = hashlib.blake2b(data, digest_size=32).digest()
        if digest == self._persisted_digest:
            return False
        if self._is_damaged:
            # The `.bak` is better than the damaged file and must survive until the new file exists.
            self._disk.rename(self.path, self.path + ".damaged")
            self._is_damaged = False
        is_first = not self._disk.exists(self.path)
        self._disk.replace_file(self.path, sealed(data))
        if is_first and not self._disk.exists(self.path + ".bak"):
            # With a `.bak` from the start, a loss of either file is noticed.
            self._disk.replace_file(self.path + ".bak", sealed(data))
        self._persisted_digest = digest
        return True


class RowsWriter:
    """Writer for a file with one large table: only changed rows are encoded, the others are cached in encoded form.

    Not thread-safe, but `write` may be called in another thread than the one that changes the table.
    """

    def __init__(self, file: ConfigFile, table: str, plain: Callable[[Any], Any]) -> None:
        """`table` is the key of the table; `plain` converts a row passed to `write` to a JSON-compatible value."""
        self._file = file
        self._table = table
        self._plain = plain
        self._rows = RowTexts()

    def write(self, document: Mapping[str, Any], changes: Iterable[tuple[str, Any]]) -> bool:
        """Apply `changes` to the rows (None deletes one) and write `document` with them. Result and errors as `persist`."""
        for name, row in changes:
            if row is None:
                self._rows.forget(name)
            else:
                self._rows.put(name, _row_text(name, self._plain(row)))
        file, table = self._file, self._table
        file.found.pop(table, None)
        complete = {**file.found, **document}
        members = [_member_text(name, value) for name, value in complete.items() if name != table]
        if self._rows:
            members.append(b'  "%s": {\n%s\n  }' % (table.encode(), self._rows.joined(b",\n")))
        else:
            members.append(b'  "%s": {}' % table.encode())
        return file._replace(b"{\n" + b",\n".join(members) + b"\n}")


def _member_text(name: str, value: Any) -> bytes:
    return encode_document({name: value})[2:-2]


def _row_text(name: str, row: Any) -> bytes:
    """Encode a row as it appears in a document, indented by two levels."""
    text = msgspec.json.format(b'{"":{%s:%s}}' % (msgspec.json.encode(name), msgspec.json.encode(row)), indent=2)
    return text[len(b'{\n  "": {\n') : -len(b"\n  }\n}")]
