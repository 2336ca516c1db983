"""Runs a healthy producer and a long-polling consumer during each attack of a hostile client.

Every attack has its own name server, broker and neighbour (the healthy load), each a process. The neighbour sends 200
messages of 1 KiB a second and consumes them; the attacker sends up to 1 MB/s for some seconds. The report shows latencies
(of sends, from send to receipt, of held pulls and of routes) before, during and after the attack; how often a server kept
all requests waiting for more than 50 ms; the servers' anonymous memory; and the size of their logs.

Other work on a machine with few cores makes the numbers noisy: compare with the row `none`, and with `p99 before`.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bench.hostile.attacks import ATTACKS, described
from bench.hostile.result import Result, markdown, table
from bench.hostile.run import Plan, run

console = Console(width=max(180, Console().width))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", action="append", metavar="NAME", help="this attack; may be repeated (all)")
    parser.add_argument("--list", action="store_true", help="print the attacks with descriptions, and stop")
    parser.add_argument("--seconds", type=float, default=20, help="duration of an attack (20)")
    parser.add_argument("--settle", type=float, default=60, help="seconds after it within which memory must be back (60)")
    parser.add_argument("--quiet", type=float, default=5, help="seconds measured before it, for comparison (5)")
    parser.add_argument("--warm", type=float, default=5, help="seconds before these, not measured (5)")
    parser.add_argument("--rate", type=float, default=1.0, help="MB/s that an attack sends at most (1)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the broker")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table to FILE")
    parser.add_argument("--scratch", type=Path, help="folder for the stores during the bench (the temporary folder)")
    options = parser.parse_args()
    unknown = [name for name in options.only or () if name not in ATTACKS]
    if unknown:
        parser.error(f"--only {unknown[0]}: unknown attack; --list shows all")
    for setting in options.set:
        if "=" not in setting:
            parser.error(f"--set {setting}: write KEY=VALUE")
    return options


def _plan(options: argparse.Namespace) -> Plan:
    settings = dict(setting.split("=", 1) for setting in options.set)
    scratch: Path | None = options.scratch
    return Plan(options.warm, options.quiet, options.seconds, options.settle, options.rate * 1e6, settings, scratch)


def main() -> None:
    options = _options()
    if options.list:
        for name in ATTACKS:
            console.print(f"{name:28} {described(name)}", highlight=False)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    plan, names = _plan(options), options.only or list(ATTACKS)
    title = (
        f"Attacks of {plan.attack:g} s at {options.rate:g} MB/s, at most {plan.settle:g} s to settle; {os.cpu_count()} cores"
    )
    results: list[Result] = []
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    try:
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("", total=len(names) * plan.seconds)
            for number, name in enumerate(names):

                def tell(phase: str, seconds: float, name: str = name, number: int = number) -> None:
                    shown = f"{number + 1} of {len(names)}  {name}: {phase} ({seconds:g} s)"
                    progress.update(task, description=shown)

                try:
                    results.append(run(name, plan, tell))
                except RuntimeError as failure:
                    progress.console.print(f"[red]{name}: not measured: {failure}[/]")
                    progress.update(task, completed=(number + 1) * plan.seconds)
                    continue
                progress.update(task, completed=(number + 1) * plan.seconds)
                progress.console.print(_line(results[-1]), highlight=False)
    finally:
        if results:
            console.print(table(results, title))
            if options.markdown is not None:
                options.markdown.write_text(markdown(results, title))
    sys.exit(1 if len(results) < len(names) or any(result.problems for result in results) else 0)


def _line(result: Result) -> str:
    shown = f"{result.name}: p99 {result.quiet_p99:.1f} -> {result.p99:.1f} ms, " + (", ".join(result.problems) or "ok")
    shown += f"; the neighbour's own lag {result.own_p99:.1f} ms"
    return shown + "".join(f"\n    {text}" for text in (result.failure, *result.notes) if text)


if __name__ == "__main__":
    main()
