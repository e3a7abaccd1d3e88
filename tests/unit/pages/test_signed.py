"""Pages of signed numbers store the values and their signs."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import attnviz as av
from attnviz.pages import encoding
from attnviz.pages.encoding import EmbeddedWeights, embed_weights
from attnviz.pages.html import FORMAT as PAGE_FORMAT
from attnviz.record.difference import DifferenceAttention
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Candidate, Prediction, Tokens
from attnviz.server.codec import Encoded, decode
from attnviz.utils.progress import run_steps
from attnviz.views.head import HeadView
from unit.page_data import data_of, shown
from unit.records import words

Numbers = NDArray[Any]


def sides(tokens: int, heads: int = 2, layers: int = 2) -> list[av.AttentionRecord]:
    generator = torch.Generator().manual_seed(0)
    records = []
    for _ in range(2):
        vectors = 2 * torch.randn((2, layers, heads, tokens, 6), generator=generator)
        records.append(
            av.AttentionRecord.from_qk(
                list(vectors[0]), list(vectors[1]), words(tokens), causal=True
            )
        )
    return records


def difference(tokens: int, *, with_sides: bool = False, **options: Any) -> av.AttentionRecord:
    a, b = (record.stack() for record in sides(tokens, **options))
    layers = {n: DifferenceAttention(a.attention(n), b.attention(n)) for n in a.layers}
    stack = AttentionStack("self: b − a", layers, a.query_tokens, signed=True, measure="difference")
    stacks = (
        {
            "self: a": AttentionStack(
                "self: a", dict(enumerate(map(a.attention, a.layers))), a.query_tokens
            )
        }
        if with_sides
        else {}
    )
    return av.AttentionRecord(stacks | {stack.name: stack})


def embedded(record: av.AttentionRecord, **options: Any) -> EmbeddedWeights:
    options = {"precision": "auto", "max_bytes": None, "other_bytes": 0} | options
    return run_steps(embed_weights(record, **options))


def read(block: dict[str, Any]) -> Numbers:
    """Decode the numbers of a layer. The encoding must have signs."""
    assert block["encoding"] != "uint8-sqrt"
    return shown(block)


def test_each_number_is_stored_in_a_signed_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_POOLED_WEIGHTS", 0)
    record = difference(40)
    encoded = embedded(record)
    stack = record.stack()
    assert (encoded.form, encoded.covered) == ("all", 1.0)
    for block, small, layer in zip(encoded.blocks, encoded.maps, stack.layers, strict=True):
        expected = stack.weights(layer=layer)
        assert expected.min() < -0.1
        assert block["reach"] == 0
        assert block["encoding"] == "int8-sqrt"
        assert np.abs(read(block) - expected).max() <= block["error"] <= encoded.error
        assert encoded.error == pytest.approx(0.00786 * stack.maximum, rel=1e-3)
        # A cell of a small map shows its number with the largest absolute value.
        header = {name: small[name] for name in ("shape", "encoding", "maximum", "error")}
        cells = decode(Encoded(**header, data=zlib.decompress(base64.b64decode(small["data"]))))
        starts = np.arange(32) * 40 // 32
        for head, row, column in [(0, 0, 0), (1, 31, 0), (1, 20, 17), (0, 31, 31)]:
            ends = [np.append(starts, 40)[index + 1] for index in (row, column)]
            values = expected[head, starts[row] : ends[0], starts[column] : ends[1]]
            largest = values.flat[np.abs(values).argmax()]
            assert cells[head, row, column] == pytest.approx(largest, abs=small["error"])


def test_a_small_page_stores_the_largest_numbers_and_reports_the_error() -> None:
    record = difference(300, heads=4, layers=1)
    stack = record.stack()
    expected = stack.weights(layer=0)
    encoded = embedded(record, max_bytes=60_000)
    (block,) = encoded.blocks
    assert (encoded.form, block["signed"], encoded.size <= 60_000) == ("strongest", True, True)
    numbers = read(block)
    missing = numbers == 0
    assert np.abs(numbers - expected).max() == pytest.approx(encoded.error, rel=1e-3)
    assert encoded.error >= np.abs(expected[missing]).max()
    # Numbers have both signs, and no sign is wrong.
    assert (numbers < 0).any()
    assert (numbers > 0).any()
    assert (numbers * expected >= 0).all()
    # A number that rounds to zero counts as embedded.
    share = np.abs(expected[~missing]).sum() / np.abs(expected).sum()
    assert encoded.covered == pytest.approx(share, abs=0.002)
    assert 0.3 < encoded.covered < 0.97
    # A page with enough bytes covers the intended share.
    assert embedded(record, max_bytes=250_000).covered >= encoding.COVERED


def test_a_record_of_weights_and_of_differences_has_numbers_and_no_vectors() -> None:
    record = difference(300, heads=4, layers=1, with_sides=True)
    encoded = embedded(record, max_bytes=150_000)
    assert encoded.form == "strongest"
    weights, changes = encoded.blocks
    assert "signed" not in weights
    assert changes["signed"]
    assert (
        np.abs(read(changes) - record.stack("self: b − a").weights(layer=0)).max() <= encoded.error
    )
    # The rest of a row of weights is distributed, the rest of a difference is not.
    assert read(weights).sum(axis=2) == pytest.approx(1.0, abs=0.02)
    with pytest.raises(ValueError, match=r'precision="exact".* too large .*max_mb=0.05'):
        embedded(record, precision="exact", max_bytes=50_000)
    exact = embedded(record, precision="exact")
    assert (exact.form, [block["encoding"] for block in exact.blocks]) == (
        "all",
        ["uint8-sqrt", "int8-sqrt"],
    )


def test_a_page_of_signed_numbers_omits_data_of_weights() -> None:
    predictions = (Prediction(1, Candidate("c", 3, 0.5), (Candidate("c", 3, 0.5),), 2),)
    tokens = Tokens(
        text=("a", "b", "c"), special=(False,) * 3, sequence=(0,) * 3, predictions=predictions
    )
    numbers = np.random.default_rng(0).normal(size=(1, 2, 3, 3))
    record = av.AttentionRecord.from_weights(numbers, tokens, signed=True, measure="effect")
    page = HeadView(record).to_html()
    data = data_of(page)
    assert data["format"] == PAGE_FORMAT
    (stack,) = data["description"]["stacks"]
    assert (stack["signed"], stack["measure"], stack["patterns"]) == (True, "effect", [])
    assert data["scores"] == []
    assert np.abs(read(data["blocks"][0]) - numbers[0]).max() <= data["embedded"]["error"] * 1.0001
