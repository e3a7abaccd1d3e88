"""Kinds of tokens, derived from their texts."""

from __future__ import annotations

import pytest

from attnviz.analysis.token_kinds import KINDS, is_punctuation, kinds_of
from attnviz.record.images import PatchGrid
from attnviz.record.tokens import Tokens


@pytest.mark.parametrize(
    ("entry", "punctuation"),
    [
        (",", True),
        ("·(", True),
        ("##...", True),
        ("„", True),
        ("$", True),
        ("·", False),
        ("", False),
        ("a.", False),
        ("[SEP]", False),
        ("⏎", False),
    ],
)
def test_punctuation(entry: str, punctuation: bool) -> None:
    assert is_punctuation(entry) is punctuation


def kinds(tokens: Tokens) -> list[str]:
    return [KINDS[kind] for kind in kinds_of(tokens)]


def test_every_kind_of_token() -> None:
    tokens = Tokens.of(
        ["<s>", "[0]", "[1]", "·The", "·cat", "s", "·2,021", "·3rd", "⏎", "·", "."],
        special=[True] + [False] * 10,
        grids=[PatchGrid(0, 1, 1, 2)],
    )
    assert kinds(tokens) == [
        "special",
        "patch",
        "patch",
        "capitalised",
        "word",
        "continuation",
        "number",
        "word",
        "other",
        "other",
        "punctuation",
    ]


def test_wordpiece_continues_words_and_numbers_stay_numbers() -> None:
    tokens = Tokens.of(["token", "##ization", "##19", "##,", "Big", "##Bird"])
    assert kinds(tokens) == [
        "word",
        "continuation",
        "number",
        "punctuation",
        "capitalised",
        "continuation",
    ]


def test_without_words_nothing_continues() -> None:
    assert kinds(Tokens.of(["un", "do"])) == ["word", "word"]
