"""`pocketmq store`: inspects and repairs a store's files, and transfers messages between stores.

The options are declared here; `store_tools` implements the commands and is imported once the options are valid.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence

_EXIT_UNREADABLE = 3
_EXIT_USAGE = 64

_EPILOG = """examples:
    pocketmq store verify ~/store                                   check consistency, with or without a running broker
    pocketmq store dump ~/store --topic Orders --limit 5 --format table
    pocketmq store explain ~/store:4096                             a record, field by field
    pocketmq store repair ~/store                                   rebuild queues and index
    pocketmq store rejoin ~/store --master 10.0.0.2:10911           make a former master fit to be a slave
    pocketmq store export ~/store --topic Orders | pocketmq store import /tmp/other -

  exit codes: 0 success; 1 the log is damaged, records were unreadable or lines were refused; 2 the log is consistent, but
  files derived from it are not; 3 the store cannot be read, or is in use; 4 repair did nothing; 64 invalid option.

  The store may be Apache's (4.9.4, 5.5.0) or PocketMQ's; file sizes are taken from the files. See also `pocketmq store
  COMMAND --help`.
"""
_VERIFY = """Check every record (lengths, magic, physical offset, CRC, properties), every queue unit against its record and
every record against its queue, every index entry and every key, checkpoint and tables. Reads only, takes no lock, and may
run beside a broker: data that is being written is not reported as damage."""
_VERIFY_EPILOG = """exit codes:
  0  consistent
  1  bytes of the log are damaged, or records are missing
  2  the log is consistent; queues, index, checkpoint or a table differ from it: `repair` rebuilds them
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

A topic is read through its queues, a key through the index, a time by binary search; otherwise the whole log is scanned.
"""
_EXPLAIN_EPILOG = """examples:
  pocketmq store explain ~/store:4096                                          the record at that physical offset
  pocketmq store explain ~/store/commitlog/00000000001073741824:512            the same by file and byte
  pocketmq store explain ~/store/consumequeue/Orders/0/00000000000000000000:40 a queue unit and its record
  pocketmq store explain ~/store/index/20261121120000000:0                     header, slot or entry of an index file
  pocketmq store explain ~/store/checkpoint
"""
_REPAIR_EPILOG = """Queues and index are rebuilt from the log, which is authoritative. The store must not be in use. Without
an option both are rebuilt. The command shows its plan and asks for confirmation, unless --yes is given. Exit code 4: nothing
was done; otherwise the exit code is that of `verify`, which runs afterwards.

examples:
  pocketmq store repair ~/store
  pocketmq store repair ~/store --quarantine --yes
"""
_REJOIN = """Cut the log of a stopped broker back to where it has parted from the log of its new master, so that the broker
can be started as a slave. The bytes that are cut off are saved in ROOT/quarantine. Records of the master are read through
its port for clients."""
_REJOIN_EPILOG = """exit codes:
  0 the log is cut, or had not parted; 3 the store or the master cannot be read; 4 nothing was done

example:
  pocketmq store rejoin ~/store --master 10.0.0.2:10911
"""
_EXPORT_EPILOG = """examples:
  pocketmq store export ~/store --out all.jsonl
  pocketmq store export ~/store --topic Orders --from 2026-11-21 | gzip > orders.jsonl.gz
"""
_DELAY_LEVEL = "the broker's messageDelayLevel, if it is not the default"
_IMPORT_EPILOG = """Appends the output of `export` as new records: queue offsets and physical offsets are new, the rest
is kept (store times with --keep-times). The store must not be in use; it is created if it does not exist.

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
    parser.add_argument("--from-offset", type=int, default=0, metavar="P", help="at physical offset P or later")
    parser.add_argument("--to-offset", type=int, metavar="P", help="before physical offset P")
    parser.add_argument(
        "--queue-offset", metavar="A:B", help="queue offsets from A up to, not including, B; both are optional"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="stop after N records")


