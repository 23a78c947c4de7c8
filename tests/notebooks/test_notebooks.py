"""The notebooks run from top to bottom, and are kept without what a run leaves in them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
CELL_TIMEOUT_S = 120
STARTUP_TIMEOUT_S = 120


def read(path: Path) -> nbformat.NotebookNode:
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    return notebook


every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.slow
@every_notebook
def test_a_notebook_runs_without_an_error_in_a_fresh_kernel(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What Jupyter and IPython keep per user stays in the test's folder, and a user's own kernel
    # called python3 does not get in the way of this interpreter's.
    for variable in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"):
        monkeypatch.setenv(f"JUPYTER_{variable}", str(tmp_path / variable.lower()))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("JUPYTER_PATH", raising=False)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    notebook = read(path)
    # Paths of sockets must be short. A TCP port would be free when it is chosen, and perhaps not any
    # more when the kernel takes it.
    with tempfile.TemporaryDirectory(prefix="kernel-") as sockets:
        client = NotebookClient(
            notebook,
            timeout=CELL_TIMEOUT_S,
            startup_timeout=STARTUP_TIMEOUT_S,
            kernel_name="python3",
            resources={"metadata": {"path": str(elsewhere)}},
            config=Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}}),
        )
        try:
            client.execute()
        except CellExecutionError as error:
            pytest.fail(f"{path.name}: {error}", pytrace=False)
    assert list(elsewhere.iterdir()) == []


@every_notebook
def test_a_notebook_is_stored_without_outputs_and_execution_counts(path: Path) -> None:
    notebook = read(path)
    kept = [
        cell.id
        for cell in notebook.cells
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count is not None)
    ]
    assert kept == [], f"clear the outputs of {path.name}"
