"""Output of the result of `verify`: as text and as JSON."""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.text import Text

from pocketmq.runtime.command_line.printer import Printer
from pocketmq.runtime.peer_text import escaped_json
from pocketmq.store_tools.check.finding import Finding, Severity
from pocketmq.store_tools.check.verify import Verification
from pocketmq.store_tools.files.value_text import time_text

_SEVERITY: Final = {
    Severity.LOG: ("damage", "red"),
    Severity.DERIVED: ("differs", "yellow"),
    Severity.NOTE: ("note", "dim"),
}
_VERDICT: Final = {
    Severity.NOTE: ("valid", "green"),
    Severity.LOG: ("the log is damaged", "red"),
    Severity.DERIVED: ("the log is valid, files derived from it are not", "yellow"),
}


@contextlib.contextmanager
def progress_bar(console: Printer, description: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar with bytes and bytes per second, on a terminal only; give the function that moves it."""
    bar = Progress(
        TextColumn(description), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(),
        console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
    with bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def show(result: Verification, console: Printer) -> None:
    """Print a summary and one line per finding, the worst last, where the user sees it first on a terminal."""
    size = result.end - result.log_begin
    offsets = f"physical offsets {result.log_begin} to {result.end}"
    newest = f", the newest stored at {time_text(result.last_store_timestamp_ms)}" if result.records else ""
    holes = f", {result.holes:,} holes" if result.holes else ""
    rows = {
        "store": result.root + ("  (a broker is running on it)" if result.running else ""),
        "log": f"{size:,} bytes in {result.log_files} files, {offsets}",
        "records": f"{result.records:,} valid{newest}",
        "queues": f"{result.queues:,} with {result.units:,} units that match their records{holes}",
        "index": f"{result.index_entries:,} entries in {result.index_files} files",
    }
    if result.outlived:
        topics = ", ".join(f"{topic} ({count:,})" for topic, count in sorted(result.outlived.items())[:5])
        rows["deleted"] = f"records of topics that were deleted, or deleted and created again: {topics}"
    rows["took"] = f"{result.seconds:.2f} s, {size / 1e6 / max(result.seconds, 1e-9):,.0f} MB/s"
    for name, value in rows.items():
        console.print(Text(f"{name:8} ", "dim").append(value, "default"), soft_wrap=True)
    for finding in sorted(result.findings.kept, key=lambda finding: finding.severity):
        console.print(_line(finding), soft_wrap=True)
    for kind, count in result.findings.left_out().items():
        console.print(Text(f"... and {count:,} more findings of kind {kind}", "dim"))
    verdict, style = _VERDICT[result.findings.worst]
    count = sum(result.findings.counts.values())
    console.print(Text(f"{verdict}; {count:,} {'finding' if count == 1 else 'findings'}" if count else verdict, style))


def _line(finding: Finding) -> Text:
    word, style = _SEVERITY[finding.severity]
    line = Text(f"{word}: ", style)
    line.append(f"{finding.place}: ", "bold")
    line.append(finding.what, "default")
    if finding.advice:
        line.append(f"; {finding.advice}", "dim")
    return line


def as_document(result: Verification) -> dict[str, Any]:
    """Return the result as a JSON object."""
    return {
        "root": result.root,
        "exitCode": result.exit_code,
        "verdict": _VERDICT[result.findings.worst][0],
        "running": result.running,
        "logBegin": result.log_begin,
        "logEnd": result.end,
        "logFiles": result.log_files,
        "records": result.records,
        "queues": result.queues,
        "units": result.units,
        "holes": result.holes,
        "indexFiles": result.index_files,
        "indexEntries": result.index_entries,
        "deletedTopics": dict(result.outlived),
        "lastStoreTimestamp": result.last_store_timestamp_ms,
        "seconds": round(result.seconds, 3),
        "findingCounts": dict(result.findings.counts),
        "findings": [
            {
                "severity": _SEVERITY[finding.severity][0],
                "kind": finding.kind,
                "file": finding.path,
                "position": finding.position,
                "physicalOffset": finding.physical_offset,
                "what": finding.what,
                "advice": finding.advice,
            }
            for finding in sorted(result.findings.kept, key=lambda finding: -finding.severity)
        ],
    }


def as_json(result: Verification) -> str:
    return escaped_json(json.dumps(as_document(result), indent=2, ensure_ascii=False))
