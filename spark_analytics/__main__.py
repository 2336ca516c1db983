"""Command line: `python -m pocketmq.spark_analytics report | audit | trace | export STORE...`.

Exit codes: 0 success; 1 failure, audit errors, or no message to trace; 2 bad arguments or no store there; 128 + n ended by
signal n.
"""

import argparse
import importlib.util
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from rich.console import Console

from pocketmq.spark_analytics.files.places import LogFile, log_files
from pocketmq.spark_analytics.session import JavaNotFoundError, local_session
from pocketmq.store.format.delay_level import DEFAULT_MESSAGE_DELAY_LEVEL, DelayLevels

FOUND: Final = 1
PIPE_WIDTH: Final = 10_000
# Up to this size of the logs, a command is done in this process before Spark would have done it (docs/spark.md).
DIRECT_SIZE_MAX: Final = 1 << 30
LOCAL: Final = "local[*]"
# For a small log, most of the time goes into compiling queries.
SMALL_SIZE: Final = 256 << 20
SMALL: Final = {
    "spark_driver_defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark_sql_codegen_wholeStage": "false",
    "spark_sql_adaptive_enabled": "false",
}
Step = Callable[[str], None]
# Callable that shows a command's result after the Spark session has ended; returns the exit code.
Shown = Callable[[], int]


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    complaints = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        options.levels = DelayLevels(options.delay_level)
        files = log_files(options.stores)
        options.check(options)
    except (OSError, ValueError) as error:
        complaints.print(f"error: {error}", markup=False)
        return 2
    if not files:
        named = ", ".join(options.stores)
        complaints.print(f"error: the commit log of {named} has no files: it is empty", markup=False)
        return 2
    is_direct = options.is_direct(options, sum(file.size for file in files))
    if importlib.util.find_spec("duckdb" if is_direct else "pyspark") is None:
        complaints.print("error: this needs PySpark and DuckDB: pip install 'pocketmq[spark]'", markup=False)
        return 2
    signal.signal(signal.SIGTERM, _end)
    try:
        return _run_here(options, complaints) if is_direct else _run(options, files, complaints)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (OSError, ValueError, JavaNotFoundError) as error:
        complaints.print(f"error: {error}", markup=False)
        return 1


def _in_spark(options: argparse.Namespace, size: int) -> bool:
    return False


def _by_size(options: argparse.Namespace, size: int) -> bool:
    """Return whether a command runs in this process: as the user says, or if the log is small and no cluster is named."""
    if options.engine == "auto":
        return size <= DIRECT_SIZE_MAX and options.master == LOCAL
    return bool(options.engine == "direct")


def _run_here(options: argparse.Namespace, complaints: Console) -> int:
    """Run a command without Spark."""
    from pocketmq.spark_analytics.commands import progress
    from pocketmq.spark_analytics.direct.engine import DirectEngine

    # Damage is counted by the audit, once; its log lines would be repeated in each pass.
    logging.getLogger("pocketmq.spark_analytics").setLevel(logging.ERROR)
    show: Shown = options.command(DirectEngine(), options, progress.steps(complaints))
    return show()


def _run(options: argparse.Namespace, files: list[LogFile], complaints: Console) -> int:
    from pyspark.errors import PySparkException

    from pocketmq.spark_analytics.commands import progress
    from pocketmq.spark_analytics.pipelines.engine import SparkEngine

    # PySpark additionally logs each error that it raises, as one long line of JSON.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    complaints.print("starting Spark")
    small = SMALL if sum(file.size for file in files) < SMALL_SIZE else {}
    spark: Any = local_session(options.master, spark_sql_shuffle_partitions="4", **small)
    try:
        # Dates and hours are in UTC, also in a session that already existed.
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        # The JVM also logs failed jobs, with stack traces, before the error is raised here.
        spark.sparkContext.setLogLevel("OFF")
        with progress.JobProgress(spark, complaints) as shown:
            show: Shown = options.command(SparkEngine(spark), options, shown.step)
    except PySparkException as error:
        # The last line of the Python stack wrapped by Spark is the data source's error message.
        lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith((" ", "\t"))]
        said = [line.split("Error: ", 1)[1] for line in lines if "Error: " in line]
        complaints.print(f"error: {(said or lines)[-1]}", markup=False)
        spark.stop()
        return 1
    except (OSError, ValueError):
        spark.stop()
        raise
    # Not in a `finally`: a signal may interrupt a call to the JVM, which then answers no other call. It ends with this
    # process.
    spark.stop()
    return show()


