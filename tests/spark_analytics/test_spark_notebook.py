"""The notebook in docs/, executed unchanged on a store of Apache's broker."""

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.spark

NOTEBOOK = Path(__file__).parents[2] / "docs" / "spark.ipynb"


def shown(cell: Any) -> str:
    """Return a cell's outputs as text."""
    return "".join(output.get("text", "") or output["data"].get("text/plain", "") for output in cell["outputs"])


def test_notebook_runs_and_shows_results(
    golden_stores: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETMQ_STORE", str(golden_stores["v4_clean"]))
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(tmp_path)}}).execute()
    told = [shown(cell) for cell in notebook.cells if cell.cell_type == "code"]
    text = "\n".join(told)
    assert "GoldenNormal       910" in text and "image/png" in json.dumps(notebook.cells)
    assert "GoldenPartGroup" in text and "117" in text  # the largest lag of a queue
    assert "dead letter" in told[-2] and "sent back 3 times" in told[-2]


def test_notebook_is_stored_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(cell.get("outputs", []) == [] and cell.get("execution_count") is None for cell in cells)
