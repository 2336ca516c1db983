"""Findings of a check, each with place, problem and advice."""

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

# Maximum number of findings kept per kind; further ones are only counted, to limit memory.
_LINES_MAX: Final = 20


class Severity(IntEnum):
    """Severity of a finding; also the order of the report."""

    NOTE = 0  # information, nothing is wrong
    DERIVED = 1  # a queue, the index, the checkpoint or a table differs from the log
    LOG = 2  # bytes of the log are not valid records


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `kind` groups similar ones; `position` is a byte of the file `path`, -1 for the whole file.

    `physical_offset` is that of the record concerned, -1 without one; `Findings.drop` uses it.
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
    """List of findings, limited per kind; `counts` includes all, also those that are not kept."""

    kept: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, finding: Finding) -> None:
        self.counts[finding.kind] += 1
        if self.counts[finding.kind] <= _LINES_MAX:
            self.kept.append(finding)

    def differs(self, kind: str, path: str, position: int, what: str, advice: str, physical_offset: int = -1) -> None:
        """Add a finding about a file that is derived from the log."""
        self.add(Finding(Severity.DERIVED, kind, path, position, what, advice, physical_offset))

    def drop(self, physical_offset: int, kinds: Set[str]) -> None:
        """Remove the findings of the given kinds about one record."""
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
        """Return kind -> number of findings that were counted but not kept."""
        kept = Counter(finding.kind for finding in self.kept)
        return {kind: count - kept[kind] for kind, count in self.counts.items() if count > kept[kind]}
