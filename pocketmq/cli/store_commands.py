"""Command lines of `pocketmq store ...`: inspects and repairs a store's files, and transfers messages between stores.

The options are declared here; `store_tools` implements the commands and is imported once the options are valid.
"""

import signal
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import click

from pocketmq.cli.server_options import YES, option
from pocketmq.runtime.command_line.commands import Command, CommandError, Group, Lazy
from pocketmq.runtime.command_line.option_types import ADDRESS, Checked, OneOf, WholeNumber
from pocketmq.runtime.error_text import reason
from pocketmq.store_tools.files.value_text import TIME_FORMS, parse_time_ms

_EXIT_UNREADABLE: Final = 3
_EXIT_USAGE: Final = 64
"""The exit codes 1 to 4 say what is wrong with a store, so a wrong command line has another one."""
_EXIT_CODES: Final = (
    "Exit codes: 0 success; 1 the log is damaged, records were unreadable or lines were refused; 2 the log is consistent, "
    "but files derived from it are not; 3 the store cannot be read, or is in use; 4 repair did nothing; 64 wrong "
    "command line."
)
_TIME: Final = Checked("TIME", parse_time_ms, TIME_FORMS)
_DELAY_LEVEL: Final = "The broker's messageDelayLevel, if it is not the default."

_commitlog = option(
    "--commitlog", metavar="DIR", help="The log's folder, or several as A,B, if not ROOT/commitlog (storePathCommitLog)."
)
_root = click.Argument(["root"], metavar="ROOT", help="The store's folder (storePathRootDir).")
_filters = (
    option("--topic", metavar="TOPIC", help="Records of this topic."),
    option("--queue", "queue_id", type=WholeNumber(0), help="Queue id."),
    option("--tag", metavar="TAG", help="Records with exactly this tag."),
    option("--key", metavar="KEY", help="Records with this key (KEYS), or this unique key (UNIQ_KEY)."),
    option("--from", "from_ms", type=_TIME, help="Stored at TIME or later."),
    option("--to", "to_ms", type=_TIME, help="Stored at TIME or earlier; ISO 8601 or epoch ms."),
    option("--from-offset", "from_physical_offset", type=WholeNumber(0), metavar="P", help="At physical offset P or later."),
    option("--to-offset", "to_physical_offset", type=WholeNumber(0), metavar="P", help="Before physical offset P."),
    option("--queue-offset", metavar="A:B", help="Queue offsets from A up to, not including, B; both are optional."),
    option("--limit", type=WholeNumber(0), help="Stop after N records."),
)
"""Options that select records."""


def _on_sigterm(signal_number: int, frame: object) -> None:
    # Raised as an exception, so that worker processes end, an import closes its store, and a progress bar resets the
    # terminal.
    raise SystemExit(128 + signal_number)


def _run(command: str, **values: Any) -> int:
    """Run a command of `store_tools`; return its exit code."""
    from pocketmq.runtime.command_line.printer import Printer
    from pocketmq.store.disk.disk import StoreError
    from pocketmq.store_tools import commands
    from pocketmq.store_tools.files.store_files import NotAStoreError

    # Only after all imports, because importing code may swallow exceptions raised by signals.
    signal.signal(signal.SIGTERM, _on_sigterm)
    complaints = Printer(stderr=True, soft_wrap=True)
    options = SimpleNamespace(**values)
    try:
        if command == "rejoin":
            from pocketmq.cli import rejoin as rejoining

            return rejoining.rejoin(options, complaints)
        exit_code: int = getattr(commands, command)(options, complaints)
        return exit_code
    except BrokenPipeError:
        raise
    except (NotAStoreError, StoreError) as error:
        raise CommandError(str(error), _EXIT_UNREADABLE) from error
    except OSError as error:
        raise CommandError(f"cannot read {reason(error)}", _EXIT_UNREADABLE) from error


def _command(name: str, *params: click.Parameter, **about: Any) -> click.Command:
    """Return `pocketmq store NAME`."""
    return Command(name, callback=partial(_run, "import_" if name == "import" else name), params=list(params), **about)


verify = _command(
    "verify",
    _root,
    _commitlog,
    option("--json", is_flag=True, help="The result as a JSON object."),
    option("--workers", type=WholeNumber(0), default=0, help="Number of processes (0: one per core)."),
    option("--no-crc", is_flag=True, help="Do not check the CRC of the bodies."),
    option("--no-index", is_flag=True, help="Do not check the index (messageIndexEnable=false)."),
    option(
        "--delay-level",
        metavar="LEVELS",
        help="The broker's messageDelayLevel; without it any delay in whole seconds is accepted.",
    ),
    help="Check the consistency of a store: every record (lengths, magic, physical offset, CRC, properties), every queue "
    "unit against its record and every record against its queue, every index entry and every key, checkpoint and tables. "
    "Reads only, takes no lock, and may run beside a broker: data that is being written is not reported as damage.",
    examples="pocketmq store verify ~/store\npocketmq store verify ~/store --json | jq .findings",
    notes="Exit codes: 0 consistent; 1 bytes of the log are damaged, or records are missing; 2 the log is consistent; "
    "queues, index, checkpoint or a table differ from it: `repair` rebuilds them; 3 the store cannot be read.",
)

