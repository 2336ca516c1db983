"""Text in CSV files that a spreadsheet would take for a formula, such as `=HYPERLINK(...)`, from keys, tags and bodies.

A cell of text that begins with one of FORMULA_STARTS gets an apostrophe in front, as is usual: spreadsheets then take it for
text. Columns of numbers are not changed. Parquet and JSON always have the exact text.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

FORMULA_STARTS: Final = "=+@\t\r\n\uff1d\uff0b\uff0d\uff20-"
"""The last four but one are the full-width forms of `=`, `+`, `-` and `@`."""
_FORMULA: Final = f"^([{FORMULA_STARTS}])"


def write_csv(table: Any, path: Any) -> None:
    """Write a pyarrow Table."""
    for number, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            harmless = pc.replace_substring_regex(table[number], _FORMULA, r"'\1")
            table = table.set_column(number, field, harmless)
    pyarrow.csv.write_csv(table, path)


def csv_writer(frame: Any, leave: frozenset[str]) -> Any:
    """Return the writer of a Spark DataFrame. `leave`: columns of texts that are no cells, or in Base64."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType

    texts = [field.name for field in frame.schema if isinstance(field.dataType, StringType) and field.name not in leave]
    harmless = frame.withColumns({name: F.regexp_replace(name, _FORMULA, "'$1") for name in texts})
    # By default Spark cuts off blanks at both ends of a cell, which could be those before a formula.
    return harmless.write.options(ignoreLeadingWhiteSpace=False, ignoreTrailingWhiteSpace=False)
