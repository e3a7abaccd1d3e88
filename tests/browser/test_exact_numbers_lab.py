"""Tests of numbers of live views in JupyterLab: weights of the record, rounded once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from playwright.sync_api import expect

from browser.pages import figure, table, texts

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from browser.jupyter import JupyterLab, Notebook

TOKENS = 15
CELL = f"""
import attnviz as av, ipywidgets, torch
logits = 1.3 * torch.randn(1, 3, {TOKENS}, {TOKENS}, generator=torch.Generator().manual_seed(4))
record = av.AttentionRecord.from_weights(
    torch.softmax(logits, -1), [f"t{{token}}" for token in range({TOKENS})]
)
matrix, head, model = (
    av.MatrixView(record), av.HeadView(record, heads=[0, 1, 2]), av.ModelView(record)
)
ipywidgets.VBox([matrix, head, model])
"""


def view_in(notebook: Notebook, name: str) -> Locator:
    view = notebook.output(0).locator(f".attnviz[data-attnviz-drawn^='{name}:']")
    view.scroll_into_view_if_needed()
    return view


def two_digits(weight: Any) -> str:
    return f"{float(weight):.2f}"


def in_table(weight: Any) -> float:
    """Return the weight as the table writes it: the shortest digits that identify the float32."""
    return float(str(np.float32(weight)))


@pytest.mark.slow
def test_cells_bars_captions_and_tables_have_the_weights_of_the_record(lab: JupyterLab) -> None:
    notebook = lab.open([CELL])
    notebook.run_all()
    weights = np.array(notebook.evaluate("record.stack().weights(layer=0).tolist()"), np.float32)

    matrix = view_in(notebook, "matrix")
    expect(matrix).to_contain_text("15 tokens · exact")
    mean = np.asarray(np.mean(weights, axis=0, dtype=np.float64), np.float32)
    cells = [text for text in texts(figure(matrix)) if re.fullmatch(r"1?\.\d\d", text)]
    assert cells == [two_digits(w).lstrip("0") for w in mean.ravel() if w >= 0.005]
    rows = table(matrix)
    assert [float(row["weight"]) for row in rows] == [in_table(w) for w in mean.ravel()]
    assert {row["largest_error"] for row in rows} == {"0"}
    notebook.execute("matrix.token = 9")
    strongest = int(mean[9].argmax())
    weight = two_digits(mean[9, strongest])
    expect(matrix).to_contain_text(f"“t9” attends most to “t{strongest}”: {weight}.")

    head = view_in(notebook, "head")
    for row in table(head):
        pair = int(row["head"]), int(row["query"]), int(row["key"])
        assert float(row["weight"]) == in_table(weights[pair])
    notebook.execute("head.token = 3")
    expect(head).to_contain_text("Pinned: query “t3”")
    bars = [text for text in texts(figure(head)) if re.fullmatch(r"[01]\.\d\d", text)]
    assert bars
    assert set(bars) <= {two_digits(w) for w in weights[:, 3].ravel()}

    model = view_in(notebook, "model")
    for row, of_head in zip(table(model), weights, strict=True):
        assert float(row["strongest_weight"]) == in_table(of_head.max())
        assert divmod(int(of_head.argmax()), TOKENS) == (int(row["query"]), int(row["key"]))
    notebook.execute("model.heads = [1]")
    query, key = divmod(int(weights[1].argmax()), TOKENS)
    expect(model).to_contain_text(f"“t{query}” to “t{key}”, {two_digits(weights[1].max())}")
