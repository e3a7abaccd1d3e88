"""Tests of `Tokens`, and of `make_visible`, which replaces invisible characters."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.record.images import PatchGrid
from attnviz.record.tokens import Candidate, Prediction, Tokens, make_visible

ZERO_WIDTH_JOINER = "\u200d"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" cat", "·cat"),
        ("a b", "a·b"),
        ("\n", "⏎"),
        ("\x00", "‹U+0000›"),
        ("\u202ecat", "‹U+202E›cat"),
        ("\ud800", "‹U+D800›"),
        ("", "∅"),
        # A joiner between two characters stays. Other joiners are shown by their codes.
        ("👩‍🚀", "👩‍🚀"),
        ("می‌خواهم", "می‌خواهم"),
        (ZERO_WIDTH_JOINER, "‹U+200D›"),
        ("\u200c", "‹U+200C›"),
        (ZERO_WIDTH_JOINER * 2, "‹U+200D›‹U+200D›"),
        (" \u200d", "·‹U+200D›"),
        ("a\u200c", "a‹U+200C›"),
    ],
)
def test_invisible_characters_are_shown(text: str, shown: str) -> None:
    assert make_visible(text) == shown


@pytest.mark.parametrize("category", ["Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"])
def test_no_character_without_a_glyph_stays(category: str) -> None:
    characters = [
        chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) == category
    ]
    # All characters of a small category, and 2000 to 4000 characters of a large category.
    for character in characters[:: max(1, len(characters) // 2000)]:
        shown = make_visible(character)
        assert character not in shown
        assert shown in {"·", "⏎", "⇥"} or shown == f"‹U+{ord(character):04X}›"


@settings(max_examples=200)
@given(st.characters(exclude_categories=["Z", "C"]))
def test_characters_with_a_glyph_stay_as_they_are(character: str) -> None:
    assert make_visible(character) == character


@settings(max_examples=300)
@given(st.text(st.characters()))
def test_visible_text_is_unchanged(text: str) -> None:
    # `load` calls `make_visible` for the texts of a saved record, which are visible already.
    assert make_visible(make_visible(text)) == make_visible(text)


@settings(max_examples=200)
@given(st.text(st.characters(exclude_characters="\u200c\u200d"), min_size=1))
def test_texts_are_shown_character_by_character(text: str) -> None:
    assert make_visible(text) == "".join(map(make_visible, text))
    assert make_visible(text).isprintable()


def test_tokens_behave_like_a_list_of_texts() -> None:
    tokens = Tokens.of(["The", " cat", "\n"])
    assert (len(tokens), list(tokens), tokens[1]) == (3, ["The", "·cat", "⏎"], "·cat")
    assert (tokens.special, tokens.sequence, tokens.ids) == ((False,) * 3, (0, 0, 0), None)
    assert repr(tokens) == "<3 tokens: The ·cat ⏎>"
    assert repr(Tokens.of(["a"] * 20)).endswith("a …>")


def test_numbers_of_any_library_become_int() -> None:
    columns: Any = {"special": np.array([0, 1]), "sequence": np.eye(2)[0], "ids": np.arange(2)}
    tokens = Tokens.of(["a", "b"], **columns)
    assert tokens.ids is not None
    types = [type(value) for value in (*tokens.special, *tokens.sequence, *tokens.ids)]
    assert types == [bool] * 2 + [int] * 4


@pytest.mark.parametrize(
    ("column", "value"), [("special", [True]), ("sequence", [0, 1, 0]), ("ids", []), ("words", [0])]
)
def test_columns_of_other_lengths_are_refused(column: str, value: list[int]) -> None:
    with pytest.raises(ValueError, match=f"{column} has {len(value)} entries,? but "):
        Tokens.of(["a", "b"], **{column: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"grids": (PatchGrid(0, 1, 2, 1),)}, "needs the tokens 1 to 2, but there are 2 tokens"),
        ({"grids": (PatchGrid(0, 0, 1, 1),) * 2}, "starts before token 1"),
        (
            {"predictions": (Prediction(2, Candidate("a", 0, 1.0), (), None),)},
            "inside the 2 tokens",
        ),
        ({"predictions": (Prediction(1, Candidate("a", 0, 1.0), (), 2),)}, "inside the 2 tokens"),
    ],
)
def test_grids_and_predictions_lie_inside_the_tokens(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(Tokens.of(["a", "b"]), **parts)


def test_patches_between_other_tokens_have_their_positions() -> None:
    """Two rows of three patches. One token ends each row."""
    grid = PatchGrid(0, start=2, rows=2, columns=3, gap=1)
    assert grid.positions == (2, 3, 4, 6, 7, 8)
    assert [grid.cell(token) for token in grid.positions] == [
        (row, column) for row in range(2) for column in range(3)
    ]
    assert grid.stop == 9
    assert Tokens.of(list("abcdefghi"), grids=[grid]).pictured == (grid,)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ({"origin": float("nan")}, "origin=nan must be a finite number"),
        ({"step": float("inf")}, "step=inf must be a finite number"),
        ({"step": "1"}, "step='1' must be a finite number"),
        ({"step": 0}, "a step above 0"),
        ({"width": -1.0}, "a width of at least 0"),
    ],
)
def test_places_that_are_no_places_are_refused(places: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PatchGrid(None, 0, 1, 3, unit="s", **places)


def test_empty_grids_and_probabilities_that_are_nan_are_refused() -> None:
    with pytest.raises(ValueError, match=r"PatchGrid.* must have"):
        PatchGrid(0, 0, 0, 3)
    with pytest.raises(ValueError, match="from 0 to 1"):
        Candidate("a", 0, float("nan"))


def test_a_text_finds_the_positions_of_its_tokens() -> None:
    pieces = Tokens.of(["[CLS]", "the", "animal", "it", "##it", "##s", "the", "[SEP]"])
    spaced = Tokens.of(["It", " was", " it", "it", "  ", "\n"])
    for tokens, text, positions in (
        (pieces, "it", (3,)),
        (pieces, " it", (3,)),
        (pieces, "##it", (4,)),
        # No token is "s", so the continuation "##s" is found.
        (pieces, "s", (5,)),
        (pieces, "the", (1, 6)),
        (pieces, "It", ()),
        (pieces, "", ()),
        (spaced, "it", (2, 3)),
        (spaced, " it", (2,)),
        (spaced, "Ġit", (2,)),
        (spaced, "▁it", (2,)),
        (spaced, " It", (0,)),
        (spaced, "\n", (5,)),
        (spaced, "  ", (4,)),
    ):
        assert tokens.positions(text) == positions


@given(st.lists(st.text(max_size=4), min_size=1, max_size=8))
def test_every_token_is_found_by_its_text(texts: list[str]) -> None:
    tokens = Tokens.of(texts)
    for position, shown in enumerate(tokens):
        assert position in tokens.positions(shown)
        assert tokens.position(position) == tokens.position(position - len(tokens)) == position


@pytest.mark.parametrize(
    ("token", "kind", "message"),
    [
        (4, IndexError, "token=4: there are tokens 0 to 3"),
        (-5, IndexError, "token=-5: there are tokens 0 to 3"),
        (1.5, TypeError, "token=1.5 must be a whole number, or the text of a token"),
        ("", ValueError, r"token='': no token has this text\. A word may"),
        ("cats", ValueError, r"did you mean 'cat'\? .* a number from 0 to 3"),
        ("a", ValueError, r"2 tokens have this text\. Pass the position of one of them: \[0, 3\]"),
    ],
)
def test_a_missing_token_is_named(token: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        Tokens.of(["a", " cat", " and", " a"]).position(token)


def test_a_text_with_many_positions_lists_only_some() -> None:
    with pytest.raises(ValueError, match="5000 tokens have") as raised:
        Tokens.of(["a"] * 5000).position("a", "key")
    assert str(raised.value).startswith("key='a'")
    assert len(str(raised.value)) < 500
