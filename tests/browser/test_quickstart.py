"""The notebook that a newcomer runs first, from its first cell to its last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def notebook() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quickstart")


@pytest.fixture(scope="module")
def executed(notebook: Any, folder: Path) -> Any:
    """The notebook after all cells ran in a kernel; a cell that fails fails the test."""
    client = nbclient.NotebookClient(
        notebook, kernel_name="python3", timeout=100, resources={"metadata": {"path": str(folder)}}
    )
    return client.execute()


def outputs_of(notebook: Any, code: str) -> list[Any]:
    """Outputs of the one cell that holds this code."""
    (cell,) = (cell for cell in notebook.cells if cell.cell_type == "code" and code in cell.source)
    return list(cell.outputs)


def kinds(outputs: list[Any]) -> set[str]:
    return {kind for output in outputs for kind in output.get("data", {})}


def test_git_holds_no_outputs() -> None:
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_every_view_is_shown_once(executed: Any) -> None:
    shown = [cell for cell in executed.cells if "show_head_view" in cell.source]
    for cell in shown:
        if cell.cell_type == "code":
            views = [output for output in cell.outputs if WIDGET in output.get("data", {})]
            assert len(views) == 1


def test_it_is_the_animal(executed: Any) -> None:
    (table,) = outputs_of(executed, 'table.loc["it"]')
    strongest = table["data"]["text/plain"].splitlines()[1]
    assert strongest.split()[0] == "animal"
    # Known of this checkpoint.
    assert float(strongest.split()[1]) == pytest.approx(0.68, abs=0.005)


def test_the_induction_head_is_found(executed: Any) -> None:
    (printed,) = outputs_of(executed, "max(scores")
    assert float(printed["text"].rpartition(":")[2]) > 0.8


def test_everything_is_taken_along(executed: Any, folder: Path) -> None:
    for name in ("head_view.html", "head_view.svg", "head_view.png", "record.safetensors"):
        assert (folder / name).stat().st_size > 5_000
    outputs = outputs_of(executed, "view.snapshot()")
    assert {"image/png", "text/html"} <= kinds(outputs)


def test_nothing_warns(executed: Any) -> None:
    for cell in executed.cells:
        for output in cell.get("outputs", ()):
            assert "Warning" not in output.get("text", "")
