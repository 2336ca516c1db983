"""Read-only access to the files of a store, which a broker may be using at the same time.

Nothing is mapped or locked: bytes are read by `pread`, so that a file deleted by retention is not an error and a bad sector
is an OSError. Sizes are those of the files; the broker's config is not needed.
"""

import errno
import fcntl
import os
import struct
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from pocketmq.store.disk.mapped_file import FILE_NAME_SIZE
from pocketmq.store.format.layout import CONSUME_QUEUE_UNIT_SIZE

Bytes = npt.NDArray[np.uint8]
QueueKey = tuple[str, int]

INDEX_NAME_DIGITS: Final = 17  # yyyyMMddHHmmssSSS
# Descriptors kept open at once by one process.
_OPEN_MAX: Final = 200


class NotAStoreError(Exception):
    """There is no store at the given path; the text says what was expected."""


@dataclass(frozen=True, slots=True)
class RowFile:
    """One file of a row: `start_offset` is the offset of its first byte, as its name says."""

    path: str
    start_offset: int
    size: int

    @property
    def end_offset(self) -> int:
        return self.start_offset + self.size


@dataclass
class Row:
    """The files of one folder in ascending order, all of `file_size` bytes and without gaps, except for those in `odd`.

    `odd` lists (path, problem) of files that do not fit.
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


def row(*folders: str, unit_size: int = 1) -> Row:
    """Return the row of files in `folders`; empty if no folder exists. File sizes should be multiples of `unit_size`."""
    names = sorted((name, folder) for folder in folders for name in _listdir(folder))
    files = []
    for name, folder in names:
        if not (len(name) == FILE_NAME_SIZE and name.isascii() and name.isdigit()):
            continue
        path = f"{folder}/{name}"
        try:
            files.append(RowFile(path, int(name), os.path.getsize(path)))
        except FileNotFoundError:
            continue  # deleted by retention
    found = Row(folders[0])
    whole = [file for file in files if file.size]
    if whole:
        # The distance to the next file's name is the best evidence of the size; a single file has only its own size.
        steps = [after.start_offset - file.start_offset for file, after in zip(whole, whole[1:], strict=False)]
        sizes = [file.size for file in whole]
        found.file_size = max(set(sizes), key=lambda size: (steps.count(size), sizes.count(size), size))
    for file in files:
        if file.size == 0:
            found.odd.append((file.path, "the file has no bytes"))
        elif file.size != found.file_size:
            what = f"the file has {file.size} bytes, the other files of its sequence have {found.file_size}"
            found.odd.append((file.path, what))
        elif file.size % unit_size:
            found.odd.append((file.path, f"the file has {file.size} bytes, not a multiple of {unit_size}"))
        if file.size:
            if found.files and found.files[-1].start_offset + found.file_size != file.start_offset:
                missing_from = found.files[-1].start_offset + found.file_size
                found.odd.append((file.path, f"the files from {missing_from:020d} up to this one are missing"))
            found.files.append(file)
    return found


def _listdir(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


class StoreFiles:
    """The files of a store. Rows of queues are read on demand, because there may be thousands."""

    def __init__(self, root: str, commit_log_folder: str | None = None) -> None:
        """`commit_log_folder` is storePathCommitLog if it is not under the root, with commas between several folders.

        Raises NotAStoreError.
        """
        root = os.path.normpath(os.path.expanduser(root))
        if commit_log_folder is None and os.path.basename(root) == "commitlog" and os.path.isdir(root):
            root = os.path.dirname(root) or "."
        self.root = root
        self.commit_log_folder = commit_log_folder or f"{root}/commitlog"
        if not os.path.exists(root):
            raise NotAStoreError(f"there is no folder {root}: give the store's root, storePathRootDir of the broker")
        if not os.path.isdir(root):
            raise NotAStoreError(f"{root} is a file: give the store's root, the folder that has `commitlog` in it")
        self._log_folders = [folder.strip() for folder in self.commit_log_folder.split(",") if folder.strip()]
        # A broker creates the checkpoint at its first start, and the log with its first message.
        is_new = commit_log_folder is None and os.path.exists(f"{root}/checkpoint")
        if not is_new and not any(os.path.isdir(folder) for folder in self._log_folders):
            inner = next((name for name in _listdir(root) if os.path.isdir(f"{root}/{name}/commitlog")), None)
            hint = (
                f": did you mean {root}/{inner}?"
                if inner
                else " (if the log is elsewhere, give its folder with --commitlog)"
            )
            raise NotAStoreError(f"{root} is not a store: there is no folder {self.commit_log_folder}{hint}")
        self.log = row(*self._log_folders)
        self._queue_rows: dict[QueueKey, Row] = {}
        self._open: OrderedDict[str, int] = OrderedDict()

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def refresh_log(self) -> Row:
        """Read the log's folder again, after files were created or deleted."""
        self.log = row(*self._log_folders)
        return self.log

    # --- queues and index ------------------------------------------------------------------------------------------

    def queue_keys(self) -> list[QueueKey]:
        """Return (topic, queue id) of every queue that has a folder."""
        keys = []
        for topic in _listdir(self.path("consumequeue")):
            for name in _listdir(self.path(f"consumequeue/{topic}")):
                if name.isascii() and name.isdecimal():
                    keys.append((topic, int(name)))
        return sorted(keys)

    def queue_row(self, key: QueueKey) -> Row:
        found = self._queue_rows.get(key)
        if found is None:
            found = row(self.path(f"consumequeue/{key[0]}/{key[1]}"), unit_size=CONSUME_QUEUE_UNIT_SIZE)
            self._queue_rows[key] = found
        return found

    def forget_queue_row(self, key: QueueKey) -> None:
        """Let the next `queue_row` read the folder again."""
        self._queue_rows.pop(key, None)

    def index_paths(self) -> list[str]:
        """Return the index files, oldest first."""
        names = _listdir(self.path("index"))
        return [self.path(f"index/{name}") for name in names if len(name) == INDEX_NAME_DIGITS and name.isdigit()]

    # --- bytes -----------------------------------------------------------------------------------------------------

    def read(self, path: str, position: int, size: int) -> Bytes:
        """Read up to `size` bytes of a file; fewer at its end. Raises OSError."""
        descriptor = self._descriptor(path)
        data = np.empty(max(size, 0), np.uint8)
        got = 0
        while got < size:
            count = os.preadv(descriptor, [memoryview(data[got:])], position + got)  # type: ignore[arg-type]
            if count == 0:
                break
            got += count
        return data[:got]

    def read_row(self, files: Row, offset: int, size: int) -> Bytes:
        """Read bytes of a row from `offset` on, across files; fewer where the row ends or a file is missing."""
        parts = []
        while size > 0 and (file := files.file_at(offset)) is not None:
            try:
                part = self.read(file.path, offset - file.start_offset, min(size, file.end_offset - offset))
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

    def _descriptor(self, path: str) -> int:
        descriptor = self._open.pop(path, -1)
        if descriptor < 0:
            if len(self._open) >= _OPEN_MAX:
                os.close(self._open.popitem(last=False)[1])
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._open[path] = descriptor
        return descriptor

    def data_extents(self, path: str, size: int) -> list[tuple[int, int]]:
        """Return [begin, end) of the parts of a file that are not holes; all other bytes are zero."""
        descriptor = self._descriptor(path)
        extents, position = [], 0
        while position < size:
            try:
                begin = os.lseek(descriptor, position, os.SEEK_DATA)
                end = os.lseek(descriptor, begin, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    break  # only a hole follows
                return [(0, size)]  # the file system does not report holes
            extents.append((begin, min(end, size)))
            position = end
        return extents

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    # --- other processes -------------------------------------------------------------------------------------------

    def is_running(self) -> bool:
        """Return whether another process holds the store's lock. Queries the lock without taking it."""
        try:
            descriptor = os.open(self.path("lock"), os.O_RDONLY)
        except OSError:
            return False
        try:
            question = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, question)
            return bool(struct.unpack("hhqqi4x", answer)[0] != fcntl.F_UNLCK)
        except OSError:
            return False
        finally:
            os.close(descriptor)
