"""Copying a value and a row from the picture: what arrives in the clipboard, and what is said."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

import attnviz as av
from browser.chromium import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator, Page

# A formula, quotes, what ends a cell or a line, and what ends an element.
TOKENS = ["The", "=cmd|' /C calc'!A0", 'say "x"', "a\tb\nc", "</textarea>", "@SUM(A1)", "end"]
COUNT = len(TOKENS)
# A page has a weight in one byte.
ROUNDED = 0.004


@pytest.fixture(scope="module")
def record() -> av.AttentionRecord:
    def vectors(seed: int) -> torch.Tensor:
        return torch.randn(2, 3, COUNT, 8, generator=torch.Generator().manual_seed(seed))

    return av.AttentionRecord.from_qk(vectors(0), vectors(1), TOKENS, causal=True)


def vectors_of(record: av.AttentionRecord, layer: int, head: int) -> tuple[Any, Any]:
    stack = record.stack()
    queries, keys = stack.queries(layer=layer, head=head), stack.keys(layer=layer, head=head)
    return np.asarray(queries, np.float64), np.asarray(keys, np.float64)


@pytest.fixture(scope="module")
def weights(record: av.AttentionRecord) -> Any:
    """Softmax by hand, (layers, heads, queries, keys)."""
    out = np.zeros((2, 3, COUNT, COUNT))
    for layer in range(2):
        for head in range(3):
            queries, keys = vectors_of(record, layer, head)
            powers = np.exp(queries @ keys.T / np.sqrt(8))
            powers *= np.tril(np.ones((COUNT, COUNT)))
            out[layer, head] = powers / powers.sum(-1, keepdims=True)
    return out


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(offline=True, viewport={"width": 1000, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    watch = Watch()
    watch.follow(page)
    yield page
    context.close()
    watch.check()


def opened(tab: Page, view: Any, folder: Path, **options: Any) -> Locator:
    tab.goto(view.save(folder / "view.html", **options).as_uri())
    root = tab.locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("."))
    return root


def clipboard(tab: Page) -> str:
    text: str = tab.evaluate("() => navigator.clipboard.readText()")
    return text


def table(tab: Page) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(clipboard(tab)), delimiter="\t"))


def says(root: Locator, words: str) -> None:
    """Seen, and in a place that a screen reader reads out when it changes."""
    expect(root.locator(".av-notice[aria-live=polite]")).to_contain_text(words)


def from_menu(root: Locator, name: str) -> None:
    root.get_by_role("button", name="Export").click()
    root.get_by_role("menuitem", name=name).click()


def test_the_head_view_copies_what_is_pinned(
    tab: Page, record: av.AttentionRecord, weights: Any, tmp_path: Path
) -> None:
    view = av.HeadView(record, layer=1, heads=[2], token=5, key=3)
    root = opened(tab, view, tmp_path)
    from_menu(root, "Copy value")
    says(root, "“@SUM(A1)” (5) → “a⇥b⏎c” (3)")
    assert float(clipboard(tab)) == pytest.approx(weights[1, 2, 5, 3], abs=ROUNDED)
    from_menu(root, "Copy row")
    says(root, "Copied the weights of “@SUM(A1)” (5) to 7 keys.")
    rows = table(tab)
    columns = ["query", "query_token", "key", "key_token", "weight", "largest_error"]
    assert list(rows[0]) == columns
    assert [float(row["weight"]) for row in rows] == pytest.approx(weights[1, 2, 5], abs=ROUNDED)
    # As in a CSV: nothing begins a formula, and no token ends its cell.
    assert [row["key_token"] for row in rows] == [
        "The",
        "'=cmd|'·/C·calc'!A0",
        'say·"x"',
        "a⇥b⏎c",
        "</textarea>",
        "'@SUM(A1)",
        "end",
    ]
    assert {row["query_token"] for row in rows} == {"'@SUM(A1)"}


def test_several_heads_are_copied_side_by_side_and_together_as_they_are_drawn(
    tab: Page, record: av.AttentionRecord, weights: Any, tmp_path: Path
) -> None:
    view = av.HeadView(record, layer=0, heads=[0, 2], token=6, key=1, leave_out=[0])
    root = opened(tab, view, tmp_path)
    root.locator(".av-plot").press("c")
    says(root, "Copied 2 weights")
    lines = dict(line.split("\t") for line in clipboard(tab).split("\n"))
    assert {name: float(value) for name, value in lines.items()} == {
        "head 0": pytest.approx(weights[0, 0, 6, 1], abs=ROUNDED),
        "head 2": pytest.approx(weights[0, 2, 6, 1], abs=ROUNDED),
    }
    root.get_by_label("Combine").select_option("mean")
    root.get_by_label("renormalise").check()
    root.locator(".av-plot").press("C")
    says(root, "to 7 keys.")
    mean = weights[0, [0, 2], 6].mean(axis=0)
    mean[0] = 0
    expected = mean / mean.sum()
    assert [float(row["weight"]) for row in table(tab)] == pytest.approx(expected, abs=0.02)


def test_a_page_of_rounded_weights_says_how_far_they_may_be_off(
    tab: Page, record: av.AttentionRecord, weights: Any, tmp_path: Path
) -> None:
    rounded = av.AttentionRecord.from_weights(weights.astype(np.float32), TOKENS)
    root = opened(tab, av.HeadView(rounded, layer=1, heads=[2], token=5), tmp_path)
    root.locator(".av-plot").press("Shift+C")
    says(root, "to 7 keys.")
    rows = table(tab)
    errors = [abs(float(row["weight"]) - weights[1, 2, 5, i]) for i, row in enumerate(rows)]
    assert {row["largest_error"] for row in rows} == {"0.004"}
    assert 1e-6 < max(errors) <= 0.004


def test_the_matrix_view_copies_the_cell_under_the_pointer_else_the_keyboards(
    tab: Page, record: av.AttentionRecord, weights: Any, tmp_path: Path
) -> None:
    view = av.MatrixView(record, layer=0, heads=[1], token=6, key=2)
    root = opened(tab, view, tmp_path)
    plot = root.locator(".av-plot")
    plot.press("c")
    says(root, '“end” (6) → “say·"x"” (2)')
    assert float(clipboard(tab)) == pytest.approx(weights[0, 1, 6, 2], abs=ROUNDED)
    plot.press("ArrowUp")
    plot.press("ArrowUp")
    plot.press("c")
    says(root, '“@SUM(A1)” (5) → “say·"x"” (2)')
    assert float(clipboard(tab)) == pytest.approx(weights[0, 1, 5, 2], abs=ROUNDED)
    plot.press("C")
    says(root, "the weights of “@SUM(A1)” (5)")
    rows = [float(row["weight"]) for row in table(tab)]
    assert rows == pytest.approx(weights[0, 1, 5], abs=ROUNDED)
    # The mean over several heads, as the picture shows it.
    root.get_by_role("button", name="Head 0", exact=True).click()
    from_menu(root, "Copy value")
    says(root, "“end” (6)")
    mean = weights[0, [0, 1], 6, 2].mean()
    assert float(clipboard(tab)) == pytest.approx(mean, abs=ROUNDED)


def test_a_pooled_cell_is_copied_as_it_is_shown(tab: Page, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    made = torch.softmax(3 * torch.randn(1, 1, 2000, 2000, generator=generator), -1)
    record = av.AttentionRecord.from_weights(made, [f"t{i}" for i in range(2000)])
    root = opened(tab, av.MatrixView(record, pooled="max"), tmp_path)
    root.locator(".av-plot").hover(position={"x": 300, "y": 300})
    root.locator(".av-plot").focus()
    tab.keyboard.press("c")
    notice = root.locator(".av-notice")
    expect(notice).to_contain_text(re.compile(r"queries \d+–\d+ → keys \d+–\d+"))
    first, last, left, right = map(int, re.findall(r"\d+(?=–)|(?<=–)\d+", notice.inner_text()))
    cell = made[0, 0, first : last + 1, left : right + 1]
    assert float(clipboard(tab)) == pytest.approx(float(cell.max()), abs=0.01)


def test_the_model_views_detail_copies_as_well(
    tab: Page, record: av.AttentionRecord, weights: Any, tmp_path: Path
) -> None:
    root = opened(tab, av.ModelView(record), tmp_path)
    root.get_by_role("button", name="Export").click()
    expect(root.get_by_role("menuitem", name="Copy value")).to_have_count(0)
    tab.keyboard.press("Escape")
    root.get_by_role("gridcell", name="Layer 1, head 0").click()
    detail = root.locator(".av-model-detail .av-plot")
    detail.press("ArrowDown")
    detail.press("ArrowDown")
    detail.press("C")
    says(root, "to 7 keys.")
    rows = table(tab)
    assert [float(row["weight"]) for row in rows] == pytest.approx(weights[1, 0, 1], abs=ROUNDED)


def test_the_neuron_view_copies_a_key_with_all_its_dimensions(
    tab: Page, record: av.AttentionRecord, weights: Any, tmp_path: Path
) -> None:
    view = av.NeuronView(record, layer=1, heads=[1], token=5, key=3)
    root = opened(tab, view, tmp_path, precision="exact")
    plot = root.locator(".av-plot")
    plot.press("c")
    says(root, "“@SUM(A1)” (5) → “a⇥b⏎c” (3)")
    assert float(clipboard(tab)) == pytest.approx(weights[1, 1, 5, 3], rel=1e-5)
    plot.press("C")
    says(root, "Copied 8 dimensions")
    rows = table(tab)
    queries, keys = vectors_of(record, 1, 1)
    q, k = queries[5], keys[3]
    values = {row["dimension"]: float(row["value"]) for row in rows if row["quantity"] == "product"}
    products = q * k / np.sqrt(8)
    assert values == {
        str(i): pytest.approx(product, rel=1e-5) for i, product in enumerate(products)
    }
    totals = {row["quantity"]: float(row["value"]) for row in rows if not row["dimension"]}
    assert totals["sum"] == pytest.approx(products.sum(), rel=1e-5)
    assert totals["weight"] == pytest.approx(weights[1, 1, 5, 3], rel=1e-5)
    assert {row["key_token"] for row in rows} == {"a⇥b⏎c"}


def test_nothing_chosen_is_said_and_leaves_the_clipboard_alone(
    tab: Page, record: av.AttentionRecord, tmp_path: Path
) -> None:
    root = opened(tab, av.HeadView(record), tmp_path)
    tab.evaluate("() => navigator.clipboard.writeText('before')")
    for name in ("Copy value", "Copy row"):
        from_menu(root, name)
        says(root, "Nothing copied")
    assert clipboard(tab) == "before"
    # In a text field the letters are letters.
    root.get_by_role("searchbox").press_sequentially("cC")
    expect(root.get_by_role("searchbox")).to_have_value("cC")
    assert clipboard(tab) == "before"


def test_where_the_clipboard_is_refused_the_text_can_be_taken_by_hand(
    tab: Page, record: av.AttentionRecord, tmp_path: Path
) -> None:
    root = opened(tab, av.HeadView(record, token=5, key=3, heads=[0]), tmp_path)
    tab.evaluate(
        """() => {
          navigator.clipboard.writeText = () => Promise.reject(new Error("refused"));
          document.execCommand = () => false;
        }"""
    )
    root.locator(".av-plot").press("C")
    offer = root.get_by_role("region", name="Row")
    expect(offer).to_contain_text("may not use the clipboard")
    assert offer.get_by_role("textbox").input_value().startswith("query\tquery_token")
    offer.get_by_role("button", name="Copy the text").click()
    expect(offer).to_contain_text("press Ctrl-C")


@pytest.mark.parametrize("view", [av.HeadView, av.MatrixView, av.ModelView, av.NeuronView])
def test_a_weight_is_one_number_wherever_a_page_has_it(
    tab: Page, record: av.AttentionRecord, weights: Any, tmp_path: Path, view: Any
) -> None:
    root = opened(tab, view(record, layer=1, heads=[2], token=5, key=3), tmp_path)
    from_menu(root, "Copy value")
    says(root, "Copied")
    copied = float(clipboard(tab))
    assert copied == pytest.approx(weights[1, 2, 5, 3], abs=ROUNDED)

    def agrees(text: str) -> bool:
        """Whether a number is the copied one, rounded to the digits that it has."""
        digits = len(text.partition(".")[2])
        return bool(abs(float(text) - copied) <= 0.5000001 * 10.0**-digits)

    found = root.locator(".av-sentence").first.inner_text()
    number = re.search(r"(?:gives|:) (0\.\d+)", found)
    assert number, found
    assert agrees(number[1]), (found, copied)
    at = {"query": "5", "key": "3"}
    if view is not av.NeuronView:
        from_menu(root, "Copy row")
        says(root, "to 7 keys")
        rows = [row for row in table(tab) if at.items() <= row.items()]
        assert [agrees(row["weight"]) for row in rows] == [True]
    if view is av.ModelView:
        # Its tables and figures have no single weight.
        return
    lines = csv.DictReader(
        io.StringIO(tab.evaluate("() => document.querySelector('.attnviz').attnviz.csv()"))
    )
    name = "value" if view is av.NeuronView else "weight"
    told = [
        row
        for row in lines
        if at.items() <= row.items() and row.get("quantity", "weight") == "weight"
    ]
    assert [agrees(row[name]) for row in told] == [True]
    # In the cell, and in the bars of the query and of the key; no other weight is nearly as large.
    places = {av.HeadView: 2, av.MatrixView: 3, av.NeuronView: 1}
    svg = tab.evaluate("() => document.querySelector('.attnviz').attnviz.svg()")
    drawn = re.findall(r">(0?\.\d\d)</text>", svg)
    assert sum(map(agrees, drawn)) == places[view], (drawn, copied)
