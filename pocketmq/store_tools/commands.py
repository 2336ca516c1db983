"""The commands of `pocketmq store`: one function per command, which returns the exit code."""

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Final

from pocketmq.runtime.command_line.commands import say
from pocketmq.runtime.command_line.printer import Printer
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.record import Record
from pocketmq.store_tools.check import report
from pocketmq.store_tools.check.repair import Repair
from pocketmq.store_tools.check.verify import Verify
from pocketmq.store_tools.explain.place import PlaceError, explain_place
from pocketmq.store_tools.files.selection import Damage, Selection, select
from pocketmq.store_tools.files.store_files import StoreFiles
from pocketmq.store_tools.transfer.dump import export_records, write_json, write_table
from pocketmq.store_tools.transfer.importer import import_records

_PIPE_WIDTH: Final = 180


class UsageError(Exception):
    """An invalid option; the text names it."""


def verify(options: SimpleNamespace, complaints: Printer) -> int:
    try:
        levels = DelayLevels(options.delay_level) if options.delay_level is not None else None
    except ValueError as error:
        raise UsageError(f"--delay-level {options.delay_level}: {error}") from None
    files = StoreFiles(options.root, options.commitlog)
    run = Verify(
        files,
        workers=options.workers,
        check_crc=not options.no_crc,
        with_index=not options.no_index,
        delay_levels=levels,
    )
    with report.progress_bar(complaints, "verify") as bar:
        task = bar.add_task("", total=None)
        result = run.run(lambda done, total: bar.update(task, completed=done, total=total))
    if options.json:
        say(report.as_json(result))
    else:
        report.show(result, Printer())
    return result.exit_code


def selection(options: SimpleNamespace) -> Selection:
    """Return the filters of `dump` and `export`. Raises UsageError."""
    from_queue_offset, to_queue_offset = 0, Selection.to_queue_offset
    if options.queue_offset is not None:
        first, colon, behind = options.queue_offset.partition(":")
        if not all(part == "" or (part.isascii() and part.isdigit()) for part in (first, behind)) or not (first or behind):
            raise UsageError(f"--queue-offset {options.queue_offset}: expected A:B, A: or :B with numbers, or one number")
        from_queue_offset = int(first or 0)
        to_queue_offset = int(behind) if behind else Selection.to_queue_offset if colon else from_queue_offset + 1
    return Selection(
        topic=options.topic,
        queue_id=options.queue,
        tag=options.tag,
        key=options.key,
        from_ms=options.from_ms or 0,
        to_ms=Selection.to_ms if options.to_ms is None else options.to_ms,
        from_physical_offset=options.from_offset,
        to_physical_offset=Selection.to_physical_offset if options.to_offset is None else options.to_offset,
        from_queue_offset=from_queue_offset,
        to_queue_offset=to_queue_offset,
    )


def _records(options: SimpleNamespace, files: StoreFiles, damage: Damage) -> Iterator[Record]:
    return itertools.islice(select(files, selection(options), damage), options.limit)


def dump(options: SimpleNamespace, complaints: Printer) -> int:
    files, damage = StoreFiles(options.root, options.commitlog), Damage()
    records = _records(options, files, damage)
    if options.format == "table":
        write_table(records, Printer(pipe_width=_PIPE_WIDTH), options.body, options.plain)
    else:
        write_json(records, sys.stdout, options.body, options.plain)
    return _tell_damage(damage, complaints)


def _tell_damage(damage: Damage, complaints: Printer) -> int:
    if damage.unreadable:
        complaints.print(f"{damage.unreadable} places without a valid record were left out; `verify` lists them")
        return 1
    return 0


def explain(options: SimpleNamespace, complaints: Printer) -> int:
    try:
        is_valid = explain_place(options.place, options.commitlog, Printer(pipe_width=_PIPE_WIDTH))
    except PlaceError as error:
        raise UsageError(str(error)) from None
    return 0 if is_valid else 1


def repair(options: SimpleNamespace, complaints: Printer) -> int:
    job = Repair(StoreFiles(options.root, options.commitlog), Printer(soft_wrap=True), options.delay_level)
    everything = not (options.queues or options.index)
    return job.run(
        queues=options.queues or everything,
        index=options.index or everything,
        quarantine=options.quarantine,
        is_agreed=options.yes,
    )


def export(options: SimpleNamespace, complaints: Printer) -> int:
    files, damage = StoreFiles(options.root, options.commitlog), Damage()
    records = _records(options, files, damage)
    if options.out == "-":
        count = export_records(records, sys.stdout)
    else:
        with open(options.out, "w", encoding="utf-8") as out:
            count = export_records(records, out)
    complaints.print(f"{count:,} records exported")
    return _tell_damage(damage, complaints)


def import_(options: SimpleNamespace, complaints: Printer) -> int:
    with open(options.file, encoding="utf-8") if options.file != "-" else nullcontext(sys.stdin) as lines:
        result = import_records(
            options.root,
            lines,
            options.commitlog,
            keep_times=options.keep_times,
            delay_levels=options.delay_level,
            body_size_max=options.max_message_size,
        )
    for line in result.refusals:
        complaints.print(line)
    complaints.print(str(result))
    return 1 if result.refused else 0


COMMANDS: Final[dict[str, Callable[[SimpleNamespace, Printer], int]]] = {
    "verify": verify,
    "dump": dump,
    "explain": explain,
    "repair": repair,
    "export": export,
    "import": import_,
}
