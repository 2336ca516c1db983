"""The floor below which no broker's CPU per message comes: bench/floor.c, which answers loadgen and does little else."""

import shutil
import subprocess
from pathlib import Path

from bench import apache
from pocketmq.cli import child_process
from pocketmq.cli.child_process import Process

SOURCE = Path(__file__).with_suffix(".c")
_READY_SECONDS_MAX = 10


def available() -> str | None:
    """Return what is missing to compile the floor on this machine, or None."""
    return None if shutil.which("cc") else "there is no C compiler `cc` on the PATH (Debian: apt-get install gcc)"


def build(folder: Path) -> Path:
    """Compile the floor in `folder`; raises RuntimeError if the compiler does not."""
    binary = folder / "floor"
    done = subprocess.run(["cc", "-O2", "-o", str(binary), str(SOURCE)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"cc does not compile {SOURCE.name}: {done.stderr[-800:]}")
    return binary


def start(binary: Path, folder: Path) -> tuple[Process, str]:
    """Start the floor with its file in `folder`; return the process and its address. Raises apache.ApacheError."""
    with open(folder / "floor.out", "wb") as out:
        command = [str(binary), str(folder / "records")]
        process = child_process.start_program(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        return process, apache.wait_for_line(folder / "floor.out", r"ready at (\S+)", process, _READY_SECONDS_MAX)[1]
    except apache.ApacheError:
        apache.terminate(process)
        raise
