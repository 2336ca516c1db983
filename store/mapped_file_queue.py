"""The files of one folder, each `file_size` long and named by its offset: together one long row of bytes.

The row may begin anywhere (retention deletes from the front); it has no gaps. Offsets here are bytes from the row's origin:
physical offsets in the CommitLog's folder, queue offset x 20 in a ConsumeQueue's.
"""

from store.disk import Disk, StoreError
from store.mapped_file import FILE_NAME_SIZE, MappedFile

OS_PAGE_SIZE = 4096


class MappedFileQueue:
    """Files ascending in `files`. The list is replaced, never changed in place: the flush thread walks over it."""

    def __init__(self, disk: Disk, directory: str, file_size: int, *, random_access: bool = False) -> None:
        """`random_access` is the hint for `Disk.map`."""
        self.disk = disk
        self.directory = directory
        self.file_size = file_size
        self.random_access = random_access
        self.files: tuple[MappedFile, ...] = ()
        # A name was added or removed and the directory not yet synced.
        self._directory_dirty = False

    # --- opening ---------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Map all files, each counted as full and flushed until recovery sets the positions.

        Raises StoreError when a file has another size than configured or a file is missing in between. An empty last
        file, left by a crash between its creation and its first byte, is removed.
        """
        names = [name for name in self.disk.listdir(self.directory) if len(name) == FILE_NAME_SIZE and name.isdecimal()]
        if names and self.disk.size(f"{self.directory}/{names[-1]}") == 0:
            self.disk.delete(f"{self.directory}/{names.pop()}")
        files: list[MappedFile] = []
        for name in names:
            path = f"{self.directory}/{name}"
            found = self.disk.size(path)
            if found != self.file_size:
                raise StoreError(
                    f"{path} has {found} bytes, but files of {self.file_size} bytes are configured; "
                    "set the file size that the store was written with"
                )
            if files and int(name) != files[-1].start_offset + self.file_size:
                raise StoreError(f"{path} does not follow {files[-1].path}: a file of the row is missing")
            file = MappedFile(self.disk, self.directory, int(name), self.file_size, random_access=self.random_access)
            file.wrote = file.flushed = self.file_size
            files.append(file)
        self.files = tuple(files)

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
        return files[index] if 0 <= index < len(files) else None

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
        return MappedFile(
            self.disk, self.directory, start_offset, self.file_size, create=True, random_access=self.random_access
        )

    def add(self, file: MappedFile) -> MappedFile:
        """Put a created file at the end of the row."""
        assert not self.files or file.start_offset == self.files[-1].start_offset + self.file_size
        self._directory_dirty = True
        self.files = (*self.files, file)
        return file

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
        """Make durable which files there are. Raises OSError."""
        if self._directory_dirty:
            self._directory_dirty = False
            try:
                self.disk.sync_dir(self.directory)
            except OSError:
                self._directory_dirty = True
                raise

    # --- shrinking -------------------------------------------------------------------------------------------------

    def truncate(self, end_offset: int) -> int:
        """Let the row end at `end_offset`: later files are deleted, the rest of its file is zeroed; files deleted."""
        keep = [file for file in self.files if file.start_offset < end_offset]
        drop = self.files[len(keep) :]
        self.files = tuple(keep)
        for file in reversed(drop):
            self._delete(file)
        if keep:
            position = end_offset - keep[-1].start_offset
            if position < keep[-1].size:
                keep[-1].truncate(position)
        return len(drop)

    def delete_first(self) -> None:
        """Delete the oldest file."""
        first, self.files = self.files[0], self.files[1:]
        self._delete(first)

    def destroy(self) -> None:
        """Delete all files, and the folder."""
        drop, self.files = self.files, ()
        for file in drop:
            self._delete(file)
        if self.disk.is_dir(self.directory):
            self.disk.delete_tree(self.directory)

    def _delete(self, file: MappedFile) -> None:
        self._directory_dirty = True
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
