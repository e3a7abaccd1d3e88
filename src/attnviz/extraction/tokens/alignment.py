"""Alignment of tokens with the text that a tokenizer read, and words of the text.

Tokenizers change texts before they split them: case, accents, white space and compatibility forms
of characters. The comparison tolerates these changes.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate

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


class AlignedText:
    """A text with which the contents of tokens are compared from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._position = 0
        # Whether the token before this position stands for any text.
        self._is_open = False
        #: Characters of the text that no token contains, so far.
        self.skipped = ""

    @cached_property
    def _plain(self) -> str:
        return plain(self.text)

    @cached_property
    def _starts(self) -> list[int]:
        """Index in `_plain` of the first character of each part between white space."""
        lengths = (len(plain(part)) for part in self.text.split())
        return list(accumulate(lengths, initial=0))[:-1]

    def find(self, contents: Sequence[str | None], *, advance: bool = False) -> list[Span] | None:
        """Return the parts of the text that tokens contain, or None if the text lacks them.

        `contents` has the text of each token, or None for a token that stands for any text. The
        text before the first token is skipped. If `advance` is True, the search begins after the
        tokens of the last such call.
        """
        plains = [None if content is None else plain(content) for content in contents]
        position = self._position if advance else 0
        # Whether each of the last tokens stands for any text. If so, the others are white space.
        pending: list[bool] = []
        spans: list[Span] = []
        index = 0
        while index < len(plains):
            stop = index
            while stop < len(plains) and plains[stop] is not None:
                stop += 1
            if stop == index:
                pending.append(True)
                index += 1
                continue
            known = [part or "" for part in plains[index:stop]]
            if pending and not any(known):
                pending += [False] * len(known)
                index = stop
                continue
            start = self._plain.find("".join(known), position)
            if start < 0:
                return None
            if advance and not pending and not (self._is_open and not spans):
                self.skipped += self._plain[position:start]
            spans += self._unknown(position, start, pending)
            pending = []
            for part, content in zip(known, contents[index:stop], strict=True):
                span = self._span(start, start + len(part))
                if span is None and not (content or "").isspace() and spans and spans[-1]:
                    # The rest of a character, or an accent, belongs to the character before.
                    span = spans[-1][1], spans[-1][1]
                spans.append(span)
                start += len(part)
            position, index = start, stop
        spans += self._unknown(position, len(self._plain), pending)
        if advance:
            self._position, self._is_open = position, bool(pending)
        return spans

    def unread(self, special: Iterable[str]) -> str:
        """Return the characters of the text that no token contains, without white space and case.

        `special` has the texts of special tokens, which may be in the text, too.
        """
        unread = self.skipped + ("" if self._is_open else self._plain[self._position :])
        for name in special:
            unread = unread.replace(plain(name), "", 1)
        return unread

    def _span(self, start: int, stop: int) -> Span:
        if start == stop:
            return None
        return bisect_right(self._starts, start) - 1, bisect_right(self._starts, stop - 1) - 1

    def _unknown(self, start: int, stop: int, pending: Sequence[bool]) -> list[Span]:
        """Return the parts of unknown words in the text between two known tokens."""
        gap = self._span(start, stop)
        spans: list[Span] = []
        number = 0
        for is_unknown in pending:
            part = None if gap is None else min(gap[0] + number, gap[1])
            spans.append((part, part) if is_unknown and part is not None else None)
            number += is_unknown
        return spans


def number_words_by(spans: Sequence[Span], own: Sequence[object] | None = None) -> list[int]:
    """Return the number of the word of each token in a text.

    `spans` has the parts of the text between white space, and `own` the word of each token by the
    tokenizer, if it is known. A word begins at the first token, and where any of these differs. A
    token of white space belongs to the next word, and at the end to the last word.

    >>> number_words_by([(0, 0), None, (1, 1), (1, 1)])
    [0, 1, 1, 1]
    """
    following: list[Span] = []
    for span in reversed(spans):
        following.append(span or (following[-1] if following else None))
    following.reverse()
    words: list[int] = []
    last: Span = None
    for index, span in enumerate(spans):
        begins = index > 0 and own is not None and own[index] != own[index - 1]
        after = following[index]
        if last is not None and after is not None and after[0] > last[1]:
            begins, last = True, after
        words.append(words[-1] + begins if words else 0)
        last = span or last
    return words
