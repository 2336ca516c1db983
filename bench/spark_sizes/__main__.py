"""Time and memory of Spark reading logs of growing size: `python -m bench.spark_sizes FOLDER [--gib 1 2.5 5 10]`.

Writes one log of the largest size into FOLDER, bodies of 1 KiB, and removes it at the end; smaller logs are its first files.
Each scan hashes all values of 16 columns in an executor of its own with one core and a heap of 1 GiB (`measure`). Two more
scans show what Spark itself needs: of a Parquet file with the messages of the smallest log, read repeatedly up to the same
size, and of as many numbers as there are messages.

Both readers must find the same rows and the same hash. Prints the tables and draws time over size.
"""

import argparse
import multiprocessing
import os
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.made_store import make_store
from bench.plot import write_plot
from bench.spark_sizes.measure import HEAP_MIB, PARQUET, RANGE, READERS, measure, write_parquet

BODY_SIZE: Final = 1024
FILE_SIZE: Final = 512 << 20
PLOT: Final = Path(__file__).parents[2] / "docs" / "spark-sizes.svg"
SHOWN: Final = ("seconds", "CPU s", "live heap", "beside the heap", "files", "Python workers", "largest of them")
ACCOUNTS_SHOWN_MIB: Final = 1
WIDTH: Final = 125
Scan = tuple[Path, int]


def in_process(function: Any, *arguments: Any) -> Any:
    """Call a function in a new process, which ends with its JVM."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def first_files(whole: Path, folder: Path, size: int) -> Path:
    """Return a store with hard links to the first files of a log."""
    target = folder / f"{size}"
    if not target.exists():
        (target / "commitlog").mkdir(parents=True)
        for path in sorted((whole / "commitlog").iterdir())[: -(-size // FILE_SIZE)]:
            os.link(path, target / "commitlog" / path.name)
    return target


class Sizes:
    """The measurements, with their tables."""

    def __init__(self, folder: Path, gib: list[float], collector: str, environment: dict[str, str]) -> None:
        self.folder = folder
        self.gib = sorted(gib)
        self.found = dict[tuple[str, float], dict[str, Any]]()
        self._session = collector, environment
        self._console = Console(width=WIDTH)

    def run(self) -> None:
        make_store(self.folder / "whole", int(self.gib[-1] * (1 << 30)), BODY_SIZE, FILE_SIZE)
        stores = {size: first_files(self.folder / "whole", self.folder, int(size * (1 << 30))) for size in self.gib}
        least, most = self.gib[0], self.gib[-1]
        for size in self.gib:
            for reader in READERS:
                self._measure(reader, size, (stores[least], 1), (stores[size], 1))
            self._compare(size)
        parquet = self.folder / "parquet"
        in_process(write_parquet, stores[least], parquet)
        for size in (least, most):
            self._measure(PARQUET, size, (parquet, 1), (parquet, round(size / least)))
        rows = self.found["Java", most]["rows"]
        self._measure(RANGE, most, (parquet, rows // 10), (parquet, rows))

    def _measure(self, kind: str, size: float, warm_up: Scan, target: Scan) -> None:
        self._console.print(f"{kind}, {size:g} GiB ...", style="dim")
        self.found[kind, size] = in_process(measure, kind, warm_up, target, *self._session)

    def _compare(self, size: float) -> None:
        results = {reader: (self.found[reader, size]["rows"], self.found[reader, size]["hash"]) for reader in READERS}
        if len(set(results.values())) > 1:
            sys.exit(f"bench.spark_sizes: rows and hashes of {size:g} GiB differ: {results}")

    def show(self) -> None:
        table = Table(title=f"executor with one core and a heap of {HEAP_MIB} MiB; memory in MiB")
        for column in ("", "GiB", "messages", *SHOWN):
            table.add_column(column, justify="right" if column else "left")
        for (kind, size), one in self.found.items():
            times = [f"{one[name]:.1f}" for name in ("seconds", "cpu_s")]
            sizes = [f"{one[name]:,.0f}" for name in ("live_heap", "beside", "files", "workers", "largest_worker")]
            table.add_row(kind, f"{size:g}", f"{one['rows']:,}", *times, *sizes)
        self._console.print(table)
        most = self.gib[-1]
        columns = [(kind, size) for kind, size in self.found if size == most]
        table = Table(title=f"memory that the JVM has committed by purpose, after {most:g} GiB, in MiB")
        for name in ("", *(kind for kind, _ in columns)):
            table.add_column(name, justify="right" if name else "left")
        accounts = [self.found[column]["accounts"] for column in columns]
        for purpose in accounts[0]:
            sizes = [account.get(purpose, 0.0) for account in accounts]
            if max(sizes) >= ACCOUNTS_SHOWN_MIB:
                table.add_row(purpose, *(f"{size:,.1f}" for size in sizes))
        self._console.print(table)

    def draw(self, path: Path) -> None:
        lines = {f"reader in {one}": [(size, self.found[one, size]["seconds"]) for size in self.gib] for one in READERS}
        write_plot(path, "Spark: hash over 16 columns, one core, bodies of 1 KiB", "GiB of log", "seconds", lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_sizes", description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="folder with room for the largest log and a Parquet file of the smallest")
    parser.add_argument("--gib", type=float, nargs="+", default=[1, 2.5, 5, 10], help="sizes, multiples of 0.5 (1 2.5 5 10)")
    parser.add_argument("--collector", default="Parallel", help="the JVM's collector: Parallel, G1, Serial (Parallel)")
    parser.add_argument("--environment", nargs="*", default=[], metavar="NAME=VALUE", help="of the executor")
    parser.add_argument("--plot", type=Path, default=PLOT, help="SVG to write (docs/spark-sizes.svg)")
    parser.add_argument("--keep", action="store_true", help="keep the stores for the next run")
    options = parser.parse_args()
    folder = options.folder / "spark-sizes"
    environment = dict(pair.split("=", 1) for pair in options.environment)
    sizes = Sizes(folder, options.gib, options.collector, environment)
    try:
        sizes.run()
        sizes.show()
        sizes.draw(options.plot)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
