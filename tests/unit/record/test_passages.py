"""Tests of passages, into which the tokens of a record are merged like those of words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import attnviz as av
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.images import PatchGrid
from attnviz.record.masks import BandMask
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Passage, Tokens, joined_tokens, selected_tokens
from unit.formulas import weights_of
from unit.records import vectors

TEXT = ["<s>", "Rain", " falls", ".", "\n\n", "Snow", " melts", ".", " Why", "?"]
PASSAGES = {"doc 1": (1, 4), "doc 2": (5, 8), "question": (8, 10)}
N = len(TEXT)


def tokens() -> Tokens:
    return Tokens.of(TEXT, special=[True, *[False] * (N - 1)])


def causal_record(heads: int = 3) -> AttentionRecord:
    queries, keys = vectors(2, heads, N, 4), vectors(2, heads, N, 4, seed=1)
    return AttentionRecord.from_qk(queries, keys, tokens(), causal=True)


def ranges(record: AttentionRecord) -> dict[str, tuple[int, int]]:
    return {one.name: (one.start, one.stop) for one in record.stack().key_tokens.passages}


@pytest.mark.parametrize(
    ("passages", "expected"),
    [
        (PASSAGES, PASSAGES),
        ({"question": (-2, N), "doc 1": (1, 4)}, {"doc 1": (1, 4), "question": (8, 10)}),
        ({"a": "rain  falls", "b": " Why?"}, {"a": (1, 3), "b": (8, 10)}),
        ({"a": "Snow melts.\nWhy"}, {"a": (5, 9)}),
        ([None, *"aaa", None, *"baa", None, None], {"a 1": (1, 4), "b": (5, 6), "a 2": (6, 8)}),
        ("paragraphs", {"paragraph 1": (1, 5), "paragraph 2": (5, 10)}),
        ("sentences", {"sentence 1": (1, 5), "sentence 2": (5, 8), "sentence 3": (8, 10)}),
        ("texts", {"text": (1, 10)}),
    ],
)  # fmt: skip
def test_passages_are_found(passages: Any, expected: dict[str, tuple[int, int]]) -> None:
    assert ranges(causal_record().with_passages(passages)) == expected


@pytest.mark.parametrize("side", ["both", "queries", "keys"])
def test_keys_are_summed_and_queries_averaged(side: Any) -> None:
    record = causal_record()
    merged = record.merge_passages(PASSAGES, side=side)
    groups = [[0], [1, 2, 3], [4], [5, 6, 7], [8, 9]]
    alone = [[position] for position in range(N)]
    rows = alone if side == "keys" else groups
    columns = alone if side == "queries" else groups
    for layer in record.stack().layers:
        # Weights of the dense softmax, computed without the classes of the record.
        attention = record.stack().attention(layer)
        assert isinstance(attention, QueryKeyAttention)
        dense = weights_of(attention)
        expected = [
            [[head[np.ix_(row, column)].sum() / len(row) for column in columns] for row in rows]
            for head in dense
        ]
        assert_allclose(merged.stack().weights(layer), expected, atol=1e-6)
    names = ("<s>", "doc 1", "⏎⏎", "doc 2", "question")
    queries, keys = merged.stack().query_tokens, merged.stack().key_tokens
    assert queries.text == (names if rows is groups else tokens().text)
    assert keys.text == (names if columns is groups else tokens().text)
    assert (queries is keys) == (side == "both")
    named = keys if columns is groups else queries
    assert [named.text[one.start : one.stop] for one in named.passages] == [
        (one,) for one in PASSAGES
    ]
    assert named.special == (True, False, False, False, False)
    words = {"queries": "queries averaged", "keys": "keys summed"}.get(
        side, "keys summed, queries averaged"
    )
    assert merged.notes == (f"Tokens merged into passages: {words}.",)


def test_words_are_merged_into_passages() -> None:
    record = causal_record().with_passages(PASSAGES)
    words = record.merge_words()
    assert words.merge_passages().stack().weights(0).shape == (3, 5, 5)
    assert_allclose(
        words.merge_passages().stack().weights(1),
        record.merge_passages().stack().weights(1),
        atol=1e-6,
    )


def test_a_token_that_crosses_a_border_is_named() -> None:
    weights = [np.eye(4)[None]]
    record = AttentionRecord.from_weights(weights, Tokens.of(["The", " end.The", " st", "art"]))
    first = record.with_passages({"a": "The end."})
    assert ranges(first) == {"a": (0, 2)}
    assert first.notes == (
        "Token “·end.The” (1) crosses the end of passage “a”, and is a part of it.",
    )
    second = record.with_passages({"b": "The start"})
    assert ranges(second) == {"b": (2, 4)}
    assert second.notes == (
        "Token “·end.The” (1) crosses the start of passage “b”, and is no part of it.",
    )


def test_pieces_accents_and_divided_characters() -> None:
    pieces = Tokens.of(["[CLS]", "cafe", "##s", "open", "##ed", "."], special=[True, *[False] * 5])
    record = AttentionRecord.from_weights([np.eye(6)[None]], pieces)
    assert ranges(record.with_passages({"a": "Cafés", "b": "opened."})) == {
        "a": (1, 3),
        "b": (3, 6),
    }
    parts = Tokens(("a", "é 1/2", "é 2/2", "·b"), (False,) * 4, (0,) * 4)
    record = AttentionRecord.from_weights([np.eye(4)[None]], parts)
    assert ranges(record.with_passages({"a": "aé", "b": "b"})) == {"a": (0, 3), "b": (3, 4)}
    assert ranges(record.with_passages({"a": "é b"})) == {"a": (1, 4)}


@pytest.mark.parametrize(
    ("passages", "message"),
    [
        ({"a": (1, 4), "b": (3, 5)}, "'a', start=1, stop=4.*'b', start=3, stop=5.*common tokens"),
        ({"a": (3, 3)}, r"passages\['a'\]=\(3, 3\) has no tokens"),
        ({"a": (8, 11)}, "There are 10 tokens"),
        ({"a": "."}, "occurs 2 times, at the tokens 3, 7"),
        ({"a": "hail"}, "do not have this text"),
        ({"a": " \n"}, "only white space"),
        ({"a": "al"}, "only a part of token “·falls”"),
        ({"": (1, 2)}, "must have a name"),
        ([None, "a"], "for each of the 10 tokens"),
        ({"a": 3}, "must be a part of the text, or the positions"),
        ({"a": (1, 2.5)}, "must be a whole number"),
        ({3: (1, 2)}, "must be a string"),
        ("chapters", "'paragraphs', 'sentences', 'texts'"),
    ],
)  # fmt: skip
def test_wrong_passages_are_refused(passages: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError, KeyError), match=message):
        causal_record().with_passages(passages)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="the record has no passages"):
        causal_record().merge_passages()
    with pytest.raises(KeyError, match="side='rows'"):
        causal_record().merge_passages(PASSAGES, side="rows")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="several have the name 'a'"):
        Tokens(
            ("a", "b"), (False,) * 2, (0,) * 2, passages=(Passage("a", 0, 1), Passage("a", 1, 2))
        )
    with pytest.raises(ValueError, match="ends after the last of the 10 tokens"):
        replace(tokens(), passages=(Passage("a", 8, N + 1),))


def test_all_stacks_of_the_same_tokens_get_the_passages(tmp_path: Path) -> None:
    own, other = tokens(), Tokens.of(["x", "y"])
    square = QueryKeyAttention(vectors(1, N, 4), vectors(1, N, 4), 1.0, mask=BandMask(None, 0))
    cross = QueryKeyAttention(vectors(1, 2, 4), vectors(1, N, 4), 1.0)
    record = AttentionRecord(
        {
            "encoder": AttentionStack("encoder", {0: square}, own),
            "cross": AttentionStack("cross", {0: cross}, other, own),
        }
    ).with_passages(PASSAGES)
    merged = av.load(record.save(tmp_path / "record")).merge_passages()
    assert merged.stack("encoder").weights(0).shape == (1, 5, 5)
    assert merged.stack("cross").weights(0).shape == (1, 2, 5)
    assert merged.stack("cross").query_tokens.passages == ()
    reloaded = av.load(merged.save(tmp_path / "merged"))
    assert reloaded.stack("cross").key_tokens == merged.stack("cross").key_tokens


def test_images_are_passages() -> None:
    grids = [PatchGrid(None, 2, 2, 2, gap=1, name="the image")]
    pair = Tokens.of(list("abcdefghi"), sequence=[0] * 7 + [1] * 2, grids=grids)
    record = AttentionRecord.from_weights([np.eye(9)[None]], pair).with_passages("texts")
    assert ranges(record) == {"text 1": (0, 2), "the image": (2, 7), "text 2": (7, 9)}
    merged = record.merge_passages()
    assert merged.tokens.text == ("text 1", "the image", "text 2")
    assert merged.tokens.grids == ()


def test_passages_follow_their_tokens() -> None:
    own = causal_record().with_passages(PASSAGES).tokens
    kept = selected_tokens(own, [0, 2, 3, 4, 8, 9])
    assert kept.passages == (Passage("doc 1", 1, 3), Passage("question", 4, 6))
    end = Tokens(("x", "y"), (False,) * 2, (0,) * 2, passages=(Passage("end", 1, 2),))
    assert joined_tokens(own, end).passages[-1] == Passage("end", N + 1, N + 2)
    assert own.passage("doc 2") == Passage("doc 2", 5, 8)
    assert own.passage("Snow") is None


def test_passages_of_two_texts_are_compared_by_name() -> None:
    first = causal_record().merge_passages(PASSAGES)
    others = {"doc 1": (1, 3), "doc 2": (4, 7), "question": (7, 10)}
    second = causal_record().merge_passages(others)
    comparison = av.compare(first, second)
    queries, _ = comparison.alignment()
    assert queries.same.tolist() == [True, True, False, True, True]
    expected = second.stack().weights(0) - first.stack().weights(0)
    assert_allclose(comparison.difference.stack().weights(0), expected, atol=1e-6)
