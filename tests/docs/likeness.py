"""Whether a command printed what its page shows.

Figures that differ from run to run are alike: times, ids, decimal fractions, numbers of five digits and more.
Runs of spaces count as one. `...` stands for any text of a line; a line of `...` alone stands for any lines.
"""

import re
from typing import Final

PLACEHOLDERS: Final = (
    # Counts by hour: messages that are due close to a full hour may be in two rows.
    (re.compile(r"(^\d{4}-\d\d-\d\d \d\d:00 +\d+\n)+", re.MULTILINE), "HOURS\n"),
    (re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d(:\d\d){1,2}([.,]\d+)?)?(Z|[+-]\d\d:\d\d)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d([.,]\d+)?\b"), "TIME"),
    (re.compile(r"\b[0-9A-F]{16,}\b"), "ID"),
    (re.compile(r"\b\d{1,3}(,\d{3})+\b|\b\d{5,}\b|\b\d+\.\d+\b(?!\.)"), "N"),
    (re.compile(r"[-─━]{3,}"), "---"),
)


def normal(text: str) -> list[str]:
    """Return the lines of an output with placeholders for what differs from run to run."""
    for figure, placeholder in PLACEHOLDERS:
        text = figure.sub(placeholder, text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def is_like(printed: str, shown: str) -> bool:
    """Return whether what was printed is what a page shows."""
    lines = normal(shown)
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else _line(line) for line in lines)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in normal(printed))) is not None


def _line(line: str) -> str:
    return r".*?".join(map(re.escape, line.split("..."))) + r"\n"
