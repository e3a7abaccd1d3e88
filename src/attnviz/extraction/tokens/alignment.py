"""Alignment of tokens with the text that a tokenizer read, and words of the text.

Tokenizers change texts before they split them: case, accents, white space and compatibility forms
of characters. The comparison tolerates these changes.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Collection, Sequence
from itertools import accumulate, groupby
from typing import NamedTuple

# First and last of the parts between white space that have a character of the token. None if the
# token has only white space.
Span = tuple[int, int] | None


def plain(text: str) -> str:
    """Return a text without white space, case, accents, marks and characters without a glyph.

    >>> plain("Café  ﬁne")
    'cafefine'
    """
    if text.isascii():
        return "".join(text.split()).casefold()
    text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return "".join(
        character
        for character in text
        if not character.isspace() and unicodedata.category(character) not in _IGNORED
    )


_IGNORED = {"Mn", "Me", "Cf", "Cc"}


class Alignment(NamedTuple):
    """Tokens in a text.

    `spans` has the parts of the text that each token contains. `unread` has the plain characters
    that no token contains.
    """

    spans: list[Span]
    unread: str


def align(
    text: str, contents: Sequence[str | None], gaps: Collection[int] = ()
) -> Alignment | None:
    """Find tokens in a text from its beginning to its end. Return None if the text lacks them.

    `contents` has the text of each token, or None for a token that stands for any text. Tokens
    follow each other directly, but the text may have more before the first token and before those
    in `gaps`.

    >>> align("The cats sat.", ["cat", "s", None]).spans
    [(1, 1), (1, 1), (2, 2)]
    """
    parts = [plain(part) for part in text.split()]
    whole = "".join(parts)
    starts = list(accumulate(map(len, parts), initial=0))[:-1]

    def span_of(start: int, stop: int) -> Span:
        if start == stop:
            return None
        return bisect_right(starts, start) - 1, bisect_right(starts, stop - 1) - 1

    ranges = _ranges(whole, contents, gaps)
    if ranges is None:
        return None
    spans: list[Span] = []
    unread, position = "", 0
    # Whether each of the tokens since `position` stands for any text. The others are white space.
    pending: list[bool] = []
    for content, place in zip([*contents, ""], [*ranges, (len(whole),) * 2], strict=True):
        if place is None:
            pending.append(content is None)
            continue
        between = span_of(position, place[0])
        for is_unknown, count in zip(pending, accumulate(pending, initial=0), strict=False):
            part = min(between[0] + count, between[1]) if is_unknown and between else None
            spans.append(None if part is None else (part, part))
        if not any(pending):
            unread += whole[position : place[0]]
        pending, position = [], place[1]
        span = span_of(*place)
        if span is None and not (content or "").isspace() and spans and spans[-1]:
            # The rest of a character, or an accent, belongs to the character before.
            span = spans[-1][1], spans[-1][1]
        spans.append(span)
    return Alignment(spans[:-1], unread)


def _ranges(
    whole: str, contents: Sequence[str | None], gaps: Collection[int]
) -> list[tuple[int, int] | None] | None:
    """Return where each token starts and stops in a plain text, or None if the text lacks them.

    The range of a token that stands for any text is None, and so are those of tokens of white space
    that no token with a text precedes or follows directly.
    """
    runs = accumulate(index in gaps for index in range(len(contents)))
    ranges: list[tuple[int, int] | None] = []
    position = 0
    for (_, is_known), group in groupby(
        zip(runs, contents, strict=True), key=lambda entry: (entry[0], entry[1] is not None)
    ):
        plains = [plain(content or "") for _, content in group]
        joined = "".join(plains)
        if not is_known or not joined:
            ranges += [None] * len(plains)
            continue
        position = whole.find(joined, position)
        if position < 0:
            return None
        for part in plains:
            ranges.append((position, position + len(part)))
            position += len(part)
    return ranges


def number_words_by(spans: Sequence[Span], own: Sequence[object] | None = None) -> list[int]:
    """Return the number of the word of each token in a text.

    `spans` has the parts of the text between white space, and `own` the word of each token by the
    tokenizer, if it is known. A word begins at the first token, and where any of these differs. A
    token of white space belongs to the next word, and at the end to the last word.

    >>> number_words_by([(0, 0), None, (1, 1), (1, 1)])
    [0, 1, 1, 1]
    """
    filled: list[Span] = []
    following: Span = None
    for span in reversed(spans):
        following = span or following
        filled.append(following)
    words: list[int] = []
    last = 0
    for index, span in enumerate(reversed(filled)):
        begins = own is not None and index > 0 and own[index] != own[index - 1]
        if span is not None:
            begins = begins or span[0] > last
            last = span[1]
        words.append(words[-1] + begins if words else 0)
    return words
