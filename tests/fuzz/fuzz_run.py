"""Coverage-guided fuzzing of all code that reads untrusted bytes: `make fuzz FUZZ_ARGS="--inputs 5000000"`.

Targets are in `fuzz_targets`; libFuzzer, used through atheris, finds inputs that reach new edges of PocketMQ's code;
`fuzz_oracle` judges them. Each target is fuzzed in its own process, forked from this one, in which everything is imported
and instrumented once. The same seed and number of inputs give the same inputs on the same machine.
"""

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path
from typing import Any, NamedTuple

import atheris
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from tests.fuzz.fuzz_oracle import PACKAGES, Finding, Target, Watch, read_findings

with (
    open(os.devnull, "w") as nowhere,
    contextlib.redirect_stderr(nowhere),  # one line per module
    atheris.instrument_imports(include=list(PACKAGES), enable_loader_override=False),
):
    from tests.fuzz.fuzz_targets import TARGETS

from tests.fuzz.fuzz_corpus import read_corpus, reduced, write_corpus

INPUTS = 200_000
TIMEOUT_S = 120
"""An input that takes longer ends its target's run with a finding."""
GROWN_SEEDS, LAST_SEEDS = 24, 12
ENDING = (signal.SIGTERM, signal.SIGINT)
DONE = re.compile(r"^#(\d+)\s+(?:DONE|NEW|REDUCE|INITED|pulse|RELOAD)\s+cov: (\d+) ft: (\d+) corp: (\d+)", re.MULTILINE)


class Row(NamedTuple):
    """Result of one target."""

    name: str
    inputs: int
    seconds: float
    edges: int
    corpus: int
    findings: list[Finding]


class Job:
    """Fuzzing process of one target; its count of inputs is in memory shared with this process."""

    def __init__(
        self, target: Target, inputs: int, seed: int, folder: Path, findings: Path, grown_seeds: int = GROWN_SEEDS
    ) -> None:
        self.target, self.planned, self.seed, self.grown_seeds = target, inputs, seed, grown_seeds
        self.corpus, self.findings, self.output = folder / target.name, findings / target.name, folder / f"{target.name}.txt"
        self._shared = mmap(-1, 8)
        self.pid, self.started_s, self.seconds, self.status, self.rounds = 0, 0.0, 0.0, 0, 0
        self._before = 0

    @property
    def inputs(self) -> int:
        return int.from_bytes(self._shared[:8], "little")

    @property
    def has_more(self) -> bool:
        """Return whether another process should continue."""
        return not self.status and self.inputs < self.planned and self.inputs > self._before

    def start(self) -> None:
        self.started_s = time.monotonic()
        self._before, self.rounds = self.inputs, self.rounds + 1
        if self.rounds == 1:
            self.corpus.mkdir(parents=True)
            for number, data in enumerate([*read_corpus(self.target.name), *self.target.seeds()]):
                (self.corpus / f"{number:06}").write_bytes(data)
        # Signals stay blocked until `pid` is set in this process, and until the child has replaced the inherited handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        self.pid = os.fork()
        if not self.pid:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        if not self.pid:
            self._fuzz()

    def _fuzz(self) -> None:
        """Fuzz in the child process; never return."""
        with open(self.output, "wb") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        target = self.target
        left = self.planned - self._before
        runs = left if target.inputs_per_process is None else min(left, target.inputs_per_process)
        watch = Watch(target, self.findings, self._count)
        seeds = target.seeds()
        # Grown seeds are always run, so that the cost they show does not depend on the random choices of the run.
        for data in random.Random(self.seed).sample(seeds, min(len(seeds), self.grown_seeds)) + seeds[-LAST_SEEDS:]:
            watch.grown_each_way(data, 2)

        def mutated(data: bytes, size_max: int, seed: int) -> bytes:
            rng = random.Random(seed)
            if rng.random() < 0.3:
                return atheris.Mutate(data, size_max)
            data = target.mutate(rng, data)
            if rng.random() < 0.2:
                data = target.mutate(rng, data)
            return data[:size_max]

        with_mutator: dict[str, Any] = {"custom_mutator": mutated} if target.mutate.__name__ != "mutate_nothing" else {}
        options = [
            f"-runs={runs}", f"-seed={self.seed + self.rounds - 1}", f"-max_len={target.size_max}", f"-timeout={TIMEOUT_S}",
            "-rss_limit_mb=4096",
            "-handle_int=0", "-reload=0", "-len_control=20", f"-artifact_prefix={self.findings}-",
        ]  # fmt: skip
        atheris.Setup(["fuzz", *options, str(self.corpus)], watch, **with_mutator)
        atheris.Fuzz()
        os._exit(0)

    def _count(self, inputs: int) -> None:
        self._shared[:8] = (self._before + inputs).to_bytes(8, "little")

    def is_done(self) -> bool:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return False
        self.seconds += time.monotonic() - self.started_s
        self.status = os.waitstatus_to_exitcode(status)
        return True

    def stop(self) -> None:
        if not self.pid:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def row(self, is_stopped: bool) -> Row:
        text = self.output.read_text(errors="replace") if self.output.exists() else ""
        last = DONE.findall(text)
        runs, edges, _, corpus = map(int, last[-1]) if last else (0, 0, 0, 0)
        found = read_findings(self.findings)
        if self.status and not is_stopped:
            kept = self.findings.with_suffix(".txt")
            kept.write_text(text[-4000:])
            what = f"the process ended with {self.status}; the end of its output is in {kept.name}"
            found.append(Finding(self.target.name, "ended", what, self.target.name, 0, ""))
        return Row(self.target.name, max(self.inputs, runs), self.seconds, edges, corpus, found)


