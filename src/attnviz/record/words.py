"""Words: which tokens are one, and what is shown for them together.

A tokenizer says which word each token is a part of (`Tokens.words`). Where it was not asked, the
text that is shown tells: most vocabularies write the space before a word, WordPiece marks the
inside of one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from attnviz.record.tokens import Tokens, numbered_words

__all__ = ["merged_tokens", "word_starts", "words_from_text"]

_INSIDE = "##"
# A character that is divided over tokens, with all of its parts: see `display.display_text`.
_DIVIDED = re.compile(
    "|".join(
        rf"(?P<g{number}>‹[^›]*›|\S) 1/{number}"
        + "".join(rf" ?(?P=g{number}) {part}/{number}" for part in range(2, number + 1))
        + " ?"
        for number in (2, 3, 4)
    )
)


def words_from_text(
    text: Sequence[str],
    special: Sequence[bool],
    sequence: Sequence[int | None],
    *,
    space: str = "·",
    breaks: str = "⏎⇥",
) -> tuple[int | None, ...] | None:
    """Find words by the spaces that tokens hold, or by WordPiece's ``##``.

    Parameters
    ----------
    text : sequence of str
        Display texts, or vocabulary entries with their own signs.
    special : sequence of bool
        Which tokens are special: they are no part of a word, and end the one before them.
    sequence : sequence of (int or None)
        The text of a pair that each token belongs to; no word goes from one to the other.
    space : str
        The sign of a space. A token that begins with it begins a word, and so does the one after
        a token that ends with it and is more than spaces.
    breaks : str
        Signs of line breaks and tabs, which are words of their own.

    Returns
    -------
    tuple of (int or None), or None
        As `Tokens.words`. None where nothing tells words apart: no token begins or ends with a
        sign, and none continues a word with ``##``.

    Notes
    -----
    A display text does not tell a middle dot that was written from a space, so that ``l·l`` is
    taken for two words where a token begins with its dot.

    Examples
    --------
    >>> words_from_text(["un", "do", "·it"], [False] * 3, [0] * 3)
    (0, 0, 1)
    >>> words_from_text(["token", "##ization", "."], [False] * 3, [0] * 3)
    (0, 0, 1)
    >>> words_from_text(["un", "do", "it"], [False] * 3, [0] * 3) is None
    True
    """
    shown = [token for token, flag in zip(text, special, strict=True) if not flag]
    marks = space + breaks
    spaced = any(token[:1] in marks or token[-1:] in marks for token in shown if token)
    pieces = _has_pieces(shown, spaced=spaced)
    words: list[int] = []
    neighbours = False
    for place, token in enumerate(text):
        before = text[place - 1] if place else ""
        alone = not place or (special[place - 1] or sequence[place] != sequence[place - 1])
        neighbours |= not alone and not special[place]
        if pieces:
            begins = not _continues(token)
        else:
            begins = token[:1] != "" and token[:1] in marks
            begins |= before[-1:] != "" and before[-1:] in breaks
            begins |= before[-1:] == space and before.strip(space) != ""
        words.append(len(words) if alone or begins else words[-1])
    if neighbours and not spaced and not pieces:
        return None
    return numbered_words(words, special, sequence)


def word_starts(tokens: Tokens, name: str = "tokens") -> tuple[int, ...]:
    """Place of each word's first token.

    Parameters
    ----------
    tokens : Tokens
        A special token, and one of which no word is known, stands for itself.
    name : str
        What to call them in an error.

    Returns
    -------
    tuple of int
        Ascending; the first is 0.

    Raises
    ------
    ValueError
        If neither `Tokens.words` nor the text tells which tokens are one word.

    Examples
    --------
    >>> word_starts(Tokens.of(["un", "do", " it"]))
    (0, 2)
    """
    words = tokens.words
    if words is None:
        words = words_from_text(tokens.text, tokens.special, tokens.sequence)
    if words is None:
        raise ValueError(
            f"{name}: nothing tells which tokens are one word (no token begins with a space or "
            f"continues a word with {_INSIDE}); say so, as in Tokens.of(text, words=[0, 0, 1]), "
            "where a fast tokenizer's word_ids() are such numbers"
        )
    starts = []
    before: tuple[int, int | None] | None = None
    for place, word in enumerate(words):
        here = None if word is None or tokens.special[place] else (word, tokens.sequence[place])
        if here is None or here != before:
            starts.append(place)
        before = here
    return tuple(starts)


def merged_tokens(tokens: Tokens, starts: Sequence[int]) -> Tokens:
    """Tokens of words, in place of their parts.

    Parameters
    ----------
    tokens : Tokens
        The parts.
    starts : sequence of int
        As `word_starts` gives them.

    Returns
    -------
    Tokens
        Without ids and predictions, which are of single tokens; the same object where no word has
        several parts.

    Examples
    --------
    >>> merged_tokens(Tokens.of(["un", "do", " it"]), [0, 2]).text
    ('undo', '·it')
    """
    if len(starts) == len(tokens):
        return tokens
    shown = [token for token, flag in zip(tokens.text, tokens.special, strict=True) if not flag]
    spaced = any(token.startswith("·") or token.endswith("·") for token in shown)
    pieces = _has_pieces(shown, spaced=spaced)
    stops = [*starts[1:], len(tokens)]
    special = tuple(tokens.special[start] for start in starts)
    sequence = tuple(tokens.sequence[start] for start in starts)
    places = {start: place for place, start in enumerate(starts)}
    return Tokens(
        text=tuple(
            _joined(tokens.text[start:stop], pieces=pieces)
            for start, stop in zip(starts, stops, strict=True)
        ),
        special=special,
        sequence=sequence,
        words=numbered_words(range(len(starts)), special, sequence),
        # A patch is a word of its own, so that a grid stays whole.
        grids=tuple(replace(grid, start=places[grid.start]) for grid in tokens.grids),
    )


def _has_pieces(shown: Sequence[str], *, spaced: bool) -> bool:
    """Whether these are WordPiece's: where spaces are written, ``##`` is text."""
    return not spaced and any(_continues(token) for token in shown)


def _continues(token: str) -> bool:
    return token.startswith(_INSIDE) and len(token) > len(_INSIDE)


def _joined(parts: Sequence[str], *, pieces: bool) -> str:
    if len(parts) == 1:
        return parts[0]
    rest = [part[len(_INSIDE) :] if pieces and _continues(part) else part for part in parts[1:]]
    text = "".join([parts[0], *rest])
    return _DIVIDED.sub(lambda found: next(filter(None, found.groups())), text).strip(" ")
