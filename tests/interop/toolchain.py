"""Downloads and builds the real clients: jars from Maven Central, the Go module, drivers compiled against them, the C++
client from PyPI.

Everything is kept under ``${POCKETMQ_CACHE:-$HOME/.cache/pocketmq}``, so the network is needed only once. A folder gets its
final name only when it is complete, so that an interrupted download is repeated.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
CACHE = Path(os.environ.get("POCKETMQ_CACHE") or Path.home() / ".cache" / "pocketmq")
CPP_PACKAGE = "rocketmq==0.4.4"  # of November 2019, the only wheel that contains the C++ client
JAVA_VERSIONS = {"java_4_9_4": "4.9.4", "java_5_5_0": "5.5.0"}
DOWNLOAD_TIMEOUT_S = 900
ARCHIVE = "classes.jsa"
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of Maven and other programs that run for seconds only: a quick start matters more than peak speed."""


class ToolchainMissing(Exception):
    """A tool needed for a client is not installed; the text says which one, and what to install."""


def require_java() -> None:
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if missing:
        raise ToolchainMissing(f"not found: {', '.join(missing)} (install a JDK, 11 or later, and Maven)")


def require_go() -> None:
    if shutil.which("go") is None:
        raise ToolchainMissing("not found: go (install Go 1.21 or later)")


def jars(version: str) -> Path:
    """Return the folder with the jars of a RocketMQ version and their dependencies."""
    return jars_of(HERE / "java" / f"pom-{version}.xml", version)


def jars_of(pom: Path, name: str) -> Path:
    """Return the folder with the jars on which a project depends; `name` is the folder's in the cache."""
    require_java()

    def copy(target: Path) -> None:
        run("mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={target / 'lib'}")

    return made_once(CACHE / "peer" / name, f"jars of RocketMQ {name}", copy) / "lib"


def java_classes(version: str) -> Path:
    """Return the jar with the Java driver, compiled against one version."""
    beside = [] if version == "4.9.4" else [HERE / "java" / "PopClient.java"]
    return _compiled(version, [HERE / "java" / "Driver.java", *beside], "driver")


def mqadmin_class_path(version: str) -> str:
    """Return the class path of the real mqadmin and the shell around it."""
    tools = version if version == "4.9.4" else f"{version}-tools"
    return f"{_compiled(tools, [HERE / 'java' / 'MqadminShell.java'], 'mqadmin shell')}:{jars(tools)}/*"


def sql92_classes(version: str) -> Path:
    """Return the jar with the program that runs RocketMQ's own SQL92 filter; `version` must have the broker's jars."""
    return _compiled(version, [HERE / "java" / "Sql92Verdicts.java"], "SQL92 verdicts")


def example_class_path(version: str) -> str:
    """Return the class path of the examples of a version, its client, and the program that runs them."""
    examples = f"{version}-example"
    libraries = [jars(examples), *([jars(version)] if version == "4.9.4" else [])]
    runner = _compiled(examples, [HERE / "java" / "ExampleRunner.java"], "runner of examples")
    return ":".join([str(runner), *(f"{folder}/*" for folder in libraries)])


def project_class_path(folder: Path) -> str:
    """Return the class path of a Maven project of the examples: its classes, its resources, and the jars it depends on."""
    pom, main = folder / "pom.xml", folder / "src" / "main"
    name = f"{'-'.join(folder.relative_to(EXAMPLES).parts)}-{digest([pom])}"
    libraries = jars_of(pom, name)
    return f"{compiled(name, libraries, sorted(main.rglob('*.java')), 'example')}:{main / 'resources'}:{libraries}/*"


def project_binary(folder: Path) -> Path:
    """Return the program built of a Go module of the examples."""
    require_go()
    name = "-".join(folder.relative_to(EXAMPLES).parts)
    built = CACHE / "interop" / f"{name}-{digest(sorted(folder.glob('*.go')) + sorted(folder.glob('go.*')))}"

    def build(target: Path) -> None:
        run("go", "build", "-trimpath", "-o", target / "tour", ".", cwd=folder)

    return made_once(built, f"example {name}", build) / "tour"


def class_archive(name: str, class_path: str, record: Callable[[Path], None]) -> str:
    """Return the options for an archive from which a JVM loads its classes: a start without it takes twice the CPU.

    `record` runs the program once with `recording`, which writes the archive into a folder. The archive is of use to the JVM
    that wrote it only, and with the same class path.
    """
    require_java()
    java = Path(shutil.which("java") or "").resolve()
    parts = [Path(part.removesuffix("/*")) for part in class_path.split(":")]
    times = [path.stat().st_mtime_ns for path in (java, *parts)]
    made_with = hashlib.sha256(f"{java} {class_path} {times}".encode()).hexdigest()[:12]

    def complete(target: Path) -> None:
        record(target)
        assert (target / ARCHIVE).exists(), f"the JVM of {name} wrote no archive"

    folder = made_once(CACHE / "interop" / f"classes-{name}-{made_with}", f"class archive of {name}", complete)
    return f"-XX:SharedArchiveFile={folder / ARCHIVE}"


def recording(folder: Path) -> str:
    """Return the option with which a JVM writes the archive of its classes into a folder when it ends."""
    return f"-XX:ArchiveClassesAtExit={folder / ARCHIVE}"


def _compiled(version: str, sources: list[Path], what: str) -> Path:
    return compiled(version, jars(version), sources, what)


def compiled(name: str, libraries: Path, sources: list[Path], what: str) -> Path:
    """Return a jar of Java sources, compiled against the jars in a folder. (A JVM archives no classes of folders.)"""

    def compile_into(target: Path) -> None:
        run("javac", "-nowarn", "-Xlint:none", "-cp", f"{libraries}/*", "-d", target / "classes", *sources)
        run("jar", "--create", "--file", target / "classes.jar", "-C", target / "classes", ".")

    made = made_once(CACHE / "interop" / f"jar-{name}-{digest(sources)}", f"Java {name} {what}", compile_into)
    return made / "classes.jar"


def go_driver() -> Path:
    """Return the Go driver's executable."""
    require_go()
    sources = sorted((HERE / "go").iterdir())

    def build(target: Path) -> None:
        run("go", "build", "-trimpath", "-o", target / "driver", ".", cwd=HERE / "go")

    return made_once(CACHE / "interop" / f"go-{digest(sources)}", "Go driver", build) / "driver"


def cpp_package() -> Path:
    """Return the folder with the Python package that contains the C++ client."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise ToolchainMissing(f"{CPP_PACKAGE} is for Linux on x86-64 only")

    def install(target: Path) -> None:
        run(
            sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:", "--target", target, CPP_PACKAGE
        )

    return made_once(CACHE / "interop" / CPP_PACKAGE.replace("==", "-"), CPP_PACKAGE, install)


def digest(sources: list[Path]) -> str:
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:12]


def made_once(folder: Path, what: str, make: Callable[[Path], None]) -> Path:
    """Make a folder, unless it exists; other threads and processes that need it wait meanwhile."""
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder
        print(f"\n[interop] downloading or building {what} in {folder} (once) ...", file=sys.__stderr__, flush=True)
        draft = folder.with_name(f"{folder.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        make(draft)
        draft.rename(folder)
    return folder


def run(*command: str | Path, cwd: Path | None = None) -> None:
    env = {"MAVEN_OPTS": QUICK_JVM, "CGO_ENABLED": "0", **os.environ}
    done = subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
