"""`dump` and `export`: records as JSON lines or as a table."""

import json
from collections.abc import Iterable
from typing import Any, Final, TextIO

from rich.table import Table

from pocketmq.runtime.command_line.printer import Printer
from pocketmq.runtime.peer_text import escaped_json
from pocketmq.store.format.properties import KEYS, TAGS, UNIQ_KEY, decode_properties
from pocketmq.store.format.record import Record
from pocketmq.store_tools.files.value_text import time_text
from pocketmq.store_tools.transfer.documents import body_fields, plain_body

# The columns of a table are laid out together; more rows are printed as several tables.
_ROWS_AT_ONCE: Final = 500
_BODY_SHOWN_MAX: Final = 60


def write_json(documents: Iterable[dict[str, Any]], out: TextIO) -> int:
    """Write one line per document; return their number."""
    count = 0
    for document in documents:
        out.write(escaped_json(json.dumps(document, ensure_ascii=False)) + "\n")
        count += 1
    out.flush()
    return count


def write_table(records: Iterable[Record], console: Printer, form: str, plain: bool) -> None:
    """Print one row per record."""
    rows: list[Record] = []
    for record in records:
        rows.append(record)
        if len(rows) == _ROWS_AT_ONCE:
            console.print(_table(rows, form, plain))
            rows.clear()
    console.print(_table(rows, form, plain))


def _table(rows: list[Record], form: str, plain: bool) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in ("physical", "topic/queue @ offset", "stored", "tags", "keys"):
        table.add_column(column, justify="right" if column == "physical" else "left", overflow="fold")
    if form != "none":
        table.add_column("body", overflow="fold")
    for record in rows:
        properties = decode_properties(record.properties)
        topic = str(record.topic, "utf-8", "replace")
        cells = [
            str(record.physical_offset),
            f"{topic}/{record.queue_id} @ {record.queue_offset}",
            time_text(record.store_timestamp_ms),
            properties.get(TAGS, ""),
            properties.get(KEYS) or properties.get(UNIQ_KEY, ""),
        ]
        if form != "none":
            body = plain_body(record)[0] if plain else record.body
            shown = str(next(iter(body_fields(body, form).values())))
            cells.append(shown if len(shown) <= _BODY_SHOWN_MAX else shown[:_BODY_SHOWN_MAX] + "...")
        # Whitespace is joined, so that each record has one line.
        table.add_row(*(" ".join(cell.split()) for cell in cells))
    return table
