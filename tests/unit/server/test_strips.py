"""Strips of heads, against weights worked out pair by pair in double precision."""

from __future__ import annotations

import base64
import doctest
import json
import math
import zlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import attnviz as av
from attnviz.record import attention as layer_attention
from attnviz.record import rows as sampled
from attnviz.record.attention import GivenWeights, HeadSubset, LayerAttention, QueryKeyAttention
from attnviz.record.masks import BandMask, DenseBias, DistanceBias, PackedMask, WindowMask
from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.record.rows import sampled_queries
from attnviz.record.tokens import Tokens
from attnviz.record.words import MergedWeights
from attnviz.server import strips as channel_strips
from attnviz.server.description import describe
from attnviz.server.server import RecordServer
from attnviz.server.strips import NEAR, Strips
from attnviz.utils.progress import completed
from unit.page_data import data_of
from unit.records import captured_record, image_record, shares, vectors, words

HEADS, TOKENS, DIM = 4, 150, 8
Doubles = NDArray[np.float64]


def strips(*given: Any, **more: Any) -> Strips:
    return completed(channel_strips.strips(*given, **more))


def stack_of(
    layer: LayerAttention, *, cross: bool = False, normalized: bool = True
) -> AttentionStack:
    queries = Tokens.of(words(layer.num_queries))
    keys = Tokens.of(words(layer.num_keys, "k")) if cross else None
    return AttentionStack("self", {3: layer}, queries, keys, normalized=normalized)


def layer_of(**more: Any) -> QueryKeyAttention:
    queries = vectors(HEADS, TOKENS, DIM, seed=1).bfloat16()
    keys = vectors(2, TOKENS, DIM, seed=2).bfloat16()
    return QueryKeyAttention(queries, keys, 0.9, **more)


