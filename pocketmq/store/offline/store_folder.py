"""StoreFolder: the files of a store, read without opening it; a broker may be using them at the same time.

Nothing is mapped, locked or written, and the broker's config is not needed: sizes are those of the files. Missing files
count as empty, as in a broker; unreadable content raises DamagedFileError with the file and the position.
"""

import logging
import posixpath
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from pocketmq.store.format.config_document import Document, decode_document
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_SIZE
from pocketmq.store.format.message import QueueKey
from pocketmq.store.format.record_chain import Bytes
from pocketmq.store.offline.file_bytes import FileBytes, Files, KeptOpenFiles, files_of

log = logging.getLogger(__name__)

_ROW_NAME_DIGITS: Final = 20
_INDEX_NAME_DIGITS: Final = 17  # yyyyMMddHHmmssSSS


class DamagedFileError(ValueError):
    """A file of a store whose content does not match its format."""


class MissingFileError(FileNotFoundError):
    """A file that existed when its folder was listed and no longer does."""


def is_row_name(name: str) -> bool:
    """Return whether a name has the form of the files of a mapped-file queue (20 digits)."""
    return len(name) == _ROW_NAME_DIGITS and name.isascii() and name.isdigit()


def is_index_name(name: str) -> bool:
    """Return whether a name has the form of an index file's (17 digits, its creation time)."""
    return len(name) == _INDEX_NAME_DIGITS and name.isascii() and name.isdigit()


@dataclass(frozen=True, slots=True)
class RowFile:
    """One file of a store. `start_offset` is the offset of its first byte, as its name says; 0 for a single file.

    `kept_open`: the file system to open it with; by default that of its path.
    """

    path: str
    start_offset: int
    size: int
    kept_open: KeptOpenFiles | None = field(default=None, compare=False, repr=False)

    @property
    def end_offset(self) -> int:
        return self.start_offset + self.size

    def open(self) -> AbstractContextManager[FileBytes]:
        """Open the file for several reads. Raises MissingFileError, OSError."""
        try:
            return (self.kept_open or files_of(self.path)).open(self.path)
        except FileNotFoundError:
            raise MissingFileError(f"{self.path} was deleted after it was listed, probably by retention") from None

    def read(self, position: int, size: int) -> Bytes:
        """Read up to `size` bytes from `position`. Raises MissingFileError, OSError."""
        with self.open() as data:
            return data.read(position, max(min(size, self.size - position), 0))


@dataclass
class Row:
    """The files of a mapped-file queue in ascending order, without empty ones.

    Unless `odd` lists (path, problem) of some of them, all have `file_size` bytes and none is missing in between.
    """

    folder: str
    files: list[RowFile] = field(default_factory=list)
    file_size: int = 0
    odd: list[tuple[str, str]] = field(default_factory=list)

    @property
    def min_offset(self) -> int:
        return self.files[0].start_offset if self.files else 0

    @property
    def end_offset(self) -> int:
        return self.files[-1].end_offset if self.files else 0

    def file_at(self, offset: int) -> RowFile | None:
        """Return the file that contains the byte `offset`."""
        if not self.files or not self.min_offset <= offset < self.end_offset:
            return None
        # Correct for a row without gaps; a row with gaps is searched.
        index = (offset - self.min_offset) // self.file_size
        if index < len(self.files) and self.files[index].start_offset <= offset < self.files[index].end_offset:
            return self.files[index]
        return next((file for file in self.files if file.start_offset <= offset < file.end_offset), None)

    def read(self, offset: int, size: int) -> Bytes:
        """Read bytes from `offset` on, across files; fewer where the row ends or a file is missing."""
        parts = []
        while size > 0 and (file := self.file_at(offset)) is not None:
            try:
                part = file.read(offset - file.start_offset, size)
            except FileNotFoundError:
                break
            if not len(part):
                break
            parts.append(part)
            offset += len(part)
            size -= len(part)
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, np.uint8)


