"""Tests of which tokens form a word, and of the words that `merge_tokens` makes of tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.record.tokens import Tokens, number_words
from attnviz.record.vocabulary import display_texts
from attnviz.record.words import find_word_starts, find_words, merge_tokens


@pytest.mark.parametrize(
    ("entries", "alphabet", "expected"),
    [
        # GPT-2: a word begins with its space, and a line break (Ċ) is a separate word.
        (["un", "do", "Ġit", "Ċ", "Now", "Ġ", "5"], "bytes", "undo ·it ⏎ Now ·5"),
        # sentencepiece: a word begins with its space (▁).
        (["▁The", "▁un", "do", "ing", "."], "metaspace", "·The ·undoing."),
        # CLIP: a word ends with its space.
        (["un", "do</w>", "it</w>"], "bytes", "undo· it·"),
        # BERT: only continuations of a word are marked.
        (["token", "##iz", "##ation", "works", "."], "plain", "tokenization works ."),
        # In vocabularies that mark spaces, ## is text (a heading) and no continuation.
        (["##", "Ġtitle", "##x"], "bytes", "## ·title##x"),
        # A character whose bytes are several tokens is part of one word.
        (["Ġca", "f", "Ã", "©", "s", "Ġ1"], "bytes", "·cafés ·1"),
        (["Ġ", "ð", "Ł", "Ĳ", "¶", "3"], "bytes", "·🐶3"),
    ],
)
def test_words_are_found_in_the_text(entries: list[str], alphabet: Any, expected: str) -> None:
    tokens = replace(Tokens.of(entries), text=tuple(display_texts(entries, alphabet=alphabet)))
    assert merge_tokens(tokens, find_word_starts(tokens)).text == tuple(expected.split())


def test_special_tokens_and_another_text_end_a_word() -> None:
    tokens = Tokens.of(
        ["[S]", "un", "do", "[E]", "it", "b", " c"],
        special=[True, False, False, True, False, False, False],
        sequence=[None, 0, 0, None, 0, 1, 1],
    )
    assert find_word_starts(tokens) == (0, 1, 3, 4, 5, 6)


def test_words_that_are_passed_override_the_text() -> None:
    tokens = Tokens.of(["did", "n", "'t", " a", " b"], words=[0, 0, 1, 2, 2])
    assert find_word_starts(tokens) == (0, 2, 3)
    # Each token whose entry of `words` is None is a separate word.
    assert find_word_starts(replace(tokens, words=(None, None, 0, 0, 1))) == (0, 1, 2, 4)


def test_the_same_number_in_both_texts_of_a_pair_is_two_words() -> None:
    # `word_ids()` of a fast tokenizer counts the words of each text from 0.
    given_ids = [None, 0, 0, None, 0, 1, None]
    sequence = [None, 0, 0, None, 1, 1, None]
    tokens = Tokens.of(
        list("<ab>cd>"), special=[n is None for n in sequence], sequence=sequence, words=given_ids
    )
    assert tokens.words == (None, 0, 0, None, 1, 2, None)
    # No token separates these two texts, but their words are separate.
    assert number_words([0, 0], [False, False], [0, 1]) == (0, 1)


def test_a_merged_word_keeps_its_text_of_the_pair_and_loses_its_ids() -> None:
    tokens = Tokens.of(
        ["[S]", "un", "do", "x"],
        special=[True, False, False, False],
        sequence=[None, 0, 0, 1],
        ids=[1, 2, 3, 4],
    )
    merged = merge_tokens(replace(tokens, words=(None, 0, 0, 1)), [0, 1, 3])
    assert merged == Tokens(
        ("[S]", "undo", "x"), (True, False, False), (None, 0, 1), None, (None, 0, 1)
    )
    assert merge_tokens(merged, find_word_starts(merged)) is merged


def test_the_error_of_tokens_without_words_suggests_a_remedy() -> None:
    with pytest.raises(ValueError, match=r"^tokens: the words are unknown, .*Tokens\.of\(text"):
        find_word_starts(Tokens.of(["un", "do", "it"]))


def test_a_special_token_never_becomes_a_part_of_a_word() -> None:
    # Some tokenizers give [SEP] the same numbers in `words` and `sequence` as the word before it.
    tokens = Tokens(
        text=("[CLS]", "un", "##do", "[SEP]", "##ing"),
        special=(True, False, False, True, False),
        sequence=(0,) * 5,
        words=(0,) * 5,
    )
    assert find_word_starts(tokens) == (0, 1, 3, 4)
    merged = merge_tokens(tokens, find_word_starts(tokens))
    assert merged.text == ("[CLS]", "undo", "[SEP]", "##ing")
    assert merged.special == (True, False, True, False)


@pytest.mark.parametrize(
    ("text", "special"), [(["a"], [False]), (["[S]", "a", "[E]"], [True, False, True]), ([], [])]
)
def test_one_token_of_a_text_is_a_word(text: list[str], special: list[bool]) -> None:
    assert find_word_starts(Tokens.of(text, special=special)) == tuple(range(len(text)))


token_lists = st.lists(
    st.tuples(
        st.text(st.sampled_from("ab# \n#\u200d\u202e\x00é"), max_size=4) | st.text(max_size=4),
        st.booleans(),
        st.sampled_from([0, 1]),
    ),
    max_size=12,
)


@given(token_lists)
def test_words_contain_all_tokens(given_tokens: list[Any]) -> None:
    text, special, sequence = [[entry[column] for entry in given_tokens] for column in range(3)]
    tokens = Tokens.of(text, special=special, sequence=sequence)
    try:
        starts = find_word_starts(tokens)
    except ValueError:
        assert find_words(tokens.text, tokens.special, tokens.sequence) is None
        return
    assert list(starts) == sorted(set(starts))
    assert starts[:1] == ((0,) if len(tokens) else ())
    merged = merge_tokens(tokens, starts)
    assert sum(merged.special) == sum(special)
    assert find_word_starts(merged) == tuple(range(len(merged)))
    if not any(token.startswith("##") for token in text):
        # Merging only drops the "##" of continuations, which this text does not contain.
        assert "".join(merged.text) == "".join(tokens.text)
