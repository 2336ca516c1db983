"""Audit of stores: bodies against CRC, records against each other, queues against the log, and optionally the index."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pocketmq.runtime.command_line.printer import Printer
from pocketmq.spark_analytics.commands.listing import listing
from pocketmq.spark_analytics.pipelines import consistency
from pocketmq.spark_analytics.pipelines.engine import Engine
from pocketmq.spark_analytics.pipelines.stores import Stores

ROWS_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class Audit:
    """Result of an audit: `queues` and `findings` are rows of `pipelines.consistency`."""

    queues: list[dict[str, Any]]
    findings: list[dict[str, Any]]

    @property
    def is_valid(self) -> bool:
        """Whether there are no errors. Notes do not count, as a broker repairs them by itself."""
        return not any(finding["severity"] == consistency.ERROR for finding in self.findings)


def make_audit(
    engine: Engine, paths: Sequence[str], *, with_index: bool = False, on_step: Callable[[str], None] = lambda step: None
) -> Audit:
    """Run the audit. Raises the errors of the data source."""
    stores = Stores(engine, tuple(paths))
    on_step("bodies against their CRC, queues against the log")
    queues = consistency.queues(stores)
    on_step("locating differences")
    findings = consistency.findings(stores, queues, with_index=with_index)
    return Audit(queues.to_pylist(), findings.to_pylist())


def print_audit(audit: Audit, console: Printer) -> None:
    """Print the findings and a summary line."""
    if audit.findings:
        table = listing("", "kind", "count", "topic", "queue", "queue offset", "physical offset", "what")
        for row in audit.findings[:ROWS_SHOWN]:
            names = ("severity", "kind", "count", "topic", "queueId", "queueOffset", "physicalOffset", "detail")
            table.add_row(*("-" if row[name] is None else str(row[name]) for name in names))
        if len(audit.findings) > ROWS_SHOWN:
            table.caption = f"first {ROWS_SHOWN}; --json lists up to {consistency.FINDINGS_MAX:,}"
        console.print(table)
    console.print(_last_line(audit))


def _last_line(audit: Audit) -> str:
    known = [row for row in audit.queues if row["topic"] is not None]
    seen = f"{sum(row['records'] for row in known):,} records in {len(known):,} queues"
    outlived = sum(row["outlived"] for row in known)
    counts = [f"{outlived:,} of topics that were deleted, or deleted and created again"] if outlived else []
    counts += [f"{number} {severity}s" for severity, number in consistency.counted(audit.findings).items()]
    return f"{'valid' if audit.is_valid else 'NOT VALID'}: {seen}" + (f"; {', '.join(counts)}" if counts else "")


def audit_json(audit: Audit) -> str:
    """Return the result as JSON: `valid`, `records`, `queues`, `findings`."""
    document = {
        "valid": audit.is_valid,
        "records": sum(row["records"] for row in audit.queues),
        "queues": sum(row["topic"] is not None for row in audit.queues),
        "findings": audit.findings,
    }
    return json.dumps(document, indent=2)