def listed(files: Files, *folders: str) -> list[RowFile]:
    """Return the files of a mapped-file queue in some folders, ascending; none for a folder that does not exist."""
    kept_open = files if isinstance(files, KeptOpenFiles) else None
    found = []
    for folder in folders:
        for name in filter(is_row_name, names_in(files, folder)):
            path = posixpath.join(folder, name)
            try:
                found.append(RowFile(path, int(name), files.size(path), kept_open))
            except FileNotFoundError:
                log.info("%s was deleted while its folder was listed", path)
    return sorted(found, key=lambda file: (file.start_offset, file.path))


def names_in(files: Files, folder: str) -> list[str]:
    """Return the sorted names in a folder; empty if it does not exist."""
    try:
        return files.names(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def row_of(files: Files, *folders: str, unit_size: int = 1) -> Row:
    """Return the row of files in `folders`. File sizes should be multiples of `unit_size`."""
    every = listed(files, *folders)
    found = Row(folders[0], [file for file in every if file.size])
    # The distance to the next file's name is the best evidence of the size; a single file has only its own size.
    steps = [after.start_offset - file.start_offset for file, after in zip(found.files, found.files[1:], strict=False)]
    sizes = [file.size for file in found.files]
    found.file_size = max(set(sizes), key=lambda size: (steps.count(size), sizes.count(size), size), default=0)
    before: RowFile | None = None
    for file in every:
        if file.size == 0:
            found.odd.append((file.path, "the file has no bytes"))
            continue
        if file.size != found.file_size:
            what = f"the file has {file.size} bytes, the other files of its sequence have {found.file_size}"
            found.odd.append((file.path, what))
        elif file.size % unit_size:
            found.odd.append((file.path, f"the file has {file.size} bytes, not a multiple of {unit_size}"))
        if before is not None and before.start_offset + found.file_size != file.start_offset:
            missing_from = before.start_offset + found.file_size
            found.odd.append((file.path, f"the files from {missing_from:020d} up to this one are missing"))
        before = file
    return found


@dataclass
class StoreFolder:
    """A store's root folder, with some or all of `commitlog`, `consumequeue`, `config` and `index` in it.

    `kept_open`: the file system to read it with; by default that of its path.
    """

    root: str
    kept_open: KeptOpenFiles | None = field(default=None, compare=False, repr=False)

    @property
    def files(self) -> Files:
        return self.kept_open or files_of(self.root)

    def path(self, *names: str) -> str:
        return posixpath.join(self.root, *names)

    def names(self, *names: str) -> list[str]:
        """Return the sorted names in a folder; empty if it does not exist."""
        return names_in(self.files, self.path(*names))

    def row(self, *names: str, unit_size: int = 1) -> Row:
        """Return the files of a mapped-file queue."""
        return row_of(self.files, self.path(*names), unit_size=unit_size)

    def file(self, path: str) -> RowFile:
        """Return a single file. Raises FileNotFoundError."""
        return RowFile(path, 0, self.files.size(path), self.kept_open)

    def log_begin(self) -> int:
        """Physical offset at which the log begins; 0 if there is no log."""
        return self.row("commitlog").min_offset

    def queue_ids(self, topic: str) -> list[int]:
        """Return the ids of the queues of a topic that have a folder."""
        return sorted(int(name) for name in self.names("consumequeue", topic) if name.isascii() and name.isdecimal())

    def queue_keys(self) -> list[QueueKey]:
        """Return (topic, queue id) of every queue that has a folder."""
        return [(topic, queue_id) for topic in self.names("consumequeue") for queue_id in self.queue_ids(topic)]

    def queue_row(self, key: QueueKey) -> Row:
        return self.row("consumequeue", key[0], str(key[1]), unit_size=CONSUME_QUEUE_UNIT_SIZE)

    def index_paths(self) -> list[str]:
        """Return the index files, oldest first."""
        return [self.path("index", name) for name in self.names("index") if is_index_name(name)]

    # --- small files ------------------------------------------------------------------------------------------------

    def bytes_of(self, *names: str) -> bytes | None:
        """Return the content of a small file; None if it does not exist. Raises OSError."""
        path, files = self.path(*names), files_of(self.root)
        try:
            with files.open(path) as data:
                return data.read(0, files.size(path)).tobytes()
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

    def topics(self) -> dict[str, Any]:
        """Return topic -> its fields, as config/topics.json has them. Raises DamagedFileError."""
        return self.table("topics.json", "topicConfigTable")
