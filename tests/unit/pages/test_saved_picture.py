"""Tests of the picture that a notebook stores with a live view."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from typing import Any
from xml.etree import ElementTree as ET

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from numpy.typing import NDArray

import attnviz as av
from attnviz.pages.picture import to_color_levels
from attnviz.pages.saved_picture import MAX_WEIGHTS, draw_heads_still
from attnviz.record.stack import AttentionStack
from attnviz.utils.options import Options
from unit.records import given_record, vectors, words

SVG = "{http://www.w3.org/2000/svg}"
# Maximum size in bytes of the HTML that is saved with one view.
MAX_BYTES = 50_000


def svg_of(still: str) -> ET.Element:
    (picture,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', still)
    return ET.fromstring(base64.b64decode(picture))  # noqa: S314 - our own


def levels_of(image: ET.Element) -> NDArray[np.uint8]:
    """Decode the colour numbers (rows, columns) of a PNG image with 4 bits per pixel."""
    png = base64.b64decode(image.attrib["href"].partition(",")[2])
    width, height = struct.unpack(">II", png[16:24])
    start = png.index(b"IDAT")
    (size,) = struct.unpack(">I", png[start - 4 : start])
    rows = np.frombuffer(zlib.decompress(png[start + 4 : start + 4 + size]), np.uint8)
    packed = rows.reshape(height, -1)[:, 1:]
    return np.stack([packed >> 4, packed & 15], axis=-1).reshape(height, -1)[:, :width]


def random_record(tokens: int, layers: int = 2, heads: int = 3) -> av.AttentionRecord:
    queries, keys = vectors(2, layers, heads, tokens, 4)
    return av.AttentionRecord.from_qk(queries, keys, words(tokens), model="m")


def test_cells_are_the_weights_and_labels_the_tokens() -> None:
    stack = random_record(5).stack()
    svg = svg_of(draw_heads_still(stack, 1, [2, 0], token=3))
    maps = [levels_of(image) for image in svg.iter(f"{SVG}image")][:2]
    weights = stack.weights(layer=1)[[2, 0]]
    assert np.array_equal(maps, to_color_levels(weights, float(weights.max()), signed=False))
    labels = [element.text for element in svg.iter(f"{SVG}text")]
    # Keys have labels on both maps, and queries only on the first map: three labels per token.
    assert [labels.count(token) for token in words(5)] == [3] * 5
    bold = [element.text for element in svg.iter(f"{SVG}text") if "font-weight" in element.attrib]
    assert bold == ["head 2", "head 0", "t3"]


def test_combined_heads_are_one_map_and_an_open_head_is_beside_the_grid() -> None:
    record = random_record(5, heads=6)
    heads, weights = [0, 2, 5], record.stack().weights(layer=1)
    mean, largest = (function(weights[heads], axis=0) for function in (np.mean, np.max))
    at = {"layer": 1, "heads": heads}
    for view, expected, words_of in (
        (av.MatrixView(record, **at), mean, "mean of heads 0, 2, 5, "),
        (av.HeadView(record, combine="mean", **at), mean, "mean of heads 0, 2, 5, "),
        (av.HeadView(record, combine="max", **at), largest, "largest of heads 0, 2, 5, "),
        (av.HeadView(record, **at), weights[0], "layer 1, heads 0, 2, 5, "),
        # If no head is chosen, a head view shows the mean of all.
        (av.HeadView(record, layer=1), weights.mean(axis=0), "mean of heads 0 to 5, "),
        (av.ModelView(record, layer=1, heads=[2]), weights[2], "layer 1, head 2, "),
    ):
        still = view._still()
        assert words_of in still
        drawn = levels_of(next(svg_of(still).iter(f"{SVG}image")))
        separate = view.name == "head" and view.combine == "separate" and view.heads
        scale = weights[heads] if separate else expected
        assert np.array_equal(drawn, to_color_levels(expected, float(scale.max()), signed=False))
        assert ("Weights of layers 0, 1 from top to bottom" in still) is (view.name == "model")
    signed = np.array([[[[0.5, 0.0], [0.0, 0.1]], [[-0.25, 0.0], [0.0, -0.5]]]], np.float32)
    record = av.AttentionRecord.from_weights(signed, ["a", "b"], signed=True, measure="difference")
    drawn = levels_of(
        next(svg_of(av.HeadView(record, combine="max", heads=[0, 1])._still()).iter(f"{SVG}image"))
    )
    expected = np.array([[0.5, 0.0], [0.0, -0.5]])
    assert np.array_equal(drawn, to_color_levels(expected, 0.5, signed=True))


def test_the_picture_of_an_embedding_has_the_enlarged_head_alone() -> None:
    view = av.EmbeddingView([random_record(5)] * 2, layer=1, heads=[2])
    of_all = view._still()
    view.enlarged = True
    of_one = view._still()
    assert "of layer 1 from top to bottom and heads 0 to 2 from" in of_all
    assert "of layer 1 from top to bottom and head 2 from" in of_one
    (width, height), (width_of_one, height_of_one) = map(image_size, (of_all, of_one))
    assert width_of_one < width / 2
    assert height_of_one == height


def test_a_long_text_shows_the_window_in_sight_and_names_the_pinned_query() -> None:
    record = random_record(2000)
    weights = record.stack().weights(layer=1)
    for token in (-1, 1500):
        view = av.HeadView(record, layer=1, heads=[0, 1, 2], token=token)
        still, pinned = view._still(), token % 2000
        (first, end), (key, key_end) = view.query_window, view.key_window
        assert first <= pinned < end
        maps = [levels_of(image) for image in svg_of(still).iter(f"{SVG}image")][:3]
        shown = weights[:, first:end, key:key_end]
        assert np.array_equal(maps, to_color_levels(shown, float(shown.max()), signed=False))
        assert "layer 1, heads 0 to 2, stack" in still
        assert f"each of the queries {first} to {end - 1} (of 2,000)" in still
        assert f"one of the keys {key} to {key_end - 1} (of 2,000)" in still
        assert f"The pinned query is “t{pinned}”, token {pinned}." in still
        assert labelled_row(still) == (f"t{pinned}", pinned - first)
    # Nothing outside a window is drawn, and the description says so.
    view.query_window, view.key_window = [100, 120], [90, 120]
    still = view._still()
    assert "The pinned query is “t1500”, token 1500, outside these." in still
    labels = [element.text for element in svg_of(still).iter(f"{SVG}text")]
    assert [f"t{token}" in labels for token in (89, 90, 99, 100, 119, 120)] == [0, 1, 1, 1, 1, 0]


def test_a_pinned_query_has_a_row_among_sampled_ones() -> None:
    record = random_record(2000)
    weights = record.stack().weights(layer=1)[0]
    for token in (0, 1234, 1999):
        still = av.MatrixView(record, layer=1, heads=[0], token=token)._still()
        assert "row for 64 of the 2,000 queries" in still
        label, row = labelled_row(still)
        assert label == f"t{token}"
        levels = levels_of(next(svg_of(still).iter(f"{SVG}image")))[row]
        parts = np.array([part.max() for part in np.array_split(weights[token], 64)])
        # Parts of the keys differ in length by one, so a few cells may differ by one level.
        scale = float(re.findall(r"up to ([\d.]+)\.", still)[0])
        expected = to_color_levels(parts, scale, signed=False).astype(int)
        assert (np.abs(levels.astype(int) - expected) <= 1).mean() > 0.9


def labelled_row(still: str) -> tuple[str | None, int]:
    """Return the bold label of a row, and the row of the first map beside it."""
    svg = svg_of(still)
    image = next(svg.iter(f"{SVG}image"))
    labels = [
        text
        for text in svg.iter(f"{SVG}text")
        if "font-weight" in text.attrib and "text-anchor" in text.attrib
    ]
    (label,) = labels
    at = float(label.attrib["y"]) - 0.35 * 11 - float(image.attrib["y"])
    return label.text, int(at / float(image.attrib["height"]) * len(levels_of(image)))


def image_size(still: str) -> tuple[int, int]:
    (png,) = re.findall(r'src="data:image/png;base64,([^"]+)"', still)
    width, height = struct.unpack(">II", base64.b64decode(png)[16:24])
    return width, height


def test_a_picture_has_a_description() -> None:
    record = random_record(5, heads=12)
    largest = float(record.stack().weights(layer=1)[2:6].max())
    still = av.HeadView(record, layer=1, heads=[2, 3, 4, 5, 6, 7], token=3)._still()
    assert "m · head view" in still
    assert "Weights of layer 1, heads 2 to 5 (the first 4 of 6 chosen), stack self." in still
    assert f" Darker is more, up to {largest:.2g}." in still
    assert "The pinned query is “t3”, token 3." in still
    assert "This picture was saved with a live view." in still


def test_signed_numbers_have_a_scale_to_both_sides() -> None:
    weights = np.array([[[[0.5, -0.25], [0.0, 0.1]]]], np.float32)
    record = av.AttentionRecord.from_weights(weights, ["a", "b"], signed=True, measure="difference")
    still = draw_heads_still(record.stack(), 0, [0])
    assert "Differences of layer 0, head 0" in still
    assert "Blue is above zero and orange below, up to 0.5." in still
    cells, scale = (levels_of(image) for image in svg_of(still).iter(f"{SVG}image"))
    # Levels 1 to 7 are for numbers above zero, and levels 8 to 14 for numbers below zero.
    assert cells.tolist() == [[7, 11], [0, 2]]
    assert scale.tolist() == [[14, 13, 12, 11, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7]]


def test_any_token_is_a_text() -> None:
    tokens = ["<script>", "a&b", "\x00\x1b", "\ud800", "字" * 40]
    record = av.AttentionRecord.from_weights(np.full((1, 1, 5, 5), 0.2, np.float32), tokens)
    svg = svg_of(draw_heads_still(record.stack(), 0, [0]))
    assert {"<script>", "a&b", "字" * 13 + "…"} <= {e.text for e in svg.iter(f"{SVG}text")}


@pytest.mark.parametrize("kind", [av.HeadView, av.Dashboard])
@pytest.mark.parametrize("tokens", [40, 300])
def test_a_picture_is_small(kind: Any, tokens: int) -> None:
    still = kind(random_record(tokens, layers=12, heads=12))._still()
    assert "<img" in still
    assert len(still.encode()) < MAX_BYTES


def test_long_texts_read_few_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    record = random_record(300_000, layers=1, heads=4)
    attention = type(record.stack().attention(0))
    num_weights = []
    block_of = attention.block

    def counted(self: Any, *arguments: Any) -> Any:
        weights = block_of(self, *arguments)
        num_weights.append(weights.numel())
        return weights

    monkeypatch.setattr(attention, "block", counted)
    for kind in (av.HeadView, av.Dashboard, av.ModelView):
        num_weights.clear()
        still = kind(record, layer=0, heads=range(4))._still()
        assert 0 < sum(num_weights) <= MAX_WEIGHTS
        assert ("300,000 queries" if kind is av.ModelView else "(of 300,000)") in still


LOAD = """
import attnviz as av
model, tokenizer = av.demos.load("decoder")
passes = 0
def count(*_):
    global passes
    passes += 1
