"""ConfigManager: a table of the broker that lives in memory and in a JSON file under `config/`.

The shapes are Apache's. What a newer broker wrote beside the fields that we know is carried along: losing it at the first
write would take it from the broker that somebody goes back to.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

import msgspec

from remoting.bodies import DataVersion
from runtime.clock import Clock
from store.config_file import ConfigFile
from store.disk import StoreError

log = logging.getLogger("broker")

S = TypeVar("S", bound=msgspec.Struct)


class ConfigManager(ABC):
    """Base of the persisted tables."""

    def __init__(self, file: ConfigFile, clock: Clock) -> None:
        self.file = file
        self.clock = clock
        self.data_version = DataVersion(0, clock.message_time_ms())

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
        self._write(self.encode())

    def persist_in(self, executor: Executor) -> None:
        """Write the present state from another thread: a sync of the disk would hold up the loop for tens of ms."""
        executor.submit(self._write, self.encode())

    def _write(self, document: dict[str, Any]) -> None:
        try:
            self.file.persist(document)
        except OSError:
            log.exception("%s cannot be written", self.file.path)

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


class CarryingTable(dict[str, S]):
    """Name -> declared struct, and what else stood beside its fields in the file."""

    def __init__(self, declared: type[S], problem_of: Callable[[str], str | None]) -> None:
        """`problem_of` says what is wrong with a name, if anything is."""
        super().__init__()
        self._declared = declared
        self._problem_of = problem_of
        # What could not be read is not ours to delete.
        self._unread: dict[str, Any] = {}
        fields = msgspec.structs.fields(declared)
        self._known = {field.encode_name for field in fields}
        self._optional = [field.encode_name for field in fields if field.default is None]
        self._extras: dict[str, dict[str, Any]] = {}

    def decode(self, rows: dict[str, Any]) -> None:
        """Add the rows of a document; one that does not fit is left out and logged."""
        for name, row in rows.items():
            try:
                problem = self._problem_of(name)
                if problem is not None:
                    raise ValueError(problem)
                plain = {key: value for key, value in row.items() if value is not None}
                self[name] = msgspec.convert(plain, self._declared, strict=False)
            except (ValueError, AttributeError) as error:
                log.error("%s %r in the config file: %s; left alone", self._declared.__name__, name, error)
                self._unread[name] = row
                continue
            extras = {key: value for key, value in row.items() if key not in self._known}
            if extras:
                self._extras[name] = extras

    def forget(self, name: str) -> bool:
        """Delete a row with all that was carried beside it. False when there is none."""
        self._extras.pop(name, None)
        return self.pop(name, None) is not None

    def rows(self) -> dict[str, dict[str, Any]]:
        """All rows in plain values, None left out, sharing nothing that changes later; 0.5 us each."""
        rows: dict[str, dict[str, Any]] = msgspec.to_builtins(dict(self))
        for name in self._optional:
            for row in rows.values():
                if row[name] is None:
                    del row[name]
        return rows

    def encode(self) -> dict[str, dict[str, Any]]:
        """The rows as they are written, with what is carried."""
        rows = {name: row for name, row in self._unread.items() if name not in self} | self.rows()
        for name, extras in self._extras.items():
            rows[name] = {**extras, **rows[name]}
        return rows
