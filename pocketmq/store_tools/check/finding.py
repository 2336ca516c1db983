"""What a look at a store's files found: one line each, with the place and what to do about it."""

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

# Lines kept of one kind; more of the same kind are only counted, so that a store full of damage needs no more memory.
_LINES_MAX: Final = 20


class Severity(IntEnum):
    """How bad; the order in which findings are shown."""

    NOTE = 0  # worth a word, nothing is wrong
    DERIVED = 1  # a queue, the index, the checkpoint or a table differs from the log
    LOG = 2  # bytes of the log are no records


@dataclass(frozen=True, slots=True)
class Finding:
    """`kind` groups equal ones; `position` is a byte of the file at `path`, -1 for the file as a whole.

    `physical_offset` is that of the record it is about, -1 without one: who learns later that the log ends before it drops
    the finding.
    """

    severity: Severity
    kind: str
    path: str
    position: int
    what: str
    advice: str = ""
    physical_offset: int = -1

    @property
    def place(self) -> str:
        return self.path if self.position < 0 else f"{self.path}:{self.position}"


@dataclass
class Findings:
    """A list of findings, bounded by kind; `counts` has them all."""

    kept: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, finding: Finding) -> None:
        self.counts[finding.kind] += 1
        if self.counts[finding.kind] <= _LINES_MAX:
            self.kept.append(finding)

    def count_more(self, kind: str, count: int) -> None:
        """`count` more of a kind that has findings already, without lines of their own."""
        self.counts[kind] += count

    def drop(self, physical_offset: int, kinds: Set[str]) -> None:
        """Take back what was found about one record."""
        for finding in [one for one in self.kept if one.physical_offset == physical_offset and one.kind in kinds]:
            self.kept.remove(finding)
            self.counts[finding.kind] -= 1
        self.counts += Counter()

    def merge(self, other: "Findings") -> None:
        room = Counter({finding.kind: 0 for finding in other.kept})
        for finding in other.kept:
            if self.counts[finding.kind] + room[finding.kind] < _LINES_MAX:
                self.kept.append(finding)
            room[finding.kind] += 1
        self.counts.update(other.counts)

    @property
    def worst(self) -> Severity:
        return max((finding.severity for finding in self.kept), default=Severity.NOTE)

    def left_out(self) -> dict[str, int]:
        """Kind -> how many are counted only."""
        kept = Counter(finding.kind for finding in self.kept)
        return {kind: count - kept[kind] for kind, count in self.counts.items() if count > kept[kind]}
