"""The Python wheel, installed outside the repository: import names, commands, and use in another project."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pocketmq.spark_analytics.jvm import build
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
QUICK_BUILD = {"OPT_LEVEL": "0", "LTO": "off", "CODEGEN_UNITS": "16"}
FOREIGN_TEST = """
import asyncio

import broker, client, runtime, store  # the project's own
from pocketmq import Message, Producer, PushConsumer


def test_a_message_is_sent_and_consumed(pocketmq_cluster):
    came = []

    async def story():
        async with Producer(pocketmq_cluster.namesrv_address, "foreign") as producer:
            await producer.create_topic("Foreign")
            consumer = PushConsumer(pocketmq_cluster.namesrv_address, "foreign", start="first")
            consumer.subscribe("Foreign", lambda message: came.append(message.body))
            async with consumer, asyncio.timeout(90):
                await producer.send(Message("Foreign", b"hello", delay_level=3))
                pocketmq_cluster.advance("10s")
                while not came:
                    await asyncio.sleep(0.01)

    asyncio.run(story())
    assert came == [b"hello"]
    assert broker.OWN and client.OWN and runtime.OWN and store.OWN
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    if build.find_javac() is not None and not build.is_current():
        build.build()
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
    # The lane is compiled for a quick build, in a folder of its own: its speed is not tested here.
    quick = {f"CARGO_PROFILE_RELEASE_{name}": value for name, value in QUICK_BUILD.items()}
    subprocess.run(command, env=os.environ | quick | {"CARGO_TARGET_DIR": str(folder / "target")}, check=True, timeout=280)
    (found,) = folder.glob("pocketmq-*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of a Python with the wheel and its dependencies, but without the repository."""
    target = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-compile",
        "--no-deps",
        "--target",
        str(target),
        str(wheel),
    ]
    subprocess.run(command, check=True, timeout=280)
    libraries = dict.fromkeys(sysconfig.get_paths()[kind] for kind in ("purelib", "platlib"))
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST"))}
    return kept | {"PYTHONPATH": os.pathsep.join([str(target), *libraries])}


def run(environment: dict[str, str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # -S: do not read the .pth file of the editable install.
    command = [sys.executable, "-S", *arguments]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120)


def test_wheel_has_two_import_names_and_no_links(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        links = [info.filename for info in archive.infolist() if info.external_attr >> 16 & 0o170000 == 0o120000]
    top_level = {name.split("/")[0] for name in names}
    assert {name for name in top_level if not name.endswith(".dist-info")} == {"pocketmq", "pyspark_rocketmq"}
    assert links == []
    assert {"pocketmq/py.typed", "pocketmq/broker/broker.py", "pocketmq/spark_analytics/commands/page.html"} <= set(names)
    assert ("pocketmq/spark_analytics/jvm/pocketmq-spark.jar" in names) == (build.find_javac() is not None)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository with the files that the distribution is built from, and the links at the top level."""
    folder = tmp_path_factory.mktemp("repository")
    cached = shutil.ignore_patterns("__pycache__", "*.jar")
    for path in ROOT.iterdir():
        if path.is_symlink() or path.name in ("pyproject.toml", "README.md"):
            shutil.copy2(path, folder / path.name, follow_symlinks=False)
        elif path.name in ("pocketmq", "pyspark_rocketmq"):
            shutil.copytree(path, folder / path.name, symlinks=True, ignore=cached)
    author = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    for command in (["init", "-q"], ["add", "-A"], [*author, "commit", "-q", "-m", "files"]):
        subprocess.run(["git", *command], cwd=folder, check=True, timeout=60)
    return folder


def zipped(repository: Path, folder: Path) -> Path:
    """Return what a "Download ZIP" button gives. pip unpacks each link in it as a file that contains the link's target."""
    command = ["git", "archive", "--format=zip", "--prefix=pocketmq-main/", f"--output={folder / 'main.zip'}", "HEAD"]
    subprocess.run(command, cwd=repository, check=True, timeout=60)
    return folder / "main.zip"


def cloned_without_links(repository: Path, folder: Path) -> Path:
    command = ["git", "-c", "core.symlinks=false", "clone", "-q", str(repository), str(folder / "clone")]
    subprocess.run(command, check=True, timeout=60)
    assert (folder / "clone" / "broker").is_file(), "the clone has links"
    return folder / "clone"


def without_cargo() -> dict[str, str]:
    """Return an environment in which the compiled lane is not built: it takes a minute, and the wheel above has it."""
    folders = os.environ["PATH"].split(os.pathsep)
    return os.environ | {"PATH": os.pathsep.join(one for one in folders if not (Path(one) / "cargo").exists())}


@pytest.mark.parametrize("downloaded", [zipped, pytest.param(cloned_without_links, marks=pytest.mark.long)])
def test_a_broker_starts_from_a_download_without_links(
    environment: dict[str, str], repository: Path, tmp_path: Path, downloaded: Callable[[Path, Path], Path]
) -> None:
    site, source = tmp_path / "site", downloaded(repository, tmp_path)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--no-deps", "--target", str(site), str(source)]
    subprocess.run(command, env=without_cargo(), check=True, timeout=280)
    files = [*(site / "pocketmq/console").rglob("*.*")]
    modules = {path.relative_to(site) for path in site.rglob("*.py")}
    assert {path.relative_to(ROOT) for path in (ROOT / "pocketmq").rglob("*.py")} <= modules
    assert {"templates/base.html", "static/console.css"} <= {
        str(path.relative_to(site / "pocketmq/console")) for path in files
    }
    libraries = environment["PYTHONPATH"].partition(os.pathsep)[2]
    (tmp_path / "broker.conf").write_text(f"storePathRootDir={tmp_path / 'store'}\nlistenPort=0\nbrokerIP1=127.0.0.1\n")
    broker = subprocess.Popen(
        [sys.executable, "-S", "-m", "pocketmq.broker", "-c", str(tmp_path / "broker.conf")],
        env=environment | {"PYTHONPATH": os.pathsep.join([str(site), libraries]), "HOME": str(tmp_path)},
        cwd=tmp_path, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert broker.stdout is not None
        assert "boot success" in broker.stdout.readline()
    finally:
        broker.terminate()
        assert broker.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("module", ["pocketmq", "pocketmq.namesrv", "pocketmq.broker", "pocketmq.spark_analytics"])
def test_commands_of_the_wheel_start(environment: dict[str, str], tmp_path: Path, module: str) -> None:
    done = run(environment, tmp_path, "-m", module, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: ")


def test_client_and_fixture_work_in_a_project_with_equal_module_names(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "broker.py").write_text("OWN = True\n")
    for name in ("client", "store", "runtime"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("OWN = True\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_foreign.py").write_text(FOREIGN_TEST)
    done = run(environment, tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_foreign.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.spark
def test_spark_finds_the_wheels_data_source(environment: dict[str, str], tmp_path: Path) -> None:
    script = "import pyspark_rocketmq, pocketmq; print(pyspark_rocketmq.DefaultSource.name(), pocketmq.__file__)"
    done = run(environment, tmp_path, "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("rocketmq ")
    assert str(ROOT) not in done.stdout
