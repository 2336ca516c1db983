"""A newcomer's path: the blocks of a page, run in their order by one shell in an empty folder.

The shell has a network and process numbers of its own (`unshare`), so that servers take the ports that the page names, and
none of them outlives it.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

import pytest

from tests.docs.likeness import is_like
from tests.docs.page import ROOT, Block

IN_COROUTINE: Final = Path(__file__).with_name("in_coroutine.py")
COROUTINE: Final = ("in a coroutine", "inside", "endless")
ENDLESS_S: Final = 2.0
TIMEOUT_S: Final = 600
CI: Final = os.environ.get("CI") == "true"
BEGIN: Final = f"""set -e
export HOME="$PWD/home" PYTHONPATH={shlex.quote(str(ROOT))} PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"
unset NAMESRV_ADDR ROCKETMQ_HOME POCKETMQ JDK_JAVA_OPTIONS JAVA_TOOL_OPTIONS
ip link set lo up
wait_for() {{
  for _ in $(seq 1200); do
    if grep -qF -- "$1" "$2"; then return; fi
    sleep 0.1
  done
  return 1
}}
servers=()
stop_servers() {{
  if [ ${{#servers[@]}} -gt 0 ]; then kill "${{servers[@]}}" && wait "${{servers[@]}}" || true; fi
  servers=()
}}
mkdir home work
cd work
"""
SERVER: Final = re.compile(r"(pocketmq up|mqnamesrv|mqbroker)\b(?![^#]* -[pm]\b)")
READY: Final = {"pocketmq up": "Try: pocketmq produce", "mqnamesrv": "boot success", "mqbroker": "boot success"}


@dataclass(frozen=True)
class Step:
    """Commands that run together, and what the page says that they print."""

    place: str
    commands: str
    shown: str | None = None


def run_path(blocks: Sequence[Block], folder: Path, before: str = "", names: str = "") -> None:
    """Run the marked blocks, and compare what they print with the page.

    `before`: commands that put into the folder what the page's reader has. `names`: Python for the names that blocks in a
    coroutine use without defining them, as the reader's own functions.
    """
    marked = [block for block in blocks if block.mark in ("run", "output")]
    steps = [Step("before", _started(before, folder)), *_steps(marked, names, folder)]
    script = [BEGIN]
    for number, step in enumerate(steps):
        script.append(f"exec >{shlex.quote(str(folder))}/{number}.out 2>&1\n{step.commands}")
    (folder / "path.sh").write_text("\n".join(script))
    done = subprocess.run(
        [*namespaces(), "bash", "path.sh"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_S,
        text=True,
    )
    outputs = [path.read_text(errors="replace") for path in _outputs(folder, len(steps))]
    assert done.returncode == 0, f"{steps[len(outputs) - 1].place} failed:\n{outputs[-1] if outputs else done.stderr}"
    for step, printed in zip(steps, outputs, strict=True):
        if step.shown is not None:
            found = _part(printed, step.place)
            assert is_like(found, step.shown), f"{step.place} says that this is printed:\n{step.shown}\nbut it was:\n{found}"


@cache
def namespaces() -> list[str]:
    """Return the command that runs a program in namespaces of its own; without them, or curl, the test is skipped."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *user, "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    try:
        subprocess.run([*command, "ip", "link", "set", "lo", "up"], check=True, capture_output=True)
        subprocess.run(["curl", "--version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        if CI:
            raise
        pytest.skip(f"needs namespaces and curl: {error}")
    return command


def _outputs(folder: Path, count: int) -> Iterator[Path]:
    for number in range(count):
        if (path := folder / f"{number}.out").exists():
            yield path


def _steps(blocks: list[Block], names: str, folder: Path) -> Iterator[Step]:
    """Yield the steps of marked blocks, each with the output that is shown below it."""
    shown_of = {block: after for block, after in pairwise(blocks) if after.mark == "output"}
    run = [block for block in blocks if block.mark == "run"]
    for is_awaiting, group in groupby(run, lambda block: block.language == "python" and block.argument in COROUTINE):
        if is_awaiting:
            yield from _awaiting(list(group), shown_of, names, folder)
            continue
        for block in group:
            yield from _commands(block, shown_of[block].text if block in shown_of else None, folder)


def _commands(block: Block, shown: str | None, folder: Path) -> Iterator[Step]:
    """Yield the steps of a block that is not in a coroutine."""
    if block.first:
        yield Step(block.place, _started(block.first, folder))
    way, _, detail = block.argument.partition(" ")
    if way == "as":
        path = shlex.quote(detail)
        text = f"mkdir -p \"$(dirname {path})\"\ncat >{path} <<'END OF THE BLOCK'\n{block.text}END OF THE BLOCK\n"
        yield Step(block.place, text)
    elif block.language == "python":
        program = folder / f"line_{block.line}.py"
        program.write_text(block.text)
        yield Step(block.place, f"python {shlex.quote(str(program))}\n", shown)
    elif re.search(r"^\$ ", block.text, re.MULTILINE):
        for command, output in re.findall(r"^\$ (.*\n)((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
            if way == "fails":
                command = f"! {command}"
            is_untold = not output and SERVER.match(command)
            yield Step(block.place, _started(command, folder), None if is_untold else output)
    else:
        assert block.language in ("", "bash"), block.place
        yield Step(block.place, _ended(block, way, detail, folder), shown)


def _ended(block: Block, way: str, detail: str, folder: Path) -> str:
    """Return commands, the last of which goes on, is ended, or fails."""
    *first, last = block.text.splitlines()
    begin = _started("\n".join([*first, ""]), folder)
    if way == "until":
        return begin + _background(last, detail, folder)
    if way == "endless":
        return f"{begin}timeout --preserve-status -s INT {ENDLESS_S} {last} || test $? = 130\n"
    if way == "fails":
        return f"{begin}if {last}\nthen echo 'this has not failed'; exit 99; fi\n"
    assert way == "", f"{block.place}: {block.argument}"
    return _started(block.text, folder)


def _started(commands: str, folder: Path) -> str:
    """Return commands that go on once their servers are ready; those of earlier blocks are stopped before."""
    lines = commands.splitlines()
    if not any(map(SERVER.match, lines)):
        return commands
    begun = (
        _background(line, READY[server[1]], folder) if (server := SERVER.match(line)) else f"{line}\n" for line in lines
    )
    return "".join(["stop_servers\n", *begun])


def _background(command: str, text: str, folder: Path) -> str:
    """Return a command that runs in the background; the next one follows once it has printed a text."""
    output = shlex.quote(f"{folder}/{re.sub(r'[^a-z]+', '_', command)[:60]}.server")
    begin = f"{{ exec {command}\n}} >{output} 2>&1 &\nservers+=($!)\n"
    return f"{begin}wait_for {shlex.quote(text)} {output} || {{ cat {output}; exit 1; }}\ncat {output}\n"


def _awaiting(blocks: list[Block], shown_of: Mapping[Block, Block], names: str, folder: Path) -> Iterator[Step]:
    """Yield one step with the program of blocks in a coroutine, and one for each output that is shown."""
    sources: list[list[object]] = [["names", names, None]]
    for block in blocks:
        if block.argument == "inside":
            last = str(sources[-1][1]).rstrip().splitlines()[-1]
            indent = " " * (len(last) - len(last.lstrip()))
            sources[-1][1] = f"{sources[-1][1]}{indent}print('<<<{block.place}>>>')\n" + _indented(block.text, indent)
        else:
            sources.append([block.place, block.text, ENDLESS_S if block.argument == "endless" else None])
    name = folder / f"line_{blocks[0].line}.json"
    name.write_text(json.dumps(sources))
    output = f"{name}.out"
    first = _started("".join(block.first for block in blocks), folder)
    yield Step(blocks[0].place, f"{first}python {IN_COROUTINE} <{name} >{output} 2>&1 || {{ cat {output}; exit 1; }}\n")
    for block in blocks:
        if block in shown_of:
            yield Step(block.place, f"cat {output}\n", shown_of[block].text)


def _indented(text: str, indent: str) -> str:
    return "".join(f"{indent}{line}\n" if line.strip() else "\n" for line in text.splitlines())


def _part(printed: str, place: str) -> str:
    """Return what the block of a place has printed, if the program says where each of its blocks begins."""
    begun = printed.partition(f"<<<{place}>>>\n")
    return begun[2].partition("<<<")[0] if begun[1] else printed
