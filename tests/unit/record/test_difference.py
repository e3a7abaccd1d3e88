"""Differences of two attentions, compared with b - a of torch's softmax."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention, QueryKeyAttention, StoredWeights
from attnviz.record.difference import DifferenceAttention
from attnviz.record.masks import BandMask, InsertedMask, Mask, PackedMask
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.record.words import MergedWeights
from unit.records import shares, vectors

QUERIES, KEYS = 7, 9
Flags = NDArray[np.bool_]


def side(seed: int, mask: Mask | None = None, sinks: torch.Tensor | None = None) -> LayerAttention:
    return QueryKeyAttention(
        vectors(4, QUERIES, 8, seed=seed) * 2,
        vectors(2, KEYS, 8, seed=seed + 100),
        0.4,
        mask=mask,
        sinks=sinks,
    )


def by_torch(attention: LayerAttention, flags: Flags) -> NDArray[np.float64]:
    """Return the float64 softmax of all heads, with zeros in rows without an allowed key."""
    vectors = attention.vectors
    assert vectors is not None
    keys = vectors.keys.double().repeat_interleave(2, dim=0)
    logits = vectors.queries.double() @ keys.transpose(1, 2) * vectors.scale
    logits[:, ~torch.from_numpy(flags)] = -torch.inf
    if vectors.sinks is not None:
        sinks = vectors.sinks.double()[:, None, None].expand(-1, QUERIES, 1)
        return torch.softmax(torch.cat([logits, sinks], dim=2), dim=2)[:, :, :-1].numpy()
    weights: NDArray[np.float64] = torch.nan_to_num(torch.softmax(logits, dim=2)).numpy()
    return weights


def packed(flags: Flags) -> PackedMask:
    return PackedMask.pack(torch.from_numpy(flags)[None])


def random_flags(seed: int, missing: int) -> Flags:
    flags = np.random.default_rng(seed).random((QUERIES, KEYS)) < 0.7
    flags[:, 0] = True
    flags[missing] = False
    return flags


@pytest.mark.parametrize("sinks", [None, torch.tensor([0.5, -1.0, 2.0, 0.0])])
def test_differences_are_b_minus_a_and_zero_in_rows_that_one_side_lacks(
    sinks: torch.Tensor | None,
) -> None:
    flags = random_flags(0, missing=2), random_flags(1, missing=5)
    a, b = (side(number, packed(mask_flags), sinks) for number, mask_flags in enumerate(flags))
    both = np.logical_and(flags[0].any(axis=1), flags[1].any(axis=1))
    assert both.sum() == QUERIES - 2
    expected = (by_torch(b, flags[1]) - by_torch(a, flags[0])) * both[:, None]
    allowed = (flags[0] | flags[1]) & both[:, None]
    difference = DifferenceAttention(a, b)
    assert (difference.num_queries, difference.num_keys) == (QUERIES, KEYS)
    assert difference.num_heads == 4
    for head in range(4):
        for rows, columns in [
            (slice(0, QUERIES), slice(0, KEYS)),
            (slice(1, 3), slice(4, 8)),
            (slice(5, 6), slice(0, 1)),
            (slice(3, 3), slice(0, KEYS)),
        ]:
            block = difference.weights(head, rows, columns)
            assert block.dtype == np.float32
            assert_allclose(block, expected[head, rows, columns], atol=1e-6)
            assert_array_equal(difference.allowed(head, rows, columns), allowed[rows, columns])
        numbers = np.array([6, 2, 0, 5])
        block_of_rows, allowed_keys = difference.weights_of_rows(head, numbers)
        assert_allclose(block_of_rows, expected[head, numbers], atol=1e-6)
        assert_array_equal(allowed_keys, allowed[numbers])


def test_the_difference_to_itself_is_zero_and_the_order_sets_the_sign() -> None:
    a, b = side(0, BandMask(None, 0, KEYS - QUERIES)), side(1, BandMask(3, 0, KEYS - QUERIES))
    whole = slice(0, QUERIES), slice(0, KEYS)
    for head in range(4):
        assert not DifferenceAttention(a, a).weights(head, *whole).any()
        forth = DifferenceAttention(a, b).weights(head, *whole)
        assert forth.any()
        assert_array_equal(DifferenceAttention(b, a).weights(head, *whole), -forth)
    assert DifferenceAttention(a, b).causal
    assert not DifferenceAttention(a, side(1)).causal


@pytest.mark.parametrize(("before", "after"), [((None, 0, 2), (3, 0, 2)), ((None, -3), (None, 0))])
def test_differences_outside_the_key_range_are_zero(
    before: tuple[Any, ...], after: tuple[Any, ...]
) -> None:
    a, b = side(0, BandMask(*before)), side(1, BandMask(*after))
    difference = DifferenceAttention(a, b)
    for rows in (slice(0, QUERIES), slice(0, 1), slice(3, 5), slice(6, 7)):
        key_range = difference.key_range(rows)
        weights = difference.weights(0, rows, slice(0, KEYS))
        assert not weights[:, : key_range.start].any()
        assert not weights[:, key_range.stop :].any()
        assert weights.any() == (key_range.stop > key_range.start)


@pytest.mark.parametrize(
    "mask",
    [
        None,
        InsertedMask(BandMask(None, 0), torch.tensor([0, 2, 3]), torch.tensor([0, 2, 8]), 7, 9),
        BandMask(None, 0),
        BandMask(None, 0, -3),
        BandMask(2, 0),
        BandMask(1, 1, 4),
        packed(random_flags(3, missing=4)),
    ],
)
def test_queries_with_an_allowed_key(mask: Mask | None) -> None:
    attention = side(0, mask)
    for rows in (slice(0, QUERIES), slice(2, 5), slice(4, 4)):
        flags = attention.allowed(1, rows, slice(0, KEYS)).any(axis=1)
        assert_array_equal(attention.has_allowed_key(1, rows), flags)


def test_words_cannot_be_merged_twice() -> None:
    starts = np.array([0, 2]), np.array([0, 2])
    whole = StoredWeights(torch.from_numpy(shares(1, 3, 3)))
    merged = DifferenceAttention(MergedWeights(whole, *starts), MergedWeights(whole, *starts))
    stack = AttentionStack("self", {0: merged}, Tokens.of(["un", "##do"]), signed=True)
    with pytest.raises(
        ValueError, match=r"stack 'self': its rows and columns already combine several"
    ):
        stack.merge_words()
    plain = DifferenceAttention(whole, StoredWeights(torch.from_numpy(shares(1, 3, 3, seed=1))))
    tokens = Tokens.of(["un", "##do", "it"])
    words = AttentionStack("self", {0: plain}, tokens, signed=True, measure="m").merge_words()
    assert (words.signed, words.normalized, words.measure) == (True, False, "m")
    assert words.query_tokens.text == ("undo", "it")
    expected = shares(1, 3, 3, seed=1)[0] - shares(1, 3, 3)[0]
    assert_allclose(words.weights(layer=0, head=0)[0, 0], expected[:2, :2].sum() / 2, atol=1e-6)


def test_sides_of_different_shapes_are_refused() -> None:
    a = side(0)
    assert isinstance(a, QueryKeyAttention)
    with pytest.raises(ValueError, match=r"a has 7 queries and 9 keys, b 7 and 8; both must"):
        DifferenceAttention(a, replace(a, keys=a.keys[:, :8]))
