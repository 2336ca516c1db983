"""Build of the jar: `python -m pocketmq.spark_analytics.jvm build`, as `make setup` runs it.

Compiles `src` with javac against the jars of the installed PySpark, for Java 17. Without a JDK nothing is built, and Spark
uses the data source in Python; `--required` makes that an error.
"""

import os
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from pocketmq.spark_analytics.jvm import JAR, coordinates, layout_constants

SOURCES: Final = Path(__file__).parent / "src"
RELEASE: Final = "17"
SERVICE: Final = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
SOURCE_CLASS: Final = "pocketmq.spark.source.RocketMQSource"
_MANIFEST: Final = (
    f"Manifest-Version: 1.0\nImplementation-Title: {coordinates.ARTIFACT}\nImplementation-Version: {coordinates.VERSION}\n\n"
)
# All entries get this time, so that the same sources give the same jar.
_TIME: Final = (2020, 1, 1, 0, 0, 0)


class BuildError(RuntimeError):
    """The sources do not compile, or there is no compiler."""


def java_sources() -> list[Path]:
    """Return the paths of all Java files but the generated one."""
    return sorted(SOURCES.rglob("*.java"))


def is_current(jar: Path = JAR) -> bool:
    """Return whether the jar exists and is newer than all sources, and has the version and the layout of this package."""
    if not jar.is_file() or any(path.stat().st_mtime > jar.stat().st_mtime for path in java_sources()):
        return False
    with zipfile.ZipFile(jar) as archive:
        there = set(archive.namelist())
        return all(name in there and archive.read(name) == text for name, text in _texts().items())


def find_javac() -> str | None:
    """Return the path of javac, from JAVA_HOME or the PATH; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    in_home = Path(home, "bin", "javac") if home else None
    return str(in_home) if in_home is not None and in_home.is_file() else shutil.which("javac")


def spark_jars() -> Path:
    """Return the folder with the jars of the installed PySpark."""
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def build(jar: Path = JAR, jars: Path | None = None) -> None:
    """Compile the sources against the jars in a folder (PySpark's), and write the jar. Raises BuildError."""
    javac = find_javac()
    if javac is None:
        raise BuildError("no javac in JAVA_HOME or on the PATH: install a JDK 17 or newer")
    with tempfile.TemporaryDirectory() as folder:
        generated = Path(folder, layout_constants.PATH)
        generated.parent.mkdir(parents=True)
        generated.write_text(layout_constants.source())
        command = [javac, "--release", RELEASE, "-Xlint:all,-path,-classfile,-processing,-serial", "-proc:none"]
        command += ["-encoding", "UTF-8", "-cp", f"{jars or spark_jars()}/*", "-d", folder, str(generated)]
        command += map(str, java_sources())
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise BuildError(f"javac failed:\n{done.stdout}{done.stderr}")
        _write(jar, Path(folder))


def _texts() -> dict[str, bytes]:
    """Return the entries of the jar, besides the classes, by name."""
    texts = {
        "META-INF/MANIFEST.MF": _MANIFEST,
        SERVICE: f"{SOURCE_CLASS}\n",
        coordinates.POM_PATH: coordinates.pom(),
        coordinates.PROPERTIES_PATH: coordinates.properties(),
        layout_constants.PATH: layout_constants.source(),
    }
    return {name: text.encode() for name, text in texts.items()}


def _write(jar: Path, folder: Path) -> None:
    contents = _texts()
    contents |= {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.class"))}
    new = jar.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED)
    new.replace(jar)  # a JVM may have the old one open
