"""Alignment of the tokens of two texts."""

from __future__ import annotations

import random

import numpy as np
import pytest

from attnviz.comparison.alignment import Alignment, align_tokens
from attnviz.record.tokens import Tokens

SEPARATED = [True, False, False, True, False, True]
TWICE = [True, False, True, True, False, True]


def changes(a: list[str], b: list[str]) -> int:
    """Return the edit distance, computed with the usual table."""
    above = list(range(len(b) + 1))
    for row, one in enumerate(a, 1):
        here = [row]
        for column, other in enumerate(b, 1):
            here.append(min(above[column] + 1, here[-1] + 1, above[column - 1] + (one != other)))
        above = here
    return above[-1]


def edited(words: list[str], chance: random.Random) -> list[str]:
    made = list(words)
    for _ in range(chance.randrange(5)):
        place = chance.randrange(len(made))
        kind = chance.randrange(3)
        if kind == 0:
            made.insert(place, chance.choice(["x", "y", *words]))
        elif kind == 1 and len(made) > 1:
            del made[place]
        else:
            made[place] = chance.choice(["x", "y", *words])
    return made


def test_random_edits_are_aligned_by_the_fewest_changes() -> None:
    chance = random.Random(0)  # noqa: S311 - the same edits in every run
    for _ in range(200):
        a = [chance.choice("abcde") for _ in range(chance.randrange(1, 14))]
        b = edited(a, chance)
        found = align_tokens(Tokens.of(a, special=[False] * len(a)), Tokens.of(b))
        if "".join(a) == "".join(b):
            assert len(found) == len(a) == len(b)
            continue
        # Every token is in one unit, in order. A unit has at most one token of each list.
        assert max(*found.a_lengths, *found.b_lengths) == 1
        assert found.a_lengths.sum() == len(a)
        assert found.b_lengths.sum() == len(b)
        wrong = found.replaced | found.only_a | found.only_b
        assert wrong.sum() == changes(a, b)
        pairs = zip(found.a_ends[found.same] - 1, found.b_ends[found.same] - 1, strict=True)
        assert all(a[one] == b[other] for one, other in pairs)


def test_a_token_in_place_of_another_stands_on_its_line() -> None:
    a = Tokens.of(["[CLS]", "he", " was", " tired"], special=[True, False, False, False])
    b = Tokens.of(["[CLS]", "she", " was", " very", " tired"], special=[True, *[False] * 4])
    found = align_tokens(a, b)
    assert found.text == ("[CLS]", "he→she", "·was", "+·very", "·tired")
    assert align_tokens(b, a).text == ("[CLS]", "she→he", "·was", "−·very", "·tired")
    assert found.describe(("A", "B")) == (
        "1 token is replaced by another; 1 token of B is not in A."
    )
    assert not found.identical


def test_the_same_tokens_need_no_words() -> None:
    tokens = Tokens.of(["a", " b", " a"])
    found = align_tokens(tokens, Tokens.of(["a", " b", " a"]))
    assert found.identical
    assert found.describe() == ""


def test_two_tokenizers_meet_where_a_token_ends_in_both() -> None:
    a = Tokens.of(
        ["[CLS]", "the", "token", "##izer", "'", "s", "café", "[SEP]"],
        special=[True, *[False] * 6, True],
    )
    b = Tokens.of(["The", " tok", "enizer", "'s", " cafe", "\u0301"])
    found = align_tokens(a, b)
    assert found.text == ("−[CLS]", "the", "·tokenizer", "'s", "·cafe\u0301", "−[SEP]")
    assert found.a_lengths.tolist() == [1, 1, 2, 2, 1, 1]
    assert found.b_lengths.tolist() == [0, 1, 2, 1, 2, 0]
    assert found.same.tolist() == [False, True, True, True, True, False]
    assert "3 units are several tokens in one of them" in found.describe()


def test_a_pair_of_texts_keeps_its_separators() -> None:
    a = Tokens.of(["[CLS]", "un", "##do", "[SEP]", "it", "[SEP]"], special=SEPARATED)
    b = Tokens.of(["<s>", "undo", "</s>", "</s>", " it", "</s>"], special=TWICE)
    found = align_tokens(a, b)
    # One of the two separators in b is aligned with that of a, the other with nothing.
    assert found.a_lengths.tolist() in ([1, 2, 1, 0, 1, 1], [1, 2, 0, 1, 1, 1])
    assert found.b_lengths.tolist() == [1, 1, 1, 1, 1, 1]


def test_a_long_text_with_a_few_changes() -> None:
    chance = np.random.default_rng(0)
    words = [f"w{number}" for number in chance.integers(0, 3000, 20_000)]
    other = list(words)
    for place in (19_000, 11, 5):
        other.insert(place, "new")
    other[7000] = "other"
    found = align_tokens(Tokens.of(words), Tokens.of(other))
    assert (found.only_b.sum(), found.only_a.sum(), found.replaced.sum()) == (3, 0, 1)
    assert found.b.text[int(found.b_ends[found.replaced][0]) - 1] == "other"


def test_empty_lists_and_lost_tokens_are_refused() -> None:
    some = Tokens.of(["a", "b"])
    with pytest.raises(ValueError, match="one of them is empty"):
        align_tokens(some, Tokens.of([]))
    with pytest.raises(ValueError, match="a_ends must ascend to 2"):
        Alignment(some, some, np.array([1]), np.array([2]))
    with pytest.raises(ValueError, match="an entry for each unit"):
        Alignment(some, some, np.array([2]), np.array([1, 2]))
