"""Test the scores, mean weights and edges (pairs of a query and a key) in `HeadStatistics`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from numpy.testing import assert_allclose as numpy_allclose
from numpy.typing import NDArray
from pandas.testing import assert_frame_equal

from attnviz import analysis, head_statistics
from attnviz.corpus.measuring import measure_stacks
from attnviz.corpus.statistics import HeadStatistics, StackStatistics
from attnviz.record.attention import QueryKeyAttention, StoredWeights
from attnviz.record.masks import BandMask, Mask, PackedMask
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from rounding import UNIT
from unit.corpus.same_statistics import assert_same_statistics
from unit.records import HOSTILE, difference_record, shares, vectors


def assert_allclose(actual: Any, expected: Any, **options: Any) -> None:
    """Call NumPy's `assert_allclose` with arguments of any type.

    The type checker would otherwise reject results that may be None, such as those of `baseline`.
    """
    numpy_allclose(np.asarray(actual), np.asarray(expected), **options)


# Tolerance for a mean of a few weights, none above 1: six roundings to float32.
FEW = 6 * UNIT

TOKENS = Tokens.of(
    ["[CLS]", "the", "cat", "##s", "saw", "the", ",", "[SEP]"],
    special=[True] + [False] * 6 + [True],
)


def record_of(
    weights: NDArray[np.float32], tokens: Tokens | Sequence[str] = TOKENS, model: str = "made"
) -> AttentionRecord:
    """Return a record of one layer, whose `weights` have the shape (heads, queries, keys)."""
    return AttentionRecord.from_weights([weights], tokens, model=model)


def statistics_of(*records: AttentionRecord, **options: Any) -> HeadStatistics:
    statistics = HeadStatistics(**options)
    for record in records:
        statistics.add(record)
    return statistics


def causal_record(num_tokens: int, seed: int = 0, *, heads: int = 2) -> AttentionRecord:
    queries, keys = vectors(2, 2, heads, num_tokens, 4, seed=seed)
    words = [f"w{number}" for number in np.random.default_rng(seed).integers(0, 9, num_tokens)]
    options: Any = {"layers": [0, 2], "causal": True, "model": "made"}
    return AttentionRecord.from_qk(3 * queries, keys, Tokens.of(words), **options)


class TestByHand:
    """Statistics of small records equal results computed by hand."""

    WEIGHTS = np.array([[[0.5, 0.25, 0.25, 0.0], [0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 1.0, 0.0]]])

    @pytest.fixture(scope="class")
    def stack(self) -> StackStatistics:
        keys = Tokens.of(["[CLS]", "rare", ".", "the"], special=[True, False, False, False])
        queries = Tokens.of(["x", "y", "z"])
        attention = StoredWeights(torch.from_numpy(self.WEIGHTS.astype(np.float32)))
        cross = AttentionStack("cross", {0: attention}, queries, keys)
        statistics = statistics_of(
            AttentionRecord({"cross": cross}, model="made"),
            frequencies={"the": 9, ".": 7, "rare": 1},
        )
        return statistics.stack("cross")

    def test_scores_of_keys(self, stack: StackStatistics) -> None:
        means = {
            "first token": (0.5 + 0.1 + 0.0) / 3,
            "special tokens": (0.5 + 0.1 + 0.0) / 3,
            "punctuation": (0.25 + 0.3 + 1.0) / 3,
            "delimiter": (0.25 + 0.3 + 1.0) / 3,
            "rarest token": (0.25 + 0.2 + 0.0) / 3,
        }
        assert {*means, "entropy"} <= set(stack.score_names)
        for name, value in means.items():
            assert_allclose(stack.mean(name)[0], [value], atol=FEW)
            # The baseline is the mean over all orders of a row's four weights. They sum to 1, so
            # the mean is 1 / 4.
            assert_allclose(stack.baseline(name), [[0.25]], atol=FEW)
        entropy = -(0.5 * np.log(0.5) + 2 * 0.25 * np.log(0.25))
        entropy -= sum(p * np.log(p) for p in (0.1, 0.2, 0.3, 0.4))
        assert_allclose(stack.mean("entropy")[0], [entropy / 3], atol=1e-6)
        assert stack.baseline("entropy") is None

    def test_entropy_is_of_normalized_weights_of_queries_that_attend(self) -> None:
        zeros = torch.zeros(1, 1, 2, 4)
        # Each of the two keys has a quarter of the weight, and the sink has half.
        with_sink = AttentionRecord.from_qk(zeros, zeros, ["a", "b"], sinks=[[np.log(2)]])
        second_sees_nothing = record_of(np.array([[[0.5, 0.5], [0, 0]]], np.float32), ["a", "b"])
        for record in (with_sink, second_sees_nothing):
            assert_allclose(
                statistics_of(record).stack().mean("entropy")[0], [np.log(2)], atol=1e-6
            )

    def test_offsets_and_classes(self, stack: StackStatistics) -> None:
        offsets = dict(zip(stack.offset_labels, stack.offsets(0)[0], strict=True))
        assert_allclose(offsets.pop("first"), 0.2, atol=FEW)
        assert_allclose(offsets.pop("rest"), 0.8, atol=FEW)
        assert all(np.isnan(value) for value in offsets.values())
        weights = stack.class_weights(0)[0]
        word, special = stack.classes.index("word"), stack.classes.index("special")
        assert_allclose(weights[word, special], 0.2, atol=FEW)
        assert_allclose(weights[word, word], (0.25 + 0.6 + 0.0) / 3, atol=FEW)
        assert np.isnan(weights[special]).all()

    def test_patterns_of_a_bidirectional_text(self) -> None:
        weights = np.array(
            [
                [1.0, 0.0, 0.0, 0.0],
                [0.4, 0.6, 0.0, 0.0],
                [0.1, 0.2, 0.3, 0.4],
                [0.25, 0.25, 0.25, 0.25],
            ],
            np.float32,
        )
        stack = statistics_of(record_of(weights[None], ["a", "b", "a", "b"])).stack()
        assert_allclose(stack.mean("next token")[0], [(0.0 + 0.0 + 0.4) / 3], atol=FEW)
        # The second "a" attends to the first with 0.1, and the second "b" to the first with 0.25.
        assert_allclose(stack.mean("same token")[0], [(0.1 + 0.25) / 2], atol=FEW)
        # All tokens are equally rare, so none is the rarest.
        assert "rarest token" not in stack.score_names

    def test_words_of_several_tokens(self) -> None:
        weights = shares(1, 8, 8)
        stack = statistics_of(record_of(weights)).stack()
        expected = (weights[0, 2, 3] + weights[0, 3, 2]) / 2
        assert_allclose(stack.mean("same word")[0], [expected], atol=1e-6)
        special = weights[0][:, [0, 7]].sum(axis=1).mean()
        assert_allclose(stack.mean("special tokens")[0], [special], atol=1e-6)
        delimiter = weights[0][:, [6, 7]].sum(axis=1).mean()
        assert_allclose(stack.mean("delimiter")[0], [delimiter], atol=1e-6)


def epsilon_squared(weights: NDArray[Any], *, causal: bool = True) -> float:
    """Compute Kelley's epsilon squared of weights grouped by offset, from SciPy's F statistic f.

    For k groups and N values, eta squared is f (k - 1) / (f (k - 1) + N - k), and epsilon squared
    is 1 - (1 - eta squared) (N - 1) / (N - k).
    """
    count = len(weights)
    offsets = range(1 - count, 1 if causal else count)
    groups = [np.diagonal(weights, offset).astype(np.float64) for offset in offsets]
    values, between = sum(map(len, groups)), len(groups) - 1
    f = float(scipy.stats.f_oneway(*groups).statistic)
    eta_squared = f * between / (f * between + values - between - 1)
    return 1 - (1 - eta_squared) * (values - 1) / (values - between - 1)


class TestPositionalShare:
    def test_the_positional_share_is_epsilon_squared(self) -> None:
        causal = causal_record(9)
        for record in (causal, record_of(shares(2, 5, 5), list("abcde"))):
            stack = record.stack()
            measured = statistics_of(record).stack().mean("positional share")
            for index, layer in enumerate(stack.layers):
                for head in range(2):
                    weights = stack.weights(layer=layer, head=head)
                    expected = epsilon_squared(weights, causal=record is causal)
                    assert measured[index][head] == pytest.approx(expected, abs=1e-5)

    def test_the_baseline_is_the_mean_over_all_orders_of_each_row(self) -> None:
        rows = [[1.0], [0.9, 0.1], [0.6, 0.3, 0.1], [0.5, 0.3, 0.15, 0.05]]
        shares_of_orders = []
        for orders in itertools.product(*map(itertools.permutations, rows)):
            weights = np.zeros((4, 4))
            for query, order in enumerate(orders):
                weights[query, : query + 1] = order
            shares_of_orders.append(epsilon_squared(weights))
        assert len(shares_of_orders) == 2 * 6 * 24
        padded_rows = np.array([[*row, *[0.0] * (4 - len(row))] for row in rows], np.float32)
        stack = statistics_of(record_of(padded_rows[None], ["a", "b", "c", "d"])).stack()
        assert_allclose(
            stack.baseline("positional share"), [[np.mean(shares_of_orders)]], atol=1e-6
        )


def test_scores_equal_those_of_the_analysis_functions() -> None:
    records = [causal_record(length, seed) for seed, length in enumerate((3, 9, 21, 80))]
    stack = statistics_of(*records).stack()
    assert stack.layers == (0, 2)
    assert stack.causal
    assert "next token" not in stack.score_names
    for name in ("previous token", "first token", "self", "same token", "induction"):
        scores = np.array([analysis.head_scores(record, name) for record in records])
        assert_allclose(stack.mean(name), np.nanmean(scores, axis=0), atol=1e-6, err_msg=name)
        count = np.isfinite(scores).sum(axis=0)
        errors = np.nanstd(scores, axis=0, ddof=1) / np.sqrt(count)
        assert_allclose(stack.standard_error(name), errors, atol=1e-5, err_msg=name)
        even = np.array([analysis.uniform_scores(record, name) for record in records])
        if name in ("previous token", "first token", "self"):
            shuffled = stack._evidence(name).baseline[0]
            assert_allclose(shuffled, np.nanmean(even, axis=0).ravel(), atol=1e-6)
    entropies = np.array([analysis.head_scores(record, "entropy") for record in records])
    assert_allclose(stack.mean("entropy"), entropies.mean(axis=0), atol=1e-5)


def test_the_baseline_contains_other_pairs_at_the_same_offset() -> None:
    record = causal_record(24)
    tokens = record.stack().query_tokens.text
    stack = statistics_of(record).stack()
    for name, shift in (("same token", 0), ("induction", 1)):
        pairs = [
            (query, key)
            for query in range(24)
            for key in range(shift, query + shift)
            if tokens[key - shift] == tokens[query]
        ]
        queries = len({query for query, _ in pairs})
        for layer, head in ((0, 1), (2, 0)):
            weights = record.stack().weights(layer=layer, head=head)
            by_position = 0.0
            for query, key in pairs:
                same_offset = [(index, index + key - query) for index in range(query - key, 24)]
                other_pairs = [pair for pair in same_offset if pair not in pairs] or same_offset
                by_position += np.mean([weights[pair] for pair in other_pairs])
            shuffled = sum(
                sum(index == query for index, _ in pairs) / (query + 1) for query in range(24)
            )
            expected = max(by_position, shuffled, by_key(weights, pairs)) / queries
            index = stack.layers.index(layer)
            baseline = stack.baseline(name)
            assert baseline is not None
            assert_allclose(baseline[index][head], expected, atol=1e-6)


def by_key(weights: NDArray[Any], pairs: Sequence[tuple[int, int]]) -> float:
    """Sum over causal pairs of the mean share that other queries give to the key.

    The others are 1, 2, 4, ... tokens away. The first query is none, because it has only one key.
    """
    distances = [2**power for power in range(10)]
    total = 0.0
    for query, key in pairs:
        peers = [query + sign * distance for distance in distances for sign in (-1, 1)]
        shares = [
            weights[peer, key] / weights[peer, : query + 1].sum(dtype=np.float64)
            for peer in peers
            if max(key, 1) <= peer < len(weights) and (peer, key) not in pairs
        ]
        total += np.mean(shares or [weights[query, key]])
    return total


@pytest.mark.parametrize("max_entries", [1 << 22, 4_000])
def test_the_baseline_from_the_key_contains_other_queries(
    monkeypatch: pytest.MonkeyPatch, max_entries: int
) -> None:
    monkeypatch.setattr("attnviz.corpus.measuring._MAX_ENTRIES", max_entries)
    record = causal_record(40)
    stack = statistics_of(record).stack()
    tokens = record.stack().query_tokens.text
    pairs_of_scores = {
        "previous token": [(query, query - 1) for query in range(1, 40)],
        "self": [(query, query) for query in range(40)],
        "same token": [(i, j) for i in range(40) for j in range(i) if tokens[i] == tokens[j]],
    }
    for name, pairs in pairs_of_scores.items():
        queries = len({query for query, _ in pairs})
        baselines = stack._evidence(name).baseline[2].reshape(2, 2)
        for index, head in itertools.product(range(2), range(2)):
            weights = record.stack().weights(layer=stack.layers[index], head=head)
            assert_allclose(baselines[index, head], by_key(weights, pairs) / queries, atol=1e-6)
    # All queries that may attend to the first token belong to the score.
    assert np.isnan(stack._evidence("first token").baseline[2]).all()


def test_offsets_of_a_long_text() -> None:
    record = causal_record(90)
    stack = statistics_of(record).stack()
    weights = record.stack().weights(layer=2, head=1)
    labels = list(stack.offset_labels)
    offsets = stack.offsets(2)[1]
    for offset in (0, 1, 5, 64):
        pairs = [weights[query, query - offset] for query in range(offset + 1, 90)]
        assert_allclose(offsets[labels.index(str(-offset))], np.mean(pairs), atol=1e-6)
    remaining = [weights[query, 1 : query - 64].sum() for query in range(66, 90)]
    assert_allclose(offsets[labels.index("rest")], np.mean(remaining), atol=1e-6)
    assert_allclose(offsets[labels.index("first")], weights[:, 0].mean(), atol=1e-6)
    # Each of the 90 rows sums to 1. A mean times its number of pairs is a sum of weights.
    counts = [90 - 1 - offset for offset in range(65)]
    total = sum(offsets[labels.index(str(-offset))] * count for offset, count in enumerate(counts))
    total += np.sum(remaining) + weights[:, 0].sum()
    assert_allclose(total, 90, atol=1e-3)


def test_the_largest_offset_to_a_later_key_has_its_own_mean() -> None:
    weights = shares(1, 70, 70)
    stack = statistics_of(record_of(weights, [f"w{number}" for number in range(70)])).stack()
    mean = stack.offsets(0)[0][stack.offset_labels.index("64")]
    assert_allclose(mean, np.diagonal(weights[0], 64).mean(), atol=1e-6)


@pytest.mark.parametrize("stored", [False, True])
def test_results_do_not_depend_on_the_block_size(
    monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    record = causal_record(70)
    if stored:
        record = AttentionRecord.from_weights(record.to_numpy(), record.tokens, layers=[0, 2])
    at_once = statistics_of(record).to_pandas()
    monkeypatch.setattr("attnviz.corpus.measuring._MAX_ENTRIES", 4_000)
    in_parts = statistics_of(record)
    assert_allclose(in_parts.to_pandas()["mean"], at_once["mean"], atol=1e-6)
    assert_allclose(in_parts.to_pandas()["baseline"], at_once["baseline"], atol=1e-6)
    assert_allclose(
        in_parts.stack().offsets(0), statistics_of(record).stack().offsets(0), atol=1e-6
    )


@pytest.mark.parametrize("masks", ["one", "two", "none", "packed"])
def test_texts_that_are_measured_together_have_the_statistics_of_each_alone(
    monkeypatch: pytest.MonkeyPatch, masks: str
) -> None:
    one, other = BandMask(None, 0), BandMask(2, 0)
    records = []
    for seed in range(24):
        length = 6 + seed // 9
        packed = PackedMask.pack(torch.tril(torch.ones(1, length, length, dtype=torch.bool)))
        by_name: dict[str, list[Mask | None]]
        by_name = {"one": [one, one], "two": [one, other], "none": [None] * 2}
        by_name["packed"] = [packed, packed]
        queries, keys = vectors(2, 2, 2, length, 4, seed=seed)
        words = [f"w{number}" for number in np.random.default_rng(seed).integers(0, 4, length)]
        layers = {
            number: QueryKeyAttention(3 * queries[number], keys[number], 0.5, mask)
            for number, mask in enumerate(by_name[masks])
        }
        tokens = Tokens.of(words)
        stack = AttentionStack("self", layers, tokens, tokens)
        records.append(AttentionRecord({"self": stack}, model="made"))
    columns = {"even": [[index % 2 == 0 for index in range(len(r.tokens))] for r in records]}
    counts: list[int] = []

    def counted(texts: Any, **options: Any) -> Any:
        counts.append(len(texts))
        return measure_stacks(texts, **options)

    monkeypatch.setattr("attnviz.corpus.accumulator.measure_stacks", counted)
    together = head_statistics(records, columns=columns, edges=7, progress=False)
    # Masks that are stored entry by entry are not compared, so these texts are measured alone.
    assert counts == ([1] * 24 if masks == "packed" else [9, 9, 6])
    num_calls = len(counts)
    alone = HeadStatistics(
        edges=7, columns=["even"], frequencies=together.totals.settings.frequencies
    )
    for record, column in zip(records, columns["even"], strict=True):
        alone.add(record, columns={"even": column})
    assert counts[num_calls:] == [1] * 24
    # Weights of several texts may be rounded differently, because they are one matrix product.
    tables = together.to_pandas(), alone.to_pandas()
    for number in ("mean", "standard_error", "baseline"):
        assert_allclose(*(table.pop(number) for table in tables), atol=1e-5)
    assert_frame_equal(*tables)
    first, second = together.stack(), alone.stack()
    for layer, head in itertools.product(range(2), range(2)):
        assert_allclose(first.offsets(layer), second.offsets(layer), atol=1e-5)
        assert first.classes_of("even") == second.classes_of("even")
        weights = [of.class_weights(layer, "even") for of in (first, second)]
        assert_allclose(*weights, atol=1e-5)
        for edges, others in (
            (first.strongest(layer, head), second.strongest(layer, head)),
            (first.sampled(layer, head), second.sampled(layer, head)),
        ):
            assert len(edges) == 7
            assert_allclose([e.weight for e in edges], [e.weight for e in others], atol=1e-6)
            assert [replace(edge, weight=0) for edge in edges] == [
                replace(edge, weight=0) for edge in others
            ]


class TestEdges:
    def test_strongest_edges_are_the_largest_weights_of_queries_with_several_keys(self) -> None:
        record = causal_record(30)
        stack = statistics_of(record, edges=3).stack()
        weights = record.stack().weights(layer=0, head=1)[1:]
        largest = np.sort(weights.max(axis=1))[::-1][:3]
        edges = stack.strongest(0, 1)
        assert_allclose([edge.weight for edge in edges], largest, atol=1e-6)
        tokens = record.stack().query_tokens
        for edge in edges:
            assert weights[edge.query - 1, edge.key] == pytest.approx(edge.weight)
            assert (edge.query_token, edge.key_token) == (tokens[edge.query], tokens[edge.key])
            assert edge.window == [
                (index, tokens[index])
                for index in range(30)
                if min(abs(index - edge.query), abs(index - edge.key)) <= 6
            ]

    def test_a_text_has_at_most_four_strongest_edges_of_different_queries(self) -> None:
        edges = statistics_of(causal_record(40)).stack().strongest(0, 0)
        assert len({edge.query for edge in edges}) == len(edges) == 4

    def test_sampled_edges_estimate_shares_of_the_attention(self) -> None:
        records = [causal_record(40, seed) for seed in range(12)]
        stack = statistics_of(*records, edges=450).stack()
        edges = stack.sampled(2, 0)
        assert len(edges) == 450
        previous = np.mean([edge.key == edge.query - 1 for edge in edges])
        weights = [record.stack().weights(layer=2, head=0) for record in records]
        share = np.mean([np.trace(matrix, offset=-1) / 40 for matrix in weights])
        # The tolerance is three standard errors of a share of 450 draws.
        assert abs(previous - share) < 3 * np.sqrt(share * (1 - share) / 450)
        assert {edge.text for edge in edges} == set(range(12))
        queries = np.bincount([edge.query for edge in edges], minlength=40)
        assert queries.min() >= 8

    def test_edges_depend_on_the_seed_and_can_be_omitted(self) -> None:
        record = causal_record(60)
        one, same, other = (
            [edge.query for edge in statistics_of(record, edges=5, seed=seed).stack().sampled(0, 0)]
            for seed in (0, 0, 1)
        )
        assert one == same != other
        nothing = statistics_of(record, edges=0).stack()
        assert nothing.strongest(0, 0) == nothing.sampled(0, 0) == []
        assert [len(side) for side in nothing.kept_tokens] == [0]

    def test_each_seed_draws_another_sample(self) -> None:
        """The texts are equal, so samples that differ only in the order of texts are equal."""
        records = [causal_record(8, heads=1)] * 32
        samples = set()
        for seed in range(200):
            stack = head_statistics(records, edges=20, seed=seed, progress=False).stack()
            edges = [(edge.query, edge.key) for edge in stack.sampled(0, 0)]
            assert len(edges) == 20
            samples.add(tuple(sorted(edges)))
        assert len(samples) == 200


def made_texts(count: int) -> list[AttentionRecord]:
    generator = np.random.default_rng(3)
    records = []
    for seed in range(count):
        length = int(generator.integers(2, 9))
        words = [f"w{number}" for number in generator.integers(0, 5, length)]
        records.append(record_of(shares(2, length, length, seed=seed), words))
    return records


def test_the_standard_error_of_equal_scores_is_exactly_zero() -> None:
    # A variance computed from rounded sums of 30 equal scores would not be exactly 0.
    stack = statistics_of(*[causal_record(9, seed=1)] * 30).stack()
    for name in stack.score_names:
        errors = np.array(stack.standard_error(name))
        assert (errors[~np.isnan(errors)] == 0).all(), name
        assert not np.isnan(np.array(stack.mean(name))[~np.isnan(errors)]).any()


def test_any_order_of_additions_gives_the_same_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    # The low limit makes each part drop edges before parts are added, as in a large corpus.
    monkeypatch.setattr("attnviz.corpus.totals._MAX_EDGES", 50)
    records = made_texts(60)
    generator = np.random.default_rng(0)
    labels = [{"label": f"c{number}"} for number in generator.integers(0, 4, 60)]

    def part_of(texts: Sequence[int]) -> HeadStatistics:
        part = HeadStatistics(edges=20, columns=["label"])
        for text in texts:
            part.add(records[text], text, columns=labels[text])
        return part

    expected = part_of(range(60))
    # The cut 7 occurs twice, so one part has no texts.
    cuts = [7, 7, 20, 31, 33, 50]
    parts = [part_of(texts.tolist()) for texts in np.split(generator.permutation(60), cuts)]
    while len(parts) > 1:
        first, second = generator.choice(len(parts), 2, replace=False)
        joined = parts[first] + parts[second]
        parts = [part for index, part in enumerate(parts) if index not in (first, second)]
        parts.append(joined)
    assert_same_statistics(parts[0], expected)


def test_statistics_of_separately_counted_corpora_add() -> None:
    # The rarest token is "w0" in the texts of the first corpus, and "w1" in those of the second.
    frequencies: list[dict[int | str, int]]
    frequencies = [{"w0": 1, "w1": 9, "x": 9}, {"w0": 9, "w1": 1, "x": 9}]
    corpora = [HeadStatistics(edges=3, frequencies=counts) for counts in frequencies]
    weights = [shares(2, 4, 4, seed=seed) for seed in range(4)]
    for number, text_weights in enumerate(weights):
        corpora[number % 2].add(record_of(text_weights, ["first", "w0", "w1", "x"]))
    total = corpora[0] + corpora[1]
    rarest = [
        text_weights[:, :, 1 + number % 2].mean(axis=1)
        for number, text_weights in enumerate(weights)
    ]
    assert_allclose(total.stack().mean("rarest token")[0], np.mean(rarest, axis=0), atol=FEW)
    assert total.texts == 4
    assert total.text_numbers == ((0, 4),)
    assert any("corpora that were counted separately" in note for note in total.notes)
    # In the sum, the texts of the second corpus are numbered after those of the first.
    order = [0, 2, 1, 3]
    for edge in total.stack().strongest(0, 0):
        expected = weights[order[edge.text]][0, edge.query, edge.key]
        assert edge.weight == pytest.approx(expected, abs=1e-6)
    # Statistics without texts add no note.
    assert (HeadStatistics(edges=3) + total).notes == total.notes
    assert total.totals.settings.frequencies == {"w0": 10, "w1": 10, "x": 18}


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    records = made_texts(100)
    sizes = []
    statistics = HeadStatistics(edges=5)
    for text in range(2000):
        statistics.add(records[text % 100], text)
        if text in (199, 1999):
            statistics.save(tmp_path / "file.safetensors")
            sizes.append((tmp_path / "file.safetensors").stat().st_size)
    assert sizes[1] < 1.2 * sizes[0]


class TestAdding:
    def test_statistics_of_different_corpora_are_not_added(self) -> None:
        record = causal_record(5)
        base = statistics_of(record)
        with pytest.raises(ValueError, match="differ in model: 'made' and 'other'"):
            base.add(record_of(shares(1, 8, 8), model="other"))
        with pytest.raises(ValueError, match="stack 'self' has layers 0, 2 with 4 heads, and"):
            base.add(record_of(shares(1, 8, 8)))
        with pytest.raises(ValueError, match="text=0 was already added"):
            base.add(record, 0)
        with pytest.raises(ValueError, match="differ in edges: 100 and 7"):
            base + HeadStatistics(edges=7)
        with pytest.raises(ValueError, match="differ in weights of the model: '1' and '2'"):
            HeadStatistics("a", weights="1") + HeadStatistics("a", weights="2")
        assert base.texts == 1

    def test_skipped_texts_are_counted(self) -> None:
        statistics = statistics_of(causal_record(5))
        statistics.skip(2, "empty")
        statistics.skip(1, "too long")
        assert (statistics.texts, statistics.num_skipped, statistics.tokens) == (1, 2, 5)
        assert statistics.text_numbers == ((0, 3),)
        assert statistics.notes == [
            "1 text is left out: empty.",
            "1 text is left out: too long for the model.",
        ]
        with pytest.raises(ValueError, match="text=2 was already added"):
            statistics.skip(2, "empty")


def test_invalid_calls_are_refused() -> None:
    with pytest.raises(ValueError, match="the statistics have no texts yet"):
        HeadStatistics().stack()
    statistics = statistics_of(causal_record(4))
    with pytest.raises(KeyError, match="stack='cross': these statistics have the stacks 'self'"):
        statistics.stack("cross")
    stack = statistics.stack()
    with pytest.raises(KeyError, match="score='indction': stack 'self' has the scores 'previous t"):
        stack.mean("indction")
    with pytest.raises(IndexError, match="layer=1: stack 'self' has layers 0, 2"):
        stack.offsets(1)
    with pytest.raises(IndexError, match="head=5: layer 0 of stack 'self' has heads 0, 1"):
        stack.strongest(0, 5)


@pytest.mark.parametrize(
    ("record", "options", "error", "message"),
    [
        ("text", {}, TypeError, "record must be an AttentionRecord, not str"),
        (causal_record(4), {"columns": {"label": "a"}}, ValueError, "'label' is not one of the"),
        (
            causal_record(4),
            {"columns": {"pos": ["a", "b", "c"]}},
            ValueError,
            r"columns\['pos'\] has 3 values but the text has 4",
        ),
        (difference_record(), {}, ValueError, "statistics of heads are defined for attention"),
    ],
)
def test_an_invalid_text_is_refused_and_not_counted(
    record: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    statistics = HeadStatistics(columns=["pos"])
    with pytest.raises(error, match=message):
        statistics.add(record, **options)
    assert statistics.texts == 0


class TestOddTexts:
    def test_hostile_tokens_are_saved_and_loaded(self, tmp_path: Path) -> None:
        count = len(HOSTILE)
        statistics = statistics_of(record_of(shares(2, count, count), list(HOSTILE)))
        statistics.save(tmp_path / "file.safetensors")
        reloaded = HeadStatistics.load(tmp_path / "file.safetensors").stack()
        [tokens] = reloaded.kept_tokens
        visible = Tokens.of(list(HOSTILE))
        assert [reloaded.words[code] for code in tokens.codes] == [
            visible[position] for position in tokens.position.tolist()
        ]

    def test_one_token_and_a_row_without_keys(self, tmp_path: Path) -> None:
        # Some statistics of a text of one token are empty arrays.
        saved = statistics_of(record_of(np.ones((1, 1, 1), np.float32), ["a"])).save(tmp_path / "x")
        one = HeadStatistics.load(saved).stack()
        assert [(edge.weight, edge.query, edge.key) for edge in one.sampled(0, 0)] == [(1.0, 0, 0)]
        assert "previous token" not in one.score_names
        assert_allclose(one.mean("self"), [[1.0]])
        weights = shares(1, 3, 3)
        weights[0, 1] = 0
        stack = statistics_of(record_of(weights, ["a", "b", "c"])).stack()
        assert np.isfinite(stack.mean("entropy")[0]).all()
        assert {edge.query for edge in stack.sampled(0, 0)} == {0, 2}


def test_zeros_above_the_diagonal_of_weights_alone_are_a_mask() -> None:
    record = causal_record(9)
    tokens = record.stack().query_tokens.text
    of_weights = AttentionRecord.from_weights(record.to_numpy(), tokens, layers=[0, 2])
    masked, weights_only = statistics_of(record).stack(), statistics_of(of_weights).stack()
    for name in ("previous token", "first token", "self", "same token"):
        assert_allclose(weights_only.mean(name), masked.mean(name), rtol=1e-4, atol=1e-6)
        assert_allclose(weights_only.baseline(name), masked.baseline(name), rtol=1e-4, atol=1e-6)


def test_columns_are_classes_of_tokens() -> None:
    weights = shares(1, 4, 4)
    statistics = HeadStatistics(columns=["pos", "genre"])
    record = record_of(weights, ["the", "cat", "sat", "down"])
    statistics.add(record, columns={"pos": ["DET", "NOUN", "VERB", None], "genre": "tale"})
    statistics.add(record, columns={"genre": "news"})
    statistics.add(record, columns={"genre": "news"})
    stack = statistics.stack()
    assert stack.class_systems == ("kind", "pos", "genre")
    assert stack.classes_of("pos") == ("DET", "NOUN", "VERB")
    assert stack.classes_of("genre") == ("news", "tale")
    assert_allclose(stack.class_weights(0, "pos")[0], weights[0, :3, :3], atol=FEW)
    # All tokens of a text have the same genre, so no weight goes to the other genre.
    assert_allclose(stack.class_weights(0, "genre")[0], np.eye(2), atol=1e-6)


def test_parts_add_up_to_a_table(tmp_path: Path) -> None:
    statistics = HeadStatistics()
    for text in (5, 3, 4, 0, 9):
        part = HeadStatistics()
        part.add(causal_record(6, text), text)
        statistics += part
    assert statistics.text_numbers == ((0, 1), (3, 6), (9, 10))
    table = statistics.to_pandas()
    line = table[(table.layer == 2) & (table["head"] == 1) & (table.score == "self")].iloc[0]
    assert line["mean"] == statistics.stack().mean("self")[1][1]
    import pandas as pd

    statistics.save(tmp_path / "table.parquet")
    assert pd.read_parquet(tmp_path / "table.parquet").equals(table)
