"""Lists that are filtered, sorted and divided into pages by the server, from the query of a link.

    COLUMNS = (*columns("word.topic", "word.kind"), Column("lag", "word.lag", lambda row: ..., is_number=True))
    table = view.table(COLUMNS, rows)

A template shows it with `table_of` of `tables.html`. The query of a list called `name` has the keys `name.q`, `name.sort`
(a column, with `-` before it for descending order), `name.page` and `name.size`; without a name they are `q`, `sort` ...
Further keys, such as the topic that a page is about, are kept in all links.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

Row = TypeVar("Row")

SIZES: Final = (25, 50, 100, 200)
_SIZE: Final = 50
_QUERY_SIZE_MAX: Final = 500


class Column(NamedTuple):
    """A column: its key in links, the key of its heading, and the value by which rows are sorted; None: not sorted."""

    key: str
    heading: str
    value: Callable[[Any], Any] | None = None
    is_number: bool = False


PAIRS: Final = (Column("key", "cluster.key", itemgetter(0)), Column("value", "word.value", itemgetter(1)))
"""Columns of keys and values."""


def columns(*headings: str, are_numbers: bool = False) -> tuple[Column, ...]:
    """Return a column for each key of a heading, such as `word.topic`, whose end is the column's key and the row's field."""
    names = ((heading.partition(".")[2], heading) for heading in headings)
    return tuple(Column(name, heading, attrgetter(name), are_numbers) for name, heading in names)


class Table(Generic[Row]):
    """One list of a page: `rows` are the ones shown. Columns of texts are searched for the filter."""

    sizes = SIZES

    def __init__(
        self,
        path: str,
        query: Mapping[str, str],
        columns: Sequence[Column],
        rows: Sequence[Row],
        name: str = "",
        descending: bool = False,
    ) -> None:
        """The first column sorts if the query has no other; `descending`: from its largest value."""
        self.path, self.query, self.columns, self.name = path, dict(query), columns, name
        self._prefix = f"{name}." if name else ""
        self.filter = self._given("q")[:_QUERY_SIZE_MAX]
        self.all_count = len(rows)
        kept = self._filtered(rows) if self.filter else list(rows)
        self.count = len(kept)
        self.sort, self.is_descending = self._sort(descending)
        column = next((column for column in columns if column.key == self.sort), None)
        if column is not None and column.value is not None:
            kept.sort(key=column.value, reverse=self.is_descending)
        self.size = size if (size := _whole(self._given("size"))) in SIZES else _SIZE
        self.pages = max(1, -(-self.count // self.size))
        self.page = min(max(1, _whole(self._given("page"))), self.pages)
        self.rows = kept[(self.page - 1) * self.size : self.page * self.size]

    @property
    def first(self) -> int:
        """The number of the first row shown, from 1; 0 without rows."""
        return (self.page - 1) * self.size + 1 if self.rows else 0

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1 if self.rows else 0

    def key(self, name: str) -> str:
        """Return the key of this list in the query: of `q`, `sort`, `page` or `size`."""
        return self._prefix + name

    def sort_link(self, column: Column) -> str:
        """Return the link that sorts by a column, in the other direction if it sorts already."""
        again = column.key == self.sort
        descending = not self.is_descending if again else column.is_number
        return self._link(sort=f"-{column.key}" if descending else column.key, page=None)

    def page_link(self, page: int) -> str:
        return self._link(page=page)

    def size_link(self, size: int) -> str:
        return self._link(size=size, page=None)

    def direction(self, column: Column) -> str:
        """Return the value of `aria-sort` of a column, empty if it does not sort."""
        if column.key != self.sort:
            return ""
        return "descending" if self.is_descending else "ascending"

    def kept(self) -> list[tuple[str, str]]:
        """Return the keys of the query that the form with the filter keeps."""
        changed = {self.key("q"), self.key("page")}
        return [(key, value) for key, value in self.query.items() if key not in changed]

    def _given(self, name: str) -> str:
        return self.query.get(self.key(name), "")

    def _sort(self, descending: bool) -> tuple[str, bool]:
        given = self._given("sort")
        key = given.removeprefix("-")
        if any(column.key == key and column.value is not None for column in self.columns):
            return key, given.startswith("-")
        return next((column.key for column in self.columns if column.value is not None), ""), descending

    def _filtered(self, rows: Sequence[Row]) -> list[Row]:
        wanted = self.filter.lower()
        values = [column.value for column in self.columns if column.value is not None and not column.is_number]
        return [row for row in rows if any(wanted in str(value(row)).lower() for value in values)]

    def _link(self, **changes: object) -> str:
        query = dict(self.query)
        for name, value in changes.items():
            if value is None:
                query.pop(self.key(name), None)
            else:
                query[self.key(name)] = str(value)
        return f"{self.path}?{urlencode(query)}" if query else self.path


def _whole(text: str) -> int:
    """Return a whole number of up to nine digits, 1 for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1
