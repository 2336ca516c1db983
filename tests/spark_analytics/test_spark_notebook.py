"""The notebook in docs/, executed unchanged on a store of Apache's broker: its cells, and in the long run in a kernel."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import nbformat
import pandas
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from nbclient import NotebookClient
from traitlets.config import Config

from pocketmq.spark_analytics import session

pytestmark = pytest.mark.spark

NOTEBOOK = Path(__file__).parents[2] / "docs" / "spark.ipynb"


def shown(cell: Any) -> str:
    """Return a cell's outputs as text."""
    return "".join(output.get("text", "") or output["data"].get("text/plain", "") for output in cell["outputs"])


def check(told: list[str]) -> None:
    """Check the text shown by each cell with code."""
    text = "\n".join(told)
    assert "GoldenNormal       910" in text
    assert "GoldenPartGroup" in text and "117" in text  # the largest lag of a queue
    assert "dead letter" in told[-2] and "sent back 3 times" in told[-2]


@pytest.fixture
def folders(golden_stores: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store that the notebook reads, and folders for its files."""
    monkeypatch.setenv("ROCKETMQ_STORE", str(golden_stores["v4_clean"]))
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))


class Lasting:
    """A session that outlives the notebook's `spark.stop()`."""

    def __init__(self, shared: Any) -> None:
        self._shared = shared

    def stop(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shared, name)


class Shell(InteractiveShell):
    """IPython in this process."""

    def enable_gui(self, gui: Any = None) -> None:
        """Do nothing: plots are images within the notebook."""


@pytest.fixture
def shell(folders: None) -> Iterator[InteractiveShell]:
    backend = matplotlib.get_backend()
    own = Shell.instance(config=Config(HistoryManager={"enabled": False}))
    with pandas.option_context("display.max_columns", 20):  # as in a kernel, where no terminal limits the width
        yield own
    Shell.clear_instance()
    matplotlib.use(backend)


def test_cells_run_and_show_results(shell: InteractiveShell, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    own = spark.newSession()
    own.conf.set(session.DEFAULT_READER, "auto")
    monkeypatch.setattr(session, "local_session", lambda *arguments, **settings: Lasting(own))
    told, images = [], 0
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if cell.cell_type == "code":
            with warnings.catch_warnings(action="default"), capture_output() as captured:
                done = shell.run_cell(cell.source)
            done.raise_error()
            shown_data = [output.data for output in captured.outputs]
            told.append(captured.stdout + "".join(data.get("text/plain", "") for data in shown_data))
            images += sum("image/png" in data for data in shown_data)
    check(told)
    assert images == 1


@pytest.mark.long
def test_notebook_runs_and_shows_results(folders: None, tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(tmp_path)}}).execute()
    check([shown(cell) for cell in notebook.cells if cell.cell_type == "code"])
    assert "image/png" in json.dumps(notebook.cells)


def test_notebook_is_stored_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(cell.get("outputs", []) == [] and cell.get("execution_count") is None for cell in cells)
