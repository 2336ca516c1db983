"""Blocks of code of a page, and the marks above them, which say how each of them is tested.

A mark is an HTML comment above a block, which readers of the page do not see:

    <!-- run -->                        the block is run: commands one after another, Python as a program
    <!-- run: as FILE -->               the block is written to FILE, which a later command uses
    <!-- run: in a coroutine -->        Python that awaits; such blocks of a page that follow one another share their names
    <!-- run: inside -->                the same, at the end of the `async with` before it
    <!-- run: endless -->               what does not end by itself is ended by Ctrl-C, or cancelled, after some seconds
    <!-- run: until TEXT -->            its last command goes on running, and the next block follows once it has printed TEXT
    <!-- run: fails -->                 the last command ends with another exit code than 0
    <!-- output -->                     the block is what the block before it prints
    <!-- first: COMMANDS -->            before the next mark: commands that the reader of the page has done already
    <!-- run by FILE -->                another test takes the block from the page and runs it
    <!-- not run: WHY -->               no test runs it

`<!-- no block here is run: WHY -->` and `<!-- blocks here are run by FILE -->` hold up to the next heading; above the second
heading of a page they hold for all of it. Servers go on running, until the next block that starts servers.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FENCE: Final = re.compile(r" {0,3}(```+)(\w*)")
MARK: Final = re.compile(
    r"<!-- (run by|run|output|first|not run|no block here is run|blocks here are run by)(?::? (\S.*?))? -->"
)
UNMARKED: Final = ("", "")
OF_SECTION: Final = {"no block here is run": "not run", "blocks here are run by": "run by"}


@dataclass(frozen=True)
class Block:
    """A block of code; `language` is empty for indented ones, `first` for those without earlier commands."""

    page: Path
    line: int
    language: str
    text: str
    mark: str
    argument: str
    first: str = ""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page in their order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    found: list[Block] = []
    headings, of_page, of_section, mark, before = 0, UNMARKED, UNMARKED, UNMARKED, ""
    for first, last, language in _regions(lines):
        line = lines[first]
        if language is not None:
            body = lines[first + 1 : last - 1] if FENCE.match(line) else [one[4:] for one in lines[first:last]]
            text = "\n".join(body) + "\n"
            found.append(Block(page, first + 1, language, text, *(mark if mark[0] else of_section), before))
            mark, before = UNMARKED, ""
        elif line.startswith("#"):
            headings += 1
            of_section = of_page
        elif given := MARK.fullmatch(line):
            if given[1] == "first":
                before += f"{given[2]}\n"
                continue
            if given[1] not in OF_SECTION:
                mark = (given[1], given[2] or "")
                continue
            of_section = (OF_SECTION[given[1]], given[2] or "")
            of_page = of_section if headings < 2 else of_page
        elif line.strip():
            mark = UNMARKED
    return found


def _regions(lines: list[str]) -> Iterator[tuple[int, int, str | None]]:
    """Yield first line, end and language of each block, and each line outside blocks, with None."""
    number, after_text = 0, False
    while number < len(lines):
        line, first = lines[number], number
        if fence := FENCE.match(line):
            number += 1
            while not lines[number].lstrip().startswith(fence[1]):
                number += 1
            number += 1
            yield first, number, fence[2]
            after_text = False
        elif line.startswith("    ") and line.strip() and not after_text:
            while number < len(lines) and (lines[number].startswith("    ") or not lines[number].strip()):
                number += 1
            while not lines[number - 1].strip():
                number -= 1
            yield first, number, ""
        else:
            after_text = bool(line.strip())
            number += 1
            yield first, number, None
