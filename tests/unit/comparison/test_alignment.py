"""Test `align_tokens`, which finds the units (groups of corresponding tokens) of two texts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.comparison.alignment import align_tokens
from attnviz.record.tokens import Tokens


def changes(a: list[str], b: list[str]) -> int:
    """Return the edit distance of two lists, by dynamic programming."""
    previous = list(range(len(b) + 1))
    for row, first in enumerate(a, 1):
        current = [row]
        for column, second in enumerate(b, 1):
            current.append(
                min(previous[column] + 1, current[-1] + 1, previous[column - 1] + (first != second))
            )
        previous = current
    return previous[-1]


texts = st.lists(st.sampled_from("abcde"), min_size=1, max_size=13)


@given(texts, texts)
def test_texts_are_aligned_by_the_fewest_changes(a: list[str], b: list[str]) -> None:
    alignment = align_tokens(Tokens.of(a), Tokens.of(b))
    # Without words of several tokens, a unit has at most one token of each text.
    assert max(*alignment.a_lengths, *alignment.b_lengths) == 1
    assert alignment.a_lengths.sum() == len(a)
    assert alignment.b_lengths.sum() == len(b)
    changed = alignment.replaced | alignment.only_a | alignment.only_b
    assert changed.sum() == changes(a, b)
    ends = alignment.a_ends[alignment.same], alignment.b_ends[alignment.same]
    assert all(a[a_end - 1] == b[b_end - 1] for a_end, b_end in zip(*ends, strict=True))


def test_a_replaced_token_shares_a_unit() -> None:
    a = Tokens.of(["[CLS]", "he", " was", " tired"], special=[True, False, False, False])
    b = Tokens.of(["[CLS]", "she", " was", " very", " tired"], special=[True, *[False] * 4])
    alignment = align_tokens(a, b)
    assert alignment.text == ("[CLS]", "he→she", "·was", "+·very", "·tired")
    assert align_tokens(b, a).text == ("[CLS]", "she→he", "·was", "−·very", "·tired")
    assert alignment.describe(("A", "B")) == (
        "1 token is replaced by another; 1 token of B is not in A."
    )
    assert not alignment.identical
    same = align_tokens(a, a)
    assert same.identical
    assert same.describe() == ""


def test_units_of_two_tokenizers_end_where_tokens_of_both_end() -> None:
    a = Tokens.of(
        ["[CLS]", "the", "token", "##izer", "'", "s", "café", "[SEP]"],
        special=[True, *[False] * 6, True],
    )
    b = Tokens.of(["The", " tok", "enizer", "'s", " cafe", "\u0301"])
    alignment = align_tokens(a, b)
    assert alignment.text == ("−[CLS]", "the", "·tokenizer", "'s", "·cafe\u0301", "−[SEP]")
    assert alignment.a_lengths.tolist() == [1, 1, 2, 2, 1, 1]
    assert alignment.b_lengths.tolist() == [0, 1, 2, 1, 2, 0]
    assert alignment.same.tolist() == [False, True, True, True, True, False]
    assert "3 units are several tokens in one of them" in alignment.describe()


def test_a_pair_of_texts_keeps_its_separators() -> None:
    separated = [True, False, False, True, False, True]
    a = Tokens.of(["[CLS]", "un", "##do", "[SEP]", "it", "[SEP]"], special=separated)
    twice = [True, False, True, True, False, True]
    b = Tokens.of(["<s>", "undo", "</s>", "</s>", " it", "</s>"], special=twice)
    alignment = align_tokens(a, b)
    # b has two separators in the middle, and a has one, so one of b's is aligned with no token.
    assert alignment.a_lengths.tolist() in ([1, 2, 1, 0, 1, 1], [1, 2, 0, 1, 1, 1])
    assert alignment.b_lengths.tolist() == [1, 1, 1, 1, 1, 1]


def test_a_long_text_is_aligned_by_its_few_changes() -> None:
    chance = np.random.default_rng(0)
    words = [f"w{number}" for number in chance.integers(0, 3000, 20_000)]
    longer = list(words)
    for index in (19_000, 11, 5):
        longer.insert(index, "new")
    longer[7000] = "other"
    alignment = align_tokens(Tokens.of(words), Tokens.of(longer))
    assert (alignment.only_b.sum(), alignment.only_a.sum(), alignment.replaced.sum()) == (3, 0, 1)
    assert alignment.b.text[int(alignment.b_ends[alignment.replaced][0]) - 1] == "other"


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ValueError, match="a and b must each have at least one token"):
        align_tokens(Tokens.of(["a", "b"]), Tokens.of([]))
