"""The strongest keys of queries, compared with complete rows in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import attnviz.record.softmax
import attnviz.server.row_normalizers
import attnviz.server.strongest
from attnviz.record.attention import LayerAttention, QueryKeyAttention
from attnviz.record.masks import BandMask, WindowMask
from attnviz.record.record import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.record.words import MergedWeights
from attnviz.server.server import RecordServer
from attnviz.server.strongest import Strongest, find_strongest_keys
from attnviz.utils.progress import run_steps
from unit.long_records import NEEDLE, long_record
from unit.records import captured_record, given_record, vectors, words


@pytest.fixture(autouse=True, params=["whole", "in parts"])
def _size(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with the code for short rows and with the code for long rows."""
    if request.param == "in parts":
        monkeypatch.setattr(attnviz.server.row_normalizers, "_MAX_RECOMPUTED_KEYS", 0)
        monkeypatch.setattr(attnviz.server.strongest, "_MAX_WEIGHTS", 20)
        monkeypatch.setattr(attnviz.record.softmax, "_TILE_ENTRIES", 12)


def formula(attention: LayerAttention, head: int) -> NDArray[np.float64]:
    """Compute a head's weights by the formula in float64."""
    if isinstance(attention, MergedWeights):
        base = formula(attention.base, head)
        summed = np.add.reduceat(base, attention.key_starts, axis=1)
        lengths = np.diff([*attention.query_starts, len(base)])
        merged: NDArray[np.float64] = np.add.reduceat(summed, attention.query_starts, axis=0)
        return merged / lengths[:, None]
    if not isinstance(attention, QueryKeyAttention):
        values: NDArray[np.float64] = attention.values[head].double().numpy()  # type: ignore[attr-defined]
        return values
    q = attention.queries[head].double()
    logits = q @ attention.keys[attention.key_head(head)].double().T * attention.scale
    if attention.softcap is not None:
        logits = attention.softcap * torch.tanh(logits / attention.softcap)
    everything = slice(0, attention.num_queries), slice(0, attention.num_keys)
    if attention.bias is not None:
        logits = logits + attention.bias.added(head, *everything).double()
    powers = logits.exp()
    if attention.mask is not None:
        powers = powers * attention.mask.allowed(head, *everything)
    total = powers.sum(dim=1, keepdim=True)
    if attention.sinks is not None:
        total = total + attention.sinks[head].double().exp()
    weights: NDArray[np.float64] = (powers / total.clamp(min=1e-300)).numpy()
    return weights


def stacks() -> dict[str, AttentionStack]:
    captured = captured_record().stack("self")
    stacks_by_name = {
        f"captured, layer {layer}": captured.only([layer]) for layer in captured.layers
    }
    queries, keys = vectors(3, 7, 8, seed=1), vectors(1, 7, 8, seed=2)
    narrow = QueryKeyAttention(queries, keys, 0.4, mask=BandMask(3, 0))
    windows = torch.tensor([0, 0, 1, 1, 2, 2, 0])
    windowed = QueryKeyAttention(queries, keys, 0.4, mask=WindowMask(windows, windows))
    ahead = QueryKeyAttention(queries, keys[:, :5], 0.4, mask=BandMask(None, 0, -2))
    unmasked = QueryKeyAttention(queries, keys, 0.4)
    starts = np.array([0, 2, 3])
    layers_by_name: dict[str, LayerAttention] = {
        "a window": narrow,
        "windows": windowed,
        "first queries see nothing": ahead,
        "no mask": unmasked,
        "words": MergedWeights(unmasked, starts, starts),
    }
    for name, layer in layers_by_name.items():
        rows, columns = Tokens.of(words(layer.num_queries)), Tokens.of(words(layer.num_keys))
        stacks_by_name[name] = AttentionStack("self", {0: layer}, rows, columns, normalized=False)
    stacks_by_name["given"] = given_record((3,), 9).stack()
    return stacks_by_name


STACKS = stacks()


def strongest_keys(stack: AttentionStack, **options: Any) -> Strongest:
    [layer] = stack.layers
    defaults: dict[str, Any] = {
        "layer": layer,
        "heads": range(stack.num_heads(layer)),
        "rows": slice(0, len(stack.query_tokens)),
        "k": 3,
    }
    return run_steps(find_strongest_keys(stack, **(defaults | options)))


def matrices(stack: AttentionStack) -> NDArray[np.float64]:
    [layer] = stack.layers
    attention = stack.attention(layer)
    return np.stack([formula(attention, head) for head in range(stack.num_heads(layer))])