def output() -> Console:
    """Return a console for results. Lines in a pipe or file are not wrapped, so that other programs can read them."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


# --- commands -------------------------------------------------------------------------------------------------------


def _report(engine: Any, options: argparse.Namespace, step: Step) -> Shown:
    from pocketmq.spark_analytics.commands import report

    made = report.make_report(engine, options.stores, options.levels, step, _period(options))

    def show() -> int:
        console = output()
        report.print_report(made, console)
        folder = Path(options.out)
        report.write_report(made, options.stores, folder)
        text = f"{made.rows:,} messages, {made.size:,} bytes; written to {folder}/, the page is {folder / 'report.html'}"
        console.print(text, markup=False, soft_wrap=True)
        return 0

    return show


def _audit(engine: Any, options: argparse.Namespace, step: Step) -> Shown:
    from pocketmq.spark_analytics.commands import audit

    made = audit.make_audit(engine, options.stores, with_index=options.index, on_step=step)

    def show() -> int:
        if options.json:
            print(audit.audit_json(made))
        else:
            audit.print_audit(made, output())
        return 0 if made.is_valid else FOUND

    return show


def _trace(engine: Any, options: argparse.Namespace, step: Step) -> Shown:
    from pocketmq.spark_analytics.commands import trace, trace_by_index

    if options.scan:
        lives = trace.make_trace(engine, options.stores, options.key, options.levels, step)
    else:
        lives = trace_by_index.make_trace(options.stores, options.key, options.levels, step)

    more = "" if options.scan else "; --scan also finds what is not in the index"

    def show() -> int:
        if options.json:
            print(trace.trace_json(lives))
        elif lives:
            trace.print_trace(lives, output())
        else:
            output().print(f"no message has the key, unique key or id {options.key}{more}", markup=False)
        return 0 if lives else FOUND

    return show


def _export(engine: Any, options: argparse.Namespace, step: Step) -> Shown:
    from pocketmq.spark_analytics.commands import export

    chosen = export.Chosen(options.format, tuple(sorted(set(options.topic))), options.body_as)
    done = export.export(engine.spark, options.stores, Path(options.out), chosen, mode=options.mode, on_step=step)

    def show() -> int:
        console = Console(highlight=False, soft_wrap=True)
        if done.lost:
            console.print(f"retention deleted {done.lost:,} bytes of the log that were not exported yet")
        console.print(f"{done.records:,} new records in {done.files:,} files in {options.out}/", markup=False)
        return 0

    return show


# --- arguments ------------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pocketmq.spark_analytics", description="Spark over RocketMQ stores.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    report = _command(
        commands, "report", _report, "contents of stores: a page with plots, tables, a summary",
        "Reads stores, with or without a running broker, prints notable findings, and writes report.html, each table as CSV "
        "and Parquet, and a summary in report.json.",
    )  # fmt: skip
    report.add_argument("--out", metavar="DIR", default="report", help="output folder (default: %(default)s)")
    report.add_argument("--late-target-ms", metavar="MS", type=int, help="a line in the plots of lateness: your target")
    _add_period(report)
    _add_engine(report)
    audit = _command(
        commands, "audit", _audit, "check the consistency of stores",
        "Checks bodies against their CRC and ConsumeQueues against the log. Exit code 1 if there are errors; notes are "
        "differences that a broker repairs by itself.", _whole_stores,
    )  # fmt: skip
    audit.add_argument("--index", action="store_true", help="also check that each index entry points to a record")
    audit.add_argument("--json", action="store_true", help="for programs")
    _add_engine(audit)
    trace = _command(
        commands, "trace", _trace, "the history of one message",
        "Shows everything in the stores about the messages with a key: sent, delayed, prepared, delivered, retried, dead; "
        "oldest first. Exit code 1 if there is no such message.", _whole_stores,
    )  # fmt: skip
    trace.add_argument("key", metavar="KEY", help="a key, unique key (msgId) or offsetMsgId")
    trace.add_argument("--json", action="store_true", help="for programs")
    trace.add_argument("--scan", action="store_true", help="read the whole log, also for what is not in the index")
    _add_engine(trace)
    trace.set_defaults(is_direct=lambda options, size: not options.scan or _by_size(options, size))
    export = _command(
        commands, "export", _export, "export the log as files of a table, by topic and date",
        "Adds the records that are new since the last run to the same folder, each exactly once, even if a run is killed.",
        _local_folder,
    )  # fmt: skip
    export.add_argument("--out", metavar="DIR", required=True, help="the table's folder, on a local or mounted disk")
    export.add_argument("--format", choices=("parquet", "json", "csv"), default="parquet", help="(default: %(default)s)")
    export.add_argument("--topic", action="append", default=[], help="only this topic; may be repeated")
    export.add_argument("--body-as", choices=("stored", "plain", "string", "json"), default="stored",
                        help="plain: decompressed; string, json: as text (default: %(default)s)")  # fmt: skip
    export.add_argument("--mode", choices=("FAILFAST", "DROPMALFORMED"), default="FAILFAST",
                                            help="handling of damaged records (default: %(default)s)")  # fmt: skip
    return parser


def _command(
    commands: Any,
    name: str,
    run: Any,
    what: str,
    description: str,
    check: Callable[[argparse.Namespace], None] | None = None,
) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=what, description=description)
    command.set_defaults(command=run, check=check or (lambda options: None), is_direct=_in_spark)
    command.add_argument(
        "stores", metavar="STORE", nargs="+", help="store root, commitlog folder or a glob; for report also one log file"
    )
    command.add_argument(
        "--delay-level",
        metavar="LEVELS",
        default=DEFAULT_MESSAGE_DELAY_LEVEL,
        help="the broker's messageDelayLevel (default: %(default)s)",
    )
    command.add_argument("--master", default=LOCAL, help="Spark master (default: %(default)s)")
    return command


def _add_engine(command: argparse.ArgumentParser) -> None:
    command.set_defaults(is_direct=_by_size)
    command.add_argument(
        "--engine",
        choices=("auto", "direct", "spark"),
        default="auto",
        help="direct: in this process, without Spark; auto: direct for logs up to 1 GiB (default: %(default)s)",
    )


def _add_period(command: argparse.ArgumentParser) -> None:
    for name, what in (("--since", "only records stored from this time on"), ("--until", "only records stored before it")):
        command.add_argument(name, metavar="TIME", help=f"{what}: ISO 8601, UTC if it has no zone, or ms since 1970")


def _period(options: argparse.Namespace) -> dict[str, str]:
    """Return --since and --until as options of the data source."""
    given = {"startingTimestamp": options.since, "endingTimestamp": options.until}
    return {name: value for name, value in given.items() if value is not None}


def _whole_stores(options: argparse.Namespace) -> None:
    from pocketmq.spark_analytics.files.store_folder import store_folders

    store_folders(options.stores)


def _local_folder(options: argparse.Namespace) -> None:
    _whole_stores(options)
    if "://" in options.out:
        raise ValueError(
            f"--out {options.out}: an export needs a local or mounted folder, because it relies on atomic renames"
        )


if __name__ == "__main__":
    sys.exit(main())
