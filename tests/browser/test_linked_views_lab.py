"""Test linked views in JupyterLab: linked in Python, in the browser and as a dashboard."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser.hosts import RECORD, drawn

if TYPE_CHECKING:
    from browser.jupyter import JupyterLab, Notebook

LINKED = """
import ipywidgets, traitlets
head, matrix = av.HeadView(record, layer=0), av.MatrixView(record, layer=0)
traitlets.link((head, "token"), (matrix, "token"))
link = ipywidgets.jslink((head, "layer"), (matrix, "layer"))
ipywidgets.VBox([head, matrix])
"""
DASHBOARD = "dashboard = av.show_dashboard(record, layer=0)"


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Notebook:
    notebook = lab.open([RECORD, LINKED, DASHBOARD])
    notebook.run_all()
    return notebook


@pytest.mark.slow
def test_a_layer_follows_in_the_browser_and_a_pin_through_python(notebook: Notebook) -> None:
    roots = notebook.output(1).locator(".attnviz")
    head, matrix = roots.nth(0), roots.nth(1)
    drawn(head, "head:self:0")
    drawn(matrix, "matrix:self:0")
    head.get_by_role("button", name="Layer 2").click()
    drawn(head, "head:self:2")
    drawn(matrix, "matrix:self:2")
    notebook.execute("matrix.token = 4")
    token = notebook.evaluate("record.tokens[4]")
    expect(head).to_contain_text(f"Pinned: query “{token}”")


@pytest.mark.slow
def test_a_dashboard_is_one_widget_whose_panes_move_together(notebook: Notebook) -> None:
    root = notebook.output(2).locator(".attnviz")
    notebook.root.locator(".jp-Cell").nth(2).scroll_into_view_if_needed()
    drawn(root, "dashboard:self:0")
    assert root.count() == 1
    notebook.execute("dashboard.layer, dashboard.heads, dashboard.token = 1, [2], 3")
    drawn(root, "dashboard:self:1")
    for pane in ("model", "head", "matrix"):
        drawn(root.locator(f".av-pane-{pane}"), f"{pane}:self:1")
    token = notebook.evaluate("record.tokens[3]")
    expect(root.locator(".av-pane-head")).to_contain_text(f"Pinned: query “{token}”")


@pytest.mark.slow
def test_all_panes_of_a_dashboard_are_in_sight_at_once(notebook: Notebook) -> None:
    root = notebook.output(2).locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("^dashboard:self:"))
    top = root.evaluate("(root) => root.getBoundingClientRect().top")
    for picture in ("model .av-grid", "head .av-plot", "matrix .av-plot"):
        box = root.locator(f".av-pane-{picture}").bounding_box()
        assert box is not None
        # JupyterLab's bars take about 200 of 1,000 pixels, and the code of the cell takes some
        # more.
        assert box["y"] + box["height"] - top <= 720
