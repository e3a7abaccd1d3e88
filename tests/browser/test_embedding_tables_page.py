"""Tests of colours, selections, averages and exports on pages of the embedding view."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from playwright.sync_api import expect

import attnviz as av
from browser.embedding_pages import (
    HEADS,
    LAYERS,
    TEXTS,
    coordinates,
    drawn,
    inked,
    one_head,
    pixels,
    places,
    prose,
)
from browser.pages import figure, says, table, texts

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from browser.pages import Show

SVG = "{http://www.w3.org/2000/svg}"
WORDS = " ".join(TEXTS).split(" ")
POSITIONS = [place for text in TEXTS for place in range(len(text.split(" ")))]


@pytest.fixture(scope="module")
def corpus() -> av.Corpus:
    return prose()


def kinds_of_words() -> list[str]:
    kinds = {"[CLS]": "special", ".": "punctuation", ",": "punctuation"}
    return [kinds.get(word, "word") for word in WORDS]


def by_text(names: list[str]) -> list[str]:
    return [name for name, text in zip(names, TEXTS, strict=True) for _ in text.split(" ")]


def norms(corpus: av.Corpus) -> list[float]:
    vectors = corpus.vectors("self", 1)
    both = [vectors.queries[2].norm(dim=1), vectors.keys[2].norm(dim=1)]
    return [float(norm) for side in both for norm in side]


def test_every_colouring_has_its_values_and_its_legend(show: Show, corpus: av.Corpus) -> None:
    root = show(one_head(corpus))
    choice = root.get_by_role("combobox", name="Colour")
    assert len(choice.get_by_role("option").all()) == 9
    counts = Counter(WORDS)
    # Values per token, which are the same for its query and its key.
    values: dict[str, list[Any]] = {
        "position mod 5": [place % 5 for place in POSITIONS],
        "token frequency": [counts[word] for word in WORDS],
        "punctuation": kinds_of_words(),
        "kind": by_text(["prose", "prose", "title"]),
        "surprise": [*(f"{0.5 * place:g}" for place in range(len(WORDS) - 1)), ""],
    }
    legend = root.locator(".av-embedding-legend")
    for label, expected in values.items():
        choice.select_option(label=label)
        name = "frequency" if label == "token frequency" else label
        assert [row[name] for row in table(root)] == [f"{value}" for value in expected] * 2
        if label in ("position mod 5", "kind"):
            for kind, count in Counter(expected).items():
                says(legend, f"{kind}{2 * count}")
    says(legend, "0surprise11")
    says(legend, "unknown2")
    assert "unknown 2" in " ".join(texts(figure(root)))
    choice.select_option(label="vector length")
    says(root, "Lengths of the vectors of layer 1, head 2.")
    lengths = norms(corpus)
    # A page stores lengths as bytes between the minimum and the maximum.
    step = (max(lengths) - min(lengths)) / 255
    given = [float(row["norm"]) for row in table(root)]
    assert np.abs(np.array(given) - lengths).max() <= 0.51 * step
    choice.select_option(label="text")
    says(legend, f"THE end .{2 * 4}")
    choice.select_option(label="position")
    says(legend, "position9")
    choice.select_option(label="query or key")
    expect(root.get_by_role("button", name="queries 24")).to_be_visible()


def test_queries_or_keys_can_be_left_out(show: Show, page: Page, corpus: av.Corpus) -> None:
    root = show(one_head(corpus))
    assert inked(pixels(root), "key").any()
    root.get_by_role("combobox", name="Points").select_option("queries")
    assert {row["kind"] for row in table(root)} == {"query"}
    assert not inked(pixels(root), "key").any()
    says(root, "Layer 1, head 2: 24 queries by principal components.")
    # At least one of queries and keys remains shown.
    root.get_by_role("button", name="queries").click()
    assert {row["kind"] for row in table(root)} == {"key"}
    assert not inked(pixels(root), "query").any()
    assert "points=keys" in page.url


def test_the_text_of_a_point_that_is_left_out_still_stands_out(
    show: Show, corpus: av.Corpus
) -> None:
    root = show(one_head(corpus, text=0, key=5, points="queries"))
    says(root, "Key “dog”, position 5 of text 0")
    where = places(root, coordinates(corpus))
    canvas = pixels(root, ".av-plot .av-front")
    # Only the queries of text 0 are shown.
    inks = [
        inked(canvas[y - 2 : y + 3, x - 2 : x + 3], "query").all()
        for x, y in where[:24].astype(int)
    ]
    assert inks == [point < 10 for point in range(24)]


def test_a_lasso_takes_the_points_in_it(show: Show, page: Page, corpus: av.Corpus) -> None:
    root = show(one_head(corpus))
    where = places(root, coordinates(corpus))
    # Focus may scroll, so it comes before the measurement.
    root.locator(".av-plot").focus()
    box = root.locator(".av-plot").bounding_box()
    assert box is not None
    # A box whose sides keep a distance from all points.
    left, right = gap(where[:, 0], 0.25), gap(where[:, 0], 0.75)
    top, bottom = gap(where[:, 1], 0.2), gap(where[:, 1], 0.8)
    inside = np.flatnonzero(
        (where > (left, top)).all(axis=1) & (where < (right, bottom)).all(axis=1)
    )
    assert 5 < len(inside) < 43
    page.keyboard.press("l")
    expect(root.get_by_role("button", name="Lasso")).to_have_attribute("aria-pressed", "true")
    x, y = box["x"], box["y"]
    page.mouse.move(x + left, y + top)
    page.mouse.down()
    for corner in ((right, top), (right, bottom), (left, bottom), (left, top)):
        page.mouse.move(x + corner[0], y + corner[1], steps=3)
    page.mouse.up()
    says(root.locator(".av-sentence"), f"{len(inside)} points in the lasso.")
    assert [int(row["point"]) for row in table(root) if row["in_lasso"] == "1"] == [*inside]
    # The selection stays in other heads, whose points are the same tokens, and in all heads.
    page.keyboard.press("]")
    drawn(root, 2)
    assert sum(row["in_lasso"] == "1" for row in table(root)) == len(inside)
    root.locator(".av-plot").focus()
    page.keyboard.press("Escape")
    expect(root.locator(".av-sentence")).not_to_contain_text("lasso")
    assert "in_lasso" not in table(root)[0]
    drawn(root, 2)


def gap(values: Any, share: float) -> float:
    """Return the middle of the widest gap between values near a quantile, in whole pixels."""
    ordered = np.sort(values)
    middle = int(share * len(ordered))
    some = ordered[middle - 3 : middle + 4]
    widest = int(np.argmax(np.diff(some)))
    return round(float(some[widest] + some[widest + 1]) / 2)


def test_the_mean_by_position_is_the_mean_of_the_weights(
    show: Show, page: Page, corpus: av.Corpus
) -> None:
    root = show(one_head(corpus))
    root.get_by_role("combobox", name="Show").select_option("aggregate")
    lengths = [len(record.stack("self").query_tokens) for record in corpus.records]
    assert lengths.count(max(lengths)) == 2
    says(root, "Mean over 3 texts; 2 of them reach the last row.")
    drawn(root, 1)
    sums, counts = np.zeros((10, 10)), np.zeros((10, 10))
    for record in corpus.records:
        weights = record.stack().weights(layer=1, head=2)
        size = len(weights)
        sums[:size, :size] += weights
        counts[:size, :size] += np.tri(size)
    with np.errstate(invalid="ignore"):
        means = sums / counts
    rows = table(root)
    assert len(rows) == np.count_nonzero(counts)
    for row in rows:
        query, key = int(row["query"]), int(row["key"])
        assert (int(row["query_stop"]), int(row["key_stop"])) == (query + 1, key + 1)
        # A page stores a byte for the square root of each mean relative to the largest.
        assert float(row["mean_weight"]) == pytest.approx(means[query, key], abs=0.0041)
    plot = root.locator(".av-aggregate .av-plot")
    plot.focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    expect(root.locator(".av-hint")).to_contain_text(re.compile(r"query 2.*key 0"))
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(root.locator(".av-embedding-plot")).to_be_visible()
    drawn(root, 1)


def test_the_table_of_all_heads_is_their_trust(show: Show, corpus: av.Corpus) -> None:
    view = av.EmbeddingView(corpus)
    root = show(view)
    rows = table(root)
    assert len(rows) == LAYERS * HEADS
    for row, told in zip(rows, view.trust(), strict=True):
        assert (int(row["layer"]), int(row["head"])) == (told["layer"], told["head"])
        for ours, theirs in {
            "r_before": "before",
            "r_placed": "placed",
            "r_plot": "plot",
        }.items():
            assert float(row[ours]) == pytest.approx(told[theirs], abs=1e-4)
        # Recall needs a text with more than ten keys.
        assert (row["recall"], row["recall_baseline"]) == ("", "")
        assert told["recall"] is told["recall_baseline"] is None
        assert int(row["queries_measured"]) == told["num_queries"]


def dots_of(svg: ET.Element) -> np.ndarray[Any, Any]:
    """Return the positions of the dots in a figure, which are lines of zero length."""
    found = [
        (float(x), float(y))
        for path in svg.iter(f"{SVG}path")
        for x, y in re.findall(r"M\s*(-?[\d.]+)[ ,](-?[\d.]+)\s*h0(?![\d.])", path.get("d", ""))
    ]
    return np.array(found)


def test_a_figure_has_the_points_and_the_words(show: Show, corpus: av.Corpus) -> None:
    root = show(one_head(corpus))
    svg = figure(root)
    dots = dots_of(svg)
    where = places(root, coordinates(corpus))
    assert len(dots) == 48
    # The dots have the same relative positions as on the plot, in any order.
    away = dots - where.mean(axis=0) - (dots - where).mean(axis=0) + where.mean(axis=0)
    nearest = np.hypot(*(away[:, None] - where[None]).transpose(2, 0, 1))
    assert nearest.min(axis=1).max() < 0.2
    assert sorted(nearest.argmin(axis=1)) == list(range(48))
    root.get_by_label("Find token").fill("dog")
    says(root, "4 of 48 points contain “dog”.")
    text = " ".join(texts(figure(root)))
    assert "made" in text
    assert "Layer 1, head 2: 24 queries and 24 keys by principal components." in text
    assert "4 of 48 points contain “dog”." in text
    assert "On this plot distance follows q·k with r = " in text
    assert text.count("keys moved onto the queries") == 1
    assert "Click" not in text
    assert text.count("queries") >= 2


def test_a_figure_of_all_heads_names_them(show: Show, corpus: av.Corpus) -> None:
    root = show(av.EmbeddingView(corpus))
    svg = figure(root)
    assert len(dots_of(svg)) == 48 * LAYERS * HEADS
    text = " ".join(texts(svg))
    assert all(f"head {head}" in text for head in range(HEADS))
    assert all(f"layer {layer}" in text for layer in range(LAYERS))


def test_three_dimensions_are_carried_and_turned(show: Show, page: Page, corpus: av.Corpus) -> None:
    root = show(one_head(corpus, dimensions=3))
    expected = coordinates(corpus, dimensions=3)
    given = np.array([[float(row[axis]) for axis in "xyz"] for row in table(root)])
    step = np.ptp(expected, axis=0).max() / 65535
    assert np.abs(given - expected).max() <= step + 5e-6 * np.abs(expected).max()
    before = pixels(root)
    root.locator(".av-plot").focus()
    page.keyboard.press("Shift+ArrowRight")
    assert (pixels(root) != before).any()
    page.keyboard.press("Home")
    assert (pixels(root) == before).all()
    root.get_by_role("combobox", name="Method").select_option("pca")
    drawn(root, 1)
    assert "z" not in table(root)[0]


def test_a_page_has_the_other_method_of_the_head_that_was_shown_alone(
    show: Show, page: Page, corpus: av.Corpus
) -> None:
    root = show(one_head(corpus, method="tsne", perplexity=3, seed=7))
    says(root, "24 queries and 24 keys by t-SNE")
    assert {row["method"] for row in table(root)} == {"tsne"}
    root.locator(".av-plot").focus()
    page.keyboard.press(".")
    says(root, "This page does not contain this plot (only that of layer 1, head 2)")
    says(root, "Layer 1, head 3: 24 queries and 24 keys by principal components.")
    drawn(root, 1)
    expect(root).to_have_attribute("data-attnviz-state", "ready")
    rows = table(root)
    assert {row["method"] for row in rows} == {"pca"}
    expected = coordinates(corpus, 1, 3)
    given = np.array([[float(row["x"]), float(row["y"])] for row in rows])
    assert np.abs(given - expected).max() <= np.ptp(expected, axis=0).max() / 65535 + 1e-4
    page.keyboard.press(",")
    says(root, "24 queries and 24 keys by t-SNE")
    assert {row["method"] for row in table(root)} == {"tsne"}
