"""Rows from the JSON tables in `config/`: small, so one task per store reads them row by row in Python."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pocketmq.spark_analytics.tables.table import Rows, Table
from pocketmq.store.offline.store_folder import DamagedFileError, StoreFolder

Row = dict[str, Any]


class DocumentTable:
    """A table made from a document; `rows_of` yields a store's rows without the column `store`."""

    def __init__(self, ddl: str, rows_of: Callable[[StoreFolder], Iterator[Row]]) -> None:
        self.ddl = ddl
        self._rows_of = rows_of

    @property
    def table(self) -> Table:
        return Table(self.ddl, _parts, self._rows)

    def _rows(self, store: StoreFolder) -> Iterator[Rows]:
        found = list(self._rows_of(store))
        names = [name for name in self.table.spark_types if name != "store"]
        yield Rows(len(found), {name: [row.get(name) for row in found] for name in names} | {"store": store.root})


def _parts(store: StoreFolder) -> list[StoreFolder]:
    return [store]


def typed(path: str, value: Any, kind: type | tuple[type, ...], place: str) -> Any:
    """Return `value` if it is None or of the given type; else raise DamagedFileError with the file and the place."""
    is_wrong = not isinstance(value, kind) or (kind is int and isinstance(value, bool))
    if value is not None and is_wrong:
        raise DamagedFileError(f"{path}: {place} is {value!r}")
    return value


def attributes(path: str, fields: Mapping[str, Any], place: str) -> dict[str, str]:
    """Return the attributes that 5.x keeps; empty in 4.9.4."""
    found = typed(path, fields.get("attributes"), dict, f"{place}.attributes") or {}
    return {name: str(value) for name, value in found.items()}
