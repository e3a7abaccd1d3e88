"""Run the notebooks and check their text, and check the stored outputs."""

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
from nbconvert import HTMLExporter
from playwright.sync_api import expect

from colab import with_link
from marks import slow

if TYPE_CHECKING:
    from playwright.sync_api import Page

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
)
# Notebooks that train a model and assert their own numbers, which differ between machines.
TRAINED = {"fine_tuning", "three_tasks"}
# Each run starts a kernel and loads a model.
EACH = [slow(name) for name in NAMES]
MAX_STORED_BYTES = 300_000
WIDGET = "application/vnd.jupyter.widget-view+json"
# Printed numbers may differ by one in the last digit between machines.
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")

A_MACHINES_PLACE = re.compile(r"site-packages|/(?:home|root|tmp|var|Users)/|[A-Z]:\\\\")

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
    """Return whether an output is a progress bar or the empty HTML that it leaves."""
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


def test_nothing_warns(ran: Run) -> None:
    for cell in code_cells(ran.notebook):
        for output in cell.outputs:
            assert output.output_type != "error"
            assert output.get("name") != "stderr", output.text
            assert "Warning" not in output.get("text", "")


def test_every_view_is_shown_once(ran: Run) -> None:
    for cell in code_cells(ran.notebook):
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


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_notebook_is_small(name: str) -> None:
    assert (FOLDER / f"{name}.ipynb").stat().st_size < MAX_STORED_BYTES


def is_picture_of_a_view(output: Any) -> bool:
    """Return whether an output is a saved picture of a live view, not an image or a snapshot."""
    return "image/png" in kinds(output) and "alt" in output.metadata.get("image/png", {})


@pytest.mark.parametrize("name", NAMES)
def test_stored_outputs_need_no_kernel_and_know_no_machine(name: str) -> None:
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
            assert not A_MACHINES_PLACE.search(text)


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


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_reader_without_a_kernel_sees_every_view(name: str, page: Page, tmp_path: Path) -> None:
    notebook = stored(name)
    # The default template would request scripts from the network that are not used.
    exporter = HTMLExporter(require_js_url="data:,", mathjax_url="data:,")
    # The Colab badge is a picture as well.
    html, _ = exporter.from_notebook_node(with_link(notebook, name))
    file = tmp_path / f"{name}.html"
    file.write_text(html, encoding="utf-8")
    page.goto(file.as_uri())

    views = sum(
        is_picture_of_a_view(output) for cell in code_cells(notebook) for output in cell.outputs
    )
    assert views >= 2
    pictures = page.locator("img")
    assert pictures.count() >= views
    for picture in pictures.all():
        expect(picture).to_be_visible()
        assert picture.evaluate("picture => picture.naturalWidth") > 150
