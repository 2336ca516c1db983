"""ConfigManager: base of the broker's tables, which are held in memory and in a JSON file under `config/`.

The document shapes are Apache's. Fields unknown to this version are kept and written back, so that going back to a newer
broker loses nothing.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from pocketmq.broker.tables.carrying_table import CarryingTable
from pocketmq.broker.tables.creation_rate import CreationRate
from pocketmq.broker.tables.limit_refusals import LimitRefusals
from pocketmq.remoting.bodies import DataVersion
from pocketmq.runtime.clock import Clock
from pocketmq.runtime.event import Event
from pocketmq.runtime.table_writer import TableWriter, Written
from pocketmq.store.disk.config_file import ConfigFile, RowsWriter
from pocketmq.store.disk.disk import StoreError

log = logging.getLogger("broker")

_LOG_INTERVAL_S = 60.0
_NAMES_LOGGED = 10
"""Number of created rows that one log line names."""

S = TypeVar("S", bound=msgspec.Struct)


class ConfigManager(ABC):
    """Base of the persisted tables."""

    def __init__(self, file: ConfigFile, clock: Clock, writer: TableWriter | None = None) -> None:
        self.file = file
        self.clock = clock
        self.data_version = DataVersion(0, clock.message_time_ms())
        self.writer = writer
        """Writes the file in the background after `changed`; None: `changed` writes it at once."""
        self._failed_count = 0
        self._next_log_s = float("-inf")

    def load(self) -> None:
        """Read the file, or its `.bak`; without either the table is empty.

        Raises StoreError when neither can be read or decoded.
        """
        document = self.file.load()
        try:
            version = document.get("dataVersion")
            if isinstance(version, dict):
                self.data_version = msgspec.convert(version, DataVersion, strict=False)
            self.decode(document)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"{self.file.path} does not have the structure of its table ({error}): repair it, or delete it and its "
                ".bak; it is then rebuilt from the store as far as possible"
            ) from None

    def persist(self) -> None:
        """Write the file. An I/O error is logged only: the table in memory stays in force."""
        self._try(self.snapshot())

    def persist_in(self, executor: Executor) -> None:
        """Write the present state from another thread, because a disk sync would block the event loop."""
        executor.submit(self._try, self.snapshot())

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError:
            log.exception("%s cannot be written", self.file.path)

    def changed(self) -> None:
        """Request a write of the file. Changes of the same turn, or during a running write, share one write."""
        if self.writer is None:
            self.persist()
        else:
            self.writer.write(self)

    def unwritten(self, name: str | None = None) -> Written | None:
        """Return the pending write of the changes, or None when they are on disk.

        A table that tracks rows (`RowsManager`) answers for the row `name` alone.
        """
        if self.writer is None:
            return None
        return self.writer.next(self) or self.writer.running(self)

    def snapshot(self) -> Callable[[], object]:
        """Return a function that writes the present state; it may run in any thread and raises OSError."""
        document = self.encode()
        return lambda: self.file.persist(document)

    def written(self, error: Exception | None) -> None:
        """Handle the result of writing a `snapshot`: None for success, else the error."""
        if error is None:
            return
        self._failed_count += 1
        now_s = self.clock.monotonic()
        if now_s >= self._next_log_s:
            failed = "%s cannot be written, its changes are undone: %s (%d times since last logged)"
            log.error(failed, self.file.path, error, self._failed_count)
            self._next_log_s, self._failed_count = now_s + _LOG_INTERVAL_S, 0
        self.take_back()

    def take_back(self) -> None:  # noqa: B027  # a table whose changes are not acknowledged need not undo them
        """Undo the changes of the failed write, except those overwritten since."""

    def next_version(self) -> None:
        """Advance `data_version`, after a change of the table."""
        self.data_version.counter += 1
        self.data_version.timestamp = self.clock.message_time_ms()

    def advance(self) -> None:
        """Note a change of the table: it has another version, which is written."""
        self.next_version()
        self.changed()

    def version(self) -> dict[str, int]:
        """Return `dataVersion` as plain values, without None values."""
        return {name: value for name, value in msgspec.to_builtins(self.data_version).items() if value is not None}

    def version_document(self) -> dict[str, Any]:
        """Return `dataVersion` for the file, including fields that other versions wrote there."""
        found = self.file.found.get("dataVersion")
        return {**found, **self.version()} if isinstance(found, dict) else self.version()

    @abstractmethod
    def encode(self) -> dict[str, Any]:
        """Return the document for the file; it must share no mutable state with the table."""

    @abstractmethod
    def decode(self, document: dict[str, Any]) -> None:
        """Load the table from the file's document. Unknown keys of the document stay in the file."""


