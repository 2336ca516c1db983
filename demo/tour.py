"""Evaluation of a client tour's output: counts by kind, and the lateness of each delayed message."""

from collections import defaultdict
from dataclasses import dataclass, field

DELAYED = "delayed"


@dataclass
class Tour:
    """Counts by kind; lateness in ms by delay in seconds, in the order of arrival, at the client and in the store."""

    sent: dict[str, int] = field(default_factory=dict)
    consumed: dict[str, int] = field(default_factory=dict)
    late_ms: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    store_late_ms: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    disorders: list[str] = field(default_factory=list)

    def hear(self, line: str) -> None:
        """Process one line of output; lines of another form are ignored."""
        words = line.split()
        match words:
            case ["SENT", kind, number] if number.isdigit():
                self.sent[kind] = int(number)
            case ["CONSUMED", kind, number] if number.isdigit():
                self.consumed[kind] = int(number)
            case ["LATE", seconds, late, store_late] if seconds.isdigit() and _is_number(late) and _is_number(store_late):
                self.late_ms[int(seconds)].append(int(late))
                self.store_late_ms[int(seconds)].append(int(store_late))
            case ["DISORDER", *_]:
                self.disorders.append(line.partition(" ")[2])

    @property
    def late_all_ms(self) -> list[int]:
        return [late for lates in self.late_ms.values() for late in lates]

    @property
    def store_late_all_ms(self) -> list[int]:
        return [late for lates in self.store_late_ms.values() for late in lates]

    def complaints(self) -> list[str]:
        """Return descriptions of all problems; empty if there are none."""
        wrong = [] if self.sent else ["the client sent nothing"]
        for kind in sorted(self.sent | self.consumed):
            sent, consumed = self.sent.get(kind, 0), self.consumed.get(kind, 0)
            if sent != consumed:
                wrong.append(f"{kind}: {sent} sent, {consumed} consumed")
        wrong += [f"out of order: {line}" for line in self.disorders]
        pairs = zip(self.late_all_ms, self.store_late_all_ms, strict=True)
        early = [min(pair) for pair in pairs if min(pair) < 0]
        if early:
            wrong.append(f"{len(early)} delayed messages came early, by up to {-min(early)} ms")
        if len(self.late_all_ms) != self.sent.get(DELAYED, 0):
            wrong.append(
                f"{self.sent.get(DELAYED, 0)} delayed messages were sent, {len(self.late_all_ms)} reported their lateness"
            )
        return wrong


def _is_number(word: str) -> bool:
    return word.removeprefix("-").isdigit()
