"""Bytes of a store's files, on a local disk or on any file system that fsspec supports.

An open file is a `FileBytes`. There are three kinds: a local file, read by `pread`, so that a file deleted by retention is
not an error and a bad sector is an OSError; a remote file (`s3://`, `hdfs://`, `gs://`, `memory://`); and a broker's own
mapping (`store.disk.mapped_file`), which recovery reads. For S3, GCS and HDFS the file systems of PyArrow are used where
fsspec's own are not installed. Each process opens files by their path or URL.
"""

import errno
import glob
import os
import posixpath
import re
from collections import OrderedDict
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Final, Protocol

import numpy as np

from pocketmq.store.format.record_chain import Bytes

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
# Reads up to this size are made without a buffer.
_SMALL: Final = 8 << 10
# Descriptors kept open at once by one process.
_OPEN_MAX: Final = 200

bytes_read = 0
"""Number of bytes read by `read` in this process, except from mappings."""


class FileBytes(Protocol):
    """The bytes of an open file."""

    def read(self, position: int, size: int, buffer: Bytes | None = None) -> Bytes:
        """Return up to `size` bytes from `position`, fewer only at the file's end. Raises OSError.

        Bytes that are not mapped are read into `buffer`, if one is given.
        """
        ...

    def next_data(self, position: int) -> int:
        """Return the first position from `position` on that is not in a hole; the file's size if only a hole follows.

        `position` itself where holes are not known.
        """
        return position

    def release_memory(self, end: int) -> None:
        """Remove the bytes before `end` from this process's resident memory, if they are mapped."""
        return


class LocalBytes(FileBytes, AbstractContextManager[FileBytes]):
    """An open local file."""

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self._descriptor = -1
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, position: int, size: int, buffer: Bytes | None = None) -> Bytes:
        global bytes_read
        if size <= _SMALL and buffer is None:  # nearly always read at once
            small = os.pread(self._descriptor, max(size, 0), position)
            bytes_read += len(small)
            return np.frombuffer(small, np.uint8)
        data = np.empty(size, np.uint8) if buffer is None else buffer[:size]
        got = 0
        while got < size and (count := os.preadv(self._descriptor, [data[got:]], position + got)):  # type: ignore[list-item]
            got += count
        bytes_read += got
        return data[:got]

    def next_data(self, position: int) -> int:
        try:
            return os.lseek(self._descriptor, position, os.SEEK_DATA)
        except OSError as error:
            # Other errors: the file system does not report holes.
            return os.lseek(self._descriptor, 0, os.SEEK_END) if error.errno == errno.ENXIO else position

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def __exit__(self, *error: object) -> None:
        self.close()


class RemoteBytes(FileBytes, AbstractContextManager[FileBytes]):
    """An open file of an fsspec file system, whose holes are not known."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def read(self, position: int, size: int, buffer: Bytes | None = None) -> Bytes:
        global bytes_read
        data = np.empty(max(size, 0), np.uint8) if buffer is None else buffer[:size]
        self._stream.seek(position)
        got = 0
        while got < len(data) and (part := self._stream.read(len(data) - got)):
            data[got : got + len(part)] = np.frombuffer(part, np.uint8)
            got += len(part)
        bytes_read += got
        return data[:got]

    def __exit__(self, *error: object) -> None:
        self._stream.close()


class LocalFiles:
    """The local file system. Paths are absolute."""

    def is_file(self, path: str) -> bool:
        return os.path.isfile(path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.path.getsize(path)

    def used(self, path: str) -> int:
        """As `size`, but without the holes of a sparse file."""
        status = os.stat(path)
        return min(status.st_size, status.st_blocks * 512)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted. Raises FileNotFoundError."""
        return sorted(os.listdir(folder))

    def glob(self, pattern: str) -> list[str]:
        return glob.glob(pattern)

    def open(self, path: str) -> AbstractContextManager[FileBytes]:
        return LocalBytes(path)


class _KeptBytes(LocalBytes):
    """A local file that is closed when nothing refers to it any more."""

    def __exit__(self, *error: object) -> None:
        pass


class KeptOpenFiles(LocalFiles):
    """The local file system for many small reads: the files read last are kept open, at most _OPEN_MAX of them."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, _KeptBytes] = OrderedDict()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return KeptOpenFiles, ()  # another process has its own descriptors

    def open(self, path: str) -> AbstractContextManager[FileBytes]:
        data = self._open.get(path)
        if data is not None:
            self._open.move_to_end(path)
            return data
        if len(self._open) >= _OPEN_MAX:
            self._open.popitem(last=False)
        data = self._open[path] = _KeptBytes(path)
        return data


class RemoteFiles:
    """An fsspec file system, with the operations of LocalFiles. Paths are URLs."""

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
        return sorted(posixpath.basename(name.rstrip("/")) for name in self._own.ls(folder, detail=False))

    def glob(self, pattern: str) -> list[str]:
        scheme = pattern.split("://")[0]
        return [name if "://" in name else f"{scheme}://{name}" for name in self._own.glob(pattern)]

    def open(self, path: str) -> AbstractContextManager[FileBytes]:
        # No cache: windows are large and read once.
        return RemoteBytes(self._own.open(path, "rb", cache_type="none"))


Files = LocalFiles | RemoteFiles
_LOCAL: Final = LocalFiles()


def files_of(path: str) -> Files:
    """Return the file system of a path or URL. Raises ImportError that names the package to install."""
    url = _URL.match(path)
    if url is None:
        return _LOCAL
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


def local_path(path: str) -> str:
    """Return a path without `file:` and with `~` expanded; other URLs are returned unchanged."""
    path = re.sub(r"^file:(//(localhost)?)?(?=/)", "", path)
    return path if is_remote(path) else os.path.expanduser(path)
