"""MappedFileQueue: a gapless sequence of files of `file_size` bytes, each named by the offset of its first byte.

The sequence may begin at any file, because retention deletes the oldest ones. Offsets are bytes from offset 0 of the
sequence: physical offsets in the CommitLog, queue offset x 20 in a ConsumeQueue. The files of a CommitLog may be spread over
several folders on several disks.
"""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple

from pocketmq.store.disk.disk import SHORTAGE, Disk, StoreError
from pocketmq.store.disk.mapped_file import FILE_NAME_SIZE, MappedFile
from pocketmq.store.disk.open_files import OpenFiles

OS_PAGE_SIZE = 4096
RESERVE_STEP = 64 << 10


class Spread(NamedTuple):
    """How the files of a sequence are spread over several folders."""

    more_directories: Sequence[str]
    directory_for: Callable[[int], str]
    """Returns the folder for a new file with the given start offset."""


class MappedFileQueue:
    """Sequence of files, in ascending order in `files`.

    That tuple is replaced rather than changed, because the flush thread iterates over it.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        file_size: int,
        *,
        random_access: bool = False,
        open_files: OpenFiles | None = None,
        reserve_step: int = RESERVE_STEP,
        can_wait: bool = False,
        spread: Spread | None = None,
    ) -> None:
        """`random_access` is the hint for `Disk.map`; `open_files` limits the number of mapped files.

        `reserve_step`: bytes of disk space reserved at a time. `can_wait`: whether what is appended may wait in memory,
        where a killed process loses it, until `flush`. `spread`: further folders that may have files of the sequence.
        """
        self.disk = disk
        self.directory = directory
        self.directories = (directory, *(spread.more_directories if spread else ()))
        self.file_size = file_size
        self.random_access = random_access
        self.open_files = open_files
        self.files: tuple[MappedFile, ...] = ()
        self.reserve_step = reserve_step
        self.can_wait = can_wait
        self._directory_for = spread.directory_for if spread else lambda start_offset: directory
        # Folder with unsynced file creations or deletions -> number of the last such change.
        self._dirty_directories: dict[str, int] = {}
        self._name_changes = 0
        self._names_lock = Lock()
        self._sync_error: OSError | None = None

    # --- opening ---------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Find the files without mapping them. Each counts as full and flushed until recovery sets its positions.

        Raises StoreError if a file has a different size than configured or a file is missing in between. An empty last file,
        left by a crash right after its creation, is deleted.
        """
        found = self.listed()
        if found and self.disk.size(f"{found[-1][1]}/{found[-1][0]}") == 0:
            name, directory = found.pop()
            self.disk.delete(f"{directory}/{name}")
        files: list[MappedFile] = []
        for name, directory in found:
            path = f"{directory}/{name}"
            size = self.disk.size(path)
            if size != self.file_size:
                raise StoreError(
                    f"{path} has {size} bytes, but files of {self.file_size} bytes are configured; "
                    "set the file size that the store was written with"
                )
            if files and int(name) != files[-1].start_offset + self.file_size:
                problem = "has the same offset as" if int(name) == files[-1].start_offset else "does not follow"
                raise StoreError(f"{path} {problem} {files[-1].path}: a file of the sequence is missing or surplus")
            file = MappedFile(self, directory, int(name), create=False)
            file.wrote = file.flushed = self.file_size
            files.append(file)
        self.files = tuple(files)

    def listed(self) -> list[tuple[str, str]]:
        """Return (name, folder) of the files on the disk, ascending."""
        return sorted(
            (name, directory)
            for directory in self.directories
            for name in self.disk.listdir(directory)
            if len(name) == FILE_NAME_SIZE and name.isdecimal()
        )

    # --- positions -------------------------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """Offset of the first byte; 0 without files."""
        return self.files[0].start_offset if self.files else 0

    @property
    def max_offset(self) -> int:
        """End offset of the written bytes; 0 without files."""
        return self.files[-1].end_offset if self.files else 0

    @property
    def flushed_offset(self) -> int:
        """Offset before which everything is durable."""
        for file in self.files:
            if file.flushed < file.size:
                return file.start_offset + file.flushed
        return self.max_offset

    def file_at(self, offset: int) -> MappedFile | None:
        """Return the file that contains byte `offset`, or None if it was deleted or does not exist yet."""
        files = self.files
        if not files:
            return None
        index = (offset - files[0].start_offset) // self.file_size
        if not 0 <= index < len(files):
            return None
        file = files[index]
        file.used = True
        return file

    def view(self, offset: int, size: int) -> memoryview | None:
        """Return `size` written bytes from `offset`, or None if they are not all in one file."""
        file = self.file_at(offset)
        if file is None:
            return None
        position = offset - file.start_offset
        return file.view[position : position + size] if position + size <= file.wrote else None

    # --- growing ---------------------------------------------------------------------------------------------------

    def writable(self, first_offset: int = 0) -> MappedFile:
        """Return the last file if it is not full, else a new one. The first file ever is the one with `first_offset`."""
        if self.files:
            last = self.files[-1]
            if last.wrote < last.size:
                return last
            # Otherwise a power cut could keep the new file and lose the one before it.
            self.sync_names()
            return self.add(self.create(last.start_offset + self.file_size))
        return self.add(self.create(first_offset - first_offset % self.file_size))

    def create(self, start_offset: int) -> MappedFile:
        """Create a file without adding it to the sequence. Thread-safe. Raises OSError."""
        return MappedFile(self, self._directory_for(start_offset), start_offset, create=True)

    def add(self, file: MappedFile) -> MappedFile:
        """Add a created file to the end of the sequence."""
        assert not self.files or file.start_offset == self.files[-1].start_offset + self.file_size
        self._note_name(file)
        self.files = (*self.files, file)
        return file

    def append(self, data: bytes) -> None:
        """Write `data` at the end, across as many files as necessary. If OSError is raised, nothing was written."""
        file = self.writable()
        end = file.size - file.wrote
        parts = [(file, data[:end])]
        while end < len(data):
            self.sync_names()
            file = self.create(file.start_offset + self.file_size)
            self._note_name(file)
            parts.append((file, data[end : end + file.size]))
            end += file.size
        for file, part in parts:
            file.reserve(file.wrote + len(part))
        for file, part in parts:
            if file is not self.files[-1]:
                self.add(file)
            file.append(part)

    # --- flushing --------------------------------------------------------------------------------------------------

    def flush(self, least_pages: int = 0) -> bool:
        """Make the written bytes durable, after the names of new files. Return whether anything had to be synced.

        With `least_pages`, a file that is not full is skipped until that many of its pages are dirty. Raises OSError.
        """
        if not self.has_due(least_pages):
            return False
        dirty = [file for file in self.files if _due(file, least_pages)]
        self.sync_names()
        for file in dirty:
            file.flush()
        return True

    def begin_flush(self, flush: "JointFlush") -> None:
        """Add to `flush` what a sync of the file system makes durable from now on. Raises OSError."""
        if self._sync_error is not None:
            raise self._sync_error
        if self._dirty_directories:
            with self._names_lock:
                flush.names += [(self, directory, change) for directory, change in self._dirty_directories.items()]
        for file in self.files:
            if file.flushed < file.wrote:
                flush.ends.append(file.begin_flush())
                flush.files.append(file)

    def has_due(self, least_pages: int) -> bool:
        """Return whether `flush` has anything to sync."""
        for file in self.files:  # noqa: SIM110  # a generator would take twice the time, and thousands of queues are asked
            if _due(file, least_pages):
                return True
        return False

    def sync_names(self) -> None:
        """Make created and deleted files durable.

        Raises OSError. After the first failure it always raises, because a second sync would falsely succeed; except after a
        SHORTAGE, which occurs before the sync.
        """
        if self._sync_error is not None:
            raise self._sync_error
        with self._names_lock:
            dirty = tuple(self._dirty_directories.items())
        for directory, change in dirty:
            try:
                self.disk.sync_dir(directory)
            except OSError as error:
                if error.errno not in SHORTAGE:
                    self._sync_error = error
                raise
            self.name_synced(directory, change)

    def name_synced(self, directory: str, change: int) -> None:
        """Note that the changes in a folder up to `change` are durable."""
        # Removed only after the sync, so that the loop does not treat a name as durable while the flush thread's sync is
        # running and may fail. A change made during the sync keeps the folder dirty.
        with self._names_lock:
            if self._dirty_directories.get(directory) == change:
                del self._dirty_directories[directory]

    def _note_name(self, file: MappedFile) -> None:
        with self._names_lock:
            self._name_changes += 1
            self._dirty_directories[_directory(file)] = self._name_changes

    # --- shrinking -------------------------------------------------------------------------------------------------

    def truncate(self, end_offset: int) -> int:
        """Cut the sequence at `end_offset`: later files are deleted, the rest of its file is zeroed.

        Returns the number of deleted files. A first file that begins at `end_offset` is kept empty, because the sequence
        would otherwise restart at 0.
        """
        begin = max(self.min_offset, 1)
        keep = [file for file in self.files if file.start_offset < end_offset or file.start_offset == begin == end_offset]
        drop = self.files[len(keep) :]
        self.files = tuple(keep)
        for file in reversed(drop):
            # Synced one by one: of several unsynced deletions a power cut may undo any, which could leave a gap.
            self.sync_names()
            self.delete(file)
        if keep:
            position = end_offset - keep[-1].start_offset
            if position < keep[-1].size:
                keep[-1].truncate(position)
        return len(drop)

    def take_first(self) -> MappedFile:
        """Remove the oldest file from the sequence. The caller must delete it, which may take long."""
        first, self.files = self.files[0], self.files[1:]
        return first

    def delete_first(self) -> None:
        """Delete the oldest file."""
        self.delete(self.take_first())

    def destroy(self) -> None:
        """Delete all files and the folders."""
        drop, self.files = self.files, ()
        for file in drop:
            self.delete(file)
        for directory in self.directories:
            if self.disk.is_dir(directory):
                self.disk.delete_tree(directory)

    def delete(self, file: MappedFile) -> None:
        """Delete a file that was removed from the sequence. Thread-safe. Raises OSError."""
        self._note_name(file)
        file.delete()

    def close(self) -> None:
        """Unmap all files without deleting them."""
        files, self.files = self.files, ()
        for file in files:
            file.close()


class JointFlush:
    """Files and names of many sequences that one sync of the file system makes durable. Flat lists of them are no work for
    the garbage collection."""

    def __init__(self) -> None:
        self.files: list[MappedFile] = []
        self.ends: list[int] = []
        self.names: list[tuple[MappedFileQueue, str, int]] = []

    def end(self) -> None:
        """Note that everything is durable."""
        for file, wrote in zip(self.files, self.ends, strict=True):
            file.end_flush(wrote)
        for files, directory, change in self.names:
            files.name_synced(directory, change)


def _due(file: MappedFile, least_pages: int) -> bool:
    if file.flushed == file.wrote:
        return False
    if least_pages == 0 or file.wrote == file.size:
        return True
    return file.wrote // OS_PAGE_SIZE - file.flushed // OS_PAGE_SIZE >= least_pages


def _directory(file: MappedFile) -> str:
    return file.path.rpartition("/")[0]
