"""The broker's small tables on disk, `config/*.json` (`store.config_document` says how they are written).

What is written replaces the file in one step, and the file before it stays as `.bak`.

Files of other versions hold keys that we know nothing of (5.x: attributes of topics, a state version). Whoever rewrites a
file hands them on: `persist` does so for the document's own keys, `carry` for whatever lies deeper.
"""

from collections.abc import Mapping
from typing import Any

from store.config_document import Document, decode_document, encode_document
from store.disk import Disk, StoreError


def carry(found: Mapping[str, Any], written: Mapping[str, Any]) -> Document:
    """`written`, and of `found` (the same object as it was read) whatever keys `written` does not have."""
    return {**found, **written}


class ConfigFile:
    """One file of `config/`. `found` is the document as last loaded or persisted."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.found: Document = {}
        self.is_missing = False
        """Whether `load` found nothing, not even a `.bak`."""
        self._disk = disk
        self._persisted = b""

    def load(self) -> Document:
        """The document; that of `.bak` when the file is missing, empty or unreadable; `{}` when there is neither.

        Raises StoreError when there is a file but no readable one, so that a damaged table is not taken for an empty one.
        Raises OSError.
        """
        reasons = []
        for path in (self.path, self.path + ".bak"):
            try:
                data = self._disk.read_file(path)
            except FileNotFoundError:
                continue
            # A crash of the machine may leave a file of the right length without its bytes.
            if not data.strip(b"\0 \t\r\n"):
                continue
            try:
                self.found = decode_document(data)
            except (ValueError, RecursionError) as error:
                reasons.append(f"{path}: {error}")
            else:
                return self.found
        if reasons:
            raise StoreError(
                f"no readable copy of {self.path} ({'; '.join(reasons)}): repair it, or delete it and its .bak: what the "
                "store can tell is made again"
            )
        self.is_missing = True
        self.found = {}
        return self.found

    def persist(self, document: Mapping[str, Any]) -> bool:
        """Write `document`, and with it those keys of `found` that it does not have. False: it has not changed since.

        Raises OSError; the file is then what it was.
        """
        complete = carry(self.found, document)
        data = encode_document(complete)
        if data == self._persisted:
            return False
        self._disk.replace_file(self.path, data)
        self._persisted, self.found = data, complete
        return True
