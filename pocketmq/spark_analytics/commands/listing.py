"""Tables on the terminal, in the style of all commands of the analytics."""

from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

_NUMBERS: Final = ("+ms", "count", "queue", "queue offset", "physical offset")


def listing(*headings: str, **settings: Any) -> Table:
    """Return a table without rows; columns of numbers are aligned to the right. `settings` are those of Rich's tables."""
    table = Table(box=SIMPLE_HEAD, padding=0, collapse_padding=True, **settings)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in _NUMBERS else "left", overflow="fold")
    return table
