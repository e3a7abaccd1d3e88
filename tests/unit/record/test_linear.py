"""Tests of the attention of linear layers, compared with their recurrences in plain loops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from attnviz.record import softmax
from attnviz.record.linear import (
    AbsoluteShares,
    LinearAttention,
    SelectiveAttention,
    StateAttention,
    join_heads,
)
from attnviz.record.record import AttentionRecord, load
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens

HEADS, KEY_HEADS, KEY_DIM = 4, 2, 6


def linear(num_tokens: int, *, erases: bool, decays: int = 1, seed: int = 0) -> LinearAttention:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    keys = torch.nn.functional.normalize(normal(KEY_HEADS, num_tokens, KEY_DIM), dim=-1)
    return LinearAttention(
        normal(KEY_HEADS, num_tokens, KEY_DIM),
        keys,
        -normal(HEADS, num_tokens, decays).abs() / 4,
        torch.sigmoid(normal(HEADS, num_tokens)) * (2 if erases else 1),
        erases,
        normal(HEADS),
    )


def selective(num_tokens: int, heads: int = 1, seed: int = 0) -> SelectiveAttention:
    """Return a layer with the values and the outputs of a real rule."""
    generator = torch.Generator().manual_seed(seed)
    channels, states = 5, 3

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    layer = SelectiveAttention(
        queries=normal(heads, num_tokens, states),
        keys=normal(heads, num_tokens, states),
        steps=normal(heads, num_tokens, channels).abs() / 4,
        rates=-normal(heads, channels, states).abs(),
        values=normal(heads, num_tokens, channels),
        readout=normal(heads, num_tokens, channels),
        skips=normal(heads, channels),
    )
    outputs = torch.from_numpy(outputs_of(layer)).float()
    return replace(layer, readout=outputs / outputs.square().sum(dim=-1, keepdim=True))


def weights_of(layer: LinearAttention) -> NDArray[np.float64]:
    """Compute all weights by the recurrence, with one-hot vectors as values."""
    queries, keys, decay, strengths = (
        part.double().numpy()
        for part in (layer.queries, layer.keys, layer.log_decay, layer.strengths)
    )
    num_tokens = layer.num_keys
    weights = np.zeros((layer.num_heads, num_tokens, num_tokens))
    for head in range(layer.num_heads):
        key_head = head // (layer.num_heads // len(keys))
        state = np.zeros((keys.shape[2], num_tokens))
        for token in range(num_tokens):
            state *= np.exp(decay[head, token])[:, None]
            key, value = keys[key_head, token], np.eye(num_tokens)[token]
            if layer.erases:
                value = value - key @ state
            state += strengths[head, token] * np.outer(key, value)
            weights[head, token] = queries[key_head, token] @ state
            if layer.skips is not None:
                weights[head, token, token] += float(layer.skips[head])
    return weights


def outputs_of(layer: SelectiveAttention, only: int | None = None) -> NDArray[np.float64]:
    """Compute the outputs of the rule of Mamba-1, from all values or only those of one token."""
    queries, keys, steps, rates, values, skips = (
        layer.parts[name].double().numpy()
        for name in ("queries", "keys", "steps", "rates", "values", "skips")
    )
    if only is not None:
        values = values * (np.arange(layer.num_keys) == only)[:, None]
    outputs = np.zeros_like(values)
    state = np.zeros_like(rates)
    for token in range(layer.num_keys):
        step, value = steps[:, token, :, None], values[:, token, :, None]
        state = np.exp(rates * step) * state + step * value * keys[:, token, None]
        outputs[:, token] = (state * queries[:, token, None]).sum(-1) + skips * values[:, token]
    return outputs


@pytest.mark.parametrize("num_tokens", [1, 64, 65, 150])
@pytest.mark.parametrize("decays", [1, KEY_DIM])
@pytest.mark.parametrize("erases", [False, True])
def test_weights_are_those_of_the_recurrence(num_tokens: int, decays: int, erases: bool) -> None:
    layer = linear(num_tokens, erases=erases, decays=decays)
    weights = weights_of(layer)
    everything = layer.block(range(HEADS), slice(0, num_tokens)).numpy()
    assert_allclose(everything, weights, atol=1e-5)
    assert not np.triu(everything, 1).any()
    assert layer.bound is not None
    assert np.abs(weights).max() <= layer.bound


@pytest.mark.parametrize("layer", [linear(150, erases=True), selective(150)])
def test_a_block_is_a_part_of_all_weights(layer: StateAttention) -> None:
    heads = range(layer.num_heads)
    everything = layer.block(heads, slice(0, 150))
    rows = torch.tensor([0, 3, 70, 149])
    columns = slice(30, 100)
    expected = everything[:, rows][..., columns]
    assert_allclose(layer.block(heads, rows, columns), expected, atol=1e-5)
    assert_allclose(
        layer.block([layer.num_heads - 1], slice(65, 80)), everything[-1:, 65:80], atol=1e-5
    )
    assert layer.block(heads, slice(4, 4)).shape == (layer.num_heads, 0, 150)
    assert layer.key_range(slice(3, 8)) == slice(0, 8)
    assert np.array_equal(layer.allowed([0], rows)[0], np.tri(150, dtype=bool)[rows])


def test_the_closed_form_of_the_gated_delta_rule() -> None:
    """M = tril(Q K^T * G) (1 + stril(diag(b) (K K^T * G)))^-1 diag(b), Yang et al. 2024."""
    layer = replace(linear(40, erases=True), skips=None)
    for head in range(HEADS):
        queries, keys = (part[head // 2].double().numpy() for part in (layer.queries, layer.keys))
        total = np.cumsum(layer.log_decay[head, :, 0].double().numpy())
        strengths = layer.strengths[head].double().numpy()
        decay = np.exp(total[:, None] - total)
        erased = np.tril(strengths[:, None] * (keys @ keys.T) * decay, -1)
        expected = np.tril((queries @ keys.T) * decay) @ np.linalg.inv(np.eye(40) + erased)
        block = layer.block([head], slice(0, 40))[0]
        assert_allclose(block, expected * strengths, atol=1e-5)


def test_a_share_is_the_part_of_the_output_that_a_token_contributes() -> None:
    layer = selective(70, heads=2)
    outputs = outputs_of(layer)
    parts = np.stack([outputs_of(layer, only=token) for token in range(70)], axis=2)
    shares = (outputs[:, :, None] * parts).sum(-1) / (outputs**2).sum(-1)[..., None]
    weights = layer.block([0, 1], slice(0, 70)).numpy()
    assert_allclose(weights, shares, atol=1e-4 * np.abs(shares).max())
    assert_allclose(weights.sum(axis=-1), 1.0, atol=1e-4 * np.abs(shares).sum(-1).max())


@pytest.mark.parametrize("tile", [20, 10**6])
def test_absolute_shares_of_a_block(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "_TILE_ENTRIES", tile)
    layer = replace(linear(9, erases=True), skips=None)
    # Without strength, the first token has a weight of 0, the only weight of its row.
    layer.strengths[:, 0] = 0
    shares = AbsoluteShares(layer)
    sizes = np.abs(layer.block(range(HEADS), slice(0, 9)).double().numpy())
    expected = sizes / np.maximum(sizes.sum(axis=-1, keepdims=True), 1e-300)
    assert_allclose(shares.block(range(HEADS), slice(0, 9)), expected, rtol=1e-5, atol=1e-7)
    part = shares.block([3, 1], torch.tensor([0, 4, 8]), slice(2, 5))
    assert_allclose(part, expected[[3, 1]][:, [0, 4, 8], 2:5], rtol=1e-5, atol=1e-7)
    assert shares.block([0], slice(4, 4)).shape == (1, 0, 9)


def test_heads_of_several_calls_are_joined() -> None:
    first, second = selective(20), selective(20, seed=1)
    joined = join_heads(first, second)
    assert joined.num_heads == 2
    assert torch.equal(joined.block([1], slice(0, 20)), second.block([0], slice(0, 20)))


def test_the_bound_is_unknown_if_a_state_may_grow() -> None:
    layer = linear(8, erases=True)
    assert replace(layer, log_decay=-layer.log_decay).bound is None
    assert replace(layer, strengths=layer.strengths + 2).bound is None
    assert replace(layer, strengths=layer.strengths + 2, erases=False).bound is not None


@pytest.mark.parametrize("layer", [linear(9, erases=True, decays=KEY_DIM), selective(9)])
def test_a_saved_layer_is_the_same(layer: StateAttention, tmp_path: Path) -> None:
    stack = AttentionStack("linear", {2: layer}, Tokens.of(list("abcdefghi")), signed=True)
    record = load(AttentionRecord({"linear": stack}).save(tmp_path / "record"))
    saved = record.stacks["linear"].attention(2)
    assert type(saved) is type(layer)
    heads, rows = range(layer.num_heads), slice(0, 9)
    assert torch.equal(saved.block(heads, rows), layer.block(heads, rows))


def test_shapes_that_do_not_match() -> None:
    layer = linear(8, erases=True)
    with pytest.raises(ValueError, match=r"strengths \(heads, tokens\).*\(4, 7\)"):
        replace(layer, strengths=layer.strengths[:, :7])
