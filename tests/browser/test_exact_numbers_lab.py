"""Tests of numbers of live views in JupyterLab: weights of the record, rounded once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from playwright.sync_api import expect

from browser.pages import figure, table, texts

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from playwright.sync_api import Locator

    from browser.jupyter import JupyterLab, Notebook

TOKENS = 15
CELL = 40
SETUP = f"""
import attnviz as av, torch
logits = 1.3 * torch.randn(1, 3, {TOKENS}, {TOKENS}, generator=torch.Generator().manual_seed(4))
record = av.AttentionRecord.from_weights(
    torch.softmax(logits, -1), [f"t{{place}}" for place in range({TOKENS})]
)
"""
MATRIX = """
matrix = av.MatrixView(record)
matrix
"""
HEAD = """
head = av.HeadView(record, heads=[0, 1, 2])
head
"""
MODEL = """
model = av.ModelView(record)
model
"""


@pytest.fixture(scope="module")
def notebook(lab: JupyterLab) -> Notebook:
    notebook = lab.open([SETUP, MATRIX, HEAD, MODEL])
    notebook.run_all()
    return notebook


@pytest.fixture(scope="module")
def own(notebook: Notebook) -> NDArray[np.float32]:
    """Return the weights of the record, float32, shape (heads, queries, keys)."""
    weights = notebook.evaluate("record.stack().weights(layer=0).tolist()")
    return np.array(weights, np.float32)


def view(notebook: Notebook, cell: int, kind: str) -> Locator:
    found = notebook.output(cell).locator(".attnviz")
    found.scroll_into_view_if_needed()
    expect(found).to_have_attribute("data-attnviz-drawn", re.compile(f"^{kind}:"))
    return found


def two_digits(weight: Any) -> str:
    return f"{float(weight):.2f}"


def in_table(weight: Any) -> float:
    """Return the weight as the table writes it: the shortest digits that identify the float32."""
    return float(str(np.float32(weight)))


def mean_of(own: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(np.mean(own, axis=0, dtype=np.float64), np.float32)


@pytest.mark.slow
def test_cells_bars_captions_and_table_of_the_matrix_are_one_number(
    notebook: Notebook, own: NDArray[np.float32]
) -> None:
    root = view(notebook, 1, "matrix")
    expect(root).to_contain_text("15 tokens · exact")
    mean = mean_of(own)
    shown = [text for text in texts(figure(root)) if re.fullmatch(r"1?\.\d\d", text)]
    assert shown == [two_digits(each).lstrip("0") for each in mean.ravel() if each >= 0.005]
    rows = table(root)
    assert [float(row["weight"]) for row in rows] == [in_table(each) for each in mean.ravel()]
    assert {row["largest_error"] for row in rows} == {"0"}
    # Check the bars of each query and the sentence about it.
    scale = {text for text in texts(figure(root)) if re.fullmatch(r"[01]\.\d\d", text)}
    for query in (2, 9, 14):
        notebook.execute(f"matrix.token = {query}")
        strongest = int(mean[query].argmax())
        weight = two_digits(mean[query, strongest])
        expect(root).to_contain_text(f"“t{query}” attends most to “t{strongest}”: {weight}.")
        bars = [text for text in texts(figure(root)) if re.fullmatch(r"[01]\.\d\d", text)]
        expected = [two_digits(each) for each in mean[query] if each >= 0.005]
        assert set(bars) - scale <= set(expected)
        assert weight in bars
    notebook.execute("matrix.token = None")


@pytest.mark.slow
def test_bars_and_table_of_the_head_view_are_one_number(
    notebook: Notebook, own: NDArray[np.float32]
) -> None:
    root = view(notebook, 2, "head")
    expect(root).to_contain_text("15 tokens · exact")
    for row in table(root):
        weight = own[int(row["head"]), int(row["query"]), int(row["key"])]
        assert float(row["weight"]) == in_table(weight)
    for query in (3, 11):
        notebook.execute(f"head.token = {query}")
        expect(root).to_contain_text(f"Pinned: query “t{query}”")
        bars = [text for text in texts(figure(root)) if re.fullmatch(r"[01]\.\d\d", text)]
        expected = {two_digits(each) for each in own[:, query].ravel()}
        assert bars
        assert set(bars) <= expected
    notebook.execute("head.token = None")


@pytest.mark.slow
def test_the_model_view_names_the_strongest_weight_of_a_head_exactly(
    notebook: Notebook, own: NDArray[np.float32]
) -> None:
    root = view(notebook, 3, "model")
    rows = table(root)
    assert len(rows) == 3
    for row in rows:
        head = own[int(row["head"])]
        assert float(row["strongest_weight"]) == in_table(head.max())
        assert divmod(int(head.argmax()), TOKENS) == (int(row["query"]), int(row["key"]))
        assert row["largest_error"] == "0"
    notebook.execute("model.heads = [1]")
    query, key = divmod(int(own[1].argmax()), TOKENS)
    expect(root).to_contain_text(f"“t{query}” to “t{key}”, {two_digits(own[1].max())}")