def shares(names: list[str], inputs: int, asked: dict[str, float]) -> dict[str, int]:
    """Return the number of inputs per target; weights in `asked` override the targets' own."""
    weights = {name: asked.get(name, TARGETS[name].weight) for name in names}
    total = sum(weights.values())
    return {name: max(200, round(inputs * weight / total)) for name, weight in weights.items()}


def _weights(text: str) -> dict[str, float]:
    rows = (row.partition("=") for row in text.split(",") if row)
    return {name: float(weight) for name, _, weight in rows}


def run(jobs: list[Job], processes: int, show: Any) -> Iterator[Row]:
    """Fuzz `processes` targets at a time; yield a row as each ends. SIGTERM and Ctrl-C end all and keep their findings."""
    waiting, running, is_stopped = list(jobs), list[Job](), False

    def stop(number: int, frame: Any) -> None:
        nonlocal is_stopped
        is_stopped = True
        waiting.clear()
        for job in running:
            job.stop()

    for number in ENDING:
        signal.signal(number, stop)
    while waiting or running:
        while waiting and len(running) < processes:
            running.append(waiting.pop(0))
            running[-1].start()
        time.sleep(0.05)
        show(running)
        for job in [job for job in running if job.is_done()]:
            running.remove(job)
            if job.target.inputs_per_process is not None and job.has_more and not is_stopped:
                running.append(job)
                job.start()
            else:
                yield job.row(is_stopped)


def keep_corpus(job: Job) -> int:
    """Reduce the inputs of a run to the repository's corpus, in another process; return its exit status."""
    pid = os.fork()
    if not pid:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # for the rest of this process
        inputs = [path.read_bytes() for path in sorted(job.corpus.iterdir())]
        seeds = set(job.target.seeds())
        one = job.target.prepare()
        kept = reduced(one, inputs)
        write_corpus(job.target.name, [data for data in kept if data not in seeds])
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Coverage-guided fuzzing of all code that reads untrusted bytes.")
    parser.add_argument("--inputs", type=int, default=INPUTS, help=f"inputs of all targets together (default {INPUTS:,})")
    parser.add_argument("--targets", default=",".join(TARGETS), help="names separated by commas (default: all)")
    parser.add_argument("--weights", type=_weights, default={}, help="other shares, such as names=5,frames=0.5")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--grown-seeds", type=int, default=GROWN_SEEDS, help="seeds at random that each target grows")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="folder for findings")
    parser.add_argument("--keep-corpus", action="store_true", help="update tests/fuzz/corpus from the inputs of this run")
    parser.add_argument("--plain", action="store_true", help="no progress bar")
    return parser.parse_args()


def main() -> int:
    asked = options()
    names = [name for name in asked.targets.split(",") if name]
    unknown = [name for name in (*names, *asked.weights) if name not in TARGETS]
    if unknown:
        print(f"unknown target {', '.join(unknown)}; the targets are {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    shutil.rmtree(asked.findings, ignore_errors=True)
    asked.findings.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        inputs = shares(names, asked.inputs, asked.weights)
        findings_folder = asked.findings.absolute()
        jobs = [
            Job(TARGETS[name], inputs[name], asked.seed, Path(folder), findings_folder, asked.grown_seeds) for name in names
        ]
        rows = list(_with_progress(jobs, asked))
        if asked.keep_corpus:
            for job in jobs:
                if job.corpus.exists():
                    keep_corpus(job)
    _print_table(rows)
    findings = [finding for row in rows for finding in row.findings]
    for finding in findings:
        print(f"{finding.target} {finding.kind} at {finding.place}: {finding.what}  [{finding.input}]")
    print(f"{sum(row.inputs for row in rows):,} inputs, {sum(row.edges for row in rows):,} edges, {len(findings)} findings")
    return 1 if findings else 0


def _with_progress(jobs: list[Job], asked: argparse.Namespace) -> Iterator[Row]:
    columns = (
        TextColumn("{task.description:40}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, disable=asked.plain) as progress:
        task = progress.add_task("fuzzing", total=sum(job.planned for job in jobs))

        def show(running: list[Job]) -> None:
            done = sum(job.inputs for job in jobs)
            progress.update(task, completed=done, description=", ".join(job.target.name for job in running) or "fuzzing")

        yield from run(jobs, asked.processes, show)


def _print_table(rows: list[Row]) -> None:
    table = Table("target", *(f"[right]{name}" for name in ("inputs", "inputs/s", "distinct edges", "corpus", "findings")))
    for column in table.columns[1:]:
        column.header, column.justify = str(column.header).removeprefix("[right]"), "right"
    for row in sorted(rows, key=lambda row: row.name):
        speed = row.inputs / row.seconds if row.seconds else 0
        table.add_row(
            row.name, f"{row.inputs:,}", f"{speed:,.0f}", f"{row.edges:,}", str(row.corpus), str(len(row.findings))
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    sys.exit(main())
