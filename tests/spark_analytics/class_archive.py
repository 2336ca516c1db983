"""A Java for tests, with which Spark's JVM loads its classes from an archive: such a start takes half the CPU."""

import hashlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pyspark

from pocketmq.spark_analytics.session import find_java
from tests.interop.toolchain import ARCHIVE, CACHE, made_once, recording

JAVA = """\
#!/bin/sh
# A JVM archives no classes if its class path has a folder with files, as is that of Spark's settings.
case " $* " in
  *" org.apache.spark.deploy.SparkSubmit "*)
    for argument do
      shift
      set -- "$@" "${argument#"$SPARK_CONF_DIR/:"}"
    done
    set -- -Xlog:cds=off -Xlog:cds+dynamic=off @OPTION@ "$@" ;;
esac
exec @JAVA@ "$@"
"""
SESSION = """
from pyspark import SparkContext
from pocketmq.spark_analytics.session import local_session

spark = local_session("local[2]")
rows = spark.createDataFrame([(number, str(number)) for number in range(20)], ["number", "text"])
rows.groupBy("text").count().orderBy("text").collect()
spark.stop()
jvm = SparkContext._gateway.proc
jvm.stdin.close()
jvm.wait()
"""
"""Starts Spark and runs a query. Classes that it does not need are loaded from their jars."""


def java_home_with_archive(folder: Path) -> Path:
    """Make a JAVA_HOME in `folder`. The archive is of use to one version of Java and of Spark only.

    SPARK_CONF_DIR must be set, as the JVMs that use the archive must have the class path of the one that wrote it.
    """
    java = find_java()
    made_with = hashlib.sha256(f"{Path(java).resolve()} {os.stat(java).st_mtime_ns} {pyspark.__file__}".encode())
    made_with.update(pyspark.__version__.encode())

    def record(target: Path) -> None:
        environment = os.environ | {"JAVA_HOME": str(_java_home(target, java, recording(target)))}
        done = subprocess.run([sys.executable, "-c", SESSION], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        assert (target / ARCHIVE).exists(), "Spark's JVM wrote no archive of its classes"

    name = f"classes-spark-{made_with.hexdigest()[:12]}"
    archive = made_once(CACHE / "spark" / name, "class archive of Spark", record) / ARCHIVE
    return _java_home(folder, java, f"-XX:SharedArchiveFile={archive}")


def _java_home(folder: Path, java: str, option: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(JAVA.replace("@OPTION@", shlex.quote(option)).replace("@JAVA@", shlex.quote(java)))
    program.chmod(0o755)
    return folder
