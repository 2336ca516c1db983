"""The rule by which the warm-up of a load ends: two successive seconds take almost the same CPU per message."""

from collections.abc import Sequence
from dataclasses import dataclass

DIFFERENCE_MAX = 0.05


@dataclass(frozen=True)
class WarmUp:
    """Limits of a warm-up in seconds. Each step is the CPU per message of one second."""

    shortest_s: int
    longest_s: int

    def is_over(self, steps: Sequence[float]) -> bool:
        """Return whether to measure now, settled or not."""
        return len(steps) >= self.longest_s or (len(steps) >= self.shortest_s and is_settled(steps))

    def times(self, factor: float) -> "WarmUp":
        """Return limits for a load or a server that needs longer, or less long, but the two seconds that are compared."""
        return WarmUp(*(max(round(limit_s * factor), 2) for limit_s in (self.shortest_s, self.longest_s)))


def is_settled(steps: Sequence[float]) -> bool:
    """Return whether the last two seconds differ by less than 5 %; one without a message is infinite and never settles."""
    return len(steps) >= 2 and abs(steps[-1] - steps[-2]) < DIFFERENCE_MAX * min(steps[-2:])


def described(steps: Sequence[float]) -> str:
    """Return how long the warm-up took, and whether it settled."""
    if is_settled(steps):
        return f"warm-up {len(steps)} s, then {steps[-1]:.2f} us a message"
    last = ", ".join(f"{step:.2f}" for step in steps[-2:])
    return f"did not settle in a warm-up of {len(steps)} s: the last seconds took {last} us a message"
