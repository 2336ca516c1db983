"""Read access to a store's folder for the companion tables: file sequences, bytes, and the documents of `config/`.

Nothing is locked or written. Missing files count as empty, as in a broker; unreadable content raises DamagedFileError with
the file and the position.
"""

import logging
import posixpath
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from pocketmq.spark_analytics.files.places import Files, files_of, is_row_name, local_path, open_file, read_at
from pocketmq.store.format.config_document import Document, decode_document
from pocketmq.store.format.record_chain import Bytes

log = logging.getLogger(__name__)

PARTS: Final = ("commitlog", "consumequeue", "config", "index")


class DamagedFileError(ValueError):
    """A file of a store whose content does not match its format."""


class RowFile(NamedTuple):
    """One file of a mapped-file queue; `start` is the offset of its first byte, taken from its name."""

    path: str
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size

    def read(self, position: int, size: int) -> Bytes:
        """Read up to `size` bytes from `position`. Raises FileNotFoundError."""
        with open_file(self.path) as stream:
            return read_at(stream, position, max(min(size, self.size - position), 0))


class StoreFolder(NamedTuple):
    """A store's root folder, with some or all of `commitlog`, `consumequeue`, `config` and `index` in it."""

    root: str

    @property
    def files(self) -> Files:
        return files_of(self.root)

    def path(self, *names: str) -> str:
        return posixpath.join(self.root, *names)

    def names(self, *names: str) -> list[str]:
        """Return the sorted names in a folder; empty if it does not exist."""
        path = self.path(*names)
        return sorted(self.files.names(path)) if self.files.is_folder(path) else []

    def row(self, *names: str) -> list[RowFile]:
        """Return the files of a mapped-file queue, ascending, without the empty ones that a crash leaves."""
        found = []
        for name in filter(is_row_name, self.names(*names)):
            path = self.path(*names, name)
            try:
                found.append(RowFile(path, int(name), self.files.size(path)))
            except FileNotFoundError:
                continue  # deleted by retention since the listing
        return [file for file in found if file.size]

    def log_begin(self) -> int:
        """Physical offset at which the log begins; 0 if there is no log."""
        files = self.row("commitlog")
        return files[0].start if files else 0

    def bytes_of(self, *names: str) -> bytes | None:
        """Return the content of a small file; None if it does not exist."""
        path = self.path(*names)
        try:
            with open_file(path) as stream:
                return read_at(stream, 0, self.files.size(path)).tobytes()
        except FileNotFoundError:
            return None

    def document(self, name: str) -> Document:
        """Return a document of `config/`; `{}` if it does not exist.

        As in a broker, the `.bak` file is used if the document is missing, blank or unreadable. Raises DamagedFileError if
        neither is readable.
        """
        problem = None
        for file in (name, f"{name}.bak"):
            data = self.bytes_of("config", file)
            if data is None or not data.strip(b"\0 \t\r\n"):
                continue
            try:
                return decode_document(data)
            except (ValueError, RecursionError) as error:
                problem = problem or DamagedFileError(f"{self.path('config', file)} is not readable JSON: {error}")
                log.warning("%s", problem)
        if problem is not None:
            raise problem
        return {}

    def table(self, file: str, *keys: str) -> dict[str, Any]:
        """Return the object under `keys` of a document of `config/`; empty if it does not exist. Raises DamagedFileError."""
        found: Any = self.document(file)
        for depth, key in enumerate(keys, 1):
            found = found.get(key)
            if found is None:
                return {}
            if not isinstance(found, dict):
                raise DamagedFileError(f"{self.path('config', file)}: {'.'.join(keys[:depth])} is not an object: {found!r}")
        table: dict[str, Any] = found
        return table


def store_folders(paths: Iterable[str]) -> list[StoreFolder]:
    """Return the stores named by `paths`: each a root, a commitlog folder in one, or a glob of these.

    Raises FileNotFoundError that names the missing path.
    """
    roots = []
    for asked in paths:
        path = local_path(asked).rstrip("/")
        files = files_of(path)
        named = [path] if files.is_folder(path) or files.is_file(path) else sorted(files.glob(path))
        if not named:
            raise FileNotFoundError(f"no store at {path}: no such file or folder")
        for name in named:
            root = posixpath.dirname(name) if posixpath.basename(name) == "commitlog" else name
            if not any(files.is_folder(posixpath.join(root, part)) for part in PARTS):
                raise FileNotFoundError(f"no store at {root}: it contains none of {', '.join(PARTS)}")
            roots.append(root)
    return [StoreFolder(root) for root in dict.fromkeys(roots)]
