"""`pocketmq store`: look at a store's files, mend them, carry messages from one to another.

The options are declared here; what they do is in `store_tools`, which is imported when they are known to be right.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence

_EXIT_UNREADABLE = 3
_EXIT_USAGE = 64

_EPILOG = """examples:
  pocketmq store verify ~/store                                   is everything sound? beside a running broker too
  pocketmq store dump ~/store --topic Orders --limit 5 --format table
  pocketmq store explain ~/store:4096                             a record, field by field
  pocketmq store repair ~/store                                   make queues and index again
  pocketmq store export ~/store --topic Orders | pocketmq store import /tmp/other -

exit codes: 0 all is well; 1 the log is damaged, records were unreadable or lines refused; 2 the log is sound, what is
derived from it is not; 3 the store cannot be read, or is in use; 4 repair did nothing; 64 an option makes no sense.

The store may be Apache's (4.9.4, 5.5.0) or ours; file sizes are taken from the files. `pocketmq store COMMAND
--help` tells more.
"""
_VERIFY = """Check every record (lengths, magic, physical offset, CRC, properties), every queue unit against its record and
every record against its queue, every index entry and every key, checkpoint and tables. Reads only, takes no lock, and may
run beside a broker: what is being written is not called damage."""
_VERIFY_EPILOG = """exit codes:
  0  sound
  1  bytes of the log are damaged, or records that were there are gone
  2  the log is sound; queues, index, checkpoint or a table differ from it: `repair` makes them again
  3  the store cannot be read

examples:
  pocketmq store verify ~/store
  pocketmq store verify ~/store --json | jq .findings
"""
_DUMP_EPILOG = """examples:
  pocketmq store dump ~/store --limit 10 --format table
  pocketmq store dump ~/store --topic Orders --queue 3 --queue-offset 100:120
  pocketmq store dump ~/store --topic Orders --key order-7 --body base64
  pocketmq store dump ~/store --from 2026-11-21T12:00 --to 2026-11-21T12:05 --body none

A topic is read by its queues, a key by the index, a time by a search; without any of them the log is gone through.
"""
_EXPLAIN_EPILOG = """examples:
  pocketmq store explain ~/store:4096                                          the record at that physical offset
  pocketmq store explain ~/store/commitlog/00000000001073741824:512            the same by file and byte
  pocketmq store explain ~/store/consumequeue/Orders/0/00000000000000000000:40 a queue unit and its record
  pocketmq store explain ~/store/index/20261121120000000:0                     header, slot or entry of an index file
  pocketmq store explain ~/store/checkpoint
"""
_REPAIR_EPILOG = """Queues and index are made again from the log, which is the truth. The store must not be in use. Without
an option both are made again. It is said first what will be done, and done after a yes, or with --yes. Exit code 4: nothing
was done; else that of `verify`, which looks at the store afterwards.

examples:
  pocketmq store repair ~/store
  pocketmq store repair ~/store --quarantine --yes
"""
_EXPORT_EPILOG = """examples:
  pocketmq store export ~/store --out all.jsonl
  pocketmq store export ~/store --topic Orders --from 2026-11-21 | gzip > orders.jsonl.gz
"""
_DELAY_LEVEL = "the broker's messageDelayLevel, if it is not the default"
_IMPORT_EPILOG = """Appends what `export` wrote as new records: queue offsets and physical offsets are new, the rest is kept
(store times with --keep-times). The store must not be in use; a missing one is made.

examples:
  pocketmq store import /tmp/copy all.jsonl
  pocketmq store export ~/store --topic Orders | pocketmq store import /tmp/copy - --keep-times
"""


def _command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, help_: str, description: str,
             epilog: str) -> argparse.ArgumentParser:  # fmt: skip
    parser = commands.add_parser(
        name, help=help_, description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if name != "explain":
        parser.add_argument("root", metavar="ROOT", help="the store's folder (storePathRootDir)")
    parser.add_argument(
        "--commitlog",
        metavar="DIR",
        help="the log's folder if not ROOT/commitlog (storePathCommitLog), or A,B",
    )
    return parser


def _filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic")
    parser.add_argument("--queue", type=int, metavar="N", help="queue id")
    parser.add_argument("--tag", help="records with exactly this tag")
    parser.add_argument("--key", help="records with this key (KEYS), or this unique key (UNIQ_KEY)")
    parser.add_argument("--from", dest="from_time", metavar="TIME", help="stored at TIME or later")
    parser.add_argument("--to", dest="to_time", metavar="TIME", help="stored at TIME or earlier; ISO 8601 or epoch ms")
    parser.add_argument("--from-offset", type=int, default=0, metavar="P", help="physical offset P or behind it")
    parser.add_argument("--to-offset", type=int, metavar="P", help="before physical offset P")
    parser.add_argument("--queue-offset", metavar="A:B", help="queue offsets A up to but without B; either may be left out")
    parser.add_argument("--limit", type=int, metavar="N", help="stop after N records")


def parser() -> argparse.ArgumentParser:
    """The parser of `pocketmq store ...`."""
    store = argparse.ArgumentParser(
        prog="pocketmq store",
        description="Look at a RocketMQ store's files, mend them, carry messages from one to another.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = store.add_subparsers(required=True, metavar="COMMAND", dest="command")

    verify = _command(commands, "verify", "is everything in it sound?", _VERIFY, _VERIFY_EPILOG)
    verify.add_argument("--json", action="store_true", help="the result as a JSON object")
    verify.add_argument("--workers", type=int, default=0, metavar="N", help="processes (one a core)")
    verify.add_argument("--no-crc", action="store_true", help="leave out the CRC of the bodies")
    verify.add_argument("--no-index", action="store_true", help="leave out the index (messageIndexEnable=false)")
    verify.add_argument(
        "--delay-level",
        metavar="LEVELS",
        help="the broker's messageDelayLevel; without it any whole seconds of delay are right",
    )

    dump = _command(commands, "dump", "show records", "Show records, as JSON lines or as a table.", _DUMP_EPILOG)
    _filters(dump)
    dump.add_argument("--format", choices=["json", "table"], default="json", help="JSON lines (default) or a table")
    dump.add_argument(
        "--body", choices=["none", "text", "base64", "hex"], default="text",
        help="how to show bodies (text; what is no text is shown as base64)",
    )  # fmt: skip
    dump.add_argument("--plain", action="store_true", help="uncompress bodies (zlib; LZ4 and ZSTD where the modules are)")

    explain = _command(
        commands, "explain", "draw one record, queue unit or index entry field by field",
        "Draw what is at one place of a store field by field: where, which bytes, what they say, and what points there.",
        _EXPLAIN_EPILOG,
    )  # fmt: skip
    explain.add_argument("place", metavar="ROOT:PHYSICAL_OFFSET | FILE:POSITION")

    repair = _command(commands, "repair", "make queues and index again", "Mend a store that is not in use.", _REPAIR_EPILOG)
    repair.add_argument("--queues", action="store_true", help="make the queues again")
    repair.add_argument("--index", action="store_true", help="make the index again")
    repair.add_argument(
        "--quarantine", action="store_true",
        help="put damaged bytes of the log that sound records stand behind aside, so that those are served",
    )  # fmt: skip
    repair.add_argument("--delay-level", metavar="LEVELS", help=_DELAY_LEVEL)
    repair.add_argument("--yes", action="store_true", help="do not ask")

    export = _command(commands, "export", "write records as JSON lines", "Write all of each record.", _EXPORT_EPILOG)
    _filters(export)
    export.add_argument("--out", metavar="FILE", default="-", help="where to (standard output)")

    import_ = _command(commands, "import", "append records from JSON lines", "Append what `export` wrote.", _IMPORT_EPILOG)
    import_.add_argument("file", metavar="FILE", help="what `export` wrote; - for standard input")
    import_.add_argument("--delay-level", metavar="LEVELS", help=_DELAY_LEVEL)
    import_.add_argument("--keep-times", action="store_true", help="keep store times (as far as they do not go back)")
    import_.add_argument(
        "--max-message-size", metavar="BYTES", type=int, default=4 << 20, help="the largest body that is taken (4194304)"
    )
    return store


def _on_sigterm(signal_number: int, frame: object) -> None:
    # As an exception, so that worker processes end, an import closes its store, a bar leaves the terminal as it was.
    raise SystemExit(128 + signal_number)


def main(argv: Sequence[str]) -> int:
    """Run a command; its exit code."""
    options = parser().parse_args(argv)
    from rich.console import Console

    from pocketmq.store.disk.disk import StoreError
    from pocketmq.store_tools import commands
    from pocketmq.store_tools.files.store_files import NotAStoreError

    # Not before all is imported: what imports swallows exceptions of signals.
    signal.signal(signal.SIGTERM, _on_sigterm)
    complaints = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        return commands.COMMANDS[options.command](options, complaints)
    except BrokenPipeError:
        # Who reads has seen enough; nothing may be written at the end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except commands.UsageError as error:
        complaints.print(f"pocketmq store {options.command}: {error}", markup=False)
        return _EXIT_USAGE
    except (NotAStoreError, StoreError) as error:
        complaints.print(f"pocketmq store {options.command}: {error}", markup=False)
        return _EXIT_UNREADABLE
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        complaints.print(f"pocketmq store {options.command}: cannot read{where}: {error.strerror or error}", markup=False)
        return _EXIT_UNREADABLE
