"""Kinds of tokens, such as punctuation, number, or continuation of a word."""

from __future__ import annotations

import string
import unicodedata
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from attnviz.record.tokens import Tokens
from attnviz.record.words import find_words

#: Kinds of tokens. `kinds_of` returns indices into this tuple.
KINDS = (
    "special",
    "patch",
    "punctuation",
    "number",
    "continuation",
    "capitalised",
    "word",
    "other",
)
_CODES = {name: code for code, name in enumerate(KINDS)}
# Character for a space in display texts.
_SPACE = "·"
# Prefix of WordPiece tokens that continue a word.
_CONTINUES = "##"


def is_punctuation(entry: str) -> bool:
    """Whether a token consists only of punctuation, apart from spaces and a leading ``##``.

    ASCII symbols such as ``$`` count as punctuation. `entry` is a display text.

    Examples
    --------
    >>> is_punctuation("·("), is_punctuation("##,"), is_punctuation("·"), is_punctuation("don't")
    (True, True, False, False)
    """
    characters = entry.removeprefix(_CONTINUES).replace(_SPACE, "")
    return bool(characters) and all(
        character in string.punctuation or unicodedata.category(character).startswith("P")
        for character in characters
    )


@lru_cache(1 << 16)
def _kind_of_text(entry: str) -> str:
    if is_punctuation(entry):
        return "punctuation"
    bare = entry.removeprefix(_CONTINUES).strip(_SPACE)
    if any(character.isdigit() for character in bare) and not any(
        character.isalpha() for character in bare
    ):
        return "number"
    if bare[:1].isupper():
        return "capitalised"
    return "word" if any(character.isalpha() for character in bare) else "other"


def words_of(tokens: Tokens) -> NDArray[np.int64]:
    """Return the number of each token's word, (tokens,), or -1 if the token has no known word.

    The numbers are `Tokens.words`. If it is None, words are determined from the texts.
    """
    words = tokens.words
    if words is None:
        words = find_words(tokens.text, tokens.special, tokens.sequence)
    if words is None:
        return np.full(len(tokens), -1, np.int64)
    return np.array([-1 if word is None else word for word in words], np.int64)


def kinds_of(tokens: Tokens) -> NDArray[np.int8]:
    """Return the kind of each token as an index into `KINDS`, (tokens,).

    If several kinds apply, the token has the first of the following kinds:

    - ``patch``: a patch of an image
    - ``special``: a special token of the tokenizer
    - ``punctuation``: only punctuation
    - ``number``: digits and no letters
    - ``continuation``: continues the word of the previous token
    - ``capitalised``: begins with a capital letter
    - ``word``: contains letters
    - ``other``: all other tokens

    Examples
    --------
    >>> from attnviz.record.tokens import Tokens
    >>> tokens = Tokens.of(["[CLS]", "The", "token", "##izer", "2021", "."], special=[1] + [0] * 5)
    >>> [KINDS[kind] for kind in kinds_of(tokens)]
    ['special', 'capitalised', 'word', 'continuation', 'number', 'punctuation']
    """
    kinds = np.array([_CODES[_kind_of_text(text)] for text in tokens.text], np.int8)
    words = words_of(tokens)
    continues = np.zeros(len(tokens), np.bool_)
    continues[1:] = (words[1:] >= 0) & (words[1:] == words[:-1])
    kinds[continues & (kinds > _CODES["continuation"])] = _CODES["continuation"]
    kinds[np.array(tokens.special, np.bool_)] = _CODES["special"]
    for grid in tokens.pictured:
        kinds[list(grid.positions)] = _CODES["patch"]
    return kinds
