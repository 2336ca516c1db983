"""Rows from the JSON tables in `config/`: small, so one task per store reads them row by row in Python."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

from pocketmq.spark_analytics.decoding.body_types import of_ddl
from pocketmq.spark_analytics.tables.table import Rows, Table
from pocketmq.store.offline.store_folder import DamagedFileError, StoreFolder

Row = dict[str, Any]
# Kinds of JSON values by column type.
_KINDS: Final[dict[Any, type]] = {
    pa.string(): str,
    pa.int32(): int,
    pa.int64(): int,
    pa.bool_(): bool,
    pa.map_(pa.string(), pa.string()): dict,
}


def document_table(ddl: str, rows_of: Callable[[StoreFolder], Iterator[Row]]) -> Table:
    """Return a table made from a document; `rows_of` yields a store's rows without the column `store`."""
    names = [field.name for field in of_ddl(ddl) if field.name != "store"]

    def rows(store: StoreFolder) -> Iterator[Rows]:
        found = list(rows_of(store))
        yield Rows(len(found), {name: [row.get(name) for row in found] for name in names} | {"store": store.root})

    return Table(ddl, lambda store: [store], rows)


def entry_table(ddl: str, file: str, key: str) -> Table:
    """Return a table with one row for each entry of the object `key` of a document: its name, and its fields."""
    name, *fields = [field for field in of_ddl(ddl) if field.name != "store"]

    def rows_of(store: StoreFolder) -> Iterator[Row]:
        path = store.path("config", file)
        for entry, given in store.table(file, key).items():
            found = typed(path, given, dict, entry) or {}
            values = {
                field.name: typed(path, found.get(field.name), _KINDS[field.type], f"{entry}.{field.name}")
                for field in fields
            }
            # 5.x keeps attributes; 4.9.4 has none.
            attributes = {attribute: str(value) for attribute, value in (values["attributes"] or {}).items()}
            yield {name.name: entry} | values | {"attributes": attributes}

    return document_table(ddl, rows_of)


def typed(path: str, value: Any, kind: type, place: str) -> Any:
    """Return `value` if it is None or of the given type; else raise DamagedFileError with the file and the place."""
    is_wrong = not isinstance(value, kind) or (kind is int and isinstance(value, bool))
    if value is not None and is_wrong:
        raise DamagedFileError(f"{path}: {place} is {value!r}")
    return value
