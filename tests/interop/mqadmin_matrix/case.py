"""A case of mqadmin, and the facts of a tool's output: its text without the parts that vary between runs or tools."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_TIME: Final = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?"
_REFUSAL: Final = re.compile(r"CODE: *(\d+) +DESC: *([^\n]*?)(?: +BROKER: \S+)?$", re.MULTILINE)
_EXCEPTION: Final = re.compile(r"^(?:Caused by: )?(?:java|org)\.[\w.$]+(?:Exception|Error): *([^\n]*)", re.MULTILINE)
_OURS: Final = re.compile(r"^mqadmin: error: (.*)$", re.MULTILINE)
_WORDS: Final = {
    "unknown command": re.compile(r"The sub command \S+ not exist\."),
    "usage": re.compile(r"^usage: mqadmin|must be given|^Try 'mqadmin ", re.MULTILINE),
    "unknown cluster": re.compile(r"Make sure the specified clusterName exists"),
    "connect failed": re.compile(r"connect to \[?\S*?\]? ?failed"),
    "no answer": re.compile(r"wait response on the channel .* timeout|does not answer request \d+ within"),
}
"""Failures that the tools report in different words."""

PLACEHOLDERS: Final = ("broker", "cluster", "name", "folder", "namesrv", "client", "unique_key", "offset_id", "bad_id")


@dataclass(frozen=True)
class Case:
    """A command line, and the patterns that must be found in the facts of every column.

    {broker}, {cluster}, {name} (the broker's) and the other placeholders stand for values of the column. The cases of a
    column run in order at the same servers, so that a case may depend on the effects of earlier ones.
    """

    line: str
    shows: tuple[str, ...]
    whole: bool = True
    """Whether all facts must be the same in all columns; otherwise only those that `shows` matches."""
    exit_code: int = 0
    hides: tuple[str, ...] = ()
    """Patterns of parts that vary; they are shown as `..`."""
    at_apache: tuple[str, ...] | None = None
    """Patterns for the facts at Apache's servers, in place of `shows`, for the reason in `why`."""
    why: str = ""
    settles: bool = False
    """Whether the servers may need a moment until the answer is as expected; the case changes nothing."""
    signed: bool = True
    """Whether the tool signs its requests; the brokers refuse those that are not signed."""

    @property
    def name(self) -> str:
        return self.line.partition(" ")[0]

    def words(self, values: Mapping[str, str]) -> list[str]:
        """Return the command line's words with the values of a column."""
        return [word.format(**values) for word in re.findall(r"'[^']*'|\S+", self.line) for word in [word.strip("'")]]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case in a column."""

    exit_code: int
    facts: tuple[str, ...]

    def missing(self, patterns: tuple[str, ...]) -> list[str]:
        """Return the patterns that no fact matches."""
        return [pattern for pattern in patterns if not any(re.search(pattern, fact) for fact in self.facts)]

    def shown(self, patterns: tuple[str, ...]) -> list[str]:
        """Return the parts of the facts that the patterns match."""
        found = [re.search(pattern, fact) for pattern in patterns for fact in self.facts]
        return list(dict.fromkeys(match[0] for match in found if match))


def facts(text: str, hides: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the facts of a tool's output: one for a failure, otherwise its lines, sorted."""
    for key, value in values.items():
        text = text.replace(value, key.upper())
    for pattern in hides:
        text = re.sub(pattern, "..", text, flags=re.MULTILINE)
    for words, pattern in _WORDS.items():
        if pattern.search(text):
            return (words,)
    if refusal := _REFUSAL.search(text):
        return (f"CODE {refusal[1]}: {refusal[2]}",)
    if failures := _EXCEPTION.findall(text) or _OURS.findall(text):
        return (failures[-1],)
    lines = (" ".join(line.split()) for line in re.sub(_TIME, "TIME", _canonical(text)).splitlines())
    return tuple(sorted(line for line in lines if line))


def _canonical(text: str) -> str:
    """Return a JSON document (also fastjson's, with bare numeric keys) with sorted keys, other text as it is."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json.dumps(json.loads(re.sub(r"([{,])(\d+):", r'\1"\2":', text)), sort_keys=True)
    except ValueError:
        return text
