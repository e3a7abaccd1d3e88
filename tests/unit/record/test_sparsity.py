"""Tests of the counts of weights that are exactly 0 in sparse attention, such as sparsemax."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from attnviz.record.attention import StoredWeights
from attnviz.record.record import AttentionRecord
from attnviz.record.sparsity import ZeroCount, count_zeros
from unit.records import captured_record, shares, words

Weights = NDArray[np.float64]


def sparsemax(logits: Weights) -> Weights:
    """Compute sparsemax over the last axis (Martins and Astudillo 2016, algorithm 1)."""
    result = np.zeros_like(logits)
    for row in np.ndindex(logits.shape[:-1]):
        z = np.sort(logits[row])[::-1]
        k = np.arange(1, len(z) + 1)
        support = 1 + k * z > np.cumsum(z)
        size = int(k[support][-1])
        tau = (np.cumsum(z)[size - 1] - 1) / size
        result[row] = np.maximum(logits[row] - tau, 0)
    return result


def logits(*shape: int, seed: int = 0) -> Weights:
    return np.random.default_rng(seed).normal(size=shape, scale=1.5)


def counts_of(
    *layers: NDArray[np.floating], dtype: torch.dtype = torch.float32
) -> list[tuple[ZeroCount, ...]]:
    layers_by_number = {
        i: StoredWeights(torch.from_numpy(layer).to(dtype)) for i, layer in enumerate(layers)
    }
    return list(count_zeros(layers_by_number).values())


@settings(max_examples=60)
@given(
    st.integers(1, 4),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(0, 999),
)
def test_zeros_of_sparse_attention_are_counted(
    heads: int, queries: int, keys: int, seed: int
) -> None:
    weights = sparsemax(logits(heads, queries, keys, seed=seed))
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-9)
    # `counts_of` rounds the weights to float32, which turns no positive weight into 0.
    (counts,) = counts_of(weights)
    offset = keys - queries
    ahead = ~np.tri(queries, keys, offset, dtype=bool)
    causal = offset >= 0 and queries > 1 and not weights[:, ahead].any()
    pairs = int((~ahead).sum()) if causal else queries * keys
    zeros = [int((head == 0).sum()) - (queries * keys - pairs) for head in weights]
    if any(not np.array_equal(head != 0, weights[0] != 0) for head in weights):
        assert counts == tuple(ZeroCount(zero_count, pairs) for zero_count in zeros)
    else:
        # Zeros at the same pairs in all heads may belong to a mask, so they may be left out.
        assert all(count.zeros in (0, zeros[0]) for count in counts)


def test_a_single_sparse_head_is_counted() -> None:
    weights = np.array([[[0.5, 0.0, 0.5], [0.0, 1.0, 0.0], [0.2, 0.8, 0.0]]])
    assert counts_of(weights) == [(ZeroCount(4, 9),)]
    # Rows with one nonzero weight count as sparse attention, even if all heads are equal.
    assert counts_of(np.eye(3)[None]) == [(ZeroCount(3, 6),)]
    assert counts_of(np.stack([np.eye(3)[::-1]] * 2)) == [(ZeroCount(6, 9), ZeroCount(6, 9))]


def test_a_stack_is_causal_if_all_its_layers_are() -> None:
    lower = np.tril(logits(2, 4, 4) ** 2 + 0.1)
    lower[0, 3, 1] = 0
    lower /= lower.sum(-1, keepdims=True)
    full = shares(2, 4, 4).astype(np.float64)
    causal, both = counts_of(lower), counts_of(lower, full)
    assert causal == [(ZeroCount(1, 10), ZeroCount(0, 10))]
    assert both[0] == (ZeroCount(7, 16), ZeroCount(6, 16))


def masked(allowed: NDArray[np.bool_], heads: int = 3) -> Weights:
    """Return random softmax weights (heads, queries, keys) with one mask for all heads."""
    size = allowed.shape[0]
    powers = np.exp(logits(heads, size, size)) * allowed
    sums = powers.sum(-1, keepdims=True)
    weights: Weights = powers / np.where(sums > 0, sums, 1)
    return weights


POSITIONS = np.arange(8)
DISTANCE = POSITIONS[None, :] - POSITIONS[:, None]
MASKS = {
    "causal": DISTANCE <= 0,
    "window": np.abs(DISTANCE) < 3,
    "padding, its queries too": (POSITIONS < 6)[None, :] & (POSITIONS < 6)[:, None],
    "documents": POSITIONS[None, :] // 4 == POSITIONS[:, None] // 4,
    "prefix": (DISTANCE <= 0) | (POSITIONS < 3),
}


@pytest.mark.parametrize("name", MASKS)
def test_zeros_of_a_mask_are_not_counted(name: str) -> None:
    weights = masked(MASKS[name])
    for count in counts_of(weights)[0]:
        assert count == ZeroCount(0, int(MASKS[name].sum()))


def test_a_query_without_weight_counts_as_masked() -> None:
    weights = np.array([[[0.0, 0.0, 0.0], [0.5, 0.0, 0.5], [0.0, 0.3, 0.7]]])
    assert counts_of(weights) == [(ZeroCount(2, 6),)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_small_weights_are_not_zeros_in_any_precision(dtype: torch.dtype) -> None:
    small = 1e-7 if dtype == torch.float16 else 1e-30
    weights = np.array([[[1.0, small], [0.0, 1.0]], [[1.0, 0.0], [small, 1.0]]])
    assert counts_of(weights, dtype=dtype) == [(ZeroCount(1, 4), ZeroCount(1, 4))]


def test_the_stack_returns_the_counts() -> None:
    weights = sparsemax(logits(2, 5, 5, seed=1))
    stack = AttentionRecord.from_weights([weights, shares(3, 5, 5)], words(5)).stack()
    for head in range(2):
        zero_count = stack.exact_zeros(layer=0, head=head)
        assert zero_count is not None
        zeros = int((weights[head] == 0).sum())
        assert (zero_count.zeros, zero_count.counted, zero_count.share) == (zeros, 25, zeros / 25)
        assert stack.exact_zeros(layer=1, head=head) == ZeroCount(0, 25)
    with pytest.raises(IndexError, match="head=3"):
        stack.exact_zeros(layer=1, head=3)


def test_softmaxes_and_words_have_no_exact_zeros() -> None:
    assert captured_record().stack().exact_zeros(layer=2, head=0) is None
    sparse = AttentionRecord.from_weights([np.eye(3)[None]], ["un", "do", "Ġit"])
    assert sparse.merge_words().stack().exact_zeros(layer=0, head=0) is None
