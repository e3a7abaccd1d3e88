"""Tests of `kinds_of`, which gives each token a kind, such as "word" or "number"."""

from __future__ import annotations

from attnviz.record.images import PatchGrid
from attnviz.record.token_kinds import KINDS, kinds_of
from attnviz.record.tokens import Tokens


def kinds(tokens: Tokens) -> list[str]:
    return [KINDS[kind] for kind in kinds_of(tokens)]


def test_the_text_of_a_token_decides_its_kind() -> None:
    kind_of_text = {
        "·The": "capitalised",
        "·cat": "word",
        "s": "continuation",
        "·2,021": "number",
        "·3rd": "word",
        "⏎": "other",
        "·": "other",
        ".": "punctuation",
        "·(": "punctuation",
        "„": "punctuation",
        "$": "punctuation",
        "·a.": "word",
    }
    assert kinds(Tokens.of(list(kind_of_text))) == list(kind_of_text.values())


def test_special_tokens_and_patches_have_a_kind_of_their_own() -> None:
    tokens = Tokens.of(
        ["<s>", "[0]", "[1]", "·cat"],
        special=[True, False, False, False],
        grids=[PatchGrid(0, 1, 1, 2)],
    )
    assert kinds(tokens) == ["special", "patch", "patch", "word"]


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
