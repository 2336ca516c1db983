"""The commands of `pocketmq store`: one function per command, named after it, which returns the exit code."""

import dataclasses
import itertools
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Final

import click

from pocketmq.runtime.command_line.commands import say
from pocketmq.runtime.command_line.printer import Printer
from pocketmq.store.format.delay_level import DelayLevels
from pocketmq.store.format.record import Record
from pocketmq.store_tools.check import report
from pocketmq.store_tools.check.repair import Repair
from pocketmq.store_tools.check.verify import Verify
from pocketmq.store_tools.explain.place import explain_place
from pocketmq.store_tools.files.selection import Damage, Selection, select
from pocketmq.store_tools.files.store_files import StoreFiles
from pocketmq.store_tools.transfer.documents import as_document, as_export
from pocketmq.store_tools.transfer.dump import write_json, write_table
from pocketmq.store_tools.transfer.importer import import_records

_PIPE_WIDTH: Final = 180
_FILTERS: Final = {field.name for field in dataclasses.fields(Selection)}


def verify(options: SimpleNamespace, complaints: Printer) -> int:
    try:
        levels = DelayLevels(options.delay_level) if options.delay_level is not None else None
    except ValueError as error:
        raise click.UsageError(f"--delay-level {options.delay_level}: {error}") from None
    files = StoreFiles(options.root, options.commitlog)
    run = Verify(
        files,
        workers=options.workers,
        check_crc=not options.no_crc,
        with_index=not options.no_index,
        delay_levels=levels,
    )
    with report.progress_bar(complaints, "verify") as progress:
        result = run.run(progress)
    if options.json:
        say(report.as_json(result))
    else:
        report.show(result, Printer())
    return result.exit_code


def selection(options: SimpleNamespace) -> Selection:
    """Return the filters of `dump` and `export`. Raises click.UsageError."""
    given = {name: value for name, value in vars(options).items() if name in _FILTERS and value is not None}
    if options.queue_offset is not None:
        first, colon, behind = options.queue_offset.partition(":")
        if not all(part == "" or (part.isascii() and part.isdigit()) for part in (first, behind)) or not (first or behind):
            raise click.UsageError(
                f"--queue-offset {options.queue_offset}: expected A:B, A: or :B with numbers, or one number"
            )
        given["from_queue_offset"] = int(first or 0)
        if behind or not colon:
            given["to_queue_offset"] = int(behind) if behind else int(first) + 1
    return Selection(**given)


def _records(options: SimpleNamespace, files: StoreFiles, damage: Damage) -> Iterator[Record]:
    return itertools.islice(select(files, selection(options), damage), options.limit)


def dump(options: SimpleNamespace, complaints: Printer) -> int:
    files, damage = StoreFiles(options.root, options.commitlog), Damage()
    records = _records(options, files, damage)
    if options.format == "table":
        write_table(records, Printer(pipe_width=_PIPE_WIDTH), options.body, options.plain)
    else:
        write_json((as_document(record, options.body, options.plain) for record in records), sys.stdout)
    return _tell_damage(damage, complaints)


def _tell_damage(damage: Damage, complaints: Printer) -> int:
    if damage.unreadable:
        complaints.print(f"{damage.unreadable} places without a valid record were left out; `verify` lists them")
        return 1
    return 0


def explain(options: SimpleNamespace, complaints: Printer) -> int:
    return 0 if explain_place(options.place, options.commitlog, Printer(pipe_width=_PIPE_WIDTH)) else 1


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
    with open(options.out, "w", encoding="utf-8") if options.out != "-" else nullcontext(sys.stdout) as out:
        count = write_json(map(as_export, records), out)
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
