"""Tests of the shares of passages against sums of dense weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import attnviz as av
from attnviz.analysis import passage_shares
from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import Candidate, Passage, Prediction, Tokens
from unit.formulas import weights_of
from unit.records import vectors

N, PROMPT = 12, 8
PASSAGES = {"doc 1": (0, 3), "doc 2": (4, 6), "question": (6, 8)}


def record(*, causal: bool = True, answer: bool = True) -> AttentionRecord:
    tokens = Tokens.of([f"w{number}" for number in range(N)])
    predictions = [
        Prediction(query, Candidate("x", 0, 0.5), (), query + 1)
        for query in range(PROMPT - 1, N - 1)
    ]
    passages = [Passage(name, *ends) for name, ends in PASSAGES.items()]
    tokens = replace(
        tokens, passages=tuple(passages), predictions=tuple(predictions) if answer else ()
    )
    return AttentionRecord.from_qk(
        vectors(2, 3, N, 4), vectors(2, 3, N, 4, seed=1), tokens, causal=causal
    )


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("without_first", [True, False])
def test_shares_are_sums_of_weights(*, causal: bool, without_first: bool) -> None:
    made = record(causal=causal)
    shares = passage_shares(made, 1, [2, 0], without_first=without_first)
    dense = weights_of(made.stack().attention(1))[[2, 0]]
    allowed = np.tri(N) if causal else np.ones((N, N))
    even = np.broadcast_to(allowed / allowed.sum(axis=1, keepdims=True), dense.shape)
    rows = range(PROMPT - 1, N - 1)
    assert_array_equal(shares.queries, rows)
    assert shares.names == tuple(PASSAGES)
    for values, weights in ((shares.shares, dense), (shares.uniform, even)):
        expected = weights[:, rows]
        if without_first:
            expected[..., 0] = 0
            expected /= expected.sum(axis=2, keepdims=True)
        for index, (start, stop) in enumerate(PASSAGES.values()):
            sums = expected[..., start:stop].sum(axis=2)
            assert_allclose(values[..., index], sums, atol=1e-6)


def test_lookback_ratio_and_summary() -> None:
    made = record()
    shares = passage_shares(made, 0)
    dense = weights_of(made.stack().attention(0))
    expected = [[np.nan] for _ in dense]
    for head, of_head in zip(expected, dense, strict=True):
        for row in range(PROMPT, N - 1):
            context = of_head[row, :PROMPT].mean()
            head.append(context / (context + of_head[row, PROMPT : row + 1].mean()))
    assert_allclose(shares.lookback, expected, atol=1e-6)
    measured = av.analysis.head_scores(made, "lookback ratio")[0]
    assert_allclose(np.nanmean(shares.lookback, axis=1), measured, atol=1e-6)
    mean, error = shares.summary()
    of_queries = shares.shares.mean(axis=0)
    assert_allclose(mean, of_queries.mean(axis=0))
    assert_allclose(error, of_queries.std(axis=0, ddof=1) / 2)
    assert np.isfinite(shares.summary("lookback")).all()


def test_the_first_token_is_left_out_if_it_is_a_sink() -> None:
    weights = np.full((1, 1, 4, 4), 0.1)
    for first, is_sink in ((0.7, True), (0.1, False)):
        weights[..., 0] = first
        weights[..., 1:] = (1 - first) / 3
        made = AttentionRecord.from_weights(weights, list("abcd")).with_passages({"a": (0, 2)})
        shares = passage_shares(made, 0)
        assert shares.without_first == is_sink
        assert_allclose(shares.shares, 1 / 3 if is_sink else 0.1 + 0.3)
        assert_array_equal(shares.queries, range(4))


def test_a_record_without_passages_names_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"Pass record\.with_passages"):
        passage_shares(AttentionRecord.from_weights(np.eye(2)[None, None], ["a", "b"]), 0)
