"""Tests of exported head views: contents, interaction and isolation."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

import attnviz as av
from browser.pages import SVG, figure, says, table, texts

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

    from browser.pages import Show


def softmax_weights(layers: int, heads: int, queries: int, keys: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.softmax(3 * torch.randn(layers, heads, queries, keys, generator=generator), -1)


@pytest.fixture(scope="module")
def minilm(checkpoint_folder: Path) -> av.AttentionRecord:
    """Return a record of MiniLM, in which one head resolves the pronoun "it"."""
    text = "The animal didn't cross the street because it was too tired."
    return av.extract(str(checkpoint_folder), text)


def test_the_page_says_what_it_shows(show: Show, minilm: av.AttentionRecord) -> None:
    root = show(av.HeadView(minilm, layer=3, heads=[1, 7, 9], token=10))
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:3")
    says(root, "16 tokens · exact to 0.004")
    says(root, "“it” attends most to “animal”: 0.68 in head 1.")


def test_the_mean_of_all_heads_is_the_default_above_four(
    show: Show, minilm: av.AttentionRecord
) -> None:
    root = show(av.HeadView(minilm, layer=3))
    says(root, "mean of 12 heads")
    # The mean is computed from the weights of the model.
    mean = minilm.stack().weights(layer=3).mean(axis=0)
    lines = table(root)
    assert {line["layer"] for line in lines} == {"3"}
    drawn = {(int(line["query"]), int(line["key"])): float(line["weight"]) for line in lines}
    assert len(drawn) == len(lines) > len(mean)
    for (query, key), weight in drawn.items():
        assert weight == pytest.approx(mean[query, key], abs=0.004)
    # All weights that are not drawn are smaller than the drawn ones.
    others = [float(mean[at]) for at in np.ndindex(mean.shape) if at not in drawn]
    assert max(others, default=0) <= min(drawn.values()) + 0.004


def test_hover_and_click_on_a_token(show: Show, page: Page, minilm: av.AttentionRecord) -> None:
    root = show(av.HeadView(minilm, layer=3, heads=[1]))
    place = token_place(page, "“it”, query 10")
    page.mouse.move(*place)
    says(root, "“it” attends most to “animal”: 0.68")
    page.mouse.click(*place)
    page.mouse.move(1, 1)
    says(root, "Pinned: query “it”")
    page.mouse.click(*place)
    page.mouse.move(1, 1)
    expect(root).not_to_contain_text("Pinned")


def token_place(page: Page, title: str) -> tuple[float, float]:
    """Move the pointer until the hint starts with `title`, and return its position."""
    box = page.locator(".av-plot").bounding_box()
    assert box is not None
    side = title.split()[-2]
    hint = page.locator(".av-hint")

    def said(x: float, y: float) -> str:
        page.mouse.move(box["x"] + x, box["y"] + y)
        return " ".join(hint.all_text_contents())

    middle = box["height"] / 2
    for x in range(4, int(box["width"]), 12):
        heard = [said(x, middle + by) for by in (0, 9)]
        if any(f", {side} " in text for text in heard):
            for y in range(4, int(box["height"]), 6):
                if said(x, y).startswith(title):
                    # A few pixels further into the row, which is about 26 pixels high.
                    return box["x"] + x, box["y"] + y + 8
    pytest.fail(f"no token under the pointer said {title!r}")


def test_the_svg_has_a_line_for_every_weight_and_real_text(tmp_path: Path) -> None:
    weights = [[[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]]]
    view = av.HeadView(av.AttentionRecord.from_weights(weights, ["one", "two", "three"]))
    svg = ET.parse(view.save(tmp_path / "view.svg")).getroot()  # noqa: S314 - our own file
    # Each of the six nonzero weights has a line.
    assert len(list(svg.iter(f"{SVG}path"))) == 6
    for token in ("one", "two", "three"):
        assert texts(svg).count(token) == 2
    assert "exact to 0.004" in " ".join(texts(svg))


@pytest.mark.slow
def test_of_very_many_lines_the_strongest_are_drawn_and_exported(
    page: Page, tmp_path: Path
) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 0.3 * torch.randn((1, 12, 64, 64), generator=generator)
    weights = torch.softmax(logits.masked_fill(torch.ones(64, 64).triu(1) > 0, -torch.inf), -1)
    record = av.AttentionRecord.from_weights(weights, [f"token{place}" for place in range(64)])
    view = av.HeadView(record, heads=list(range(12)), top_k=None)
    strongest = np.sort(weights.numpy(), axis=None)[::-1][:20_000]
    page.goto(view.save(tmp_path / "view.html", precision="exact").as_uri())
    root = page.locator(".attnviz")
    share = f"{100 * strongest.sum() / weights.sum():.0f}%"
    says(root, f"The strongest 20,000 of 24,960 lines drawn: {share} of the weight.")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:0")
    drawn = table(root)
    assert len(drawn) == 20_000
    for line in drawn:
        head, query, key = (int(line[name]) for name in ("head", "query", "key"))
        # Both the weight and the smallest drawn weight may have the largest error.
        least = strongest[-1] - 2 * float(line["largest_error"])
        assert weights[0, head, query, key] >= least
    svg = ET.parse(view.save(tmp_path / "view.svg"))  # noqa: S314 - our own file
    groups = svg.findall(f".//{SVG}g[@fill='none']")
    assert sum(len(group.findall(f"{SVG}path")) for group in groups) == 20_000
    # Lines of larger weights are drawn on top.
    for group in groups:
        opacities = [float(path.get("stroke-opacity", "")) for path in group]
        assert opacities == sorted(opacities)


def test_renormalised_weights_say_how_exact_they_are(show: Show) -> None:
    rows = np.array([[1, 0, 0], [0.9, 0.1, 0], [0.5, 0.1, 0.4]])
    record = av.AttentionRecord.from_weights([[rows]], ["a", "b", "c"])
    view = av.HeadView(record, leave_out=["first"], token=2, renormalize=True)
    root = show(view)
    # 0.4 divided by the remaining 0.5.
    says(root, "0.80")
    says(root, "before renormalising")
    # Dividing by the remaining tenth of a row enlarges the rounding error of a byte.
    errors = {float(line["largest_error"]) for line in table(root)}
    assert len(errors) == 1
    assert 0.004 < max(errors) < 0.2
    for line in table(root):
        row = rows[int(line["query"])]
        exact = row[int(line["key"])] / row[1:].sum()
        assert abs(float(line["weight"]) - exact) <= max(errors)
    root.get_by_role("button", name="More").click()
    root.get_by_role("checkbox", name="first").uncheck()
    expect(root).not_to_contain_text("before renormalising")


def test_a_long_text_is_shown_in_a_window_and_searched(show: Show, page: Page) -> None:
    count = 300
    tokens = [f"t{position}" for position in range(count)]
    tokens[250] = "needle"
    weights = softmax_weights(1, 2, count, count)
    root = show(av.HeadView(av.AttentionRecord.from_weights(weights, tokens)))
    says(root, "300 tokens")
    assert "needle" not in " ".join(texts(figure(root)))
    find = root.get_by_label("Find token")
    find.fill("needle")
    find.press("Enter")
    expect(root.locator(".av-find")).to_contain_text("1")
    page.wait_for_function(
        "async () => (await document.querySelector('.attnviz').attnviz.svg()).includes('needle')"
    )
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:0")


def test_the_strongest_key_is_named_wherever_it_lies(show: Show) -> None:
    """The strongest key of the row lies outside the window."""
    count = 300
    weights = np.full((1, 1, count, count), 0.2 / 298, np.float32)
    weights[..., 290], weights[..., 10] = 0.5, 0.3
    tokens = [f"t{position}" for position in range(count)]
    record = av.AttentionRecord.from_weights(weights, tokens)
    view = av.HeadView(record, token=5, key_window=[0, 64])
    root = show(view)
    says(root, "“t5” attends most to “t290” outside the window: 0.50")
    says(root, "“t290” 290 0.50")
    view = av.HeadView(record, token=5, key_window=[0, 300])
    says(show(view), "“t5” attends most to “t290”: 0.50")


def test_stacks_of_different_depth_and_heads(show: Show) -> None:
    record = av.AttentionRecord.from_weights(
        encoder_attentions=softmax_weights(3, 2, 4, 4),
        decoder_attentions=softmax_weights(1, 6, 2, 2).tril(),
        cross_attentions=softmax_weights(1, 6, 2, 4),
        encoder_tokens=["a", "b", "c", "d"],
        decoder_tokens=["x", "y"],
        normalized=False,
    )
    root = show(av.HeadView(record, layer=2))
    expect(root).to_have_attribute("data-attnviz-drawn", "head:encoder:2")
    root.get_by_label("Stack").select_option("cross")
    expect(root).to_have_attribute("data-attnviz-drawn", "head:cross:0")
    says(root, "2 queries, 4 keys")


def test_sentence_pairs(show: Show, page: Page) -> None:
    weights = [[[[0.5, 0.5, 0.0, 0.0]] * 4]]
    record = av.AttentionRecord.from_weights(weights, ["a1", "a2", "b1", "b2"], sentence_b_start=2)
    root = show(av.HeadView(record))
    root.get_by_label("Sentences").select_option("a-b")
    # Sentence A has no weight on sentence B.
    page.wait_for_function(
        "async () => !(await document.querySelector('.attnviz').attnviz.svg()).includes('<path')"
    )
    root.get_by_label("Sentences").select_option("b-a")
    page.wait_for_function(
        "async () => (await document.querySelector('.attnviz').attnviz.svg()).includes('<path')"
    )


def test_the_page_contains_nothing_that_runs_and_asks_for_nothing(
    minilm: av.AttentionRecord,
) -> None:
    html = av.HeadView(minilm).to_html()
    assert not re.search(r"https?://(?!www\.w3\.org/)", html.split('id="attnviz-bundle"')[0])
    data = re.search(r'id="attnviz-data">(.*?)</script>', html, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["description"]["stacks"][0]["layers"] == [0, 1, 2, 3, 4, 5]


def test_the_window_can_be_read_in_a_narrow_cell(show: Show, page: Page) -> None:
    weights = softmax_weights(1, 1, 300, 300)
    record = av.AttentionRecord.from_weights(weights, [f"t{place}" for place in range(300)])
    page.set_viewport_size({"width": 400, "height": 800})
    view = av.HeadView(record, query_window=[100, 164], key_window=[120, 200], controls="full")
    root = show(view)
    for name in ("Queries", "Keys"):
        window = root.get_by_role("group", name=name, exact=True)
        # Measure the text, which may be wider than its element.
        said = window.get_by_text("of 300").evaluate(
            "element => { const range = document.createRange(); range.selectNodeContents(element);"
            " return range.getBoundingClientRect().toJSON(); }"
        )
        size = window.get_by_role("combobox").bounding_box()
        assert size
        apart = said["x"] + said["width"] <= size["x"] or said["y"] + said["height"] <= size["y"]
        assert apart, (said, size)
        assert size["x"] + size["width"] <= 400
