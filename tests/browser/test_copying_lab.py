"""Copying in JupyterLab: the record's own weights, every digit of them."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import numpy as np
import pytest
from playwright.sync_api import expect

from browser.hosts import FIRST_PICTURE, RECORD

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from browser.jupyter import JupyterLab, Notebook

HEAD = "av.HeadView(record, layer=1, heads=[2], token=6)"
MATRIX = "av.MatrixView(record, layer=2, heads=[0, 3], token=5, key=4)"


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Notebook:
    notebook = lab.open([RECORD, HEAD, MATRIX])
    lab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    notebook.run_all()
    return notebook


def view(notebook: Notebook, cell: int, drawn: str) -> Locator:
    root = notebook.output(cell).locator(".attnviz")
    notebook.root.locator(".jp-Cell").nth(cell).scroll_into_view_if_needed()
    expect(root).to_have_attribute("data-attnviz-drawn", drawn, timeout=FIRST_PICTURE)
    return root


def clipboard(notebook: Notebook) -> str:
    text: str = notebook.lab.page.evaluate("() => navigator.clipboard.readText()")
    return text


def row(notebook: Notebook) -> np.ndarray:
    table = csv.DictReader(io.StringIO(clipboard(notebook)), delimiter="\t")
    return np.array([float(each["weight"]) for each in table])


def test_a_row_of_the_head_view_is_the_records(notebook: Notebook) -> None:
    root = view(notebook, 1, "head:self:1")
    # The notebook's own "c" copies a cell: it does not hear this one.
    root.locator(".av-plot").press("C")
    expect(root.locator(".av-notice")).to_contain_text("to 9 keys")
    expected = notebook.evaluate("record.to_numpy()[1][2, 6].tolist()")
    # Up to the order in which single precision adds up.
    assert row(notebook) == pytest.approx(np.array(expected), rel=3e-7)


def test_value_and_row_of_the_matrix_view_are_the_records(notebook: Notebook) -> None:
    root = view(notebook, 2, "matrix:self:2")
    code = "record.to_numpy()[2][{}, 5].tolist()"
    heads = [np.array(notebook.evaluate(code.format(head))) for head in (0, 3)]
    mean = (heads[0] + heads[1]) / 2
    root.locator(".av-plot").press("c")
    expect(root.locator(".av-notice")).to_contain_text("(5) → ")
    # Single precision of the sum and of its half.
    assert float(clipboard(notebook)) == pytest.approx(mean[4], rel=3e-7)
    root.locator(".av-plot").press("C")
    expect(root.locator(".av-notice")).to_contain_text("to 9 keys")
    assert row(notebook) == pytest.approx(mean, rel=3e-7)
