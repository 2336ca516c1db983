import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.golden.golden_files import unpack_golden
from tests.spark_analytics.class_archive import java_home_with_archive


@pytest.fixture(scope="session")
def golden_stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Unpacked golden stores by name."""
    names = ("v4_clean", "v4_kill9", "v4_torn_body", "v4_torn_props", "v5_clean", "v5_kill9")
    return {name: unpack_golden(name, tmp_path_factory.mktemp(name)) for name in names}


TEST_TIMEOUT_S = 1200
"""A session takes ten seconds of CPU time to start, and beside a heavy load minutes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
    "spark.driver.defaultJavaOptions": JAVA_OPTIONS,
}
"""Settings of Spark with which small queries need little CPU time: nothing is compiled, and few tasks run."""


@pytest.fixture(scope="session", autouse=True)
def quick_jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Options of JVMs and of all sessions for a quick start instead of peak speed: the queries of these tests are small."""
    import pyspark

    folder, installed = tmp_path_factory.mktemp("spark-conf"), Path(pyspark.__file__).parent / "conf"
    if installed.is_dir():
        shutil.copytree(installed, folder, dirs_exist_ok=True)
    with (folder / "spark-defaults.conf").open("a") as file:
        file.writelines(f"{key} {value}\n" for key, value in QUICK.items())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", JAVA_OPTIONS)
        patch.setenv("SPARK_CONF_DIR", str(folder))
        patch.setenv("JAVA_HOME", str(java_home_with_archive(tmp_path_factory.mktemp("java-home"))))
        yield


@pytest.fixture(scope="session")
def java_built(quick_jvm: None) -> bool:
    """Build the jar of the data source in Java unless it is up to date; return False if there is no JDK."""
    from pocketmq.spark_analytics.jvm import build

    if build.find_javac() is None:
        assert os.environ.get("CI") != "true", "no JDK"
        return False
    if not build.is_current():
        build.build()
    return True


@pytest.fixture(scope="session")
def spark(java_built: bool) -> Iterator[Any]:
    """Spark session shared by all tests, because starting one takes seconds. It uses the reader in Python."""
    from pocketmq.spark_analytics.session import local_session

    session = local_session("local[2]", reader="python")
    yield session
    session.stop()


@pytest.fixture(params=["direct", "spark"])
def engine(request: pytest.FixtureRequest) -> Any:
    """Each of the two engines that run the commands' queries."""
    from pocketmq.spark_analytics.direct.engine import DirectEngine
    from pocketmq.spark_analytics.pipelines.engine import SparkEngine

    return DirectEngine() if request.param == "direct" else SparkEngine(request.getfixturevalue("spark"))


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Restore the log level, which commands that run without Spark raise."""
    logger = logging.getLogger("pocketmq.spark_analytics")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture
def command(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Return a runner for `python -m pocketmq.spark_analytics ...` in the shared session; it returns the exit code."""
    from pocketmq.spark_analytics import __main__

    class Lasting:
        def __getattr__(self, name: str) -> Any:
            return (lambda: None) if name == "stop" else getattr(spark, name)

    monkeypatch.setattr(__main__, "local_session", lambda *arguments, **settings: Lasting())
    before = signal.getsignal(signal.SIGTERM)
    yield lambda *arguments: __main__.main([str(argument) for argument in arguments])
    signal.signal(signal.SIGTERM, before)
