"""Words: the tokens of each word, and the display text of words.

The tokenizer assigns tokens to words (`Tokens.words`). If the assignment is unknown, words are
determined from the display texts: most vocabularies mark the space before a word, and WordPiece
marks tokens inside of words with ``##``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace

from attnviz.record.tokens import Tokens, number_words, passages_at

MERGED_NOTE = "Subword tokens merged into words: keys summed, queries averaged."

_INSIDE = "##"
# If a character is split over two to four tokens, each of their display texts contains the whole
# character, such as ``é 1/2`` and ``é 2/2`` (see `display_texts`). In the text of a word, these
# texts follow each other. This pattern matches them, such as ``é 1/2 é 2/2``, and the single
# character replaces the match.
_DIVIDED = re.compile(
    "|".join(
        rf"(?P<g{number}>‹[^›]*›|\S) 1/{number}"
        + "".join(rf" ?(?P=g{number}) {part}/{number}" for part in range(2, number + 1))
        + " ?"
        for number in (2, 3, 4)
    )
)
# One of these tokens.
_PART = re.compile(r"(.*) ([1-4])/[2-4]", re.DOTALL)
# Table that deletes the characters with which `Tokens.text` shows white space and empty tokens.
_SPACES = str.maketrans("", "", "·⏎⇥∅")


def spell(text: str) -> str:
    """Return a display text in lower case, without white space and accents.

    >>> spell("·Café⏎")
    'cafe'
    """
    letters = unicodedata.normalize("NFKD", text.translate(_SPACES))
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).casefold()


def spell_tokens(tokens: Tokens) -> list[str]:
    """Return the characters that each token adds to the text, as `spell` returns them.

    >>> spell_tokens(Tokens.of(["Token", "##ization", "."]))
    ['token', 'ization', '.']
    """
    has_pieces = _of_pieces(tokens)
    spelled = []
    for token in tokens.text:
        text = token[len(_INSIDE) :] if has_pieces and _continues(token) else token
        part = _PART.fullmatch(text)
        # The first part of a divided character has the character.
        spelled.append(spell(text if part is None else part[1] * (part[2] == "1")))
    return spelled


def find_words(
    text: Sequence[str],
    special: Sequence[bool],
    sequence: Sequence[int | None],
    *,
    space: str = "·",
    breaks: str = "⏎⇥",
) -> tuple[int | None, ...] | None:
    """Return the word number of each token, determined from spaces or from WordPiece's ``##``.

    `text` contains display texts or vocabulary entries. In these, `space` is the character for a
    space, and `breaks` are the characters for line breaks and tabs. `special` and `sequence` are as
    in `Tokens`, and the result is as in `Tokens.words`.

    A special token belongs to no word and ends the previous word. No word contains tokens of both
    texts of a pair. For the other tokens, one of three rules holds:

    - If at least one of them begins or ends with `space` or a break, a word begins with each token
      that begins with `space` or a break. A word also begins after each token that ends with a
      break, or that ends with `space` and has other characters.
    - Otherwise, if at least one of them begins with ``##``, a word begins with each token that does
      not begin with ``##``.
    - Otherwise, it is unknown whether adjacent tokens belong to the same word. The result is None
      if any two of them are adjacent in the same text.

    A middle dot of the text itself looks like a space in a display text. ``l·l`` therefore becomes
    two words if a token begins with its dot.

    >>> find_words(["un", "do", "·it"], [False] * 3, [0] * 3)
    (0, 0, 1)
    >>> find_words(["token", "##ization", "."], [False] * 3, [0] * 3)
    (0, 0, 1)
    >>> find_words(["un", "do", "it"], [False] * 3, [0] * 3) is None
    True
    """
    regular = [token for token, flag in zip(text, special, strict=True) if not flag]
    marks = space + breaks
    has_spaces = any(token[:1] in marks or token[-1:] in marks for token in regular if token)
    has_pieces = _has_pieces(regular, spaced=has_spaces)
    words: list[int] = []
    has_neighbours = False
    for index, token in enumerate(text):
        previous = text[index - 1] if index else ""
        starts_segment = not index or (special[index - 1] or sequence[index] != sequence[index - 1])
        has_neighbours |= not starts_segment and not special[index]
        if has_pieces:
            begins = not _continues(token)
        else:
            begins = token[:1] != "" and token[:1] in marks
            begins |= previous[-1:] != "" and previous[-1:] in breaks
            begins |= previous[-1:] == space and previous.strip(space) != ""
        words.append(len(words) if starts_segment or begins else words[-1])
    if has_neighbours and not has_spaces and not has_pieces:
        return None
    return number_words(words, special, sequence)


def find_word_starts(tokens: Tokens, name: str = "tokens") -> tuple[int, ...]:
    """Return the position of the first token of each word, ascending from 0.

    A token in no word, such as a special token, counts as a word. Raise ValueError if words are
    unknown: `Tokens.words` is None, and the texts do not mark words. `name` is the name of the
    tokens in the message.

    >>> find_word_starts(Tokens.of(["un", "do", " it"]))
    (0, 2)
    """
    words = tokens.words
    if words is None:
        words = find_words(tokens.text, tokens.special, tokens.sequence)
    if words is None:
        raise ValueError(
            f"{name}: the words are unknown, because no token begins with a space or {_INSIDE}. "
            "Pass them, for example as Tokens.of(text, words=[0, 0, 1]) or with the word_ids() of "
            "a fast tokenizer."
        )
    starts = []
    previous: tuple[int, int | None] | None = None
    for position, word in enumerate(words):
        special = tokens.special[position]
        current = None if word is None or special else (word, tokens.sequence[position])
        if current is None or current != previous:
            starts.append(position)
        previous = current
    return tuple(starts)


def merge_tokens(
    tokens: Tokens, starts: Sequence[int], names: Mapping[int, str] | None = None
) -> Tokens:
    """Return tokens that are groups of `tokens`, or `tokens` itself if each group has one token.

    `starts` has the position of the first token of each group, ascending from 0, such as the result
    of `find_word_starts`. `names` has the names of groups by this position. Other groups get the
    joined texts of their tokens. The result has no ids and no predictions, because these belong to
    single tokens. Patches that are merged have no places.

    >>> merge_tokens(Tokens.of(["un", "do", " it"]), [0, 2]).text
    ('undo', '·it')
    """
    if len(starts) == len(tokens) and not names:
        return tokens
    has_pieces = _of_pieces(tokens)
    stops = [*starts[1:], len(tokens)]
    special = tuple(
        all(tokens.special[start:stop]) for start, stop in zip(starts, stops, strict=True)
    )
    sequence = tuple(tokens.sequence[start] for start in starts)
    numbers = {start: number for number, start in enumerate([*starts, len(tokens)])}
    return Tokens(
        text=tuple(
            (names or {}).get(start) or _joined(tokens.text[start:stop], pieces=has_pieces)
            for start, stop in zip(starts, stops, strict=True)
        ),
        special=special,
        sequence=sequence,
        words=number_words(range(len(starts)), special, sequence),
        grids=tuple(
            replace(grid, start=numbers[grid.start])
            for grid in tokens.grids
            if all(position in numbers for position in range(grid.start, grid.stop + 1))
        ),
        # A group belongs to the passage of its first token.
        passages=passages_at(tokens.passages, starts),
    )


def _of_pieces(tokens: Tokens) -> bool:
    """Whether ``##`` at the beginning of `tokens` marks tokens inside of words."""
    regular = [token for token, flag in zip(tokens.text, tokens.special, strict=True) if not flag]
    spaced = any(token.startswith("·") or token.endswith("·") for token in regular)
    return _has_pieces(regular, spaced=spaced)


def _has_pieces(texts: Sequence[str], *, spaced: bool) -> bool:
    """Whether ``##`` at the beginning of `texts` marks tokens inside of words, as in WordPiece.

    `spaced` is whether some tokens begin or end with a space. WordPiece has no such tokens, so a
    leading ``##`` is then a part of the text itself, and the result is False.
    """
    return not spaced and any(_continues(token) for token in texts)


def _continues(token: str) -> bool:
    return token.startswith(_INSIDE) and len(token) > len(_INSIDE)


def _joined(parts: Sequence[str], *, pieces: bool) -> str:
    if len(parts) == 1:
        return parts[0]
    continuations = [
        part[len(_INSIDE) :] if pieces and _continues(part) else part for part in parts[1:]
    ]
    text = "".join([parts[0], *continuations])
    return _DIVIDED.sub(lambda match: next(filter(None, match.groups())), text).strip(" ")
