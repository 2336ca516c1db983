"""A disk in memory that knows what was synced, and can lose the rest.

Each file has two images: what the process sees, and what is on the platter. `sync` carries pages from the one to the other,
`sync_dir` names. `power_cut` makes the disk that a machine would find after the power came back: of each page that was not
synced, some sectors of 512 bytes hold the new bytes and the others the old ones, all independently; a name that was created,
renamed or deleted without a `sync_dir` may be as before or as after.
"""

import random
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from store.disk import Disk, DiskLock, MappedRegion

PAGE_SIZE = 4096
SECTOR_SIZE = 512


class SimulatedFile:
    def __init__(self, data: bytes) -> None:
        self.seen: npt.NDArray[np.uint8] = np.frombuffer(bytearray(data), np.uint8)
        self.synced: npt.NDArray[np.uint8] = self.seen.copy()

    def sync(self, start: int, end: int) -> None:
        start -= start % PAGE_SIZE
        end = min(-(-end // PAGE_SIZE) * PAGE_SIZE, len(self.seen))
        self.synced[start:end] = self.seen[start:end]

    def after_power_cut(self, rng: random.Random) -> bytes:
        image = self.synced.copy()
        for page in range(0, len(image), PAGE_SIZE):
            if np.array_equal(self.seen[page : page + PAGE_SIZE], self.synced[page : page + PAGE_SIZE]):
                continue
            fate = rng.random()  # a page is lost, written whole, or torn
            for sector in range(page, min(page + PAGE_SIZE, len(image)), SECTOR_SIZE):
                if fate > 0.6 or (fate > 0.3 and rng.random() < 0.5):
                    image[sector : sector + SECTOR_SIZE] = self.seen[sector : sector + SECTOR_SIZE]
        return image.tobytes()


class SimulatedRegion(MappedRegion):
    def __init__(self, disk: "PowerCutDisk", path: str, file: SimulatedFile) -> None:
        self._disk, self._path, self._file = disk, path, file
        self.array = file.seen
        self.view = memoryview(file.seen)  # type: ignore[arg-type]

    def sync(self, start: int, end: int) -> None:
        self._disk.before_sync(self._path)
        self._file.sync(start, end)


class _Lock(DiskLock):
    def close(self) -> None:
        pass


class PowerCutDisk(Disk):
    """`names` is what the process sees, `durable_names` what would be found after a power cut."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.names = {path: SimulatedFile(data) for path, data in (files or {}).items()}
        self.durable_names = dict(self.names)
        # Called before each sync; may raise OSError.
        self.before_sync: Callable[[str], None] = lambda path: None
        self.used = 0.0

    # --- what tests do with it -------------------------------------------------------------------------------------

    def power_cut(self, rng: random.Random) -> "PowerCutDisk":
        """The disk as it may be found afterwards."""
        names = {}
        for path in sorted(self.names.keys() | self.durable_names.keys()):
            before, after = self.durable_names.get(path), self.names.get(path)
            file = before if before is after or rng.random() < 0.5 else after
            if file is not None:
                names[path] = file.after_power_cut(rng)
        return PowerCutDisk(names)

    def killed(self) -> "PowerCutDisk":
        """The same disk for the next process, after kill -9: the page cache lives, and is still not synced."""
        disk = PowerCutDisk()
        disk.names, disk.durable_names = dict(self.names), dict(self.durable_names)
        return disk

    def synced_bytes(self, path: str, start: int, end: int) -> bytes | None:
        """Bytes that a power cut cannot take any more; None when not even the name is durable."""
        file = self.durable_names.get(path)
        return None if file is None else file.synced[start:end].tobytes()

    # --- Disk ------------------------------------------------------------------------------------------------------

    def _file(self, path: str) -> SimulatedFile:
        if path not in self.names:
            raise FileNotFoundError(2, "no such file", path)
        return self.names[path]

    def map(self, path: str, size: int, *, create: bool = False, random_access: bool = False) -> MappedRegion:
        if create and path not in self.names:
            self.names[path] = SimulatedFile(bytes(size))
        file = self._file(path)
        if len(file.seen) != size:
            raise OSError(f"{path} has {len(file.seen)} bytes, {size} expected")
        return SimulatedRegion(self, path, file)

    def read_file(self, path: str) -> bytes:
        return self._file(path).seen.tobytes()

    def write_file(self, path: str, data: bytes) -> None:
        self.names[path] = SimulatedFile(data)

    def replace_file(self, path: str, data: bytes) -> None:
        if path in self.names:
            self.names[path + ".bak"] = self.durable_names[path + ".bak"] = self.names[path]
        self.names[path] = self.durable_names[path] = SimulatedFile(data)

    def delete(self, path: str) -> None:
        self._file(path)
        del self.names[path]

    def delete_tree(self, path: str) -> None:
        for name in [name for name in self.names if name.startswith(path + "/")]:
            del self.names[name]

    def rename(self, old: str, new: str) -> None:
        self.names[new] = self._file(old)
        del self.names[old]

    def make_dirs(self, path: str) -> None:
        pass

    def listdir(self, path: str) -> list[str]:
        start = len(path) + 1
        return sorted({name[start:].split("/", 1)[0] for name in self.names if name.startswith(path + "/")})

    def exists(self, path: str) -> bool:
        return path in self.names

    def is_dir(self, path: str) -> bool:
        return any(name.startswith(path + "/") for name in self.names)

    def size(self, path: str) -> int:
        return len(self._file(path).seen)

    def mtime_ms(self, path: str) -> int:
        return 0

    def sync_dir(self, path: str) -> None:
        self.before_sync(path)
        for name in [name for name in self.durable_names if name.rpartition("/")[0] == path]:
            if name not in self.names:
                del self.durable_names[name]
        for name in [name for name in self.names if name.rpartition("/")[0] == path]:
            self.durable_names[name] = self.names[name]

    def lock(self, path: str) -> DiskLock:
        return _Lock()

    def usage(self, path: str) -> float:
        return self.used
