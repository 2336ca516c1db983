"""The jar in a Maven repository, as `spark-submit --packages` resolves it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from pocketmq import __version__
from pocketmq.spark_analytics.jvm import JAR
from pocketmq.spark_analytics.jvm.__main__ import main
from pocketmq.spark_analytics.session import find_java, make_java_home

pytestmark = pytest.mark.spark

JOB = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").getOrCreate()
log = spark.read.format("rocketmq").option("reader", "jvm").load(sys.argv[1])
print("rows", log.where("topic = 'GoldenDelay'").count())
"""


def installed(capsys: pytest.CaptureFixture[str], repository: Path) -> str:
    assert main(["install", "--repository", str(repository)]) == 0
    return capsys.readouterr().out.strip()


def test_jar_has_its_pom(java_built: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not java_built:
        pytest.skip("no JDK")
    assert installed(capsys, tmp_path) == f"pocketmq:pocketmq-spark:{__version__}"
    folder = tmp_path / "pocketmq" / "pocketmq-spark" / __version__
    pom = (folder / f"pocketmq-spark-{__version__}.pom").read_text()
    with zipfile.ZipFile(folder / f"pocketmq-spark-{__version__}.jar") as jar:
        assert jar.read("META-INF/maven/pocketmq/pocketmq-spark/pom.xml").decode() == pom
        assert f"version={__version__}" in jar.read("META-INF/maven/pocketmq/pocketmq-spark/pom.properties").decode()
        assert f"Implementation-Version: {__version__}" in jar.read("META-INF/MANIFEST.MF").decode()
    project = {element.tag.rpartition("}")[2]: element.text for element in ElementTree.fromstring(pom)}
    assert (project["groupId"], project["artifactId"], project["version"]) == ("pocketmq", "pocketmq-spark", __version__)


def test_spark_resolves_the_coordinates_to_the_jar(
    jvm_spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The step of `spark-submit --packages`, in a JVM that is there already."""
    package = installed(capsys, tmp_path / ".m2" / "repository")
    java = jvm_spark._jvm
    home = java.System.getProperty("user.home")
    java.System.setProperty("user.home", str(tmp_path))
    try:
        resolve = java.org.apache.spark.util.DependencyUtils.resolveMavenDependencies
        found = resolve(True, None, package, None, str(tmp_path / "ivy"), java.scala.Option.empty())
    finally:
        java.System.setProperty("user.home", home)
    (jar,) = (Path(found.apply(number)) for number in range(found.size()))
    assert jar.is_relative_to(tmp_path) and jar.read_bytes() == JAR.read_bytes()


@pytest.mark.long
def test_spark_submit_finds_the_jar_by_its_coordinates(
    java_built: bool, golden_stores: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not java_built:
        pytest.skip("no JDK")
    package = installed(capsys, tmp_path / ".m2" / "repository")
    job = tmp_path / "job.py"
    job.write_text(JOB)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "JAVA_HOME": str(make_java_home(find_java())),
        "JDK_JAVA_OPTIONS": f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -Duser.home={tmp_path}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    program = ("from pyspark.find_spark_home import _find_spark_home; print(_find_spark_home())",)
    home = subprocess.run([sys.executable, "-c", *program], capture_output=True, text=True, check=True).stdout.strip()
    command = [f"{home}/bin/spark-submit", "--packages", package, "--conf", "spark.ui.enabled=false", str(job)]
    done = subprocess.run(
        [*command, str(golden_stores["v4_clean"])], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert "rows 24" in done.stdout, done.stderr[-2000:]
    assert JAR.is_file()
