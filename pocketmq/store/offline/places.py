"""Stores and log files named by a user: by path, glob, list or URL."""

import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pocketmq.store.format.layout import PHYSICAL_OFFSET_POSITION
from pocketmq.store.format.record_chain import MARK_SIZE, record_candidates
from pocketmq.store.offline.file_bytes import Files, files_of, is_remote, local_path
from pocketmq.store.offline.store_folder import RowFile, StoreFolder, is_row_name, listed

# Innermost braces with alternatives.
_BRACES: Final = re.compile(r"\{([^{}]*,[^{}]*)\}")
_STORE_FOLDERS: Final = ("commitlog", "consumequeue", "config", "index")
# Files of a store whose broker has not stored a message yet: it has no folder `commitlog`, and its log is empty.
_STORE_FILES: Final = {"abort", "checkpoint", "lock"}


@dataclass(frozen=True, slots=True)
class LogFile(RowFile):
    """One file of a CommitLog, whose first byte has the physical offset `start_offset`.

    `is_listed`: found by listing a folder, all of whose files are meant, rather than named by the user.
    """

    is_listed: bool = False

    @property
    def folder(self) -> str:
        return posixpath.dirname(self.path)

    @property
    def store(self) -> str:
        """The root of the file's store, or its folder, if that is not named commitlog."""
        return posixpath.dirname(self.folder) if posixpath.basename(self.folder) == "commitlog" else self.folder


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


def log_files(paths: str | Iterable[str]) -> list[LogFile]:
    """Return the CommitLog files named by `paths`, sorted by folder and physical offset.

    Each path is a store's root, a commitlog folder, one file, or a glob of these, as a path or a URL. A log without
    files gives an empty list. Raises FileNotFoundError if a path does not exist or holds no commit log.
    """
    found: dict[str, LogFile] = {}
    for files, name in _named((paths,) if isinstance(paths, str) else paths):
        for file in _files_at(files, name):
            if file.is_listed or file.path not in found:
                found[file.path] = file
    return sorted(found.values(), key=lambda file: (file.folder, file.start_offset))


def store_folders(paths: Iterable[str]) -> list[StoreFolder]:
    """Return the stores named by `paths`: each a root, a commitlog folder in one, or a glob of these.

    Raises FileNotFoundError that names the missing path.
    """
    roots = []
    for files, name in _named(paths):
        root = posixpath.dirname(name) if posixpath.basename(name) == "commitlog" else name
        if not any(files.is_folder(posixpath.join(root, part)) for part in _STORE_FOLDERS):
            raise FileNotFoundError(f"no store at {root}: it contains none of {', '.join(_STORE_FOLDERS)}")
        roots.append(root)
    return [StoreFolder(root) for root in dict.fromkeys(roots)]


def _named(paths: Iterable[str]) -> Iterator[tuple[Files, str]]:
    """Yield each file and folder named by `paths`, with its file system. Raises FileNotFoundError."""
    for asked in paths:
        path = local_path(asked).rstrip("/") or "/"
        files = files_of(path)
        named = [path] if files.is_file(path) or files.is_folder(path) else sorted(files.glob(path))
        if not named:
            raise FileNotFoundError(f"no store at {path}: no such file or folder")
        for name in named:
            yield files, name.rstrip("/") or "/"


def _files_at(files: Files, path: str) -> Iterator[LogFile]:
    if files.is_file(path):
        yield _named_file(files, path)
        return
    folder = posixpath.join(path, "commitlog")
    if not files.is_folder(folder):
        folder = path
    found = listed(files, folder)
    is_log = folder != path or posixpath.basename(path) == "commitlog"
    if not found and not is_log and not _STORE_FILES & set(files.names(folder)):
        raise FileNotFoundError(f"no commit log in {path}: neither a folder `commitlog` nor files named by 20 digits")
    yield from (LogFile(file.path, file.start_offset, file.size, is_listed=True) for file in found)


def _named_file(files: Files, path: str) -> LogFile:
    """Return a file named by the user; if it does not have a broker's file name, its first record gives the offset."""
    name, size = posixpath.basename(path), files.size(path)
    if is_row_name(name):
        return LogFile(path, int(name), size)
    mark = RowFile(path, 0, size).read(0, MARK_SIZE)
    physical_offset = int.from_bytes(mark[PHYSICAL_OFFSET_POSITION:].tobytes(), "big")
    if not len(record_candidates(mark, physical_offset)):
        raise FileNotFoundError(f"{path} is not a CommitLog file: it does not begin with a record")
    return LogFile(path, physical_offset, size)
