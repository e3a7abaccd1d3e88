"""Attention compared with torch's own, with numbers worked out by hand, and with float64.

`from_arrays/test_queries_keys.py` compares masks, biases and scales with a softmax by hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention

import attnviz.record.attention
import attnviz.record.softmax
from attnviz.record.attention import QueryKeyAttention, StoredWeights
from attnviz.record.masks import (
    BandMask,
    DenseBias,
    DistanceBias,
    PackedMask,
    WindowBias,
    WindowMask,
)
from attnviz.record.softmax import weights_from_logits
from rounding import logit_error, relative_error, weights_error
from unit.records import shares, vectors


def all_weights(attention: QueryKeyAttention) -> NDArray[np.float32]:
    rows, columns = slice(0, attention.num_queries), slice(0, attention.num_keys)
    return np.stack([attention.weights(h, rows, columns) for h in range(attention.num_heads)])


def weights_of_torch(
    queries: torch.Tensor, keys: torch.Tensor, **options: Any
) -> NDArray[np.float32]:
    """Return torch's weights, which are its output if the values are the unit matrix."""
    values = torch.eye(keys.shape[1]).expand(len(keys), -1, -1)
    output = scaled_dot_product_attention(queries[None], keys[None], values[None], **options)
    weights: NDArray[np.float32] = output[0].numpy()
    return weights