def parser() -> argparse.ArgumentParser:
    """Return the parser of `pocketmq store ...`."""
    store = argparse.ArgumentParser(
        prog="pocketmq store",
        description="Inspect and repair a RocketMQ store's files, and transfer messages between stores.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = store.add_subparsers(required=True, metavar="COMMAND", dest="command")

    verify = _command(commands, "verify", "check the consistency of a store", _VERIFY, _VERIFY_EPILOG)
    verify.add_argument("--json", action="store_true", help="the result as a JSON object")
    verify.add_argument("--workers", type=int, default=0, metavar="N", help="number of processes (default: one per core)")
    verify.add_argument("--no-crc", action="store_true", help="do not check the CRC of the bodies")
    verify.add_argument("--no-index", action="store_true", help="do not check the index (messageIndexEnable=false)")
    verify.add_argument(
        "--delay-level",
        metavar="LEVELS",
        help="the broker's messageDelayLevel; without it any delay in whole seconds is accepted",
    )

    dump = _command(commands, "dump", "show records", "Show records, as JSON lines or as a table.", _DUMP_EPILOG)
    _filters(dump)
    dump.add_argument("--format", choices=["json", "table"], default="json", help="JSON lines (default) or a table")
    dump.add_argument(
        "--body", choices=["none", "text", "base64", "hex"], default="text",
        help="format of bodies (default: text, or base64 if it is not text)",
    )  # fmt: skip
    dump.add_argument(
        "--plain", action="store_true", help="decompress bodies (zlib; LZ4 and ZSTD if their modules are installed)"
    )

    explain = _command(
        commands, "explain", "show one record, queue unit or index entry field by field",
        "Show the contents of one place in a store field by field: position, bytes, meaning, and references to it.",
        _EXPLAIN_EPILOG,
    )  # fmt: skip
    explain.add_argument("place", metavar="ROOT:PHYSICAL_OFFSET | FILE:POSITION")

    repair = _command(commands, "repair", "rebuild queues and index", "Repair a store that is not in use.", _REPAIR_EPILOG)
    repair.add_argument("--queues", action="store_true", help="rebuild the queues")
    repair.add_argument("--index", action="store_true", help="rebuild the index")
    repair.add_argument(
        "--quarantine", action="store_true",
        help="move damaged bytes of the log aside, so that the intact records behind them are served",
    )  # fmt: skip
    repair.add_argument("--delay-level", metavar="LEVELS", help=_DELAY_LEVEL)
    repair.add_argument("--yes", action="store_true", help="do not ask for confirmation")

    rejoin = _command(commands, "rejoin", "cut a log back to its new master's", _REJOIN, _REJOIN_EPILOG)
    rejoin.add_argument("--master", required=True, metavar="HOST:PORT", help="address of the new master for clients")
    rejoin.add_argument("--yes", action="store_true", help="do not ask for confirmation")

    export = _command(commands, "export", "write records as JSON lines", "Write records with all fields.", _EXPORT_EPILOG)
    _filters(export)
    export.add_argument("--out", metavar="FILE", default="-", help="output file (standard output)")

    import_ = _command(
        commands, "import", "append records from JSON lines", "Append the output of `export`.", _IMPORT_EPILOG
    )
    import_.add_argument("file", metavar="FILE", help="the output of `export`; - for standard input")
    import_.add_argument("--delay-level", metavar="LEVELS", help=_DELAY_LEVEL)
    import_.add_argument("--keep-times", action="store_true", help="keep store times, unless they would go backwards")
    import_.add_argument(
        "--max-message-size", metavar="BYTES", type=int, default=4 << 20, help="maximum size of a body (4194304)"
    )
    return store


def _on_sigterm(signal_number: int, frame: object) -> None:
    # Raised as an exception, so that worker processes end, an import closes its store, and a progress bar resets the
    # terminal.
    raise SystemExit(128 + signal_number)


def main(argv: Sequence[str]) -> int:
    """Run a command; return its exit code."""
    options = parser().parse_args(argv)
    from rich.console import Console

    from pocketmq.store.disk.disk import StoreError
    from pocketmq.store_tools import commands
    from pocketmq.store_tools.files.store_files import NotAStoreError

    # Only after all imports, because importing code may swallow exceptions raised by signals.
    signal.signal(signal.SIGTERM, _on_sigterm)
    complaints = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        if options.command == "rejoin":
            from pocketmq.cli.rejoin import rejoin

            return rejoin(options, complaints)
        return commands.COMMANDS[options.command](options, complaints)
    except BrokenPipeError:
        # The reader has closed the pipe; nothing may be written at exit either.
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
