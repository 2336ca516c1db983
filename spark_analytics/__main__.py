"""`python -m spark_analytics report STORE [--out DIR]`.

Exit codes: 0 done, 1 the report failed, 2 bad arguments or nothing to read there, 128 + n ended by signal n.
"""

import argparse
import importlib.util
import logging
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from spark_analytics.places import log_files
from spark_analytics.session import JavaNotFoundError, local_session
from store.delay_level import DEFAULT_MESSAGE_DELAY_LEVEL, DelayLevels


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    complaints = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        levels = DelayLevels(options.delay_level)
        files = log_files(options.store)
    except (OSError, ValueError) as error:
        complaints.print(f"error: {error}", markup=False)
        return 2
    if importlib.util.find_spec("pyspark") is None:
        complaints.print("error: the report needs PySpark: pip install 'pocketmq[spark]'", markup=False)
        return 2
    if not files:
        complaints.print(f"error: the commit log of {options.store} has no files: nothing was ever stored", markup=False)
        return 2
    signal.signal(signal.SIGTERM, _end)
    try:
        return _report(options, levels, Console(highlight=False), complaints)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (OSError, JavaNotFoundError) as error:
        complaints.print(f"error: {error}", markup=False)
        return 1


def _report(options: argparse.Namespace, levels: DelayLevels, console: Console, complaints: Console) -> int:
    from pyspark.errors import PySparkException

    from spark_analytics import progress, report

    # PySpark logs each error that it raises once more, as one long line of JSON.
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    complaints.print("starting Spark")
    spark: Any = local_session(options.master, spark_sql_shuffle_partitions="4")
    try:
        with progress.JobProgress(spark, complaints) as shown:
            made = report.make_report(spark, options.store, levels, shown.step)
    except PySparkException as error:
        # The last line of a Python stack that Spark wraps is what the data source said.
        lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith((" ", "\t"))]
        said = [line for line in lines if "Error: " in line]
        complaints.print(f"error: {(said or lines)[-1]}", markup=False)
        spark.stop()
        return 1
    # Not in a `finally`: a signal may fall amid a call to the JVM, which then answers no other. It ends when we have.
    spark.stop()
    report.print_report(made, console)
    folder = Path(options.out)
    report.write_report(made, options.store, folder)
    console.print(f"{made.rows:,} messages, {made.size:,} bytes; written to {folder}/", markup=False, soft_wrap=True)
    return 0


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m spark_analytics", description="Spark over RocketMQ stores.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "report",
        help="messages and bytes by topic and hour, and the lateness of delayed messages",
        description="Reads the CommitLog of a store, with or without a broker running on it, prints two tables and writes "
        "them as CSV and Parquet, with a summary in report.json.",
    )
    command.add_argument("store", metavar="STORE", help="store root, commitlog folder, one file of it, or a glob")
    command.add_argument("--out", metavar="DIR", default="report", help="where the files go (default: %(default)s)")
    command.add_argument(
        "--delay-level",
        metavar="LEVELS",
        default=DEFAULT_MESSAGE_DELAY_LEVEL,
        help="the broker's messageDelayLevel (default: %(default)s)",
    )
    command.add_argument("--master", default="local[*]", help="where Spark runs (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