@pytest.mark.parametrize(("heads", "key_heads"), [(8, 2), (6, 1), (4, 4)])
def test_grouped_heads(heads: int, key_heads: int) -> None:
    queries, keys = vectors(heads, 5, 8), vectors(key_heads, 5, 8, seed=1)
    own = weights_of_torch(queries, keys, scale=0.35, enable_gqa=True)
    attention = QueryKeyAttention(queries, keys, 0.35)
    assert_allclose(all_weights(attention), own, atol=1e-6)
    group = heads // key_heads
    assert [attention.key_head(h) for h in range(heads)] == [h // group for h in range(heads)]


def test_masked_nan_does_not_affect_a_row() -> None:
    keys = vectors(1, 3, 4)
    keys[0, 2] = torch.nan
    attention = QueryKeyAttention(vectors(1, 3, 4, seed=1), keys, 0.5, mask=BandMask(None, 0))
    weights = all_weights(attention)[0]
    assert np.isfinite(weights[:2]).all()
    assert np.isnan(weights[2]).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_are_computed_in_float32(dtype: torch.dtype) -> None:
    queries, keys = vectors(2, 5, 8).to(dtype), vectors(2, 5, 8, seed=1).to(dtype)
    weights = all_weights(QueryKeyAttention(queries, keys, 0.35))
    assert weights.dtype == np.float32
    own = weights_of_torch(queries.float(), keys.float(), scale=0.35)
    assert_allclose(weights, own, atol=1e-6)


GENERATOR = torch.Generator().manual_seed(0)
KINDS = {
    "causal": {"mask": BandMask(None, 0, offset=4)},
    "packed": {"mask": PackedMask.pack(torch.rand(4, 9, 13, generator=GENERATOR) < 0.5)},
    "nothing to see": {"mask": BandMask(None, 0, offset=-3), "sinks": vectors(4, seed=3)},
    "distance": {"bias": DistanceBias(vectors(4, 21, seed=3), 9)},
    "dense": {"bias": DenseBias(vectors(1, 9, 13, seed=3))},
    "capped, with sinks": {"softcap": 5.0, "sinks": vectors(4, seed=3)},
    "plain": {},
    "both ways": {"mask": BandMask(None, None, offset=4)},
    "a window": {"mask": BandMask(2, 1, offset=3)},
    "a window that begins late": {"mask": BandMask(1, -3, offset=2)},
    "windows": {"mask": WindowMask(torch.arange(9) // 4, torch.arange(13) // 4)},
    "bias of windows": {
        "bias": WindowBias(
            vectors(4, 4, 4, 4, seed=5)[:, :1],
            torch.arange(9) // 4,
            torch.arange(13) // 4,
            torch.arange(9) % 4,
            torch.arange(13) % 4,
        )
    },
    "all at once": {
        "mask": BandMask(4, 0, offset=4),
        "bias": DistanceBias(vectors(1, 21, seed=3), 9),
        "softcap": 2.0,
        "sinks": vectors(4, seed=3),
    },
}


BLOCKS = [
    (slice(0, 9), slice(0, 13)),
    (slice(2, 7), slice(0, 13)),
    (slice(3, 4), slice(5, 11)),
    (slice(8, 9), slice(12, 13)),
    (slice(4, 4), slice(0, 13)),
]


def in_float64(attention: QueryKeyAttention, head: int) -> NDArray[np.float64]:
    """Compute the logits with numpy in float64."""
    keys = attention.keys[attention.key_head(head)].double().numpy()
    logits: NDArray[np.float64] = attention.queries[head].double().numpy() @ keys.T
    logits *= attention.scale
    if attention.softcap is not None:
        logits = np.tanh(logits / attention.softcap) * attention.softcap
    rows, columns = slice(0, attention.num_queries), slice(0, attention.num_keys)
    if attention.bias is not None:
        logits = logits + attention.bias.added(head, rows, columns).double().numpy()
    return np.where(attention.allowed(head, rows, columns), logits, -np.inf)


def sums_in_float64(attention: QueryKeyAttention, head: int) -> NDArray[np.float64]:
    logits = in_float64(attention, head)
    if attention.sinks is not None:
        sink = attention.sinks[head].double().numpy()
        logits = np.concatenate([logits, np.full((len(logits), 1), sink)], axis=1)
    with np.errstate(divide="ignore"):
        sums: NDArray[np.float64] = np.log(np.exp(logits).sum(axis=1))
    return sums


@pytest.mark.parametrize("entries", [1, 24, 1 << 19])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_their_sums_block_by_block(
    kind: str, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attnviz.record.softmax, "_BLOCK_ENTRIES", entries)
    monkeypatch.setattr(attnviz.record.softmax, "_TILE_ENTRIES", entries)
    monkeypatch.setattr(attnviz.record.attention, "_ROWS_PER_PRODUCT", 4)
    options: Any = KINDS[kind]
    attention = QueryKeyAttention(vectors(4, 9, 8), vectors(2, 13, 8, seed=1), 0.35, **options)
    scattered = torch.tensor([7, 0, 3, 3, 8])
    for head in range(4):
        expected, sums = in_float64(attention, head), sums_in_float64(attention, head)
        weights = np.exp(expected - np.where(np.isneginf(sums), np.inf, sums)[:, None])
        for rows in (slice(0, 9), slice(2, 7), slice(8, 9), scattered):
            indices = rows if isinstance(rows, slice) else rows.numpy()
            log_normalizers = attention.log_normalizer(head, rows)
            assert log_normalizers.dtype == torch.float32
            assert_allclose(log_normalizers.numpy(), sums[indices], atol=weights_error(attention))
            for columns in (slice(0, 13), slice(5, 11), slice(12, 13)):
                logits = attention.logits(head, rows, columns)
                assert logits.dtype == torch.float32
                tolerance = logit_error(attention)
                assert_allclose(logits.numpy(), expected[indices][:, columns], atol=tolerance)
                weights_of_part = weights_from_logits(logits, log_normalizers).numpy()
                assert_allclose(
                    weights_of_part, weights[indices][:, columns], rtol=relative_error(attention)
                )
            outside = np.ones(13, bool)
            outside[attention.key_range(rows)] = False
            assert not attention.allowed(head, slice(0, 9), slice(0, 13))[indices][:, outside].any()
        for block in BLOCKS:
            found_weights = attention.weights(head, *block)
            assert_allclose(found_weights, weights[block], atol=weights_error(attention))


def test_masked_blocks_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    num_logits: list[int] = []
    logits = QueryKeyAttention.shared_logits

    def counted(self: Any, heads: Any, rows: Any, columns: Any = None) -> torch.Tensor:
        result = logits(self, heads, rows, columns)
        num_logits.append(result.numel())
        return result

    monkeypatch.setattr(QueryKeyAttention, "shared_logits", counted)
    monkeypatch.setattr(attnviz.record.softmax, "_BLOCK_ENTRIES", 64)
    monkeypatch.setattr(attnviz.record.attention, "_ROWS_PER_PRODUCT", 8)
    options: Any = {"queries": vectors(1, 256, 8), "keys": vectors(1, 256, 8), "scale": 0.3}
    for mask, share in ((None, 1.0), (BandMask(None, 0), 0.52), (BandMask(15, 0), 0.1)):
        num_logits.clear()
        QueryKeyAttention(**options, mask=mask).log_normalizer(0, slice(0, 256))
        assert sum(num_logits) <= share * 256 * 256
        # No block is larger than the limit.
        assert max(num_logits) <= 64


def test_log_normalizers_of_empty_rows_and_nan() -> None:
    flags = torch.ones(1, 4, 4, dtype=torch.bool)
    flags[0, 2] = False
    queries = vectors(1, 4, 8)
    queries[0, 1, 3] = torch.nan
    attention = QueryKeyAttention(
        queries, vectors(1, 4, 8, seed=1), 0.35, mask=PackedMask.pack(flags)
    )
    sums = attention.log_normalizer(0, slice(0, 4))
    assert torch.isneginf(sums).tolist() == [False, False, True, False]
    assert torch.isnan(sums).tolist() == [False, True, False, False]
    assert weights_from_logits(attention.logits(0, slice(2, 3)), sums[2:3]).tolist() == [[0.0] * 4]


def test_sums_of_logits_that_overflow() -> None:
    attention = QueryKeyAttention(torch.tensor([[[300.0]]]), torch.tensor([[[1.0], [2.0]]]), 100.0)
    sums = attention.log_normalizer(0, slice(0, 1))
    assert sums.tolist() == [60000.0]
    assert_array_equal(all_weights(attention)[0, 0], [0.0, 1.0])
    assert weights_from_logits(attention.logits(0, slice(0, 1)), sums).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"queries": torch.zeros(3, 4)}, r"must be \(heads, tokens, head_dim\); got \(3, 4\)"),
        ({"keys": torch.zeros(2, 3, 5)}, "queries have head_dim 4 but keys 5"),
        ({"keys": torch.zeros(3, 3, 4)}, "4 query heads cannot share 3 key heads"),
        ({"keys": torch.zeros(0, 3, 4)}, "4 query heads cannot share 0 key heads"),
        ({"sinks": torch.zeros(2)}, r"sinks must be \(4,\), one logit per head; got \(2,\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    parts: dict[str, Any] = {"queries": torch.zeros(4, 3, 4), "keys": torch.zeros(2, 3, 4)}
    with pytest.raises(ValueError, match=message):
        QueryKeyAttention(**parts | changes, scale=1.0)


def test_stored_weights_are_returned_unchanged() -> None:
    values = shares(3, 4, 6)
    attention = StoredWeights(torch.from_numpy(values))
    assert (attention.num_heads, attention.num_queries, attention.num_keys) == (3, 4, 6)
    block = attention.weights(2, slice(1, 3), slice(0, 5))
    assert_array_equal(block, values[2, 1:3, :5])
    block[:] = 0
    assert values.all()
    half = torch.from_numpy(values).bfloat16()
    block = StoredWeights(half).weights(0, slice(0, 4), slice(0, 6))
    assert block.dtype == np.float32
    assert_array_equal(block, half[0].float().numpy())


@pytest.mark.parametrize("heads", [(0, 1, 2), (2, 0), (1,)])
@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4, 5], [2, 3], [0, 2, 1, 3], [5, 0], [4]])
def test_rows_of_several_heads_equal_those_of_single_heads(
    heads: tuple[int, ...], rows: list[int]
) -> None:
    generator = torch.Generator().manual_seed(0)
    weighted = StoredWeights(torch.rand(3, 6, 6, generator=generator))
    sides = torch.randn(2, 3, 6, 4, generator=generator)
    computed = QueryKeyAttention(sides[0], sides[1], 0.5, mask=BandMask(None, 0))
    for attention in (weighted, computed):
        weights, allowed = attention.rows_of_each_head(heads, np.array(rows))
        assert weights.shape == (len(heads), len(rows), 6)
        for number, head in enumerate(heads):
            # All rows, from which numpy selects these.
            all_weights = attention.weights(head, slice(0, 6), slice(0, 6))
            assert_allclose(weights[number], all_weights[rows], atol=1e-6)
            mask = attention.allowed(head, slice(0, 6), slice(0, 6))
            assert (np.broadcast_to(allowed, weights.shape)[number] == mask[rows]).all()
    # The returned array is read-only, so a caller cannot change the record.
    with pytest.raises(ValueError, match="read-only"):
        weighted.rows_of_each_head(heads, np.array(rows))[0][:] = 0
