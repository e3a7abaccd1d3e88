"""A stand-in for Colab: a real kernel with what Colab puts there for widgets of third parties.

Colab shows such a widget only where its output names the widget manager that can load it.
`enable_custom_widget_manager` registers a hook that adds the name to what is displayed (and not to
what a cell merely evaluates to); anywidget calls it, and adds the name itself, too.
"""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

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
statistics.fold(record)
"""
SHOWN = [
    "av.HeadView(record)",
    "view = av.show_head_view(record)\nview",
    "av.AtlasView(statistics)",
]


@pytest.fixture(scope="module")
def executed() -> Any:
    cells = [nbformat.v4.new_code_cell(source) for source in (COLAB, RECORD, *SHOWN, "len(calls)")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    return NotebookClient(notebook, kernel_name="python3", timeout=100).execute()


@pytest.mark.parametrize("place", range(len(SHOWN)), ids=SHOWN)
def test_what_is_shown_names_colabs_widget_manager(executed: Any, place: int) -> None:
    outputs = executed.cells[2 + place].outputs
    [shown] = [output for output in outputs if WIDGET in output.get("data", {})]
    assert shown["metadata"][WIDGET]["colab"] == {"custom_widget_manager": {"url": MANAGER}}


def test_the_widget_manager_is_enabled_once(executed: Any) -> None:
    [counted] = executed.cells[-1].outputs
    assert counted["data"]["text/plain"] == "1"
