"""Notes on the part of a text that each row of a tokenizer's output has.

A tokenizer may cut a long text into overlapping windows (``return_overflowing_tokens=True``), or
drop the tokens beyond a limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

# Part of each text of a row, by the number of the text (0 or 1): its first character, and the
# position after its last character. If the caller has split the text into words, they are counted.
_Spans = dict[int, tuple[int, int]]


def window_notes(encoded: Mapping[str, Any], size: int) -> list[list[str]]:
    """Return the notes of each of the `size` rows of a tokenizer's output, or an empty list.

    The positions of characters are the offsets of a fast tokenizer. They are in the output itself
    (``offset_mapping``) if it was converted to a dictionary.
    """
    notes: list[list[str]] = []
    texts = list(_texts(encoded))
    for number, (windows, num_rows, unit) in enumerate(texts):
        complete = {text for spans in windows for text in spans}
        cut = [text for text in sorted(complete) if len({one.get(text) for one in windows}) > 1]
        names = {0: "the first text", 1: "the second text"} if len(complete) > 1 else {}
        ranges = [[spans[text] for text in cut if text in spans] for spans in windows]
        for index in range(num_rows):
            part = " and ".join(
                f"{unit} {start} to {end} of {names.get(text, 'the text')}"
                for text, (start, end) in zip(cut, ranges[index], strict=False)
            )
            if num_rows > 1:
                # With `truncation_side="left"`, the first window is the end of the text.
                order = sorted(range(num_rows), key=ranges.__getitem__).index(index) + 1
                which = f"Text {number + 1} of {len(texts)}, window" if len(texts) > 1 else "Window"
                notes.append([f"{which} {order} of {num_rows}{part and ': '}{part}."])
            else:
                cut_note = f"The tokenizer has cut its input. The record has {part}."
                notes.append([cut_note] if part else [])
    return notes if len(notes) == size and any(notes) else []


def _texts(encoded: Mapping[str, Any]) -> Iterable[tuple[list[_Spans], int, str]]:
    """Yield the windows of each text or pair, how many of them are rows, and what they count."""
    encodings = getattr(encoded, "encodings", None)
    if not encodings:
        samples = _as_list(encoded.get("overflow_to_sample_mapping"))
        rows = _as_list(encoded.get("offset_mapping")) or [[]] * len(samples)
        for _, group in groupby(zip(samples, rows, strict=False), key=lambda pair: pair[0]):
            windows = [_spans(_numbered(offsets)) for _, offsets in group]
            yield windows, len(windows), "characters"
    index = 0
    while encodings and index < len(encodings):
        # The backend keeps the windows that were not requested, too.
        windows = [encodings[index], *encodings[index].overflowing]
        unit = "words" if any(map(_counts_in_words, windows)) else "characters"
        spans = [_spans_of(row, unit) for row in windows]
        rows = [_spans_of(row, unit) for row in encodings[index : index + len(windows)]]
        num_rows = len(windows) if spans == rows else 1
        yield spans, num_rows, unit
        index += num_rows


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else list(value.tolist() if hasattr(value, "tolist") else value)


def _numbered(offsets: Iterable[Sequence[int]]) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the number of the text before each pair of offsets.

    Special tokens, with empty offsets, stand between two texts.
    """
    runs = groupby(offsets, key=lambda pair: pair[0] < pair[1])
    for number, pairs in enumerate(list(pairs) for has_text, pairs in runs if has_text):
        for pair in pairs:
            yield number, pair


def _counts_in_words(row: Any) -> bool:
    """Whether the offsets begin again in each word, because the caller has split the text."""
    columns = list(zip(row.sequence_ids, row.word_ids, row.offsets, strict=True))
    # The last value of a key remains, so that of the first token of each word.
    starts = {(text, word): pair[0] for text, word, pair in reversed(columns) if pair[0] < pair[1]}
    distinct = {(text, start) for (text, _), start in starts.items()}
    return len(distinct) < len(starts) and max(start for _, start in distinct) <= 1


def _spans_of(row: Any, unit: str) -> _Spans:
    pairs = row.offsets
    if unit == "words":
        pairs = [(0, 0) if word is None else (word, word + 1) for word in row.word_ids]
    return _spans(zip(row.sequence_ids, pairs, strict=True))


def _spans(pairs: Iterable[tuple[int | None, Sequence[int]]]) -> _Spans:
    spans: _Spans = {}
    for text, (start, end) in pairs:
        if text is not None and end > start:
            known = spans.get(text, (start, end))
            spans[text] = (min(known[0], start), max(known[1], end))
    return spans