dump = _command(
    "dump",
    _root,
    _commitlog,
    *_filters,
    option("--format", type=OneOf(["json", "table"]), default="json", help="JSON lines (default) or a table."),
    option(
        "--body",
        type=OneOf(["none", "text", "base64", "hex"]),
        default="text",
        help="Format of bodies (default: text, or base64 if it is not text).",
    ),
    option("--plain", is_flag=True, help="Decompress bodies (zlib; LZ4 and ZSTD if their modules are installed)."),
    help="Show records, as JSON lines or as a table.",
    examples="""
pocketmq store dump ~/store --limit 10 --format table
pocketmq store dump ~/store --topic Orders --queue 3 --queue-offset 100:120
pocketmq store dump ~/store --topic Orders --key order-7 --body base64
pocketmq store dump ~/store --from 2026-11-21T12:00 --to 2026-11-21T12:05 --body none
""",
    notes="A topic is read through its queues, a key through the index, a time by binary search; otherwise the whole log is "
    "scanned.",
)

explain = _command(
    "explain",
    click.Argument(["place"], metavar="PLACE", help="ROOT:PHYSICAL_OFFSET, or FILE:POSITION."),
    _commitlog,
    help="Show the contents of one place in a store field by field: position, bytes, meaning, and references to it.",
    examples="""
pocketmq store explain ~/store:4096                                           the record at that physical offset
pocketmq store explain ~/store/commitlog/00000000001073741824:512             the same by file and byte
pocketmq store explain ~/store/consumequeue/Orders/0/00000000000000000000:40  a queue unit and its record
pocketmq store explain ~/store/index/20261121120000000:0                      header, slot or entry of an index file
pocketmq store explain ~/store/checkpoint
""",
)

repair = _command(
    "repair",
    _root,
    _commitlog,
    option("--queues", is_flag=True, help="Rebuild the queues."),
    option("--index", is_flag=True, help="Rebuild the index."),
    option(
        "--quarantine",
        is_flag=True,
        help="Move damaged bytes of the log aside, so that the intact records after them are served.",
    ),
    option("--delay-level", metavar="LEVELS", help=_DELAY_LEVEL),
    YES,
    help="Repair a store that is not in use. Queues and index are rebuilt from the log, which is authoritative; without an "
    "option both are. The command shows its plan and asks for confirmation, unless --yes is given.",
    examples="pocketmq store repair ~/store\npocketmq store repair ~/store --quarantine --yes",
    notes="Exit code 4: nothing was done; otherwise it is that of `verify`, which runs afterwards.",
)

rejoin = _command(
    "rejoin",
    _root,
    _commitlog,
    option("--master", required=True, type=ADDRESS, help="Address of the new master for clients."),
    option("--older-master", is_flag=True, help="Cut this log even if the master's is older, and lose these messages."),
    YES,
    help="Cut the log of a stopped broker back to the point at which it has diverged from the log of its new master, so "
    "that the broker can be started as a slave. The bytes that are cut off are saved in ROOT/quarantine. Records of the "
    "master are read through its port for clients. If the master itself stored the records that would be cut, and has lost "
    "them, its store is the older one: nothing is cut then.",
    examples="pocketmq store rejoin ~/store --master 10.0.0.2:10911",
    notes="Exit codes: 0 the log is cut, or had not diverged; 3 the store or the master cannot be read; 4 nothing was done.",
)

export = _command(
    "export",
    _root,
    _commitlog,
    *_filters,
    option("--out", metavar="FILE", default="-", help="Output file (standard output)."),
    help="Write records with all fields, as JSON lines.",
    examples="""
pocketmq store export ~/store --out all.jsonl
pocketmq store export ~/store --topic Orders --from 2026-11-21 | gzip > orders.jsonl.gz
""",
)

import_ = _command(
    "import",
    _root,
    click.Argument(["file"], metavar="FILE", help="The output of `export`; - for standard input."),
    _commitlog,
    option("--delay-level", metavar="LEVELS", help=_DELAY_LEVEL),
    option("--keep-times", is_flag=True, help="Keep store times, unless they would go backwards."),
    option(
        "--max-message-size", metavar="BYTES", type=WholeNumber(0), default=4 << 20, help="Maximum size of a body (4194304)."
    ),
    help="Append the output of `export` as new records: queue offsets and physical offsets are new, the rest is kept (store "
    "times with --keep-times). The store must not be in use; it is created if it does not exist.",
    examples="""
pocketmq store import /tmp/copy all.jsonl
pocketmq store export ~/store --topic Orders | pocketmq store import /tmp/copy - --keep-times
""",
)

store = Group(
    "store",
    {
        "verify": Lazy(f"{__name__}:verify", "check the consistency of a store"),
        "dump": Lazy(f"{__name__}:dump", "show records"),
        "explain": Lazy(f"{__name__}:explain", "show one record, queue unit or index entry field by field"),
        "repair": Lazy(f"{__name__}:repair", "rebuild queues and index"),
        "rejoin": Lazy(f"{__name__}:rejoin", "cut a log back to its new master's"),
        "export": Lazy(f"{__name__}:export", "write records as JSON lines"),
        "import": Lazy(f"{__name__}:import_", "append records from JSON lines"),
    },
    help="Inspect and repair a RocketMQ store's files, and transfer messages between stores. The store may be Apache's "
    "(4.9.4, 5.5.0) or PocketMQ's; file sizes are taken from the files.",
    examples="""
pocketmq store verify ~/store                              check consistency, with or without a running broker
pocketmq store dump ~/store --topic Orders --limit 5 --format table
pocketmq store explain ~/store:4096                         a record, field by field
pocketmq store repair ~/store                              rebuild queues and index
pocketmq store rejoin ~/store --master 10.0.0.2:10911      make a former master fit to be a slave
pocketmq store export ~/store --topic Orders | pocketmq store import /tmp/other -
""",
    notes=_EXIT_CODES,
    usage_exit_code=_EXIT_USAGE,
)
