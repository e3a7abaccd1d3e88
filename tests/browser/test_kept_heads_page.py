"""Records of which some heads were kept, on exported pages, against the model's own weights."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from playwright.sync_api import expect

import attnviz as av
from models.tiny import built

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

IDS = torch.tensor([[7, 31, 12, 99, 5, 210]])


@pytest.fixture(scope="module")
def model() -> Any:
    """Three layers of twelve heads, which share four key heads."""
    config = transformers.LlamaConfig(
        vocab_size=300,
        hidden_size=192,
        num_hidden_layers=3,
        num_attention_heads=12,
        num_key_value_heads=4,
        intermediate_size=64,
    )
    return built("LlamaForCausalLM", config, factor=8.0)


@pytest.fixture(scope="module")
def own(model: Any) -> np.ndarray[Any, Any]:
    """The model's own weights, (layers, heads, queries, keys)."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attentions = model(IDS, output_attentions=True).attentions
    model.set_attn_implementation("sdpa")
    weights: np.ndarray[Any, Any] = torch.cat(attentions).numpy()
    return weights


def opened(page: Page, view: Any, folder: Path) -> Locator:
    page.goto(view.save(folder / "view.html").as_uri())
    root = page.locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile(f"^{view.name}:"))
    return root


def rows_of(page: Page) -> list[dict[str, str]]:
    table = page.evaluate("() => document.querySelector('.attnviz').attnviz.csv()")
    return list(csv.DictReader(io.StringIO(table)))


def names(root: Locator) -> list[str | None]:
    return [each.get_attribute("aria-label") for each in root.locator(".av-head").all()]


def test_the_head_view_offers_and_draws_kept_heads(
    page: Page, tmp_path: Path, model: Any, own: np.ndarray[Any, Any]
) -> None:
    record = av.extract(model, IDS, heads={0: [1, 5], 1: range(12), 2: [11]})
    root = opened(page, av.HeadView(record), tmp_path)
    assert names(root) == ["Head 1", "Head 5"]
    expect(root.locator(".av-kept")).to_have_text("2 of 12 heads kept")
    gaps = [each.get_attribute("title") for each in root.locator(".av-gap").all()]
    assert gaps == ["head 0 not kept", "heads 2 to 4 not kept"]
    rows = rows_of(page)
    assert {row["head"] for row in rows} == {"1", "5"}
    for row in rows:
        place = 0, int(row["head"]), int(row["query"]), int(row["key"])
        assert float(row["weight"]) == pytest.approx(own[place], abs=0.005)
    # A head that was not kept has no key of its own, and one that was has.
    plot = root.locator(".av-plot").first
    plot.focus()
    plot.press("2")
    plot.press("5")
    expect(root.get_by_role("button", name="Head 5", exact=True)).to_have_attribute(
        "aria-pressed", "false"
    )
    expect(root.get_by_role("button", name="Head 1", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )
    # In the layer where all were kept nothing is said of it.
    root.get_by_role("button", name="Layer 1", exact=True).click()
    expect(root.locator(".av-head")).to_have_count(12)
    expect(root.locator(".av-kept")).to_have_count(0)
    root.get_by_role("button", name="Layer 2", exact=True).click()
    expect(root).to_contain_text("Layer 2 was kept with head 11 of 12: no head 1.")
    assert names(root) == ["Head 11"]


def test_the_mean_is_of_kept_heads_and_says_so(
    page: Page, tmp_path: Path, model: Any, own: np.ndarray[Any, Any]
) -> None:
    record = av.extract(model, IDS, layers=[1], heads=[1, 5])
    root = opened(page, av.MatrixView(record), tmp_path)
    expect(root).to_contain_text("mean of 2 of 12 heads, those kept")
    mean = own[1, [1, 5]].mean(axis=0)
    for row in rows_of(page):
        weight = mean[int(row["query"]), int(row["key"])]
        assert float(row["weight"]) == pytest.approx(weight, abs=0.005)
    root = opened(page, av.HeadView(record, heads=[]), tmp_path)
    expect(root).to_contain_text("Layer 1, mean of 2 of 12 heads, those kept.")
    root.get_by_role("button", name="all", exact=True).click()
    expect(root).to_contain_text("Layer 1, heads 1, 5.")


def test_the_grid_leaves_gaps_where_heads_were_not_kept(
    page: Page, tmp_path: Path, model: Any, own: np.ndarray[Any, Any]
) -> None:
    record = av.extract(model, IDS, heads={0: [1, 5], 2: [5, 11]})
    root = opened(page, av.ModelView(record), tmp_path)
    expect(root).to_contain_text("2 layers of 12 heads, 4 of 24 kept")
    columns = root.get_by_role("columnheader").all_inner_texts()
    assert [text for text in columns if text.startswith("head ")] == ["head 1", "head 5", "head 11"]
    cells = [each.get_attribute("aria-label") for each in root.get_by_role("gridcell").all()]
    assert cells == [
        "Layer 0, head 1",
        "Layer 0, head 5",
        "Layer 2, head 5",
        "Layer 2, head 11",
    ]
    root.get_by_role("grid").focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    expect(root).to_have_attribute("data-attnviz-drawn", "model:self:2")
    strongest = own[2, 11].max()
    expect(root).to_contain_text("Layer 2, head 11. Strongest: ")
    expect(root).to_contain_text(f", {strongest:.2f}.")
    # By a pattern, too, only what was kept is ranked.
    root.get_by_label("Heads by").select_option("first token")
    expect(root).to_contain_text("By first token, strongest first: all 4 heads.")


@pytest.mark.parametrize("heads", [[1, 5], [0, 1, 8], [11]])
def test_the_neuron_view_adds_up_for_kept_heads(
    heads: list[int], page: Page, tmp_path: Path, model: Any, own: np.ndarray[Any, Any]
) -> None:
    record = av.extract(model, IDS, heads=heads)
    root = opened(page, av.NeuronView(record, layer=1, token=4), tmp_path)
    assert names(root) == [f"Head {head}" for head in heads]
    for head in heads:
        root.get_by_role("button", name=f"Head {head}", exact=True).click()
        expect(root).to_contain_text(f"layer 1, head {head}")
        # The model's own numbers of key heads, though only those are there that are read.
        expect(root).to_contain_text(f"Its keys are key head {head // 3} of 4, shared with heads")
        rows = [row for row in rows_of(page) if row["quantity"] == "weight"]
        found = [float(row["value"]) for row in rows]
        np.testing.assert_allclose(found, own[1, head, 4, :5], atol=1e-3)


def test_a_page_contains_kept_heads_alone(page: Page, tmp_path: Path, model: Any) -> None:
    sizes = {}
    for name, heads in (("all", None), ("two", [1, 5])):
        record = av.extract(model, IDS, heads=heads)
        view = av.HeadView(record, heads=[1, 5])
        opened(page, view, tmp_path)
        shapes = page.evaluate(
            """() => {
                const data = JSON.parse(document.getElementById("attnviz-data").textContent);
                return [...data.blocks, ...data.maps].map((piece) => piece.shape[0]);
            }"""
        )
        sizes[name] = set(shapes)
    assert sizes == {"all": {12}, "two": {2}}
