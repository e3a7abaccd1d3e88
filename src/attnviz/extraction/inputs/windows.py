"""Notes on the part of a text that each row of a fast tokenizer's output has.

A tokenizer may cut a long text into overlapping windows (``return_overflowing_tokens=True``), or
drop the tokens beyond a limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any


def window_notes(encoded: Mapping[str, Any], size: int) -> list[list[str]]:
    """Return the notes of each of the `size` rows of a tokenizer's output, or an empty list."""
    encodings = getattr(encoded, "encodings", None) or []
    notes: list[list[str]] = []
    while len(notes) < len(encodings):
        first = encodings[len(notes)]
        # The backend keeps the windows that were not requested, too.
        windows = [first, *first.overflowing]
        in_words = any(map(_begins_again, windows))
        parts = [_part(window, in_words=in_words) for window in windows]
        rows = encodings[len(notes) : len(notes) + len(windows)]
        if len(parts) == 1:
            notes.append([])
        elif [_part(row, in_words=in_words) for row in rows] != parts:
            notes.append(
                [f"The tokenizer has cut its input. The record has {_named(parts[0], in_words)}."]
            )
        else:
            # With `truncation_side="left"`, the first window is the end of the text.
            ordered = sorted(parts)
            notes += [
                [f"Window {ordered.index(part) + 1} of {len(parts)}: {_named(part, in_words)}."]
                for part in parts
            ]
    return notes if len(notes) == size and any(notes) else []


# Part of each text of a row: the number of the text (0 or 1), its first character, and the position
# after its last character. If the caller has split the text into words, they are counted.
_Part = list[tuple[int, int, int]]


def _columns(row: Any) -> list[tuple[int, int, int, int]]:
    """Return the text, word, start and end of each token of a text."""
    columns = zip(row.sequence_ids, row.word_ids, row.offsets, strict=True)
    return [
        (text, -1 if word is None else word, *pair)
        for text, word, pair in columns
        if text is not None and pair[0] < pair[1]
    ]


def _begins_again(row: Any) -> bool:
    """Whether the offsets begin again in each word, because the caller has split the text."""
    return any(
        text == other_text and word != other_word and start >= other_start
        for (text, word, start, _), (other_text, other_word, other_start, _) in pairwise(
            _columns(row)
        )
    )


def _part(row: Any, *, in_words: bool) -> _Part:
    spans: dict[int, list[int]] = {}
    for text, word, start, end in _columns(row):
        spans.setdefault(text, []).extend((word, word + 1) if in_words else (start, end))
    return [(text, min(span), max(span)) for text, span in sorted(spans.items())]


def _named(part: _Part, in_words: bool) -> str:  # noqa: FBT001
    unit = "words" if in_words else "characters"
    names = ("the text",) if len(part) == 1 else ("the first text", "the second text")
    return " and ".join(
        f"{unit} {start} to {end} of {name}"
        for name, (_, start, end) in zip(names, part, strict=True)
    )