def assert_agrees(strongest: Strongest, weights: NDArray[np.float64], k: int) -> None:
    """Compare the weights and positions of the strongest keys."""
    k = min(k, weights.shape[2])
    np.testing.assert_allclose(strongest.weights, -np.sort(-weights, axis=2)[:, :, :k], atol=2e-6)
    present = strongest.keys >= 0
    np.testing.assert_array_equal(present, strongest.weights > 0)
    weights_at_keys = np.take_along_axis(
        weights, np.maximum(strongest.keys, 0).astype(np.int64), axis=2
    )
    np.testing.assert_allclose(
        strongest.weights, np.where(present, weights_at_keys, 0.0), atol=2e-6
    )
    for row in strongest.keys.reshape(-1, k):
        named = row[row >= 0]
        assert len(set(named.tolist())) == len(named)


@pytest.mark.parametrize("name", STACKS)
def test_the_strongest_keys_are_those_of_whole_rows(name: str) -> None:
    stack = STACKS[name]
    weights = matrices(stack)
    assert_agrees(strongest_keys(stack), weights, 3)
    assert_agrees(strongest_keys(stack, rows=slice(1, 3), k=100), weights[:, 1:3], 100)


@pytest.mark.parametrize("name", STACKS)
def test_heads_are_combined_cell_by_cell(name: str) -> None:
    weights = matrices(STACKS[name])
    mean = strongest_keys(STACKS[name], combine="mean")
    assert_agrees(mean, weights.mean(axis=0, keepdims=True), 3)
    largest = strongest_keys(STACKS[name], combine="max")
    assert_agrees(largest, weights.max(axis=0, keepdims=True), 3)


@pytest.mark.parametrize("name", STACKS)
def test_excluded_keys_are_not_strongest_and_their_sum_is_reported(name: str) -> None:
    stack = STACKS[name]
    weights = matrices(stack)
    strongest = strongest_keys(stack, leave_out=["first", 1])
    included = weights.copy()
    included[:, :, :2] = 0
    assert_agrees(strongest, included, 3)
    np.testing.assert_allclose(strongest.sums[..., 0], included.sum(axis=2), atol=2e-6)
    np.testing.assert_allclose(strongest.sums[..., 1], weights[:, :, :2].sum(axis=2), atol=2e-6)
    assert not strongest.sums[..., 2].any()


def test_a_pair_selects_the_keys_of_one_text() -> None:
    stack = captured_record().stack("self").only([2])
    weights = matrices(stack)
    strongest = strongest_keys(stack, pair="b-a", leave_out=["special"])
    first_text = np.zeros_like(weights)
    first_text[:, :, 1:3] = weights[:, :, 1:3]
    np.testing.assert_allclose(strongest.weights[:, :, 0], first_text.max(axis=2), atol=2e-6)
    np.testing.assert_allclose(strongest.sums[..., 0], first_text.sum(axis=2), atol=2e-6)
    np.testing.assert_allclose(strongest.sums[..., 1], weights[:, :, [0, 5]].sum(axis=2), atol=2e-6)
    np.testing.assert_allclose(strongest.sums[..., 2], weights[:, :, 3:5].sum(axis=2), atol=2e-6)


def test_one_distant_key_is_found() -> None:
    tokens = 5000
    record = long_record(tokens)
    query, key = (int(share * tokens) for share in NEEDLE)
    rows = slice(query - 1, query + 1)
    strongest = run_steps(find_strongest_keys(record.stack(), layer=0, heads=[3], rows=rows, k=1))
    assert strongest.keys[0, 1, 0] == key
    assert strongest.weights[0, 1, 0] > 0.9
    assert strongest.keys[0, 0, 0] != key


def test_the_reply_contains_its_shape() -> None:
    server = RecordServer(captured_record())
    request = {
        "stack": "self",
        "layer": 2,
        "heads": [0, 3],
        "rows": [1, 5],
        "k": 2,
        "combine": "separate",
        "leave_out": [],
        "pair": "all",
    }
    reply = server.reply("strongest", request)
    assert reply.header == {"shape": (2, 4, 2)}
    assert reply.data is not None
    expected = strongest_keys(
        captured_record().stack("self").only([2]),
        heads=[0, 3],
        rows=slice(1, 5),
        k=2,
    )
    assert np.frombuffer(reply.data, "<i4", 16).tolist() == expected.keys.ravel().tolist()
    numbers = np.frombuffer(reply.data, "<f4")[16:]
    np.testing.assert_array_equal(numbers[:16], expected.weights.ravel())
    np.testing.assert_array_equal(numbers[16:], expected.sums.ravel())
