"""The files of one folder, each `file_size` long and named by its offset: together one long row of bytes.

The row may begin anywhere (retention deletes from the front); it has no gaps. Offsets here are bytes from the row's origin:
physical offsets in the CommitLog's folder, queue offset x 20 in a ConsumeQueue's. The files of a CommitLog may lie in
several folders, on several disks.
"""

from collections.abc import Callable, Sequence
from threading import Lock

from pocketmq.store.disk.disk import SHORTAGE, Disk, StoreError
from pocketmq.store.disk.mapped_file import FILE_NAME_SIZE, MappedFile
from pocketmq.store.disk.open_files import OpenFiles

OS_PAGE_SIZE = 4096
RESERVE_STEP = 64 << 10


class MappedFileQueue:
    """Files ascending in `files`. The list is replaced, never changed in place: the flush thread walks over it."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        file_size: int,
        *,
        random_access: bool = False,
        open_files: OpenFiles | None = None,
        reserve_step: int = RESERVE_STEP,
        more_directories: Sequence[str] = (),
        directory_for: Callable[[int], str] | None = None,
    ) -> None:
        """`random_access` is the hint for `Disk.map`, `open_files` bounds what is mapped.

        `reserve_step`: bytes for which room is taken at a time. `more_directories`: where else files of the row may lie;
        `directory_for` then says where the file with a start offset is to be made.
        """
        self.disk = disk
        self.directory = directory
        self.directories = (directory, *more_directories)
        self.file_size = file_size
        self.random_access = random_access
        self.open_files = open_files
        self.files: tuple[MappedFile, ...] = ()
        self._reserve_step = reserve_step
        self._directory_for = directory_for or (lambda start_offset: directory)
        # Where a name was added or removed and not yet synced, and the number of the last such change.
        self._dirty_directories: dict[str, int] = {}
        self._name_changes = 0
        self._names_lock = Lock()
        self._sync_error: OSError | None = None

    # --- opening ---------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Find all files, each counted as full and flushed until recovery sets the positions. None is mapped yet.

        Raises StoreError when a file has another size than configured or a file is missing in between. An empty last
        file, left by a crash between its creation and its first byte, is removed.
        """
        found = sorted(
            (name, directory)
            for directory in self.directories
            for name in self.disk.listdir(directory)
            if len(name) == FILE_NAME_SIZE and name.isdecimal()
        )
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
                problem = "is there twice, as" if int(name) == files[-1].start_offset else "does not follow"
                raise StoreError(f"{path} {problem} {files[-1].path}: a file of the row is missing or surplus")
            file = self._file(int(name), directory, create=False)
            file.wrote = file.flushed = self.file_size
            files.append(file)
        self.files = tuple(files)

    def _file(self, start_offset: int, directory: str, *, create: bool) -> MappedFile:
        return MappedFile(
            self.disk,
            directory,
            start_offset,
            self.file_size,
            create=create,
            random_access=self.random_access,
            open_files=self.open_files,
            reserve_step=self._reserve_step,
        )

    # --- where things are ------------------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """First byte of the row; 0 when there is no file."""
        return self.files[0].start_offset if self.files else 0

    @property
    def max_offset(self) -> int:
        """Behind the last written byte; 0 when there is no file."""
        return self.files[-1].end_offset if self.files else 0

    @property
    def flushed_offset(self) -> int:
        """Everything before it is durable."""
        for file in self.files:
            if file.flushed < file.size:
                return file.start_offset + file.flushed
        return self.max_offset

    def file_at(self, offset: int) -> MappedFile | None:
        """The file that holds byte `offset`, or None when it is deleted or not yet there."""
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
        """`size` written bytes from `offset`, all in one file, or None."""
        file = self.file_at(offset)
        if file is None:
            return None
        position = offset - file.start_offset
        return file.view[position : position + size] if position + size <= file.wrote else None

    # --- growing ---------------------------------------------------------------------------------------------------

    def writable(self, first_offset: int = 0) -> MappedFile:
        """The last file if there is room in it, else a new one; the very first begins at the file holding `first_offset`."""
        if self.files:
            last = self.files[-1]
            if last.wrote < last.size:
                return last
            # Or a power cut could leave the new name and take the one before it.
            self.sync_names()
            return self.add(self.create(last.start_offset + self.file_size))
        return self.add(self.create(first_offset - first_offset % self.file_size))

    def create(self, start_offset: int) -> MappedFile:
        """Make a file that is not yet part of the row; any thread may. Raises OSError."""
        return self._file(start_offset, self._directory_for(start_offset), create=True)

    def add(self, file: MappedFile) -> MappedFile:
        """Put a created file at the end of the row."""
        assert not self.files or file.start_offset == self.files[-1].start_offset + self.file_size
        self._note_name(file)
        self.files = (*self.files, file)
        return file

    def append(self, data: bytes) -> None:
        """Write `data` at the end of the row, over as many files as it takes: all of it, or on an OSError nothing."""
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
        """Make the row durable, the names of new files first. True if anything was to be done.

        With `least_pages`, a file that is not full waits until so many of its pages are dirty. Raises OSError.
        """
        dirty = [file for file in self.files if file.flushed < file.wrote and _due(file, least_pages)]
        if not dirty:
            return False
        self.sync_names()
        for file in dirty:
            file.flush()
        return True

    def sync_names(self) -> None:
        """Make durable which files there are.

        Raises OSError, and once it did, always, as a second sync would tell nothing; but for a SHORTAGE, before any sync.
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
            # Only now, or the loop could take a name for durable whose sync, by the flush thread, still runs and fails. One
            # that came meanwhile keeps its directory here.
            with self._names_lock:
                if self._dirty_directories.get(directory) == change:
                    del self._dirty_directories[directory]

    def _note_name(self, file: MappedFile) -> None:
        with self._names_lock:
            self._name_changes += 1
            self._dirty_directories[_directory(file)] = self._name_changes

    # --- shrinking -------------------------------------------------------------------------------------------------

    def truncate(self, end_offset: int) -> int:
        """Let the row end at `end_offset`: later files are deleted, the rest of its file is zeroed; files deleted.

        A first file that begins there stays, empty: the row would begin at 0 again without it.
        """
        begin = max(self.min_offset, 1)
        keep = [file for file in self.files if file.start_offset < end_offset or file.start_offset == begin == end_offset]
        drop = self.files[len(keep) :]
        self.files = tuple(keep)
        for file in reversed(drop):
            # Each for itself: of several deletions a power cut may take the first and leave the last, and the row had a gap.
            self.sync_names()
            self.delete(file)
        if keep:
            position = end_offset - keep[-1].start_offset
            if position < keep[-1].size:
                keep[-1].truncate(position)
        return len(drop)

    def take_first(self) -> MappedFile:
        """Take the oldest file off the row. Deleting it, which may take its time, is left to the caller."""
        first, self.files = self.files[0], self.files[1:]
        return first

    def delete_first(self) -> None:
        """Delete the oldest file."""
        self.delete(self.take_first())

    def destroy(self) -> None:
        """Delete all files, and the folder."""
        drop, self.files = self.files, ()
        for file in drop:
            self.delete(file)
        for directory in self.directories:
            if self.disk.is_dir(directory):
                self.disk.delete_tree(directory)

    def delete(self, file: MappedFile) -> None:
        """Delete a file that is no part of the row any more; any thread may. Raises OSError."""
        self._note_name(file)
        file.delete()

    def close(self) -> None:
        """Unmap all files; they stay on the disk."""
        files, self.files = self.files, ()
        for file in files:
            file.close()


def _due(file: MappedFile, least_pages: int) -> bool:
    if least_pages == 0 or file.wrote == file.size:
        return True
    return file.wrote // OS_PAGE_SIZE - file.flushed // OS_PAGE_SIZE >= least_pages


def _directory(file: MappedFile) -> str:
    return file.path.rpartition("/")[0]
