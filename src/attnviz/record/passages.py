"""Passages: named runs of tokens, such as the documents of a prompt or the turns of a chat.

A passage is a coarser kind of word. Records and stacks merge its tokens (`merge_passages`) as they
merge those of a word (`merge_words`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from typing import Any

from attnviz.record.tokens import Passage, Tokens, make_visible, quote
from attnviz.record.words import merge_tokens, spell, spell_tokens
from attnviz.utils.arguments import check_encodable, existing_name, short_repr, whole_number

#: Name of the passage of the tokens that a model produced.
ANSWER = "the answer"

# Maximum number of characters in the name of tokens between passages.
_MAX_NAME = 24
_BLANK_LINE, _LINE = r"⏎[·⇥]*⏎[·⇥⏎]*", r"⏎[·⇥⏎]*"
# Texts of WordPiece have no spaces. There, a number is no end of a sentence.
_SENTENCE = r"[.!?…][\"'”’)\]»]*[·⏎⇥]+|[。！？][\"'”’)\]»]*"
_PIECES = r"[.!?…。！？][\"'”’)\]»]*(?!\d)"


def with_passages(tokens: Tokens, passages: Any) -> tuple[Tokens, list[str]]:
    """Return tokens with passages, and notes on tokens that cross a border of a passage.

    `passages` is as in `AttentionRecord.with_passages`. Raise TypeError or ValueError if a passage
    does not exist, is empty or overlaps another one.
    """
    if isinstance(passages, str):
        kinds = {"paragraphs": _paragraphs, "sentences": _sentences, "texts": _texts}
        passages = kinds[existing_name("passages", passages, kinds, "valid are names or")](tokens)
    if isinstance(passages, Mapping):
        finder = _Finder(tokens)
        runs = [finder.find(name, where) for name, where in passages.items()]
        return replace(tokens, passages=tuple(runs)), finder.notes
    if not isinstance(passages, Sequence) or len(passages) != len(tokens):
        raise TypeError(
            f"passages={short_repr(passages)} must be names with their tokens, such as "
            f'{{"question": (0, 12)}}, or a name or None for each of the {len(tokens)} tokens'
        )
    return replace(tokens, passages=labelled(passages)), []


def find_in_order(
    tokens: Tokens, quotations: Iterable[tuple[str, str, str]]
) -> tuple[list[Passage], list[str]]:
    """Return the passages that have quoted texts, and notes as `with_passages` returns them.

    A quotation is the name of a passage, its text, and characters before it in the text from which
    the tokens were made. Each text is searched for after the text before. Texts that the tokens do
    not have, such as those of a truncated chat, are left out.
    """
    finder, passages, start = _Finder(tokens), [], 0
    for name, *parts in quotations:
        text, before = (spell(make_visible(part)) for part in parts)
        end = finder.end_after(start, text, before)
        if end is not None and (run := finder.run(name, end - len(text), end)) is not None:
            passages.append(run)
            start = end
    return passages, finder.notes


def labelled(labels: Sequence[str | None]) -> tuple[Passage, ...]:
    """Return the runs of tokens with the same label. None is no label.

    `labels` has an entry for each token. If several runs have the same label, they are numbered.

    >>> [passage.name for passage in labelled(["user", "user", None, "user", "tool"])]
    ['user 1', 'user 2', 'tool']
    """
    runs = [(label, len(list(run))) for label, run in groupby(labels)]
    names = [label for label, _ in runs]
    passages, stop = [], 0
    for index, (name, length) in enumerate(runs):
        start, stop = stop, stop + length
        if name is not None:
            number = f" {names[: index + 1].count(name)}" if names.count(name) > 1 else ""
            passages.append(Passage(f"{name}{number}", start, stop))
    return tuple(passages)


def merge_passages(tokens: Tokens) -> tuple[Tokens, list[int]]:
    """Return tokens that are the passages of `tokens`, and the first token of each of them.

    Tokens between two passages are merged, too, and named by their text. If the first token belongs
    to no passage, it is not merged, because it is an attention sink of many heads.
    """
    names: dict[int, str] = {}
    space = "" if "·" in "".join(tokens.text) else "·"
    stop = 1
    for passage in (*tokens.passages, Passage("end", len(tokens), len(tokens) + 1)):
        if stop < passage.start:  # Tokens before the passage.
            text = space.join(tokens.text[stop : passage.start])
            names[stop] = text if len(text) <= _MAX_NAME else f"{text[: _MAX_NAME - 1]}…"
        names[passage.start] = passage.name
        stop = passage.stop
    starts = sorted({0, *names} - {len(tokens)})
    return merge_tokens(tokens, starts, names), starts


class _Finder:
    """Search for passages in tokens. White space, case and accents are ignored.

    Attributes
    ----------
    notes : list of str
        Notes on tokens that cross a border of a passage.
    """

    def __init__(self, tokens: Tokens) -> None:
        self.notes: list[str] = []
        self._tokens = tokens
        spelled = spell_tokens(tokens)
        self._text = "".join(spelled)
        # Number of characters before each token, and before the end.
        self._starts = list(accumulate(map(len, spelled), initial=0))

    def find(self, name: Any, where: Any) -> Passage:
        check_encodable("passages", name)
        argument = f"passages[{name!r}]"
        if isinstance(where, str):
            return self._find(name, argument, where)
        if not isinstance(where, tuple | list) or len(where) != 2:
            raise TypeError(
                f"{argument}={short_repr(where)} must be a part of the text, or the positions "
                "(start, stop) of its first token and of the token after its last one"
            )
        count = len(self._tokens)
        start, stop = (whole_number(argument, value) for value in where)
        start, stop = (value + count * (value < 0) for value in (start, stop))
        if not 0 <= start < stop <= count:
            raise ValueError(
                f"{argument}={where!r} has no tokens, or tokens that do not exist. There are "
                f"{count} tokens. Pass (start, stop) with 0 <= start < stop <= {count}."
            )
        return Passage(name, start, stop)

    def _find(self, name: str, argument: str, where: str) -> Passage:
        text = spell(make_visible(where))
        argument += f"={short_repr(where[:40])}"
        if not text:
            raise ValueError(f"{argument} has only white space. Pass a part of the text.")
        starts = [match.start() for match in re.finditer(f"(?={re.escape(text)})", self._text)]
        # A word that is a part of another one has a border inside of a token.
        borders = [(start, start + len(text)) for start in starts]
        borders = [ends for ends in borders if not any(map(self._crosses, ends))] or borders
        if not borders:
            raise ValueError(
                f"{argument}: the tokens do not have this text. Pass a part of the text, or the "
                "positions (start, stop) of its tokens."
            )
        if len(borders) > 1:
            positions = ", ".join(str(self._token(start)) for start, _ in borders[:4])
            raise ValueError(
                f"{argument}: the text occurs {len(borders)} times, at the tokens {positions}"
                f"{', ...' * (len(borders) > 4)}. Pass a longer part, or the positions (start, "
                "stop) of its tokens."
            )
        run = self.run(name, *borders[0])
        if run is None:
            token = self._token(borders[0][0])
            raise ValueError(
                f"{argument} is only a part of token {quote(self._tokens.text[token])} ({token}). "
                "Pass the text of whole tokens."
            )
        return run

    def end_after(self, start: int, text: str, before: str) -> int | None:
        """Return the end of the first occurrence of `text` from `start` on, after `before`.

        If the tokens do not have `before`, as in tokens of an image, its end suffices.
        """
        while text:
            offset = self._text.find(before + text, max(0, start - len(before)))
            if offset >= 0:
                return offset + len(before) + len(text)
            if not before:
                break
            before = before[(len(before) + 1) // 2 :]
        return None

    def run(self, name: str, first: int, end: int) -> Passage | None:
        """Return the passage of the characters `first` to `end`, or None without a whole token.

        A token belongs to the passage of its first character.
        """
        start, stop = self._token(first) + self._crosses(first), self._token(end - 1) + 1
        if start >= stop:
            return None
        # The second part of a divided character adds no character.
        while stop < len(self._tokens) and self._is_rest(stop):
            stop += 1
        for border, offset in (("start", first), ("end", end)):
            if self._crosses(offset):
                token = self._token(offset)
                self.notes.append(
                    f"Token {quote(self._tokens.text[token])} ({token}) crosses the {border} of "
                    f"passage {quote(name)}, and is "
                    f"{'a part of it' if border == 'end' else 'no part of it'}."
                )
        return Passage(name, start, stop)

    def _token(self, offset: int) -> int:
        """Return the token with the character at `offset`."""
        return bisect_right(self._starts, offset) - 1

    def _crosses(self, offset: int) -> bool:
        """Whether a token has characters before and after a border at `offset`."""
        return self._starts[self._token(offset)] != offset

    def _is_rest(self, token: int) -> bool:
        is_empty = self._starts[token] == self._starts[token + 1]
        return is_empty and bool(self._tokens.text[token].strip("·⏎⇥∅"))


def _paragraphs(tokens: Tokens) -> list[str | None]:
    has_blank_lines = re.search(_BLANK_LINE, "".join(tokens.text))
    return _numbered(tokens, "paragraph", _BLANK_LINE if has_blank_lines else _LINE)


def _sentences(tokens: Tokens) -> list[str | None]:
    has_spaces = "·" in "".join(tokens.text)
    return _numbered(tokens, "sentence", _SENTENCE if has_spaces else _PIECES)


def _numbered(tokens: Tokens, name: str, border: str) -> list[str | None]:
    """Return a label for each token: the number of the part of the text that has its first letter.

    A part ends with a match of the expression `border`.
    """
    texts = [
        "" if special else text for text, special in zip(tokens.text, tokens.special, strict=True)
    ]
    ends = [match.end() for match in re.finditer(border, "".join(texts))]
    labels: list[str | None] = []
    for text, start in zip(texts, accumulate(map(len, texts), initial=0), strict=False):
        letters = text.lstrip("·⏎⇥")
        first = start + len(text) - len(letters) if letters else start
        labels.append(f"{name} {bisect_right(ends, first) + 1}" if text else None)
    return labels


def _texts(tokens: Tokens) -> list[str | None]:
    """Return a label for each token: its image, or the number of the text of a pair."""
    labels: list[str | None] = [
        None if number is None else f"text {number + 1}" if 1 in tokens.sequence else "text"
        for number in tokens.sequence
    ]
    for number, grid in enumerate(tokens.grids, 1):
        name = grid.name or (f"image {number}" if len(tokens.grids) > 1 else "image")
        labels[grid.start : grid.stop] = [name] * (grid.stop - grid.start)
    return labels
