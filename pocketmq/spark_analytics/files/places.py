"""Access to log files by path, glob, list or URL.

A store may be on a local (or mounted) disk, or on any file system that fsspec supports: `s3://`, `hdfs://`, `gs://`,
`memory://`. For S3, GCS and HDFS the file systems of PyArrow are used where fsspec's own are not installed. Each task opens
files by their URL.
"""

import errno
import glob
import logging
import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Protocol

import numpy as np

from pocketmq.store.format.layout import PHYSICAL_OFFSET_POSITION
from pocketmq.store.format.record_chain import MARK_SIZE, Bytes, record_candidates

log = logging.getLogger(__name__)

FILE_NAME_DIGITS: Final = 20
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
# Innermost braces with alternatives.
_BRACES: Final = re.compile(r"\{([^{}]*,[^{}]*)\}")
# Records with at most this many bytes between them are read in one call, which is cheaper than a call each.
GAP_LOCAL: Final = 4 << 10
GAP_REMOTE: Final = 1 << 20

bytes_read = 0
"""Number of bytes read by `read_at` in this process."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of a CommitLog: path, physical offset of its first byte, size in bytes.

    `is_listed`: found by listing a folder, all of whose files are meant, rather than named by the user.
    """

    path: str
    physical_offset: int
    size: int
    is_listed: bool = False

    @property
    def end(self) -> int:
        """Physical offset of the first byte behind the file."""
        return self.physical_offset + self.size

    @property
    def folder(self) -> str:
        return posixpath.dirname(self.path)

    @property
    def store(self) -> str:
        """The root of the file's store, or its folder, if that is not named commitlog."""
        return posixpath.dirname(self.folder) if posixpath.basename(self.folder) == "commitlog" else self.folder


class MissingFileError(FileNotFoundError):
    """A file that existed when the query was planned and no longer does."""


