"""Tests that the scores of every built-in measure equal those of plain loops.

A new measure needs its definition in plain Python, one line in `PAIRS`, `ROWS` or `HEADS`. Those of
images are in `test_image_measures.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import traitlets
from numpy.testing import assert_allclose
from numpy.typing import NDArray

import attnviz as av
from attnviz.analysis import (
    MEASURES,
    Measure,
    head_scores,
    heads,
    measures,
    measures_of,
    uniform_scores,
)
from attnviz.analysis.heads import facts_of
from attnviz.analysis.measures import pairs_of
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, ChosenMask, PackedMask
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import sample_queries
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Candidate, Passage, Prediction, Tokens
from unit.formulas import weights_of
from unit.records import given_record, vectors

TEXTS = ["[CLS]", "the", "cat", "##s", "the", "cat", "##s", ",", ",", "dog", "[SEP]"]
SPECIAL, COMMAS, DOG = (0, 10), (7, 8), 9
# Passages, and the predicted tokens of the answer with the queries that predict them.
NEEDLE, QUESTION, ANSWER = range(1, 4), range(4, 6), range(6, 10)
PASSAGES = {"needle 1": NEEDLE, "question": QUESTION, "the answer": ANSWER}
PREDICTING = range(5, 9)
WORDS = [-1, 0, 1, 1, 2, 3, 3, 4, 5, 6, -2]
N = len(TEXTS)

# Whether a measure of pairs counts the weight of query i on key j.
PAIRS: dict[str, Callable[[int, int], bool]] = {
    "previous token": lambda i, j: j == i - 1,
    "next token": lambda i, j: j == i + 1,
    "first token": lambda i, j: j == 0,
    "self": lambda i, j: j == i,
    "same token": lambda i, j: TEXTS[j] == TEXTS[i] and j < i,
    "induction": lambda i, j: 1 <= j <= i and TEXTS[j - 1] == TEXTS[i],
    "same word": lambda i, j: j != i and WORDS[j] == WORDS[i],
    "delimiter": lambda i, j: j in COMMAS or j == 10,
    "punctuation": lambda i, j: j in COMMAS,
    "special tokens": lambda i, j: j in SPECIAL,
    "rarest token": lambda i, j: j == DOG,
    "other passage": lambda i, j: any(
        i in one and j in two
        for one in PASSAGES.values()
        for two in PASSAGES.values()
        if one != two
    ),
    "needle attention": lambda i, j: i in QUESTION and j in NEEDLE,
}


def lookback(i: int, row: Sequence[float]) -> float:
    start = ANSWER[0]
    if i not in PREDICTING or i < start:
        return math.nan
    context, new = sum(row[:start]) / start, sum(row[start:]) / (i + 1 - start)
    return context / (context + new)


def copied(i: int, row: Sequence[float]) -> float:
    if i not in PREDICTING:
        return math.nan
    strongest = [j for j in range(N) if math.isclose(row[j], max(row), rel_tol=1e-6)]
    copies = [j for j in strongest if j in NEEDLE and TEXTS[j] == TEXTS[i + 1]]
    # The mean over the predicting queries is the number of copied tokens over that of the needle.
    return len(copies) / len(strongest) * len(PREDICTING) / len(NEEDLE)


# Value of a measure of rows for a query and its weights.
ROWS: dict[str, Callable[[int, Sequence[float]], float]] = {
    "entropy": lambda i, row: -sum(w / sum(row) * math.log(w / sum(row)) for w in row if w > 0),
    "lookback ratio": lookback,
    "copied needle": copied,
}
# Values of a measure of heads for all heads of a layer, from the output vector or the gate of each
# head at each query.
HEADS: dict[str, Callable[[Any], list[float]]] = {
    "output norm": lambda heads: [
        len(heads)
        * sum(math.hypot(*vector) for vector in head)
        / sum(math.hypot(*vector) for other in heads for vector in other)
        for head in heads
    ],
    "gate": lambda heads: [
        math.fsum(known := [gate for gate in gates if not math.isnan(gate)]) / len(known)
        for gates in heads
    ],
}
# Measure of heads that most records lack. A separate test compares it with the dense softmax.
LOST = "lost weight"
# Measures of images, which `test_image_measures.py` compares with other formulas.
OF_IMAGES = {"image", "region", "region overlap", "spatial entropy", "sink patches"}


def record_of(*, causal: bool) -> AttentionRecord:
    """Return a record of two layers. The heads have attention sinks, so rows sum to less than 1."""
    queries, keys = vectors(2, 2, 3, N, 4)
    tokens = Tokens.of(TEXTS, special=[position in SPECIAL for position in range(N)])
    passages = [Passage(name, run.start, run.stop) for name, run in PASSAGES.items()]
    predictions = [
        Prediction(query, Candidate(TEXTS[query + 1], 0, 0.5), (), query + 1)
        for query in PREDICTING
    ]
    tokens = replace(tokens, passages=tuple(passages), predictions=tuple(predictions))
    record = AttentionRecord.from_qk(
        queries, keys, tokens, causal=causal, sinks=np.zeros((2, 3), np.float32)
    )
    stack = record.stack()
    layers = {layer: stack.attention(layer) for layer in stack.layers}
    outputs = dict(enumerate(vectors(2, 3, N, 4, seed=1)))
    gates = dict(enumerate(vectors(2, 3, N, seed=2).sigmoid()))
    gates[1][2, 4] = math.nan
    return AttentionRecord(
        {"self": AttentionStack("self", layers, tokens, outputs=outputs, gates=gates)}
    )


def even_record(tokens: Tokens) -> AttentionRecord:
    return AttentionRecord.from_weights(np.full((1, 2, N, N), 1 / N), tokens)


def arrays_of_heads(name: str, stack: AttentionStack, layer: int) -> Any:
    array = stack.gates(layer) if name == "gate" else stack.outputs(layer)
    assert array is not None
    return array.astype(np.float64).tolist()


def score(name: str, weights: NDArray[Any], allowed: NDArray[np.bool_]) -> float:
    """Compute the mean of a measure over the queries that have a value, or NaN if none has one."""
    values = []
    for i, (row, visible) in enumerate(zip(weights.tolist(), allowed.tolist(), strict=True)):
        if name in ROWS:
            value = ROWS[name](i, row) if sum(row) > 0 else math.nan
            values += [] if math.isnan(value) else [value]
            continue
        keys = [j for j in range(N) if visible[j] and PAIRS[name](i, j)]
        values += [sum(row[j] for j in keys)] if keys else []
    return math.fsum(values) / len(values) if values else math.nan


@pytest.mark.parametrize("name", sorted(set(MEASURES) - {LOST} - OF_IMAGES))
@pytest.mark.parametrize("causal", [False, True])
def test_scores_equal_plain_loops(name: str, *, causal: bool) -> None:
    record = record_of(causal=causal)
    stack = record.stack()
    allowed = np.tri(N, dtype=np.bool_) if causal else np.ones((N, N), np.bool_)
    even = allowed / allowed.sum(axis=1, keepdims=True)
    expected = []
    for layer in (0, 1):
        if name in HEADS:
            expected.append(HEADS[name](arrays_of_heads(name, stack, layer)))
        else:
            weights = stack.weights(layer=layer).astype(np.float64)
            expected.append([score(name, of_head, allowed) for of_head in weights])
    assert (name in measures_of(record)) == bool(np.isfinite(expected).any())
    assert_allclose(head_scores(record, name), expected, atol=1e-6)
    if name not in HEADS:
        assert_allclose(uniform_scores(record, name), np.full((2, 3), score(name, even, allowed)))
    statistics = av.head_statistics([record], progress=False).stack()
    if not np.isnan(expected).all():
        assert_allclose(statistics.mean(name), expected, atol=1e-6)


@pytest.mark.parametrize("name", [*PAIRS, *ROWS])
def test_uniform_attention_has_the_score_of_the_baseline(name: str) -> None:
    record = even_record(record_of(causal=False).tokens)
    baseline = uniform_scores(record, name)
    assert_allclose(head_scores(record, name), baseline, rtol=1e-6)
    shuffled = av.head_statistics([record], progress=False).stack().baseline(name)
    if shuffled is not None:
        assert_allclose(shuffled, baseline, rtol=1e-6)


@pytest.mark.parametrize("name", [*PAIRS, *ROWS])
def test_scores_do_not_depend_on_the_parts_in_which_rows_are_read(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = record_of(causal=True)
    at_once = head_scores(record, name)
    baseline = uniform_scores(record, name)
    queries, keys = facts_of(record.stack())
    if MEASURES[name].kind == "pairs":
        parts = [pairs_of(MEASURES[name], queries, keys, np.array([row])) for row in range(N)]
        together = pairs_of(MEASURES[name], queries, keys, np.arange(N))
        assert (np.concatenate(parts) == together).all()
    # Limit a block of weights to two rows.
    monkeypatch.setattr(heads, "_MAX_ENTRIES", 2 * N)
    assert_allclose(head_scores(record, name), at_once, atol=1e-6)
    assert_allclose(uniform_scores(record, name), baseline, rtol=1e-12)


def test_every_role_has_one_measure_and_every_measure_a_source() -> None:
    # `MEASURES` is not used, because it may also contain measures that examples register.
    built_in = measures._BUILT_IN
    assert {*PAIRS, *ROWS, *HEADS, LOST, *OF_IMAGES} == {measure.name for measure in built_in}
    roles = [measure.role for measure in built_in if measure.role is not None]
    assert len(set(roles)) == len(roles)
    assert all(measure.source and measure.definition for measure in built_in)


@pytest.mark.parametrize("measure", MEASURES.values(), ids=list(MEASURES))
def test_the_docs_list_every_measure(measure: Measure) -> None:
    page = (Path(__file__).parents[3] / "docs" / "analysis.md").read_text(encoding="utf-8")
    link = r"[arXiv \1](https://arxiv.org/abs/\1)"
    source = re.sub(r"arXiv (\d+\.\d+)", link, measure.source)
    role = f" {measure.role}" if measure.role else ""
    assert f'| `"{measure.name}"` | {measure.definition} |{role} | {source} |' in page.splitlines()


class TestMeasuresOfHeads:
    def test_records_without_outputs_name_the_remedy(self) -> None:
        record = even_record(record_of(causal=False).tokens)
        assert "output norm" not in measures_of(record)
        with pytest.raises(ValueError, match=r"Pass outputs=True to attnviz\.extract"):
            head_scores(record, "output norm")
        with pytest.raises(traitlets.TraitError, match=r"extract\(\.\.\., outputs=True\)"):
            av.HeadView(record, order="output norm")

    def test_records_without_gates_name_the_models_that_have_them(self) -> None:
        record = even_record(record_of(causal=False).tokens)
        assert "gate" not in measures_of(record)
        with pytest.raises(ValueError, match=r"needs the gates of heads, .* a model with gates"):
            head_scores(record, "gate")
        with pytest.raises(traitlets.TraitError, match="The heads of the record have no gates"):
            av.HeadView(record, order="gate")

    def test_a_head_without_any_known_gate_has_no_score(self) -> None:
        stack = record_of(causal=False).stack()
        layers = {layer: stack.attention(layer) for layer in (0, 1)}
        gates = {0: torch.tensor([[0.25], [0.0], [math.nan]]).expand(3, N)}
        record = AttentionRecord(
            {"self": AttentionStack("self", layers, stack.query_tokens, gates=gates)}
        )
        expected = [[0.25, 0.0, math.nan], [math.nan] * 3]
        assert_allclose(head_scores(record, "gate"), expected)

    def test_the_lost_weight_is_the_mean_of_the_dense_weight_on_keys_that_were_not_chosen(
        self,
    ) -> None:
        chosen = np.random.default_rng(0).random((1, N, N)) < 0.5
        dense = QueryKeyAttention(
            vectors(3, N, 4), vectors(3, N, 4, seed=1), 0.5, BandMask(None, 0)
        )
        mask = ChosenMask(PackedMask.pack(torch.from_numpy(chosen)), dense.mask)
        layers = {0: replace(dense, mask=mask), 1: dense}
        record = AttentionRecord({"self": AttentionStack("self", layers, Tokens.of(TEXTS))})
        lost = (weights_of(dense) * ~chosen).sum(axis=2)
        assert_allclose(head_scores(record, LOST), [lost.mean(axis=1), [0, 0, 0]], atol=1e-6)
        sampled = lost[:, sample_queries(N, 4)].mean(axis=1)
        assert_allclose(head_scores(record, LOST, max_queries=4)[0], sampled, atol=1e-6)
        assert av.HeadView(record, order=LOST).order == LOST
        with pytest.raises(KeyError, match="lost weight"):
            av.head_statistics([record], progress=False).stack().mean(LOST)

    def test_records_without_left_out_keys_name_the_models_that_have_them(self) -> None:
        record = record_of(causal=True)
        assert LOST not in measures_of(record)
        with pytest.raises(ValueError, match=r"needs keys that a model .* with an indexer"):
            head_scores(record, LOST)
        with pytest.raises(traitlets.TraitError, match="has no left-out keys"):
            av.HeadView(record, order=LOST)

    def test_there_is_no_score_of_uniform_attention(self) -> None:
        record = record_of(causal=False)
        with pytest.raises(ValueError, match="not computed from weights, so it has no baseline"):
            uniform_scores(record, "output norm")
        assert av.head_statistics([record], progress=False).stack().baseline("output norm") is None

    def test_layers_without_outputs_have_no_score(self) -> None:
        stack = record_of(causal=False).stack()
        layers = {layer: stack.attention(layer) for layer in (0, 1)}
        outputs = {1: torch.zeros(3, N, 2)}
        outputs[1][:2] = 1.0
        record = AttentionRecord(
            {"self": AttentionStack("self", layers, stack.query_tokens, outputs=outputs)}
        )
        expected = [[math.nan] * 3, [1.5, 1.5, 0.0]]
        assert_allclose(head_scores(record, "output norm"), expected)
        statistics = av.head_statistics([record], progress=False)
        assert_allclose(statistics.stack().mean("output norm"), expected)
        assert_allclose(head_scores(record.only(1), "output norm"), expected[1:])
        outputs[1][:] = 0.0
        assert_allclose(head_scores(record, "output norm"), np.full((2, 3), np.nan))


@pytest.mark.usefixtures("own_measures")
class TestRegistration:
    def test_a_measure_of_the_user_is_available_everywhere(self) -> None:
        @av.measure("after a comma", kind="pairs", role="comma reader", one_text=True)
        def after_a_comma(queries: Any, keys: Any, rows: NDArray[np.int64]) -> Any:
            del rows, queries
            return np.concatenate([[False], keys.is_kind("punctuation")[:-1]])

        @av.measure("largest weight", kind="rows", description="the largest weight of a query")
        def largest_weight(weights: NDArray[Any]) -> Any:
            return weights.max(axis=-1)

        @av.measure("largest output", kind="heads", description="the largest norm of an output")
        def largest_output(outputs: NDArray[Any]) -> Any:
            return np.linalg.norm(outputs, axis=-1).max(axis=-1)

        record = record_of(causal=False)
        weights = record.stack().weights(layer=1)
        after = weights[:, :, [8, 9]].sum(axis=2).mean(axis=1)
        largest = weights.max(axis=2).mean(axis=1)
        norms = np.linalg.norm(arrays_of_heads("output norm", record.stack(), 1), axis=2).max(
            axis=1
        )
        assert {"after a comma", "largest weight", "largest output"} <= set(measures_of(record))
        assert_allclose(head_scores(record, "after a comma")[1], after, atol=1e-6)
        assert_allclose(head_scores(record, "largest weight")[1], largest, atol=1e-6)
        assert_allclose(head_scores(record, "largest output")[1], norms)
        stack = av.head_statistics([record] * 5, progress=False).stack()
        assert_allclose(stack.mean("after a comma")[1], after, atol=1e-6)
        assert_allclose(stack.mean("largest weight")[1], largest, atol=1e-6)
        assert_allclose(stack.mean("largest output")[1], norms)
        assert "comma reader" in stack.roles().candidates
        assert av.HeadView(record, order="after a comma").order == "after a comma"
        assert av.ModelView(record, order="largest output").order == "largest output"
        assert MEASURES["largest weight"].sentence == (
            "Mean over queries of the largest weight of a query."
        )
        assert (
            MEASURES["largest output"].sentence == "For each head, the largest norm of an output."
        )

    def test_a_measure_of_the_user_is_replaced_but_not_one_of_attnviz(self) -> None:
        for factor in (1, 2):
            av.measure("mine", kind="rows")(lambda weights, f=factor: f * weights.sum(axis=-1))
        assert_allclose(head_scores(given_record(), "mine")[0], [2.0] * 2, rtol=1e-6)
        with pytest.raises(ValueError, match="attnviz has a measure of this name"):
            av.measure("self", kind="pairs")

    @pytest.mark.parametrize(
        ("name", "kind"), [("", "pairs"), ("number", "pairs"), ("role", "rows"), ("new", "pair")]
    )
    def test_invalid_names_and_kinds_are_refused(self, name: str, kind: Any) -> None:
        with pytest.raises(ValueError, match=r"name of a measure|must be one of"):
            av.measure(name, kind=kind)

    def test_formulas_must_return_flags_and_numbers_of_the_right_shape(self) -> None:
        av.measure("numbers", kind="pairs")(lambda queries, keys, rows: keys.positions)
        av.measure("flags", kind="pairs")(lambda queries, keys, rows: keys.positions[1:] == 1)
        av.measure("one", kind="rows")(lambda weights: weights.sum())
        av.measure("queries", kind="heads")(lambda outputs: outputs.sum(axis=-1))
        with pytest.raises(ValueError, match=r"'queries' .* for each of its heads, \(3,\); got"):
            head_scores(record_of(causal=True), "queries")
        record = given_record(num_tokens=4)
        for name, error, message in (
            ("numbers", TypeError, "'numbers' must return bool, not int64"),
            ("flags", ValueError, r"'flags' .* \(4, 4\), or keys, \(4,\); got \(3,\)"),
            ("one", ValueError, r"'one' must return one number for each of its rows"),
        ):
            with pytest.raises(error, match=message):
                head_scores(record, name)
