"""Scores of all heads of a stack: planted heads, matrices by hand, the functions of arrays."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from attnviz import analysis
from attnviz.analysis import (
    PATTERNS,
    all_head_scores,
    head_entropy,
    head_scores,
    heads,
    patterns,
    patterns_of,
)
from attnviz.record.attention import QueryKeyAttention, StoredWeights
from attnviz.record.masks import BandMask, PackedMask
from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.record.rows import sample_queries
from attnviz.record.tokens import Tokens
from unit.records import captured_record, given_record, shares, vectors

# A causal matrix for the tokens a b a b, with sums that are easy to do by hand.
CAUSAL = np.array(
    [
        [1.0, 0.0, 0.0, 0.0],
        [0.4, 0.6, 0.0, 0.0],
        [0.1, 0.7, 0.2, 0.0],
        [0.0, 0.3, 0.6, 0.1],
    ]
)
ABAB = Tokens.of(["a", "b", "a", "b"])
ON_ARRAYS: dict[str, Any] = {
    "previous token": patterns.previous_token,
    "next token": patterns.next_token,
    "self": patterns.self_token,
    "first token": patterns.first_token,
    "same token": patterns.same_token,
    "induction": patterns.induction,
}


def stack_of(*layers: Any, tokens: Tokens = ABAB) -> AttentionStack:
    return AttentionRecord.from_weights([np.asarray(layer) for layer in layers], tokens).stack()


def cross(queries: int = 2, keys: int = 2, text: str = "a") -> AttentionStack:
    return AttentionRecord.from_weights(
        cross_attentions=[shares(2, queries, keys)],
        decoder_tokens=[text] * queries,
        encoder_tokens=[text] * keys,
    ).stack()


def planted(keys: list[int]) -> NDArray[np.float64]:
    """Return a head that gives the whole weight of each query to one key."""
    return np.eye(len(keys))[keys]


@given(st.integers(0, 99), st.integers(1, 7), st.integers(1, 40), st.data())
def test_scores_equal_the_measures_of_arrays(
    seed: int, size: int, entries: int, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    before = data.draw(st.none() | st.integers(0, 3))
    after = data.draw(st.none() | st.integers(0, 2))
    attention = QueryKeyAttention(
        vectors(4, size, 3, seed=seed),
        vectors(2, size, 3, seed=seed + 1),
        1.0,
        mask=BandMask(before, after),
    )
    given_weights = StoredWeights(torch.from_numpy(shares(1, size, size, seed=seed)))
    tokens = Tokens.of(["x"] * size, ids=ids)
    stack = AttentionStack("self", {2: attention, 5: given_weights}, tokens)
    distance = np.arange(size)[None] - np.arange(size)[:, None]
    allowed = (distance >= -(size if before is None else before)) & (
        distance <= (size if after is None else after)
    )
    with pytest.MonkeyPatch.context() as patch:
        # Compute in blocks of any number of rows.
        patch.setattr(heads, "_MAX_ENTRIES", entries)
        together = all_head_scores(stack)
        for pattern, measure in ON_ARRAYS.items():
            more = (ids,) if pattern in ("same token", "induction") else ()
            expected = [
                measure(stack.weights(layer=2), *more, allowed=allowed),
                measure(stack.weights(layer=5), *more),
            ]
            actual = head_scores(stack, pattern)
            for scores, reference in zip(actual, expected, strict=True):
                assert_allclose(scores, reference, atol=1e-6)
            if pattern in together:
                for scores, reference in zip(together[pattern], actual, strict=True):
                    assert_allclose(scores, reference, atol=1e-12)
            else:
                assert np.isnan(np.concatenate(actual)).all()
    assert tuple(together) == patterns_of(stack)


def test_all_patterns_have_names() -> None:
    assert set(PATTERNS) == set(ON_ARRAYS)
    assert patterns_of(stack_of([CAUSAL])) == PATTERNS
    assert {"PATTERNS", "head_scores", "patterns_of"} <= set(analysis.__all__)


def causal_stack(tokens: Tokens = ABAB) -> AttentionStack:
    queries = vectors(2, len(tokens), 4)
    layer = QueryKeyAttention(queries, queries, 1.0, mask=BandMask(None, 0))
    return AttentionStack("self", {0: layer}, tokens)


def test_no_query_looks_ahead_in_a_causal_stack() -> None:
    stack = causal_stack()
    assert patterns_of(stack) == tuple(name for name in PATTERNS if name != "next token")
    assert np.isnan(head_scores(stack, "next token")[0]).all()


def test_queries_that_cannot_see_the_pair_are_not_counted() -> None:
    # Each query sees itself, and one query also sees the previous key.
    flags = np.eye(4, dtype=bool)
    flags[2, 1] = True
    layer = QueryKeyAttention(
        torch.zeros(1, 4, 1),
        torch.zeros(1, 4, 1),
        1.0,
        mask=PackedMask.pack(torch.from_numpy(flags[None])),
    )
    stack = AttentionStack("self", {0: layer}, ABAB)
    assert_allclose(head_scores(stack, "previous token"), [[0.5]])
    assert_allclose(head_scores(stack, "first token"), [[1.0]])
    assert np.isnan(head_scores(stack, "same token")).all()


def test_ids_distinguish_tokens_with_equal_texts() -> None:
    ids = Tokens.of(["a", "a", "a", "b"], ids=[7, 8, 7, 8])
    assert_allclose(head_scores(stack_of([CAUSAL], tokens=ids), "same token"), [[0.2]])


@pytest.mark.parametrize(("queries", "keys"), [(2, 3), (3, 3)])
def test_cross_attention_has_no_pattern_of_positions(queries: int, keys: int) -> None:
    # Also if queries and keys are equal in number and text, as in a decoder that copies.
    stack = cross(queries, keys)
    assert patterns_of(stack) == ("first token",)
    weights = stack.weights(layer=0)
    assert_allclose(head_scores(stack, "first token"), [weights[:, :, 0].mean(1)], atol=1e-7)
    message = (
        r"pattern='induction' .* stack 'cross' are different tokens. Pass one of 'first token'"
    )
    with pytest.raises(ValueError, match=message):
        head_scores(stack, "induction")


def test_an_unknown_pattern_lists_the_valid_ones() -> None:
    with pytest.raises(
        ValueError, match=r"'prev' does not exist. Pass one of 'previous token', 'next token'"
    ):
        head_scores(stack_of([CAUSAL]), "prev")
    with pytest.raises(
        ValueError, match=r"'prev' does not exist. Pass one of 'first token' for stack 'cross'"
    ):
        head_scores(cross(), "prev")


def test_words_are_scored_as_words() -> None:
    weights = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.4, 0.4]])
    record = AttentionRecord.from_weights([[weights]], Tokens.of(["un", "do", " it"]))
    (scores,) = head_scores(record.merge_words().stack(), "previous token")
    assert_allclose(scores, [0.6], atol=1e-7)


def test_entropy_by_hand() -> None:
    one_key, even = planted([0, 0, 0, 0]), np.full((4, 4), 0.25)
    halves = np.array([[0.5, 0.5, 0, 0], [1, 0, 0, 0], [0.5, 0, 0, 0.5], [0, 0, 1, 0]])
    first, second = head_entropy(stack_of([one_key, even], [halves]))
    assert_allclose(first, [0.0, math.log(4)], atol=1e-7)
    assert_allclose(second, [math.log(2) / 2], atol=1e-7)


def test_entropy_leaves_out_rows_of_zeros_and_the_share_of_a_sink() -> None:
    zeros = np.array([[0.0, 0.0], [0.5, 0.5]])
    tokens = Tokens.of(["a", "b"])
    assert_allclose(head_entropy(stack_of([zeros], tokens=tokens)), [[math.log(2)]], atol=1e-7)
    nothing = np.zeros((2, 2))
    assert np.isnan(head_entropy(stack_of([nothing], tokens=tokens))).all()
    layer = QueryKeyAttention(
        torch.zeros(1, 2, 1), torch.zeros(1, 2, 1), 1.0, sinks=torch.tensor([3.0])
    )
    stack = AttentionStack("self", {0: layer}, tokens)
    assert stack.weights(layer=0).sum() < 0.5
    assert_allclose(head_entropy(stack), [[math.log(2)]], atol=1e-6)


def test_a_sample_is_measured_alone() -> None:
    num_tokens, num_queries = 300, 20
    layer = QueryKeyAttention(
        vectors(4, num_tokens, 8), vectors(2, num_tokens, 8, seed=1), 0.5, mask=BandMask(None, 0)
    )
    tokens = Tokens.of([f"t{index % 11}" for index in range(num_tokens)])
    stack = AttentionStack("self", {0: layer}, tokens)
    rows = sample_queries(num_tokens, num_queries)
    weights = stack.weights(layer=0).astype(np.float64)[:, rows]
    previous = weights[:, np.arange(num_queries), rows - 1].sum(1) / num_queries
    assert_allclose(
        head_scores(stack, "previous token", max_queries=num_queries)[0], previous, atol=1e-6
    )
    same = (np.arange(num_tokens) % 11 == rows[:, None] % 11) & (
        np.arange(num_tokens) < rows[:, None]
    )
    expected = (weights * same).sum((1, 2)) / np.count_nonzero(same.any(1))
    scores = all_head_scores(stack, max_queries=num_queries)
    assert_allclose(scores["same token"][0], expected, atol=1e-6)
    assert set(scores) == set(patterns_of(stack))
    logarithms = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    entropy = -(weights * logarithms).sum(-1).mean(-1)
    assert_allclose(head_entropy(stack, max_queries=num_queries)[0], entropy, atol=1e-5)
    with pytest.raises(ValueError, match="max_queries=0 must be at least 1"):
        head_scores(stack, "self", max_queries=0)


@given(st.integers(0, 99), st.integers(1, 40))
def test_entropy_lies_between_one_key_and_all(seed: int, entries: int) -> None:
    record = given_record(num_tokens=seed % 7 + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heads, "_MAX_ENTRIES", entries)
        actual = head_entropy(record.stack())
    for scores, weights in zip(actual, record.to_numpy(), strict=True):
        expected = -(weights * np.log(weights)).sum(-1).mean(-1)
        assert_allclose(scores, expected, atol=1e-5)
        assert (scores >= 0).all()
        assert (scores <= math.log(weights.shape[-1]) + 1e-6).all()


MEASURES = [
    lambda value: head_scores(value, "first token"),
    all_head_scores,
    head_entropy,
    patterns_of,
    lambda value: analysis.uniform_scores(value, "first token"),
    analysis.distinct_head,
]


@pytest.mark.parametrize("measure", MEASURES)
def test_a_record_is_measured_by_its_first_stack(measure: Any) -> None:
    record = captured_record()
    of_record, of_stack = measure(record), measure(record.stack())
    assert repr(of_record) == repr(of_stack)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (shares(2, 3, 3), r"stack must be a record, .*; got ndarray. .*from_weights\(weights, tok"),
        (None, "stack must be a record, .*; got NoneType"),
        ([given_record()] * 3, r"stack is a list of 3 records. Pass one of them, records\[i\]"),
        (given_record().stacks, r"Pass one of its stacks, record.stacks\[name\]"),
    ],
)
def test_other_types_than_records_and_stacks_are_refused(
    measure: Any, value: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        measure(value)


@pytest.mark.parametrize("value", [given_record(), given_record().stack()])
def test_measures_of_arrays_refuse_records_with_a_hint(value: Any) -> None:
    with pytest.raises(TypeError, match=r"weights must be an array; .*head_scores\(record"):
        patterns.previous_token(value)


def test_analysis_loads_with_the_package_and_without_torch() -> None:
    code = (
        "import sys, attnviz as av; "
        "assert av.analysis.previous_token([[1.0, 0.0], [0.5, 0.5]]) == 0.5; "
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