model.register_forward_hook(count)
"""
SHOW = """
view = av.show_head_view(model, "the cat sat", tokenizer=tokenizer)
print(passes)
view
"""


@pytest.mark.slow
def test_a_notebook_stores_what_the_option_says() -> None:
    codes = [
        LOAD,
        SHOW,
        "av.options.snapshot = 'page'" + SHOW,
        "av.options.snapshot = False" + SHOW,
    ]
    notebook = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, codes)])
    NotebookClient(notebook, kernel_name="python3", timeout=120).execute()
    expected = [["attnviz-saved"], ["attnviz-saved", "attnviz-snapshot"], []]
    for number, (cell, texts) in enumerate(zip(notebook.cells[1:], expected, strict=True), start=1):
        # The cell shows the view and returns it, but its outputs contain the view only once.
        widget, *saved = [
            output["data"] for output in cell["outputs"] if any(output.get("data", {}).values())
        ]
        assert "application/vnd.jupyter.widget-view+json" in widget
        for data, text in zip(saved, texts, strict=True):
            assert set(data) == {"text/html", "text/plain"}
            assert text in data["text/html"]
        if saved:
            assert len(saved[0]["text/html"].encode()) < MAX_BYTES
        # Each cell runs the model once, and prints how often it has run in all cells so far.
        (printed,) = [output["text"] for output in cell["outputs"] if "text" in output]
        assert printed == f"{number}\n"


def test_a_picture_that_fails_leaves_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    displayed: list[Any] = []
    monkeypatch.setattr("attnviz.views.display.has_kernel", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda *data, **_: displayed.append(data))
    view = av.HeadView(given_record(), layer=0)

    def broken(self: AttentionStack, layer: int) -> Any:
        raise RuntimeError(layer)

    monkeypatch.setattr(AttentionStack, "attention", broken)
    view._ipython_display_()
    assert len(displayed) == 1


def test_unknown_options_are_refused() -> None:
    options = Options()
    for value in ("picture", "page", False):
        options.snapshot = value
        assert options.snapshot == value
    wrong: Any
    for wrong in (0, True, "pictures"):
        with pytest.raises(ValueError, match='must be "picture", "page" or False'):
            options.snapshot = wrong
    with pytest.raises(AttributeError, match="has no setting 'snapshots', only snapshot"):
        options.snapshots = False
