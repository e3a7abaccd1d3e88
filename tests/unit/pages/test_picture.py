"""Tests of the pictures of all heads that are drawn without a browser."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import attnviz as av
from attnviz.pages.picture import MAX_PICTURE_BYTES, draw_all_heads, draw_heads_picture
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import Rows
from attnviz.record.softmax import count_rows
from attnviz.views.base import View
from benchmarks.corpora import random_corpus
from benchmarks.inputs import texts, weights
from unit.atlas.example_statistics import made_statistics
from unit.long_records import long_record
from unit.records import given_record, hybrid_record, words

WHITE, DARKEST = (255, 255, 255), (18, 10, 26)
BLUE, ORANGE = (27, 106, 179), (217, 111, 14)


def record() -> av.AttentionRecord:
    weights = [[[[1.0, 0.0], [0.25, 0.75]], [[1.0, 0.0], [1.0, 0.0]]]]
    return av.AttentionRecord.from_weights(weights, ["a", "b"], model="tiny")


def test_a_picture_has_a_map_for_each_head_in_the_colours_of_the_matrix_view() -> None:
    picture = draw_heads_picture(record().stack(), side=8)
    # Two maps of 8 x 8 pixels, with lines of one pixel around and between the maps.
    assert picture.shape == (10, 19, 3)
    first, second = picture[1:9, 1:9], picture[1:9, 10:18]
    assert [tuple(first[0, 0]), tuple(first[0, 7])] == [DARKEST, WHITE]
    assert [tuple(second[7, 0]), tuple(second[7, 7])] == [DARKEST, WHITE]
    # The matrix view interpolates between 16 colours. At 0.75, the colour is a quarter of the way
    # from the 12th, #3d3b68, to the 13th, #342d54. Allow for the rounding to 254 colours.
    assert np.abs(first[7, 7] - (58.75, 55.5, 99)).max() <= 2


def test_a_picture_of_a_long_text_has_the_largest_weight_of_several_keys() -> None:
    # Query 23, the last of 24, attends to the last of 48 keys, and all others to the first. The map
    # has 8 rows, which show 8 of the queries, and 8 columns of 6 keys each.
    weights = np.zeros((1, 1, 24, 48))
    weights[0, 0, :, 0] = 1
    weights[0, 0, -1] = np.eye(48)[47]
    record = av.AttentionRecord.from_weights(
        cross_attentions=weights, encoder_tokens=words(48), decoder_tokens=words(24)
    )
    inside = draw_heads_picture(record.stack(), side=8)[1:-1, 1:-1]
    is_dark = (inside == DARKEST).all(axis=2)
    assert np.argwhere(is_dark).tolist() == [*([row, 0] for row in range(7)), [7, 7]]


def get_still(page: str) -> str:
    return page.split('<div id="attnviz-still">')[1].split("</div>", 1)[0]


def pixels_of(still: str) -> NDArray[np.uint8]:
    """Decode the picture as an array of shape (rows, columns, 3)."""
    [data] = re.findall(r'src="data:image/png;base64,([^"]+)"', still)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))


def test_a_page_has_every_weight_of_a_short_text_as_a_pixel() -> None:
    still = get_still(av.HeadView(record()).to_html())
    pixels = pixels_of(still)
    # Two maps of 2 x 2 pixels, with lines of one pixel around and between the maps.
    assert pixels.shape == (4, 7, 3)
    assert [tuple(pixel) for pixel in pixels[1, [1, 2]]] == [DARKEST, WHITE]
    assert [tuple(pixel) for pixel in pixels[2, [4, 5]]] == [DARKEST, WHITE]
    assert "Weights of layer 0 and heads 0, 1 from left to right (stack self)." in still
    assert "Darker is more, up to 1." in still
    assert "tiny · head view" in still


def test_signed_numbers_of_a_page_have_two_colours() -> None:
    values = [[[[0.5, 0.0], [-0.5, 0.25]]]]
    signed = av.AttentionRecord.from_weights(values, ["a", "b"], signed=True)
    still = get_still(av.MatrixView(signed).to_html())
    cells = [[tuple(cell) for cell in row] for row in pixels_of(still)[1:3, 1:3]]
    assert [*cells[0], cells[1][0]] == [BLUE, WHITE, ORANGE]
    assert "Blue is above zero and orange below, up to 0.5" in still


def test_pages_and_stills_draw_the_layers_of_all_kinds() -> None:
    view = av.ModelView(hybrid_record(), stack="linear")
    for still in (get_still(view.to_html()), view._still()):
        assert still.count("<img") == 2
        assert "<p>Weights of layers 1, 3 from top to bottom" in still
        assert "<p>Linear weights of layers 0 to 2 from top to bottom" in still
    # The head view shows one layer, so its still does, too.
    still = av.HeadView(hybrid_record(), stack="linear", layer=2)._still()
    assert still.count("<img") == 1
    assert "Linear weights of layer 2, " in still


def test_layers_with_fewer_heads_leave_room() -> None:
    still = get_still(av.HeadView(given_record((2, 1))).to_html())
    pixels = pixels_of(still)
    assert pixels.shape == (13, 13, 3)
    assert (pixels[7:12, 1:6] != 255).any()
    assert (pixels[7:12, 7:12] == 255).all()
    assert "layers 0, 1 from top to bottom and heads 0, 1 from left" in still


def test_a_long_text_computes_16_queries_of_each_head(monkeypatch: pytest.MonkeyPatch) -> None:
    long = long_record(3_000, layers=2, heads=3, key_heads=3)
    num_rows: list[int] = []
    compute = QueryKeyAttention.block

    def counted(attention: QueryKeyAttention, heads: Sequence[int], rows: Rows) -> object:
        num_rows.extend(count_rows(rows) for _ in heads)
        return compute(attention, heads, rows)

    monkeypatch.setattr(QueryKeyAttention, "block", counted)
    still = draw_all_heads(long.stack())
    assert num_rows == [16] * 6
    assert len(still) <= MAX_PICTURE_BYTES
    assert (
        "A map of 3,000 queries and 3,000 keys shows the largest weights of 16 of its queries, in "
        "16 by 16 cells." in still
    )


def views() -> dict[str, View]:
    made_record = av.AttentionRecord.from_weights(weights(2, 3, 8), texts(8), model='<b>&"m')
    other_record = av.AttentionRecord.from_weights(weights(2, 3, 8).flip(0), texts(8))
    return {
        "head": av.HeadView(made_record),
        "matrix": av.MatrixView(made_record),
        "model": av.ModelView(made_record),
        "neuron": av.NeuronView(long_record(8, layers=2, heads=3, key_heads=3)),
        "dashboard": av.Dashboard(made_record),
        "compare": av.CompareView(av.compare(made_record, other_record)),
        "embedding": av.EmbeddingView(random_corpus(100, 2, 3)),
        "atlas": av.AtlasView(made_statistics()),
    }


def test_every_kind_of_page_says_what_it_contains_without_scripts() -> None:
    contents = {"compare": "Differences of", "embedding": "Queries (brown)"}
    for name, view in views().items():
        still = get_still(view.to_html())
        assert f" · {name} view</p>" in still
        assert "<b>" not in still
        assert len(still.encode()) <= MAX_PICTURE_BYTES
        if name == "atlas":
            assert "<table><caption>" in still
            continue
        [alt] = re.findall(r'<img alt="([^"]+)"', still)
        assert alt.startswith(contents.get(name, "Weights of"))
        assert "from top to bottom and heads 0 to 2 from left to right" in alt
        # Two rows of three maps have 3 horizontal and 4 vertical lines around and between the maps.
        pixels = pixels_of(still)
        is_line = (pixels == pixels[0, 0]).all(axis=2)
        assert (is_line.all(axis=1).sum(), is_line.all(axis=0).sum()) == (3, 4)