def rows_by_hand(
    head: int, allowed: Any, added: Any, sink: float, cap: float = math.inf
) -> Doubles:
    """Weights and, in the last column, what the sink takes; of `layer_of`."""
    queries = vectors(HEADS, TOKENS, DIM, seed=1).bfloat16().double().numpy()[head]
    keys = vectors(2, TOKENS, DIM, seed=2).bfloat16().double().numpy()[head // 2]
    logits = 0.9 * queries @ keys.T
    if cap < math.inf:
        logits = cap * np.tanh(logits / cap)
    powers = np.where(allowed, np.exp(logits + added), 0)
    powers = np.concatenate([powers, np.full((TOKENS, 1), math.exp(sink))], axis=1)
    weights: Doubles = powers / powers.sum(1, keepdims=True)
    return weights


def parted(weights: Doubles, rows: Sequence[int], before: int, after: int) -> Doubles:
    """Shares by name as the module's text has them, key by key: (rows, 5)."""
    found = np.zeros((len(rows), 5))
    for number, query in enumerate(rows):
        for key in range(TOKENS):
            if key == 0:
                part = 0
            elif key == query - 1:
                part = 3
            elif query - before <= key <= query + after:
                part = 2
            else:
                part = 1
            found[number, part] += weights[query, key]
        found[number, 4] = weights[query, TOKENS]
    return found


SINKS = torch.tensor([0.5, 2.0, -1.0, 3.0])
BY_DISTANCE = vectors(HEADS, 2 * TOKENS - 1, seed=3)
FLAGS = torch.from_numpy(np.random.default_rng(4).random((HEADS, TOKENS, TOKENS)) < 0.3)
CAUSAL, WINDOW = BandMask(None, 0), BandMask(9, 0)
QUERY, KEY = np.mgrid[:TOKENS, :TOKENS]
BACK, CLOSE = KEY <= QUERY, (KEY <= QUERY) & (QUERY - KEY <= 9)
# What goes into a layer; what queries may see and what is added; the window, whether it is its own.
KINDS: dict[str, Any] = {
    "causal": ({"mask": CAUSAL}, BACK, None, (NEAR, 0), False),
    "bidirectional": ({}, True, None, (NEAR, NEAR), False),
    "sliding window": ({"mask": WINDOW}, CLOSE, None, (9, 0), True),
    "sinks": ({"mask": CAUSAL, "sinks": SINKS}, BACK, None, (NEAR, 0), False),
    "sliding, sinks": ({"mask": WINDOW, "sinks": SINKS}, CLOSE, None, (9, 0), True),
    "distance": (
        {"mask": CAUSAL, "bias": DistanceBias(BY_DISTANCE, TOKENS)},
        BACK,
        BY_DISTANCE.numpy()[:, KEY - QUERY + TOKENS - 1],
        (NEAR, 0),
        False,
    ),
    "dense bias": (
        {"bias": DenseBias(BY_DISTANCE[:1, None, :TOKENS])},
        True,
        np.broadcast_to(BY_DISTANCE.numpy()[0, KEY], (HEADS, TOKENS, TOKENS)),
        (NEAR, NEAR),
        False,
    ),
    "flags by head": (
        {"mask": PackedMask.pack(FLAGS)},
        FLAGS.numpy(),
        None,
        (NEAR, NEAR),
        False,
    ),
}


@pytest.mark.parametrize("queries", [7, 64, 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_shares_are_those_of_the_queries_taken(kind: str, queries: int) -> None:
    more, allowed, added, (before, after), own = KINDS[kind]
    found = strips(stack_of(layer_of(**more)), 3, [2, 3, 0, 1], queries=queries)
    rows = sampled_queries(TOKENS, queries).tolist()
    assert (found.num_queries, found.of) == (len(rows), TOKENS)
    assert (found.window, found.own_window) == ((before, after), own)
    with_sink = "sinks" in more
    assert found.parts[4:] == (("no key",) if with_sink else ())
    for number, head in enumerate([2, 3, 0, 1]):
        weights = rows_by_hand(
            head,
            allowed[head] if np.ndim(allowed) == 3 else allowed,
            0.0 if added is None else added[head],
            float(SINKS[head]) if with_sink else -math.inf,
        )
        expected = parted(weights, rows, before, after)
        count = len(found.parts)
        np.testing.assert_allclose(found.shares[number], expected.mean(0)[:count], atol=2e-6)
        errors = expected.std(0, ddof=1) * math.sqrt((1 - len(rows) / TOKENS) / len(rows))
        np.testing.assert_allclose(found.errors[number], errors[:count], atol=2e-6)
    np.testing.assert_allclose(found.shares.sum(1), 1, atol=1e-12)


def test_a_soft_cap_bounds_the_logits() -> None:
    capped = layer_of(mask=CAUSAL, softcap=0.5)
    found = strips(stack_of(capped), 3, queries=TOKENS)
    for head in range(HEADS):
        causal = np.tri(TOKENS, dtype=np.bool_)
        weights = rows_by_hand(head, causal, 0.0, -math.inf, cap=0.5)
        expected = parted(weights, range(TOKENS), NEAR, 0)[:, [0, 1, 2, 3]].mean(0)
        np.testing.assert_allclose(found.shares[head], expected, atol=2e-6)


@pytest.mark.parametrize("layer", captured_record().stack().layers)
def test_every_kind_of_layer_agrees_with_its_weights(layer: int) -> None:
    stack = captured_record().stack()
    found = strips(stack, layer)
    for head in range(4):
        weights = stack.weights(layer=layer, head=head).astype(np.float64)
        # Layer 7 has sinks, which take all of a row in which nothing else is allowed.
        rows = np.flatnonzero((weights.sum(1) > 0) | (layer == 7))
        weights = weights[rows]
        by_part = dict(zip(found.parts, found.shares[head], strict=True))
        assert by_part["first token"] == pytest.approx(weights[:, 0].mean(), abs=2e-6)
        before = [weights[at, row - 1] for at, row in enumerate(rows) if row > 1]
        assert by_part["previous token"] == pytest.approx(sum(before) / len(rows), abs=2e-6)
        # Six tokens have all others within 64.
        assert by_part["elsewhere"] == pytest.approx(0, abs=2e-6)
        assert by_part.get("no key", 0) == pytest.approx(1 - weights.sum(1).mean(), abs=2e-6)
        assert sum(by_part.values()) == pytest.approx(1)
    assert not found.errors.any() or found.num_queries < found.of


def test_queries_that_see_nothing_do_not_count() -> None:
    flags = torch.ones(1, 6, 6, dtype=torch.bool)
    flags[:, [1, 4]] = False
    layer = QueryKeyAttention(
        torch.zeros(1, 6, 2), torch.zeros(1, 6, 2), 1.0, mask=PackedMask.pack(flags)
    )
    found = strips(stack_of(layer), 3)
    assert found.shares[0, 0] == pytest.approx(1 / 6)
    assert found.shares.sum() == pytest.approx(1)
    assert (found.num_queries, found.of) == (4, 6)
    assert not found.errors.any()
    nothing = QueryKeyAttention(
        torch.zeros(1, 6, 2), torch.zeros(1, 6, 2), 1.0, mask=PackedMask.pack(flags & False)
    )
    assert np.isnan(strips(stack_of(nothing), 3).shares).all()


@pytest.mark.parametrize("side", ["queries", "keys"])
def test_nan_is_an_error_and_no_share(side: str) -> None:
    layer = layer_of(mask=BandMask(None, 0))
    getattr(layer, side)[1, 100:, 0] = torch.nan
    with pytest.raises(ValueError, match=r"NaN or infinite .*; the model's own queries or keys"):
        strips(stack_of(layer), 3, queries=20)
    if side == "queries":
        assert np.isfinite(strips(stack_of(layer), 3, [0, 2], queries=20).shares).all()


def test_other_tokens_have_no_previous_one_and_no_window() -> None:
    layer = GivenWeights(torch.from_numpy(shares(3, 90, 7)))
    found = strips(stack_of(layer, cross=True), 3)
    assert found.parts == ("first token", "elsewhere")
    assert found.window is None
    rows = sampled_queries(90)
    expected = layer.values.double().numpy()[:, rows, 0].mean(1)
    np.testing.assert_allclose(found.shares[:, 0], expected, atol=1e-7)
    vectors_too = QueryKeyAttention(vectors(2, 90, 4), vectors(1, 7, 4, seed=1), 1.0)
    assert strips(stack_of(vectors_too, cross=True), 3).parts == ("first token", "elsewhere")


def test_windows_of_an_image_are_the_model_s_own() -> None:
    windows = torch.arange(TOKENS) // 10
    found = strips(stack_of(layer_of(mask=WindowMask(windows, windows))), 3)
    assert (found.window, found.own_window) == (None, True)
    np.testing.assert_allclose(found.shares[:, 1], 0, atol=2e-6)
    rows = sampled_queries(TOKENS)
    allowed = np.equal.outer(windows, windows)
    for head in range(HEADS):
        weights = rows_by_hand(head, allowed, 0.0, -math.inf)
        before = sum(weights[row, row - 1] for row in rows if row > 1)
        assert found.shares[head, 3] == pytest.approx(before / len(rows), abs=2e-6)


def test_patches_of_an_image() -> None:
    stack = image_record().stack()
    found = strips(stack, stack.layers[0])
    given = stack.attention(stack.layers[0])
    assert isinstance(given, GivenWeights)
    weights = given.values.double().numpy()
    np.testing.assert_allclose(found.shares[:, 0], weights[:, :, 0].mean(1), atol=1e-6)


def test_kept_heads_answer_to_the_model_s_numbers() -> None:
    base = layer_of(mask=CAUSAL)
    some = QueryKeyAttention(base.queries[[1, 3]], base.keys, 0.9, mask=CAUSAL, key_heads=(0, 1))
    kept = stack_of(HeadSubset(some, (1, 3), model_heads=4, model_key_heads=2))
    whole = strips(stack_of(base), 3)
    np.testing.assert_allclose(strips(kept, 3).shares, whole.shares[[1, 3]], atol=1e-6)
    np.testing.assert_allclose(strips(kept, 3, [3]).shares, whole.shares[[3]], atol=1e-6)
    with pytest.raises(IndexError, match="head=0"):
        strips(kept, 3, [0])
    with pytest.raises(ValueError, match="heads is empty"):
        strips(kept, 3, [])


def test_merged_words_are_words() -> None:
    starts = np.arange(0, TOKENS, 3)
    stack = stack_of(MergedWeights(layer_of(mask=CAUSAL), starts, starts))
    found = strips(stack, 3)
    weights = stack.weights(layer=3)
    assert found.of == len(starts)
    np.testing.assert_allclose(found.shares[:, 0], weights[:, :, 0].mean(1), atol=1e-6)
    previous = np.diagonal(weights, -1, axis1=1, axis2=2)[:, 1:].sum(1) / len(starts)
    np.testing.assert_allclose(found.shares[:, 3], previous, atol=1e-6)
    np.testing.assert_allclose(found.shares.sum(1), 1)


@pytest.mark.parametrize("base", ["vectors", "weights", "kept heads"])
def test_words_of_any_number_of_tokens(base: str) -> None:
    of_vectors = layer_of(mask=CAUSAL, sinks=SINKS)
    of_weights = GivenWeights(torch.from_numpy(stack_of(of_vectors).weights(layer=3)))
    layers: dict[str, LayerAttention] = {
        "vectors": of_vectors,
        "weights": of_weights,
        "kept heads": HeadSubset(of_weights, (0, 2, 5, 6), model_heads=8),
    }
    layer = layers[base]
    starts = np.sort(np.random.default_rng(0).choice(np.arange(1, TOKENS), 99, replace=False))
    starts = np.concatenate([[0], starts])
    stack = stack_of(MergedWeights(layer, starts, starts))
    rows = sampled_queries(100, 40)
    weights = stack.weights(layer=3).astype(np.float64)[:, rows]
    found = strips(stack, 3, queries=40)
    np.testing.assert_allclose(found.shares[:, 0], weights[:, :, 0].mean(1), atol=1e-5)
    before = weights[:, np.arange(40), rows - 1] * (rows > 1)
    np.testing.assert_allclose(found.shares[:, 3], before.mean(1), atol=1e-5)
    np.testing.assert_allclose(found.shares[:, 4], 1 - weights.sum(2).mean(1), atol=1e-5)
    for (places, group), head in zip(
        stack.attention(3).rows_of_heads(stack.kept_heads(3)[1:2], rows), [1], strict=True
    ):
        assert places == [0]
        some, columns = slice(3, 9), slice(5, 60)
        np.testing.assert_allclose(
            group.weights(some, columns)[0], weights[head, 3:9, 5:60], atol=1e-6
        )
        allowed = stack.allowed(layer=3, head=stack.kept_heads(3)[head])[rows][3:9, 5:60]
        assert (group.allowed(some, columns)[0] == allowed).all()
        np.testing.assert_allclose(group.totals[0], weights[head].sum(1), atol=1e-6)


def test_merged_words_lack_what_a_sink_took() -> None:
    starts = np.arange(0, TOKENS, 3)
    stack = stack_of(MergedWeights(layer_of(mask=CAUSAL, sinks=SINKS), starts, starts))
    found = strips(stack, 3)
    assert found.parts[-1] == "no key"
    lost = 1 - stack.weights(layer=3).sum(-1, dtype=np.float64).mean(1)
    np.testing.assert_allclose(found.shares[:, -1], lost, atol=1e-5)


def test_of_weights_that_are_no_shares_those_of_each_row_are_said() -> None:
    weights = shares(1, 6, 6)
    scaled = torch.from_numpy(weights * np.arange(1, 7, dtype=np.float32)[:, None])
    found = strips(stack_of(GivenWeights(scaled), normalized=False), 3)
    assert "no key" not in found.parts
    assert found.shares[0, 0] == pytest.approx(weights[0, :, 0].mean(), abs=1e-6)


@given(st.integers(1, 5000), st.integers(1, 300))
def test_one_query_is_taken_from_each_part(num_queries: int, most: int) -> None:
    found = sampled_queries(num_queries, most)
    taken = min(num_queries, most)
    assert len(found) == taken
    edges = np.arange(taken + 1) * num_queries / taken
    assert (found >= np.floor(edges[:-1])).all()
    assert (found < edges[1:]).all()
    assert len(set(found.tolist())) == taken


@pytest.mark.parametrize("period", [16, 24, 64, 256, 512])
def test_queries_taken_keep_no_step_with_what_repeats(period: int) -> None:
    places = sampled_queries(32_768) % period
    # Evenly spaced ones would all stand at the same place of their row of patches.
    quarters = np.bincount(places * 4 // period, minlength=4)
    assert quarters.min() >= 8, quarters


def test_rows_of_any_layer_are_slices_of_its_weights() -> None:
    stack = captured_record().stack()
    rows = np.array([4, 1, 3])
    for layer in stack.layers:
        for head in range(4):
            weights, allowed = stack.attention(layer).weights_of_rows(head, rows)
            whole = stack.weights(layer=layer, head=head)
            np.testing.assert_allclose(weights, whole[rows], atol=1e-6)
            assert (allowed == stack.allowed(layer=layer, head=head)[rows]).all()


def test_what_is_sent_is_small() -> None:
    found = strips(stack_of(layer_of(mask=CAUSAL)), 3)
    assert isinstance(found, Strips)
    numbers = np.frombuffer(found.data, "<f4").reshape(HEADS, 4, 2)
    np.testing.assert_allclose(numbers[..., 0], found.shares, atol=1e-7)
    np.testing.assert_allclose(numbers[..., 1], found.errors, atol=1e-7)
    assert found.header() == {
        "parts": ["first token", "elsewhere", "own window", "previous token"],
        "queries": 64,
        "of": TOKENS,
        "window": (NEAR, 0),
        "own_window": False,
    }


def long_stack(monkeypatch: pytest.MonkeyPatch) -> AttentionStack:
    """A stack whose text passes for a long one."""
    monkeypatch.setattr(sampled, "_CELLS", TOKENS**2 - 1)
    return stack_of(layer_of(mask=CAUSAL))


def test_a_view_is_told_where_there_are_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = long_stack(monkeypatch)
    (told,) = describe(AttentionRecord({"self": stack}))["stacks"]
    assert told["sampled"] == 64
    monkeypatch.setattr(sampled, "_CELLS", TOKENS**2)
    (told,) = describe(AttentionRecord({"self": stack}))["stacks"]
    assert "sampled" not in told


def test_a_view_asks_for_strips_and_for_scores_of_some_heads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stack = long_stack(monkeypatch)
    server = RecordServer(AttentionRecord({"self": stack}))
    asked = {"stack": "self", "layer": 3, "heads": [3, 1]}
    reply = server.reply("strips", asked)
    found = strips(stack, 3)
    assert reply.header == found.header()
    numbers = np.frombuffer(reply.data or b"", "<f4").reshape(2, 4, 2)
    np.testing.assert_allclose(numbers[..., 0], found.shares[[3, 1]], atol=1e-6)
    reply = server.reply("scores", asked | {"pattern": "first token", "queries": 64})
    scores = av.analysis.head_scores(stack, "first token", queries=64)[0]
    np.testing.assert_allclose(reply.header["scores"], [scores[[3, 1]]], atol=1e-9)


def test_a_page_contains_strips_and_estimated_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = long_stack(monkeypatch)
    page = av.ModelView(AttentionRecord({"self": stack})).to_html()
    data = data_of(page)
    (embedded,) = data["strips"]
    found = strips(stack, 3)
    header = json.loads(json.dumps(found.header()))
    assert {name: embedded[name] for name in header} == header
    assert (embedded["stack"], embedded["layer"]) == ("self", 3)
    assert zlib.decompress(base64.b64decode(embedded["data"])) == found.data
    by_pattern = {each["pattern"]: each["scores"] for each in data["scores"]}
    scores = av.analysis.head_scores(stack, "previous token", queries=64)
    np.testing.assert_allclose(by_pattern["previous token"], scores, atol=1e-6)


@pytest.mark.parametrize("module", [sampled, layer_attention, channel_strips])
def test_the_examples_in_the_docstrings_run(module: ModuleType) -> None:
    failures, tried = doctest.testmod(module)
    assert failures == 0
    assert tried >= 1