class RowsManager(ConfigManager, Generic[S]):
    """A table of many rows: a write encodes only the changed rows, a failed write restores them."""

    TABLE_KEY: ClassVar[str]
    ROWS_NAME: ClassVar[str]
    """The rows' name in log lines, in the plural."""

    def __init__(
        self, file: ConfigFile, clock: Clock, declared: type[S], problem_of: Callable[[str], str | None],
        writer: TableWriter | None = None,
    ) -> None:  # fmt: skip
        """`problem_of` returns what is wrong with a row's name, or None."""
        super().__init__(file, clock, writer)
        self.table: CarryingTable[S] = CarryingTable(declared, problem_of)
        self._rows = RowsWriter(file, self.TABLE_KEY, self.table.plain)
        self.rolled_back: Event[[list[str]]] = Event()
        """Called with the names of the rows that were restored after a failed write."""
        self._created: list[str] = []

    def encode(self) -> dict[str, Any]:
        return {"dataVersion": self.version_document(), self.TABLE_KEY: self.table.encode()}

    def decode(self, document: dict[str, Any]) -> None:
        self.table.decode(document.get(self.TABLE_KEY) or {})

    def note_created(self, name: str) -> None:
        """Mention the row `name`, which a client's request created, in the log line of the next write.

        One line for each write, because a request may create a thousand rows.
        """
        self._created.append(name)

    def snapshot(self) -> Callable[[], object]:
        if self._created:
            created, self._created = self._created, []
            more = f" and {len(created) - _NAMES_LOGGED} more" if len(created) > _NAMES_LOGGED else ""
            log.info("%s created at their first use: %s%s", self.ROWS_NAME, ", ".join(created[:_NAMES_LOGGED]), more)
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
            self.rolled_back(names)


class CopiedRowsManager(RowsManager[S]):
    """A table of what clients may create, which slaves copy from their master."""

    def __init__(
        self, file: ConfigFile, clock: Clock, declared: type[S], problem_of: Callable[[str], str | None],
        writer: TableWriter | None, rate: tuple[str, int], is_copy: bool,
    ) -> None:  # fmt: skip
        """`rate`: the key that limits the rows created per second, and its value. `is_copy`: the table of a slave."""
        super().__init__(file, clock, declared, problem_of, writer)
        self._is_copy = is_copy
        self._refusals = LimitRefusals(clock)
        self._rate = CreationRate(clock, self._refusals, *rate, self.ROWS_NAME)
        self._uncounted = 0  # rows that a table copied from a master may have beyond the limit

    def _check_room(self, count: int, is_counted: bool = False) -> None:
        """Raises RemotingError when `count` new rows exceed the limit on their number, or that on their rate.

        `is_counted`: the rate limit has counted them already.
        """
        key, count_max = self.room
        if count and len(self.table) + count > count_max:
            self._refusals.refuse(
                f"{key}={count_max}: the broker has {len(self.table)} {self.ROWS_NAME} and creates no more"
            )
        if not is_counted:
            self._rate.take(count)

    def delete(self, name: str) -> bool:
        """Delete a row. Return False when it does not exist."""
        if not self.table.forget(name):
            return False
        self.advance()
        return True

    def replace(self, rows: dict[str, Any], version: DataVersion) -> None:
        """Take the rows and the version of another broker's table in place of the present ones.

        Rows that a client could not create are left out, and logged.
        """
        rows = self._admitted(rows)
        for name in [name for name in self.table if name not in rows]:
            self.table.forget(name)
        for name in rows:
            self.table.touch(name)
        self.table.decode(rows)
        self.data_version = version
        self.changed()

    def _admitted(self, rows: dict[str, Any]) -> dict[str, Any]:
        (key, limit), problems = self.room, []
        count_max = limit + self._uncounted
        admitted: dict[str, Any] = {}
        for name, row in rows.items():
            try:
                problem = self.row_problem(name, self.table.converted(row))
            except (ValueError, TypeError, AttributeError) as error:
                problem = f"{name[:200]!r}: {error}"
            if problem is None and len(admitted) >= count_max:
                problem = f"{name}: {key} allows {count_max}, the master has {len(rows)}"
            if problem is None:
                admitted[name] = row
            else:
                problems.append(problem)
        if problems:
            shown, more = "; ".join(problems[:_NAMES_LOGGED]), len(problems) - _NAMES_LOGGED
            and_more = f"; and {more} more" if more > 0 else ""
            log.error("%d %s of the master are left out: %s%s", len(problems), self.ROWS_NAME, shown, and_more)
        return admitted

    @abstractmethod
    def row_problem(self, name: str, row: S) -> str | None:
        """Return what is wrong with a row that a client or another broker wants in the table, or None."""

    @property
    @abstractmethod
    def room(self) -> tuple[str, int]:
        """The key that limits the number of rows, and its value."""