class Files(Protocol):
    """The file-system operations needed here. Paths are absolute, or URLs."""

    def is_file(self, path: str) -> bool: ...

    def is_folder(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def used(self, path: str) -> int:
        """As `size`, but without the holes of a sparse file where the file system reports them."""
        ...

    def names(self, folder: str) -> list[str]: ...

    def glob(self, pattern: str) -> list[str]: ...

    def open(self, path: str) -> BinaryIO: ...


class LocalFiles:
    """The local file system."""

    def is_file(self, path: str) -> bool:
        return os.path.isfile(path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.path.getsize(path)

    def used(self, path: str) -> int:
        status = os.stat(path)
        return min(status.st_size, status.st_blocks * 512)

    def names(self, folder: str) -> list[str]:
        return os.listdir(folder)

    def glob(self, pattern: str) -> list[str]:
        return glob.glob(pattern)

    def open(self, path: str) -> BinaryIO:
        return open(path, "rb", buffering=0)


class RemoteFiles:
    """An fsspec file system."""

    def __init__(self, file_system: Any) -> None:
        self._own = file_system
        self._own.invalidate_cache()

    def is_file(self, path: str) -> bool:
        return bool(self._own.isfile(path))

    def is_folder(self, path: str) -> bool:
        return bool(self._own.isdir(path))

    def size(self, path: str) -> int:
        return int(self._own.size(path))

    def used(self, path: str) -> int:
        return self.size(path)

    def names(self, folder: str) -> list[str]:
        return [posixpath.basename(name.rstrip("/")) for name in self._own.ls(folder, detail=False)]

    def glob(self, pattern: str) -> list[str]:
        scheme = pattern.split("://")[0]
        return [name if "://" in name else f"{scheme}://{name}" for name in self._own.glob(pattern)]

    def open(self, path: str) -> BinaryIO:
        # No cache: windows are large and read once.
        stream: BinaryIO = self._own.open(path, "rb", cache_type="none")
        return stream


def files_of(path: str) -> Files:
    """Return the file system of a path or URL. Raises ImportError that names the package to install."""
    url = _URL.match(path)
    if url is None:
        return LocalFiles()
    try:
        import fsspec
    except ImportError:
        raise ImportError(f"{path}: reading {url[1]}:// needs fsspec: pip install fsspec") from None
    try:
        return RemoteFiles(fsspec.core.url_to_fs(path)[0])
    except (ImportError, ValueError) as error:
        # PyArrow has file systems of its own, and fsspec a wrapper for them.
        import pyarrow.fs
        from fsspec.implementations.arrow import ArrowFSWrapper

        # Only scheme and server: in a URI, the % that a topic's folder name may contain would have to be escaped.
        server = "/".join(path.split("/", 3)[:3]) + "/"
        try:
            return RemoteFiles(ArrowFSWrapper(pyarrow.fs.FileSystem.from_uri(server)[0]))
        except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError):
            raise ImportError(f"{path}: {error}") from None


def is_remote(path: str) -> bool:
    """Return whether a path is a URL, where every read is a network request."""
    return _URL.match(path) is not None


def gap_of(path: str) -> int:
    """Return the size of the largest gap between two wanted parts of a file that is read together with them."""
    return GAP_REMOTE if is_remote(path) else GAP_LOCAL


def local_path(path: str) -> str:
    """Return a path without `file:` and with `~` expanded; other URLs are returned unchanged."""
    path = re.sub(r"^file:(//(localhost)?)?(?=/)", "", path)
    return path if is_remote(path) else os.path.expanduser(path)


def separate_paths(text: str) -> list[str]:
    """Return the paths in `text`, which are separated by commas; `{a,b}` stands for each of its alternatives.

    A text that is the path of an existing local file or folder is that one path.
    """
    path = local_path(text)
    if not is_remote(path) and os.path.exists(path):
        return [text]
    parts, depth = [""], 0
    for symbol in text:
        depth += (symbol == "{") - (symbol == "}")
        if symbol == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += symbol
    return [one for part in parts for one in _alternatives(part.strip())]


def _alternatives(path: str) -> list[str]:
    braces = _BRACES.search(path)
    if braces is None:
        return [path]
    begin, end = braces.span()
    return [one for choice in braces[1].split(",") for one in _alternatives(path[:begin] + choice + path[end:])]


def open_file(path: str) -> BinaryIO:
    """Open a file for reading. Raises MissingFileError."""
    try:
        return files_of(path).open(path)
    except FileNotFoundError:
        raise MissingFileError(
            f"{path} was deleted after the query was planned, probably by retention; "
            '.option("ignoreMissingFiles", "true") reads the remaining files'
        ) from None


def read_at(stream: BinaryIO, position: int, size: int) -> Bytes:
    """Read up to `size` bytes of a file from `position`; fewer only at its end."""
    data = np.empty(size, np.uint8)
    return data[: read_into(stream, position, memoryview(data))]  # type: ignore[arg-type]


def next_written(stream: BinaryIO, position: int, limit: int) -> int:
    """Return the first position from `position` on that is not in a hole of a sparse file; at most `limit`."""
    try:
        return min(os.lseek(stream.fileno(), position, os.SEEK_DATA), limit)
    except OSError as error:
        # ENXIO: only a hole follows. Remote files have no descriptor.
        return limit if error.errno == errno.ENXIO else position
    except AttributeError:
        return position


def read_into(stream: BinaryIO, position: int, target: memoryview) -> int:
    """Fill `target` with bytes from `position`; return the number of bytes read."""
    global bytes_read
    stream.seek(position)
    filled = 0
    while filled < len(target):
        count = _read_some(stream, target[filled:])
        if not count:
            break
        filled += count
    bytes_read += filled
    return filled


def _read_some(stream: BinaryIO, target: memoryview) -> int:
    if hasattr(stream, "readinto"):
        return int(stream.readinto(target))
    data = stream.read(len(target))
    target[: len(data)] = data
    return len(data)


# --- which files make up a log --------------------------------------------------------------------------------------

STORE_FILES: Final = {"abort", "checkpoint", "lock"}
"""Files of a store whose broker has not stored a message yet: it has no folder `commitlog`, and its log is empty."""


def log_files(paths: str | Iterable[str]) -> list[LogFile]:
    """Return the CommitLog files named by `paths`, sorted by folder and physical offset.

    Each path is a store's root, a commitlog folder, one file, or a glob of these, as a path or a URL. A log without
    files gives an empty list. Raises FileNotFoundError if a path does not exist or holds no commit log.
    """
    found: dict[str, LogFile] = {}
    for asked in (paths,) if isinstance(paths, str) else paths:
        path = local_path(asked)
        files = files_of(path)
        named = [path] if files.is_file(path) or files.is_folder(path) else files.glob(path)
        if not named:
            raise FileNotFoundError(f"no store at {path}: no such file or folder")
        for file in (file for name in named for file in _files_at(files, name.rstrip("/") or "/")):
            if file.is_listed or file.path not in found:
                found[file.path] = file
    return sorted(found.values(), key=lambda file: (file.folder, file.physical_offset))


def _files_at(files: Files, path: str) -> Iterator[LogFile]:
    if files.is_file(path):
        yield _named_file(files, path)
        return
    folder = posixpath.join(path, "commitlog")
    if not files.is_folder(folder):
        folder = path
    found = files.names(folder)
    names = [name for name in found if is_row_name(name)]
    is_log = folder != path or posixpath.basename(path) == "commitlog"
    if not names and not is_log and not STORE_FILES & set(found):
        raise FileNotFoundError(f"no commit log in {path}: neither a folder `commitlog` nor files named by 20 digits")
    for name in names:
        file = posixpath.join(folder, name)
        try:
            yield LogFile(file, int(name), files.size(file), is_listed=True)
        except FileNotFoundError:
            log.info("%s was deleted while its folder was listed", file)


def is_row_name(name: str) -> bool:
    """Return whether a name has the form of the files of a mapped-file queue (20 digits)."""
    return len(name) == FILE_NAME_DIGITS and name.isascii() and name.isdigit()


def _named_file(files: Files, path: str) -> LogFile:
    """Return a file named by the user; if it does not have a broker's file name, its first record gives the offset."""
    name = posixpath.basename(path)
    if is_row_name(name):
        return LogFile(path, int(name), files.size(path))
    with open_file(path) as stream:
        mark = read_at(stream, 0, MARK_SIZE)
    physical_offset = int.from_bytes(mark[PHYSICAL_OFFSET_POSITION:].tobytes(), "big")
    if not len(record_candidates(mark, physical_offset)):
        raise FileNotFoundError(f"{path} is not a CommitLog file: it does not begin with a record")
    return LogFile(path, physical_offset, files.size(path))


def begins_with_record(file: LogFile) -> bool:
    """Return whether a file begins with a record; False if the file has been deleted."""
    try:
        with open_file(file.path) as stream:
            return len(record_candidates(read_at(stream, 0, MARK_SIZE), file.physical_offset)) > 0
    except MissingFileError as error:
        log.warning("%s", error)
        return False
