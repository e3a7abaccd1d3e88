"""Tests of `DifferenceAttention`, the weights of a layer `b` minus those of a layer `a`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from attnviz.record.attention import QueryKeyAttention, StoredWeights
from attnviz.record.difference import DifferenceAttention
from attnviz.record.linear import LinearAttention
from attnviz.record.masks import BandMask, Mask, PackedMask
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.record.units import UnitAttention
from unit.formulas import weights_of
from unit.records import shares, vectors

QUERIES, KEYS = 7, 9


def side(seed: int, mask: Mask | None = None) -> QueryKeyAttention:
    queries, keys = vectors(4, QUERIES, 8, seed=seed), vectors(2, KEYS, 8, seed=seed + 100)
    return QueryKeyAttention(queries, keys, 0.8, mask=mask)


def test_rows_that_one_side_lacks_are_zero() -> None:
    flags = torch.ones(2, 1, QUERIES, KEYS, dtype=torch.bool)
    flags[0, 0, 2] = flags[1, 0, 5] = False
    a, b = (side(number, PackedMask.pack(mask)) for number, mask in enumerate(flags))
    difference = DifferenceAttention(a, b)
    for head in range(4):
        numbers = difference.block([head], slice(0, QUERIES))[0].numpy()
        assert_allclose(numbers, weights_of(difference)[head], atol=1e-6)
        assert np.flatnonzero(~numbers.any(axis=1)).tolist() == [2, 5]


def test_a_difference_is_causal_if_both_sides_are() -> None:
    causal, window = (side(0, BandMask(before, 0, KEYS - QUERIES)) for before in (None, 3))
    assert DifferenceAttention(causal, window).causal
    assert not DifferenceAttention(causal, side(1)).causal


def test_words_of_a_difference_are_differences_of_words() -> None:
    a, b = (StoredWeights(torch.from_numpy(shares(1, 3, 3, seed=seed))) for seed in (0, 1))
    tokens = Tokens.of(["un", "##do", "it"])
    difference = DifferenceAttention(a, b)
    stack = AttentionStack("self", {0: difference}, tokens, signed=True, measure="m").merge_words()
    assert (stack.signed, stack.normalized, stack.measure) == (True, False, "m")
    assert stack.query_tokens.text == ("undo", "it")
    expected = weights_of(difference)[0, :2, :2].sum() / 2
    assert_allclose(stack.weights(layer=0, head=0)[0, 0], expected, atol=1e-6)


def test_words_cannot_be_merged_twice() -> None:
    starts = np.array([0, 2]), np.array([0, 2])
    side_of_words = UnitAttention(StoredWeights(torch.from_numpy(shares(1, 3, 3))), *starts)
    layers = {0: DifferenceAttention(side_of_words, side_of_words)}
    stack = AttentionStack("self", layers, Tokens.of(["un", "##do"]), signed=True)
    with pytest.raises(ValueError, match=r"stack 'self': its rows and columns already combine"):
        stack.merge_words()


def test_the_bound_of_differences_of_differences_is_2() -> None:
    sharp = 50 * torch.eye(2)[None]
    a, b = QueryKeyAttention(sharp, sharp, 1.0), QueryKeyAttention(sharp, sharp.flip(1), 1.0)
    each_token = np.arange(2), np.arange(2)
    one, other = (
        UnitAttention(DifferenceAttention(*sides), *each_token) for sides in [(a, b), (b, a)]
    )
    difference = DifferenceAttention(one, other)
    assert_allclose(difference.block([0], slice(0, 2)).abs(), 2, rtol=1e-6)
    assert difference.bound == 2


def test_the_bound_of_merged_differences_of_linear_layers_is_unknown() -> None:
    """A difference of words sums the differences of their tokens, which may exceed the bound."""
    ones = torch.ones(1, 3, 1)
    layer = LinearAttention(ones, ones, torch.zeros(1, 3, 1), ones[..., 0])
    difference = DifferenceAttention(layer, replace(layer, strengths=-ones[..., 0]))
    assert difference.bound == 2
    word = UnitAttention(difference, np.array([0]), np.array([0]))
    assert word.bound is None
    softmax = QueryKeyAttention(ones, ones, 1.0)
    of_softmax = UnitAttention(DifferenceAttention(softmax, softmax), np.array([0]), np.array([0]))
    assert of_softmax.bound == 1


def test_sides_of_different_shapes_are_refused() -> None:
    a = side(0)
    with pytest.raises(ValueError, match=r"a has 7 queries and 9 keys, b 7 and 8; both must"):
        DifferenceAttention(a, replace(a, keys=a.keys[:, :8]))
