"""Tests of the weights, differences and maps of heads on exported pages of comparisons."""

from __future__ import annotations

import pytest
import torch
from numpy.testing import assert_allclose

import attnviz as av
from attnviz.pages import encoding
from attnviz.server.codec import decode, encode
from unit.page_data import data_of, decode_rows
from unit.records import vectors, words


def comparison(
    members: int, layers: int, heads: int, tokens: int, *, causal: bool = False
) -> av.Comparison:
    """Compare `members` records, whose vectors are mixtures of two sets of random vectors."""
    first, last = 1.5 * vectors(2, 2, layers, heads, tokens, 8)
    records = []
    for fraction in torch.linspace(0, 0.6, members):
        queries, keys = (1 - fraction) * first + fraction * last
        records.append(av.AttentionRecord.from_qk(queries, keys, words(tokens), causal=causal))
    return av.compare(records, names=list("abcdefgh"[:members]))


@pytest.mark.parametrize("causal", [False, True])
def test_a_page_has_the_codes_of_every_weight_and_of_every_difference(causal: bool) -> None:
    compared = comparison(4, 2, 3, 12, causal=causal)
    data = data_of(av.CompareView(compared).to_html())
    record = compared.record()
    assert len(data["blocks"]) == 2 * len(record.stacks)
    for block in data["blocks"]:
        stack = record.stack(block["stack"])
        numbers = stack.weights(layer=block["layer"])
        encoded = encode(numbers, "uint8", stack.maximum, signed=stack.signed)
        name = f"{block['stack']}, layer {block['layer']}"
        assert_allclose(decode_rows(block).dense, decode(encoded), rtol=1e-6, err_msg=name)
    # A page of a comparison has no scores by which heads could be ordered.
    assert data["scores"] == []
    assert all(stack["patterns"] == [] for stack in data["description"]["stacks"])


@pytest.mark.parametrize(("tokens", "num_maps"), [(32, 0), (33, 3)])
def test_a_short_text_has_no_maps_beside_its_weights(
    tokens: int, num_maps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "_POOLED_WEIGHTS", 0)
    page = av.CompareView(comparison(2, 1, 2, tokens)).to_html()
    assert len(data_of(page)["maps"]) == num_maps
