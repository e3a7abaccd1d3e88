"""Test distances of two records with aligned tokens, their rounding errors, and tables."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, DistanceBias
from attnviz.record.tokens import Tokens

THREE = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]
FOUR = [
    [1.0, 0.0, 0.0, 0.0],
    [0.25, 0.75, 0.0, 0.0],
    [0.1, 0.2, 0.7, 0.0],
    [0.125, 0.5, 0.125, 0.25],
]


def record(weights: list[list[float]], tokens: list[str] | Tokens) -> av.AttentionRecord:
    return av.AttentionRecord.from_weights([[weights]], tokens)


def test_three_tokens_are_compared_with_four_by_hand() -> None:
    comparison = av.compare(
        record(THREE, ["he", " was", " tired"]), record(FOUR, ["she", " was", " very", " tired"])
    )
    a, b = comparison.a.stack(), comparison.b.stack()
    assert a.query_tokens.text == ("he→she", "·was", "+·very", "·tired")
    expected = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0, 0], [0.25, 0.25, 0, 0.5]])
    assert np.array_equal(a.weights(layer=0, head=0), expected.astype(np.float32))
    assert np.allclose(b.weights(layer=0, head=0), FOUR, atol=1e-7)
    assert not a.allowed(layer=0, head=0)[2].any()
    assert not a.allowed(layer=0, head=0)[:, 2].any()
    # The three common queries have the distances 0, 0.5 / 2 and (0.125 + 0.25 + 0.125 + 0.25) / 2.
    assert comparison.distance()[0] == pytest.approx([(0 + 0.25 + 0.375) / 3])
    table = comparison.to_pandas(top_k=2)
    # Four differences have the largest size, 0.25. The table has the first two by position.
    assert table[["query_token", "key_token"]].to_numpy().tolist() == [
        ["·was", "he→she"],
        ["·was", "·was"],
    ]
    assert table["difference"].tolist() == pytest.approx([-0.25, 0.25])
    assert table["a"].tolist() == pytest.approx([0.5, 0.5])
    assert comparison.notes == ("1 token is replaced by another; 1 token of b is not in a.",)


def test_a_note_that_holds_for_all_stacks_is_written_once() -> None:
    names = "self", "other", "third"

    def stacks(*tokens: list[str]) -> av.AttentionRecord:
        one = [record(THREE, text).stack() for text in tokens]
        return av.AttentionRecord(dict(zip(names, one, strict=False)))

    he, she = ["he", " was", " tired"], ["she", " was", " tired"]
    replaced = "1 token is replaced by another."
    assert av.compare(stacks(he, he), stacks(she, she)).notes == (replaced,)
    part = av.compare(stacks(he, he, he), stacks(she, he, she)).notes
    assert part == (f"Stacks “self” and “third”: {replaced}",)
    assert av.compare(stacks(he, he), stacks(he, she)).notes == (f"Stack “other”: {replaced}",)


def test_jensen_shannon_by_hand() -> None:
    comparison = av.compare(
        record([[1.0, 0.0], [0.5, 0.5]], ["a", "b"]), record([[1.0, 0.0], [0.0, 1.0]], ["a", "b"])
    )
    assert comparison.distance()[0] == pytest.approx([0.25])
    # Divergence of the second rows (1/2, 1/2) and (0, 1) from their mean (1/4, 3/4), in bits.
    expected = (0.5 * np.log2(2) + 0.5 * np.log2(2 / 3)) / 2 + np.log2(4 / 3) / 2
    assert comparison.distance(measure="Jensen-Shannon")[0] == pytest.approx([expected / 2])


def test_a_query_without_weights_is_not_compared() -> None:
    comparison = av.compare(
        record([[1.0, 0.0], [0.5, 0.5]], ["a", "b"]), record([[0.75, 0.25], [0.0, 0.0]], ["a", "b"])
    )
    assert comparison.distance()[0] == pytest.approx([0.25])


def test_squares_of_rounding_errors_add_up() -> None:
    """The estimate assumes n + 3 rounding errors in layer n. Layers 0 and 9 have equal vectors."""
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(2, 1, 8, 40, 16, generator=generator) * 2
    tokens = [f" w{number}" for number in range(40)]
    single, half = (
        av.AttentionRecord.from_qk(
            queries.to(dtype).repeat(2, 1, 1, 1),
            keys.to(dtype).repeat(2, 1, 1, 1),
            tokens,
            layers=[0, 9],
        )
        for dtype in (torch.float32, torch.float16)
    )
    first, tenth = av.compare(half, half).rounding()
    assert tenth.mean() / first.mean() == pytest.approx((12 / 3) ** 0.5, rel=0.2)
    # The estimate is that of float16, because rounding errors of float32 are negligible.
    assert av.compare(single, half).rounding()[0].mean() == pytest.approx(first.mean(), rel=0.05)
    pair = av.compare([single, single, half]).pair(1)
    assert np.array_equal(pair.rounding(), av.compare(single, single).rounding())


def test_the_largest_changes_are_listed_as_by_sorting() -> None:
    tokens = [f" w{number}" for number in range(9)]
    records = [random_record(seed, tokens) for seed in (0, 1)]
    of_one_head = [
        av.AttentionRecord.from_weights([[record.stack().weights(layer=0, head=0)]], tokens)
        for record in records
    ]
    for a, b in (records, of_one_head):
        changes = np.subtract(b.to_numpy(), a.to_numpy())
        table = av.compare(a, b).to_pandas(top_k=20)
        expected = np.sort(np.abs(changes), axis=None)[::-1][:20]
        assert np.abs(table["difference"]).tolist() == pytest.approx(expected.tolist())
        positions = tuple(table[["layer", "head", "query", "key"]].to_numpy().T)
        assert table["difference"].tolist() == pytest.approx(changes[positions].tolist())


def test_the_weight_of_a_sink_counts() -> None:
    queries = torch.zeros(1, 1, 2, 4)
    plain, with_sink = (
        av.AttentionRecord.from_qk(queries, queries, ["a", "b"], sinks=sinks)
        for sinks in (None, [[np.log(2)]])
    )
    # All logits are 0, so the sink of logit log(2) has as much weight as both keys together.
    assert av.compare(plain, with_sink).distance()[0] == pytest.approx([0.5])


def random_record(seed: int, tokens: list[str], **options: object) -> av.AttentionRecord:
    generator = torch.Generator().manual_seed(seed)
    queries, keys = torch.randn(2, 2, 3, len(tokens), 8, generator=generator) * 2
    return av.AttentionRecord.from_qk(queries, keys, tokens, causal=True, **options)  # type: ignore[arg-type]


def test_tokenizers_are_compared_by_sums_and_means() -> None:
    """Weights of a word are sums over its tokens as keys, and means over its tokens as queries."""
    a = random_record(0, ["un", "do", " it", " now"])
    b = random_record(1, ["undo", " it", " n", "ow"])
    comparison = av.compare(a, b)
    assert comparison.a.tokens.text == ("undo", "·it", "·now")
    assert "2 units are several tokens in one of them" in comparison.notes[0]
    for compared, original, ends in ((comparison.a, a, [2, 3, 4]), (comparison.b, b, [1, 2, 4])):
        groups = np.split(np.arange(4), ends[:-1])
        for head in range(3):
            matrix = original.stack().weights(layer=1, head=head).astype(np.float64)
            columns = np.stack([matrix[:, group].sum(axis=1) for group in groups], axis=1)
            expected = np.stack([columns[group].mean(axis=0) for group in groups])
            assert np.allclose(compared.stack().weights(layer=1, head=head), expected, atol=1e-6)


def test_a_sample_of_queries_estimates_the_distance() -> None:
    words = [f" w{number}" for number in range(300)]
    a, b = random_record(0, words), random_record(1, words)
    comparison = av.compare(a, b)
    exact, sample = np.stack(comparison.distance()), np.stack(comparison.distance(max_queries=64))
    assert 0 < np.abs(exact - sample).max() < 3 * 0.5 / 64**0.5
    assert 0 < comparison.to_pandas(max_queries=5)["query"].nunique() <= 5


def test_only_common_layers_and_stacks_are_compared() -> None:
    words = ["a", " b", " c"]
    a, b = random_record(0, words, layers=[0, 1]), random_record(0, words, layers=[1, 2])
    comparison = av.compare(a, b, names=("old", "new"))
    assert comparison.a.stack().layers == (1,)
    assert comparison.notes == ("Only old has layer 0.", "Only new has layer 2.")
    assert comparison.a.model == "old"
    weights = av.AttentionRecord.from_weights(a.to_numpy(), words, layers=[0, 1])
    against_weights = av.compare(weights, a)
    assert max(map(np.max, against_weights.distance())) < 1e-6
    assert all(np.isnan(values).all() for values in against_weights.rounding())


def test_memory_is_less_than_queries_times_keys(logit_blocks: list[int]) -> None:
    words = [f" w{number}" for number in range(6000)]
    a, b = random_record(0, words).only(0), random_record(1, [*words[:50], *words[51:]]).only(0)
    av.compare(a, b).distance(max_queries=2000)
    assert 0 < max(logit_blocks) <= 1 << 22


def test_inserted_tokens_have_no_weight() -> None:
    """Weights equal those of the original tokens, and are 0 at inserted tokens."""
    generator = torch.Generator().manual_seed(3)
    layer = QueryKeyAttention(
        torch.randn(6, 7, 8, generator=generator) * 2,
        torch.randn(2, 7, 8, generator=generator) * 2,
        8**-0.5,
        mask=BandMask(2, 1),
        bias=DistanceBias(torch.randn(6, 13, generator=generator), 7),
        softcap=1.5,
        sinks=torch.linspace(-1, 2, 6),
    )
    words = [f" w{number}" for number in range(7)]
    shorter = av.AttentionRecord({"self": av.AttentionStack("self", {4: layer}, Tokens.of(words))})
    longer = random_record(0, [" first", *words[:3], " more", " still", *words[3:]])
    longer = av.AttentionRecord(
        {"self": av.AttentionStack("self", {4: longer.stack().attention(0)}, longer.tokens)}
    )
    stack = av.compare(shorter, longer).a.stack()
    positions = np.array([1, 2, 3, 6, 7, 8, 9])
    for head in range(6):
        expected, allowed = np.zeros((10, 10)), np.zeros((10, 10), np.bool_)
        expected[np.ix_(positions, positions)] = layer.block([head], slice(0, 7))[0]
        allowed[np.ix_(positions, positions)] = layer.allowed([head], slice(0, 7))[0]
        assert np.allclose(stack.weights(layer=4, head=head), expected, atol=1e-6)
        assert np.array_equal(stack.allowed(layer=4, head=head), allowed)
    assert stack.causal == layer.causal


def test_heads_of_one_record_alone_are_not_compared() -> None:
    queries, keys = torch.randn(2, 2, 3, 8, generator=torch.Generator().manual_seed(0))
    tokens = ["undo", " it", " now"]
    fewer = av.AttentionRecord.from_qk([queries], [keys], tokens)
    comparison = av.compare(random_record(0, tokens).only(0), fewer)
    assert [record.stack().num_heads(0) for record in (comparison.b, comparison.difference)] == [
        2,
        2,
    ]
    assert np.isnan(comparison.distance()[0]).tolist() == [False, False, True]
