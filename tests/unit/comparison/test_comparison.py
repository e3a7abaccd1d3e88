"""Differences between two records, compared with numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.inserted import AlignedWeights
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


def test_three_tokens_against_four_by_hand() -> None:
    found = av.compare(
        record(THREE, ["he", " was", " tired"]), record(FOUR, ["she", " was", " very", " tired"])
    )
    a, b = found.a.stack(), found.b.stack()
    assert a.query_tokens.text == ("he→she", "·was", "+·very", "·tired")
    wanted = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0, 0], [0.25, 0.25, 0, 0.5]])
    assert np.array_equal(a.weights(layer=0, head=0), wanted.astype(np.float32))
    assert np.allclose(b.weights(layer=0, head=0), FOUR, atol=1e-7)
    assert not a.allowed(layer=0, head=0)[2].any()
    assert not a.allowed(layer=0, head=0)[:, 2].any()
    # The queries of both: 0, (0.25 + 0.25) / 2, (0.125 + 0.25 + 0.125 + 0.25) / 2.
    assert found.distance()[0] == pytest.approx([(0 + 0.25 + 0.375) / 3])
    table = found.to_pandas(top_k=2)
    # Two differences of at least 0.25. The first positions come first.
    assert table[["query_token", "key_token"]].to_numpy().tolist() == [
        ["·was", "he→she"],
        ["·was", "·was"],
    ]
    assert table["difference"].tolist() == pytest.approx([-0.25, 0.25])
    assert table["a"].tolist() == pytest.approx([0.5, 0.5])
    assert found.notes == ("1 token is replaced by another; 1 token of b is not in a.",)


def test_jensen_shannon_by_hand() -> None:
    found = av.compare(
        record([[1.0, 0.0], [0.5, 0.5]], ["a", "b"]), record([[1.0, 0.0], [0.0, 1.0]], ["a", "b"])
    )
    # Distance of (1/2, 1/2) and (0, 1), with the mean (1/4, 3/4).
    wanted = (0.5 * np.log2(2) + 0.5 * np.log2(2 / 3)) / 2 + np.log2(4 / 3) / 2
    assert found.distance(measure="Jensen-Shannon")[0] == pytest.approx([wanted / 2])


def test_what_a_sink_takes_counts() -> None:
    queries = torch.zeros(1, 1, 2, 4)
    plain, sunk = (
        av.AttentionRecord.from_qk(queries, queries, ["a", "b"], sinks=sinks)
        for sinks in (None, [[np.log(2)]])
    )
    # With even weights the sink takes as much as both keys together.
    assert av.compare(plain, sunk).distance()[0] == pytest.approx([0.5])


def random_record(seed: int, tokens: list[str], **options: object) -> av.AttentionRecord:
    generator = torch.Generator().manual_seed(seed)
    queries, keys = torch.randn(2, 2, 3, len(tokens), 8, generator=generator) * 2
    return av.AttentionRecord.from_qk(queries, keys, tokens, causal=True, **options)  # type: ignore[arg-type]


def test_the_head_that_was_changed_comes_first() -> None:
    words = [f" {letter}" for letter in "abcdefgh"]
    a, b = random_record(0, words), random_record(0, words)
    vectors = b.stack().attention(1).vectors
    assert vectors is not None
    vectors.queries[2] *= 1.5
    distances = np.stack(av.compare(a, b).distance())
    assert distances.argmax() == 5
    assert (np.delete(distances.ravel(), 5) == 0).all()
    assert (av.compare(a, b).to_pandas()[["layer", "head"]].to_numpy() == [1, 2]).all()


def test_tokenizers_meet_in_sums_and_means() -> None:
    """Compare with the sums and means of the complete matrix in float64."""
    a = random_record(0, ["un", "do", " it", " now"])
    b = random_record(1, ["undo", " it", " n", "ow"])
    found = av.compare(a, b)
    assert found.a.tokens.text == ("undo", "·it", "·now")
    assert "2 units are several tokens in one of them" in found.notes[0]
    for made, given, ends in ((found.a, a, [2, 3, 4]), (found.b, b, [1, 2, 4])):
        groups = np.split(np.arange(4), ends[:-1])
        for head in range(3):
            whole = given.stack().weights(layer=1, head=head).astype(np.float64)
            columns = np.stack([whole[:, group].sum(axis=1) for group in groups], axis=1)
            wanted = np.stack([columns[group].mean(axis=0) for group in groups])
            assert np.allclose(made.stack().weights(layer=1, head=head), wanted, atol=1e-6)
            assert np.allclose(
                made.stack().weights(layer=1, head=head, rows=slice(1, 3), columns=slice(0, 2)),
                wanted[1:3, :2],
                atol=1e-6,
            )


def test_a_sample_of_queries() -> None:
    words = [f" w{number}" for number in range(300)]
    a, b = random_record(0, words), random_record(1, words)
    found = av.compare(a, b)
    whole, sample = np.stack(found.distance()), np.stack(found.distance(max_queries=64))
    assert 0 < np.abs(whole - sample).max() < 3 * 0.5 / 64**0.5
    assert set(found.to_pandas(max_queries=5)["query"]) <= set(range(300))
    assert found.to_pandas(max_queries=5)["query"].nunique() <= 5


def test_only_what_both_have_is_compared() -> None:
    words = ["a", " b", " c"]
    a, b = random_record(0, words, layers=[0, 1]), random_record(0, words, layers=[1, 2])
    found = av.compare(a, b, names=("old", "new"))
    assert found.a.stack().layers == (1,)
    assert found.notes == ("Only old has layer 0.", "Only new has layer 2.")
    assert found.a.model == "old"
    weights = av.AttentionRecord.from_weights(a.to_numpy(), words, layers=[0, 1])
    some = av.compare(weights, a)
    assert max(map(np.max, some.distance())) < 1e-6
    assert all(np.isnan(values).all() for values in some.rounding())
    with pytest.raises(ValueError, match="no layer in common; a has 0, b has 1"):
        av.compare(a.only(0), b.only(1))
    with pytest.raises(ValueError, match="no stack in common: a has 'self', b has 'cross'"):
        av.compare(a, random_record(0, words, stack="cross"))
    scores = av.AttentionRecord.from_weights(
        [[[[2.0, 0.0, 0.0]] * 3] * 3] * 2, words, normalized=False
    )
    with pytest.raises(ValueError, match="give both with the same normalized="):
        av.compare(a, scores)


def test_what_is_none_of_the_three_forms_is_refused() -> None:
    a = record(THREE, ["a", "b", "c"])
    for arguments, options, words in (
        ((a, "text"), {}, "b is a str; pass two records"),
        ((a, a, "text"), {}, "leave out c"),
        ((a, a), {"tokenizer": 1}, "leave out tokenizer"),
        ((object(), "text"), {}, "a model and two inputs"),
        (((object(),), "text"), {}, "a is 1 models"),
        (((object(), object()), "one", "two"), {}, "there are two inputs"),
    ):
        with pytest.raises(TypeError, match=words):
            av.compare(*arguments, **options)  # type: ignore[arg-type]
    for names in ("ab", ("a",), ("a", ""), (1, 2)):
        with pytest.raises(ValueError, match="must be two texts"):
            av.compare(a, a, names=names)  # type: ignore[arg-type]
    found = av.compare(a, a)
    with pytest.raises(ValueError, match="must be one of 'total variation', 'Jensen-Shannon'"):
        found.distance(measure="cosine")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="top_k=0 must be at least 1"):
        found.to_pandas(top_k=0)
    with pytest.raises(KeyError, match="this record has 'self'"):
        found.distance("cross")


def test_nothing_as_large_as_queries_times_keys_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f" w{number}" for number in range(6000)]
    a, b = random_record(0, words).only(0), random_record(1, [*words[:50], *words[51:]]).only(0)
    found = av.compare(a, b)
    largest = 0
    real = QueryKeyAttention.shared_logits

    def shared_logits(self: QueryKeyAttention, *arguments: Any) -> torch.Tensor:
        nonlocal largest
        logits = real(self, *arguments)
        largest = max(largest, logits.numel())
        return logits

    monkeypatch.setattr(QueryKeyAttention, "shared_logits", shared_logits)
    found.distance(max_queries=2000)
    assert 0 < largest <= 1 << 22


def given_layers() -> dict[str, QueryKeyAttention]:
    """Return layers with every part of a logit: 6 heads, 2 or 6 key heads, 7 queries and keys."""
    generator = torch.Generator().manual_seed(3)

    def made(key_heads: int = 6, **options: Any) -> QueryKeyAttention:
        queries = torch.randn(6, 7, 8, generator=generator) * 2
        keys = torch.randn(key_heads, 7, 8, generator=generator) * 2
        return QueryKeyAttention(queries, keys, 8**-0.5, **options)

    distances = DistanceBias(torch.randn(6, 13, generator=generator), 7)
    return {
        "plain": made(),
        "grouped": made(2, mask=BandMask(None, 0)),
        "sliding": made(mask=BandMask(2, 1)),
        "sink": made(mask=BandMask(None, 0), sinks=torch.linspace(-1, 2, 6)),
        "soft cap": made(softcap=1.5, bias=distances),
        "half": replace(
            made(), queries=torch.ones(6, 7, 8).half(), keys=torch.ones(6, 7, 8).half()
        ),
    }


@pytest.mark.parametrize("kind", given_layers())
def test_queries_and_keys_stay_known_where_tokens_are_inserted(kind: str) -> None:
    """The weights equal those of the original tokens, with zeros inserted."""
    layer = given_layers()[kind]
    words = [f" w{number}" for number in range(7)]
    one = av.AttentionRecord({"self": av.AttentionStack("self", {4: layer}, Tokens.of(words))})
    longer = random_record(0, [" first", *words[:3], " more", " still", *words[3:]])
    longer = av.AttentionRecord(
        {"self": av.AttentionStack("self", {4: longer.stack().attention(0)}, longer.tokens)}
    )
    found = av.compare(one, longer)
    there = np.array([1, 2, 3, 6, 7, 8, 9])
    attention = found.a.stack().attention(4)
    assert isinstance(attention, QueryKeyAttention)
    assert found.a.stack().has_vectors
    as_weights = AlignedWeights(layer, there, there, 10, 10)
    everything = slice(0, 10), slice(0, 10)
    rows = np.array([0, 2, 4, 9])
    for head in range(6):
        wanted = np.zeros((10, 10))
        wanted[np.ix_(there, there)] = layer.weights(head, slice(0, 7), slice(0, 7))
        assert np.allclose(attention.weights(head, *everything), wanted, atol=1e-6)
        assert np.array_equal(
            attention.allowed(head, *everything), as_weights.allowed(head, *everything)
        )
        weights, allowed = attention.weights_of_rows(head, rows)
        assert np.allclose(weights, wanted[rows], atol=1e-6)
        assert np.array_equal(allowed, as_weights.weights_of_rows(head, rows)[1])
    assert attention.causal == layer.causal == as_weights.causal


def test_heads_that_only_one_has_are_not_compared() -> None:
    """Compare 2 heads with 3. One text has one more token, and its tokens are merged."""
    generator = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(2, 2, 5, 8, generator=generator)
    fewer = QueryKeyAttention(queries, keys, 8**-0.5)
    tokens = Tokens.of(["un", "do", " it", " all", " now"])
    some = av.AttentionRecord({"self": av.AttentionStack("self", {0: fewer}, tokens)})
    found = av.compare(random_record(0, ["undo", " it", " now"]).only(0), some)
    assert [each.stack().num_heads(0) for each in (found.a, found.b, found.difference)] == [3, 2, 2]
    assert np.isnan(found.distance()[0]).tolist() == [False, False, True]
