"""Result of an attack, its limits, and the tables that show it."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.table import Table

P99_MS_MAX = 50.0
MEMORY_RATIO_MAX = 1.2
MEMORY_SLACK_MB = 2.0
"""Memory growth below this is ignored: an allocator's arena is a MB."""


@dataclass
class Memory:
    """Anonymous megabytes of a server before the attack, at its peak and at the end of the settle phase."""

    before: float
    peak: float
    after: float
    back_seconds: float | None
    """Time from the end of the attack until the memory was within the limit; None when it was not."""

    @property
    def is_back(self) -> bool:
        return self.back_seconds is not None

    def __str__(self) -> str:
        back = "not back" if self.back_seconds is None else f"{self.back_seconds:.0f} s"
        return f"{self.before:.0f} / {self.peak:.0f} / {self.after:.0f}, {back}"


def is_within_limit(before: float, after: float) -> bool:
    """Return whether a server's memory after an attack is near enough to the memory before it, both in MB."""
    return after <= max(before * MEMORY_RATIO_MAX, before + MEMORY_SLACK_MB)


@dataclass
class Result:
    """One row. Latencies in ms; `quiet` was measured before the attack in the same run, `later` after it."""

    name: str
    quiet_p99: float
    send_p99: float
    receive_p99: float
    hold_p99: float
    """Delay of the answers to held pulls beyond their hold time."""
    route_p99: float
    later_p99: float
    longest: float
    stalls: int
    stall_longest: float
    broker: Memory
    namesrv: Memory
    resident_peak_mb: float
    log_mb: float
    sent_mb: float
    own_p99: float
    failed: int
    is_alive: bool
    failure: str = ""
    slave_p99: float = 0.0
    """The same of requests to the slave, in the attack that has one."""
    grpc_p99: float = 0.0
    """The same of sends over gRPC, in the attacks on the gRPC port."""
    notes: list[str] = field(default_factory=list)

    @property
    def p99(self) -> float:
        """Return the worst p99 of sends, of the way to the consumer, of held pulls, of routes, of a slave and over gRPC."""
        return max(self.send_p99, self.receive_p99, self.hold_p99, self.route_p99, self.slave_p99, self.grpc_p99)

    @property
    def problems(self) -> list[str]:
        """Return the limits that the row exceeds."""
        return [
            *(["dead"] if not self.is_alive else []),
            *([f"p99 {self.p99:.0f} ms"] if self.p99 > P99_MS_MAX else []),
            *([f"p99 later {self.later_p99:.0f} ms"] if self.later_p99 > P99_MS_MAX else []),
            *([f"{self.failed} failed"] if self.failed else []),
            *(["broker's memory"] if not self.broker.is_back else []),
            *(["name server's memory"] if not self.namesrv.is_back else []),
        ]

    @property
    def cells(self) -> tuple[str, ...]:
        return (
            self.name,
            f"{self.quiet_p99:.1f}",
            f"{self.send_p99:.1f}",
            f"{self.receive_p99:.1f}",
            f"{self.hold_p99:.1f}",
            f"{self.route_p99:.1f}",
            f"{self.later_p99:.1f}",
            f"{self.longest:.0f}",
            f"{self.stalls}",
            str(self.broker),
            str(self.namesrv),
            f"{self.log_mb:.1f}",
            f"{self.sent_mb:.0f}",
            "yes" if self.is_alive else "NO",
            ", ".join(self.problems) or "ok",
        )


COLUMNS = (
    *(
        "attack",
        "p99 before, ms",
        "send p99",
        "receipt p99",
        "held p99",
        "route p99",
        "p99 after",
        "max, ms",
        "stalls > 50 ms",
    ),
    *("broker MB", "name server MB", "log MB", "sent MB", "alive", "verdict"),
)
LIMITS = (
    f"Limits: p99 <= {P99_MS_MAX:.0f} ms, memory back within {MEMORY_RATIO_MAX - 1:.0%}, both processes alive, none of the "
    "neighbour's requests failed. MB: anonymous memory before / at the peak / at the end of settling, and the seconds after "
    "the attack until it was back."
)


def table(results: Iterable[Result], title: str) -> Table:
    """Return a table for a terminal."""
    made = Table(title=title, caption=LIMITS)
    for column in COLUMNS:
        justify = "left" if column in ("attack", "verdict") else "right"
        made.add_column(column, justify=justify, no_wrap=column == "attack")  # type: ignore[arg-type]
    for result in results:
        *cells, outcome = result.cells
        made.add_row(*cells, f"[{'red' if result.problems else 'green'}]{outcome}[/]")
    return made


def markdown(results: list[Result], title: str) -> str:
    """Return a table for docs/security.md."""
    lines = [f"{title}. {LIMITS}", "", "| " + " | ".join(COLUMNS) + " |"]
    lines.append("|" + "|".join("---" if column in ("attack", "verdict") else "---:" for column in COLUMNS) + "|")
    lines += ["| " + " | ".join(result.cells) + " |" for result in results]
    met = sum(not result.problems for result in results)
    quiet = statistics.median(result.quiet_p99 for result in results)
    lines += ["", f"{met} of {len(results)} attacks within the limits; the median p99 before an attack was {quiet:.1f} ms."]
    return "\n".join(lines) + "\n"
