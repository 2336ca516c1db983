"""StoreFiles: a store on a local disk, named by a user, which a broker may be using at the same time."""

import fcntl
import os
import struct

from pocketmq.store.format.message import QueueKey
from pocketmq.store.offline.file_bytes import KeptOpenFiles
from pocketmq.store.offline.store_folder import Row, StoreFolder, names_in, row_of


class NotAStoreError(Exception):
    """There is no store at the given path; the text says what was expected."""


class StoreFiles(StoreFolder):
    """The files of a store, kept open for many small reads. Rows of queues are read on demand: there may be thousands."""

    def __init__(self, root: str, commit_log_folder: str | None = None) -> None:
        """`commit_log_folder` is storePathCommitLog if it is not under the root, with commas between several folders.

        Raises NotAStoreError.
        """
        root = os.path.normpath(os.path.expanduser(root))
        if commit_log_folder is None and os.path.basename(root) == "commitlog" and os.path.isdir(root):
            root = os.path.dirname(root) or "."
        super().__init__(root, KeptOpenFiles())
        self.commit_log_folder = commit_log_folder or f"{root}/commitlog"
        if not os.path.exists(root):
            raise NotAStoreError(f"there is no folder {root}: give the store's root, storePathRootDir of the broker")
        if not os.path.isdir(root):
            raise NotAStoreError(f"{root} is a file: give the store's root, the folder that has `commitlog` in it")
        self._log_folders = [folder.strip() for folder in self.commit_log_folder.split(",") if folder.strip()]
        # A broker creates the checkpoint at its first start, and the log with its first message.
        is_new = commit_log_folder is None and os.path.exists(f"{root}/checkpoint")
        if not is_new and not any(os.path.isdir(folder) for folder in self._log_folders):
            names = names_in(self.files, root)
            inner = next((name for name in names if os.path.isdir(f"{root}/{name}/commitlog")), None)
            hint = (
                f": did you mean {root}/{inner}?"
                if inner
                else " (if the log is elsewhere, give its folder with --commitlog)"
            )
            raise NotAStoreError(f"{root} is not a store: there is no folder {self.commit_log_folder}{hint}")
        self.log = self.refresh_log()
        self._queue_rows: dict[QueueKey, Row] = {}

    def refresh_log(self) -> Row:
        """Read the log's folder again, after files were created or deleted."""
        self.log = row_of(self.files, *self._log_folders)
        return self.log

    def queue_row(self, key: QueueKey) -> Row:
        found = self._queue_rows.get(key)
        if found is None:
            found = self._queue_rows[key] = super().queue_row(key)
        return found

    def forget_queue_row(self, key: QueueKey) -> None:
        """Let the next `queue_row` read the folder again."""
        self._queue_rows.pop(key, None)

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
