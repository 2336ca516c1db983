"""README.md and its Chinese translation have the same commands, examples, links and headings."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENGLISH, CHINESE = "README.md", "README.zh-CN.md"
FENCE = "```"


def lines_of(name: str) -> list[str]:
    return (ROOT / name).read_text(encoding="utf-8").splitlines()


def code_blocks(lines: list[str]) -> list[str]:
    """Return the indented and the fenced blocks of code, in their order."""
    blocks: list[list[str]] = []
    is_fenced = was_code = False
    for line in lines:
        is_code = is_fenced or line.startswith(("    ", FENCE))
        if line.startswith(FENCE):
            is_fenced = not is_fenced
        if is_code and not was_code:
            blocks.append([])
        if is_code:
            blocks[-1].append(line)
        was_code = is_code
    return ["\n".join(block) for block in blocks]


def test_code_blocks_are_the_same() -> None:
    english, chinese = (code_blocks(lines_of(name)) for name in (ENGLISH, CHINESE))
    assert len(english) > 5
    assert chinese == english


def test_structure_is_the_same() -> None:
    """Headings of the same levels, and tables with the same numbers of rows."""

    def structure(name: str) -> list[str]:
        marks = (re.match(r"#+ |\||- ", line) for line in lines_of(name))
        return [mark[0] for mark in marks if mark]

    assert structure(CHINESE) == structure(ENGLISH)


def test_links_are_the_same() -> None:
    def links(name: str) -> set[str]:
        return set(re.findall(r"\]\(([^)]+)\)", "\n".join(lines_of(name)))) - {ENGLISH, CHINESE}

    assert links(CHINESE) == links(ENGLISH)
    assert f"]({CHINESE})" in lines_of(ENGLISH)[2]
    assert f"]({ENGLISH})" in lines_of(CHINESE)[2]
