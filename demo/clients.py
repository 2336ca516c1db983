"""Choice of the demonstration's client, which is built once and kept in ${POCKETMQ_CACHE:-~/.cache/pocketmq}.

Standard clients are preferred, because the demonstration shows the compatibility with them.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
JAVA_CLIENT, GO_CLIENT, OWN_CLIENT = "java-5.5.0", "go-2.1.2", "pocketmq-python"
GRPC_CLIENT = "grpc-python-5.1.2"
JAVA_MISSING = "a JDK (11 or newer) and Maven; Debian and Ubuntu: apt-get install default-jdk-headless maven"


class BuildFailed(RuntimeError):
    """The tools are installed, but the example could not be built; the message contains their last output."""


@dataclass
class Client:
    """A client, and the command that runs its tour against a name server and a broker."""

    name: str
    is_standard: bool
    command: Callable[[str, str, Path], list[str]]


def choose(say: Callable[[str], None]) -> Client:
    """Return the best available client; `say` is called with the reasons why better ones are not available."""
    for name, tools, missing, build in (
        (JAVA_CLIENT, ("javac", "mvn"), JAVA_MISSING, _java),
        (GO_CLIENT, ("go",), "Go 1.21 or newer (https://go.dev/dl)", _go),
    ):
        absent = [tool for tool in tools if shutil.which(tool) is None]
        if absent:
            say(f"{name}: {' and '.join(absent)} not found. To use it install {missing}")
            continue
        try:
            return build(say)
        except BuildFailed as failure:
            say(f"{name}: {failure}")
    say("No standard client is available, so PocketMQ's own client is used, which shows less. See above.")
    tour = EXAMPLES / "python" / "tour.py"
    return Client(OWN_CLIENT, False, lambda namesrv, broker, home: [sys.executable, str(tour), namesrv])


def _java(say: Callable[[str], None]) -> Client:
    def build(folder: Path) -> None:
        _run(folder, "mvn", "-q", "-B", "package", "dependency:copy-dependencies")

    target = _built(HERE / "java", build, say) / "target"

    def command(namesrv: str, broker: str, home: Path) -> list[str]:
        return ["java", f"-Duser.home={home}", "-cp", f"{target}/*:{target}/dependency/*", "tour.Tour", namesrv]

    return Client(JAVA_CLIENT, True, command)


def _go(say: Callable[[str], None]) -> Client:
    binary = _built(HERE / "go", lambda folder: _run(folder, "go", "build", "-o", "tour", "."), say) / "tour"
    return Client(GO_CLIENT, True, lambda namesrv, broker, home: [str(binary), namesrv, broker])


def grpc_consumer(say: Callable[[str], None]) -> Callable[[str, str, int], tuple[list[str], dict[str, str]]] | None:
    """Return a function for the command of a gRPC consumer, and its environment; it gets endpoint, topic and a number.

    None if the client cannot be installed; `say` is called with the reason.
    """

    def install(folder: Path) -> None:
        options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--target", "lib", "-r", "requirements.txt")
        _run(folder, sys.executable, "-m", "pip", "install", *options)

    try:
        library = _built(EXAMPLES / "grpc" / "python", install, say) / "lib"
    except BuildFailed as failure:
        say(f"{GRPC_CLIENT}: {failure}")
        return None
    program = Path(__file__).with_name("grpc_consumer.py")

    def command(endpoint: str, topic: str, count: int) -> tuple[list[str], dict[str, str]]:
        return [sys.executable, str(program), endpoint, topic, str(count)], {"PYTHONPATH": str(library)}

    return command


def _built(source: Path, build: Callable[[Path], None], say: Callable[[str], None]) -> Path:
    """Return a built copy of a folder, cached under the digest of its sources."""
    files = sorted(path for path in source.rglob("*") if path.is_file() and "target" not in path.parts)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    cache = Path(os.environ.get("POCKETMQ_CACHE") or Path.home() / ".cache" / "pocketmq") / "demo"
    folder = source.relative_to(HERE.parent)
    name = "-".join(folder.parts[1:])
    done = cache / f"{name}-{digest}"
    if done.exists():
        return done
    say(f"building {folder}; the first time its client is downloaded ...")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=f"{name}.draft-") as scratch:
        draft = Path(scratch) / name
        shutil.copytree(source, draft, ignore=shutil.ignore_patterns("target"))
        build(draft)
        if not done.exists():
            draft.rename(done)
    return done


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildFailed(f"`{' '.join(command)}` failed:\n{(done.stdout + done.stderr).strip()[-1200:]}")
