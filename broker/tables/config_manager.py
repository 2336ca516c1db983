"""ConfigManager: a table of the broker that lives in memory and in a JSON file under `config/`.

The shapes are Apache's. What a newer broker wrote beside the fields that we know is carried along: losing it at the first
write would take it from the broker that somebody goes back to.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from pocketmq.broker.tables.carrying_table import CarryingTable
from pocketmq.remoting.bodies import DataVersion
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.table_writer import TableWriter, Written
from pocketmq.store.disk.config_file import ConfigFile, RowsWriter
from pocketmq.store.disk.disk import StoreError

log = logging.getLogger("broker")

_SAY_AGAIN_S = 60.0

S = TypeVar("S", bound=msgspec.Struct)


class ConfigManager(ABC):
    """Base of the persisted tables."""

    def __init__(self, file: ConfigFile, clock: Clock) -> None:
        self.file = file
        self.clock = clock
        self.data_version = DataVersion(0, clock.message_time_ms())
        self.writer: TableWriter | None = None
        """Writes what is `changed`; None: that is written where it changes."""
        self._failed_count = 0
        self._say_again_s = float("-inf")

    def load(self) -> None:
        """Read the file, or its `.bak`; none is an empty table. Raises StoreError when neither can be read or understood."""
        document = self.file.load()
        try:
            version = document.get("dataVersion")
            if isinstance(version, dict):
                self.data_version = msgspec.convert(version, DataVersion, strict=False)
            self.decode(document)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"{self.file.path} says what its table cannot hold ({error}): repair it, or delete it and its .bak: what "
                "the store can tell is made again"
            ) from None

    def persist(self) -> None:
        """Write the file. A disk that refuses is logged: the table in memory stays in force."""
        self._try(self.snapshot())

    def persist_in(self, executor: Executor) -> None:
        """Write the present state from another thread: a sync of the disk would hold up the loop for tens of ms."""
        executor.submit(self._try, self.snapshot())

    def _write(self, document: dict[str, Any]) -> None:
        self._try(lambda: self.file.persist(document))

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError:
            log.exception("%s cannot be written", self.file.path)

    def changed(self) -> None:
        """Have the file written, together with what else changes in this turn or while a write is under way."""
        if self.writer is None:
            self.persist()
        else:
            self.writer.write(self)

    def unwritten(self, name: str | None = None) -> Written | None:
        """Done when what changed is on the disk; None when it is. A table that knows tells it of the row `name` alone."""
        if self.writer is None:
            return None
        return self.writer.next(self) or self.writer.running(self)

    def snapshot(self) -> Callable[[], object]:
        """The function that writes the present state, in any thread; it raises OSError."""
        document = self.encode()
        return lambda: self.file.persist(document)

    def written(self, error: Exception | None) -> None:
        """What was taken by `snapshot` is on the disk, or is not."""
        if error is None:
            return
        self._failed_count += 1
        now_s = self.clock.monotonic()
        if now_s >= self._say_again_s:
            failed = "%s cannot be written, what changed is taken back: %s (%d times since this was last said)"
            log.error(failed, self.file.path, error, self._failed_count)
            self._say_again_s, self._failed_count = now_s + _SAY_AGAIN_S, 0
        self.take_back()

    def take_back(self) -> None:  # noqa: B027  # what nobody was told of need not be undone
        """Undo the changes that the failed write held, but for what changed again since."""

    def next_version(self) -> None:
        """The table changed."""
        self.data_version.counter += 1
        self.data_version.timestamp = self.clock.message_time_ms()

    def version(self) -> dict[str, int]:
        """`dataVersion` in plain values, None left out."""
        return {name: value for name, value in msgspec.to_builtins(self.data_version).items() if value is not None}

    def version_document(self) -> dict[str, Any]:
        """`dataVersion` as the files of all versions have it."""
        found = self.file.found.get("dataVersion")
        return {**found, **self.version()} if isinstance(found, dict) else self.version()

    @abstractmethod
    def encode(self) -> dict[str, Any]:
        """The document that is written, sharing nothing that changes later."""

    @abstractmethod
    def decode(self, document: dict[str, Any]) -> None:
        """Take over what the file says. Keys of the document that are not known stay in the file."""


class RowsManager(ConfigManager, Generic[S]):
    """A table of many rows, of which only those are encoded that changed; a failed write takes them back."""

    TABLE_KEY: ClassVar[str]

    def __init__(self, file: ConfigFile, clock: Clock, declared: type[S], problem_of: Callable[[str], str | None]) -> None:
        """`problem_of` says what is wrong with the name of a row, if anything is."""
        super().__init__(file, clock)
        self.table: CarryingTable[S] = CarryingTable(declared, problem_of)
        self._rows = RowsWriter(file, self.TABLE_KEY, self.table.plain)
        self.on_taken_back: Callable[[list[str]], object] = lambda names: None
        """Called with the rows that are as they were before, since the file cannot be written."""

    def encode(self) -> dict[str, Any]:
        return {"dataVersion": self.version_document(), self.TABLE_KEY: self.table.encode()}

    def decode(self, document: dict[str, Any]) -> None:
        self.table.decode(document.get(self.TABLE_KEY) or {})

    def snapshot(self) -> Callable[[], object]:
        document, changes = {"dataVersion": self.version_document()}, self.table.take_changes()
        return lambda: self._rows.write(document, changes.items())

    def unwritten(self, name: str | None = None) -> Written | None:
        if self.writer is None or name is None:
            return super().unwritten()
        if self.table.has_changed(name):
            return self.writer.next(self)
        return self.writer.running(self) if self.table.is_taken(name) else None

    def written(self, error: Exception | None) -> None:
        super().written(error)
        if error is None:
            self.table.confirm()

    def take_back(self) -> None:
        names = self.table.take_back()
        if names:
            self.next_version()
            self.on_taken_back(names)
