"""Run each notebook, check its text, and compare its stored outputs with those of the run."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from nbclient import NotebookClient

from marks import slow

if TYPE_CHECKING:
    pass

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
NAMES = (
    "tutorial",
    "induction",
    "from_bertviz",
    "paper_figure",
    "three_tasks",
    "fine_tuning",
    "protein",
    "sinks",
    "embedding_view",
    "does_it_matter",
    "head_atlas",
    "hybrid",
    "first_word",
)
# Notebooks that train a model and assert their own numbers, which differ between machines.
TRAINED = {"fine_tuning", "three_tasks"}
# Each run starts a kernel and loads a model.
EACH = [slow(name) for name in NAMES]
MAX_STORED_BYTES = 300_000
WIDGET = "application/vnd.jupyter.widget-view+json"
# Printed numbers may differ by one in the last digit between machines.
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")
# Paths that exist only on the machine that ran a notebook.
MACHINE_PATH = re.compile(r"site-packages|/(?:home|root|tmp|var|Users)/|[A-Z]:\\\\")

# The first test that uses a notebook runs it, which takes long on slow machines.
pytestmark = pytest.mark.timeout(400)


@dataclass(frozen=True)
class Run:
    """Executed notebook and the folder in which it wrote its files."""

    name: str
    notebook: Any
    folder: Path


def stored(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(output: Any) -> set[str]:
    return set(output.get("data", {}))


def is_progress(output: Any) -> bool:
    """Return whether an output is the bar of transformers, or the empty HTML that ours leaves."""
    ended = "text/html" in kinds(output) and not output.data["text/html"]
    return ended or (WIDGET in kinds(output) and "%|" in output.data["text/plain"])


def is_saved_picture(output: Any) -> bool:
    """Return whether an output is the picture of a live view, which stored notebooks leave out."""
    return 'class="attnviz-saved"' in output.get("data", {}).get("text/html", "")


def is_view(output: Any) -> bool:
    return WIDGET in kinds(output) and not is_progress(output)


@pytest.fixture(scope="module", params=EACH)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a notebook in its own kernel. Raise if a cell fails."""
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    client = NotebookClient(
        stored(name),
        kernel_name="python3",
        timeout=200,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    # Run in a thread, because Playwright's event loop may run in this one. client.execute() would
    # leave its event loop open.
    with ThreadPoolExecutor(max_workers=1) as executor:
        return Run(name, executor.submit(asyncio.run, client.async_execute()).result(), folder)


def test_all_notebooks_are_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NAMES)


def test_a_run_has_no_warning_and_shows_every_view_once(ran: Run) -> None:
    for cell in code_cells(ran.notebook):
        for output in cell.outputs:
            assert output.get("name") != "stderr", output.text
            assert "Warning" not in output.get("text", "")
        calls = len(re.findall(r"av\.show_\w+\(", cell.source))
        calls += sum(line.count(",") + 1 for line in cell.source.splitlines() if "display(" in line)
        last_line = cell.source.splitlines()[-1]
        calls += bool(re.match(r"av\.\w+View\(|view$", last_line))
        assert sum(map(is_view, cell.outputs)) == calls, cell.source
        for view, after in pairwise([*cell.outputs, {}]):
            assert is_saved_picture(after) is is_view(view), cell.source


@pytest.mark.parametrize("name", NAMES)
def test_links_to_other_notebooks_lead_there(name: str) -> None:
    for cell in stored(name).cells:
        attached = {f"attachment:{file}" for file in cell.get("attachments", {})}
        for link in re.findall(
            r"\]\(([^)]+)\)", cell.source if cell.cell_type == "markdown" else ""
        ):
            attached_or_remote = link in attached or link.startswith("https://")
            assert attached_or_remote or (FOLDER / link).is_file(), link


@pytest.mark.parametrize("name", NAMES)
def test_a_question_has_a_claim_a_check_and_a_limit(name: str) -> None:
    cells = stored(name).cells
    title, answer, *_ = cells[0].source.split("\n\n")
    assert title.startswith("# ")
    assert title.endswith("?")
    assert answer.startswith("**Answer:** ")
    assert any(re.search(r"^ *assert ", cell.source, re.M) for cell in code_cells(stored(name)))
    assert cells[-1].source.startswith("## What this does not show\n")


# --- stored outputs


def is_picture_of_a_view(output: Any) -> bool:
    """Return whether an output is a saved picture of a live view, not an image or a snapshot."""
    return "image/png" in kinds(output) and "alt" in output.metadata.get("image/png", {})


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_notebook_is_small_and_needs_neither_a_kernel_nor_this_machine(name: str) -> None:
    assert (FOLDER / f"{name}.ipynb").stat().st_size < MAX_STORED_BYTES
    notebook = stored(name)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert set(notebook.metadata.language_info) == {"name"}
    local_paths = {str(ROOT), str(Path.home()), tempfile.gettempdir()}
    for cell in code_cells(notebook):
        assert not cell.metadata
        for output in cell.outputs:
            assert WIDGET not in kinds(output)
            assert output.get("name") != "stderr"
            text = json.dumps([output.get("text"), output.get("data")])
            assert not [path for path in local_paths if path in text]
            assert not MACHINE_PATH.search(text)


def test_stored_outputs_are_those_of_a_run(ran: Run) -> None:
    """If this test fails, the notebook was not rendered: run scripts/render_notebooks.py."""
    for old, new in zip(code_cells(stored(ran.name)), code_cells(ran.notebook), strict=True):
        assert old.source == new.source
        outputs = [
            output
            for output in new.outputs
            if not is_progress(output) and not is_saved_picture(output)
        ]
        assert [shown(output) for output in old.outputs] == [shown(output) for output in outputs]
        for before, now in zip(old.outputs, outputs, strict=True):
            if is_view(now):
                assert is_picture_of_a_view(before)
                continue
            if shown(now) == "table":
                # Rows with nearly equal numbers may change their order.
                words = [set(NUMBER.sub("", text_of(output)).split()) for output in (before, now)]
                assert words[0] == words[1]
                continue
            # A run writes its files to a temporary folder.
            texts = [text_of(output).replace(f"{ran.folder}/", "") for output in (before, now)]
            assert NUMBER.sub("0", texts[0]) == NUMBER.sub("0", texts[1])
            numbers = [[float(number) for number in NUMBER.findall(text)] for text in texts]
            assert ran.name in TRAINED or numbers[0] == pytest.approx(numbers[1], abs=0.021)


def shown(output: Any) -> str:
    """Return an output as text. Replace a view by its picture and omit frames."""
    if "image/png" in kinds(output) or is_view(output):
        return "picture"
    html = output.get("data", {}).get("text/html", "")
    return "table" if html and "<iframe" not in html else "text"


def text_of(output: Any) -> str:
    # The width of array columns depends on the numbers.
    return " ".join((output.get("text") or output.get("data", {}).get("text/plain", "")).split())
