"""A record of a window says which part of the text it shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from attnviz import AttentionRecord, extract

TEXT = "A cat, two dogs and 17 birds met at the old mill. Nobody knew why: it was raining all day."
QUESTION = "Who met?"
WINDOWS: dict[str, Any] = {
    "return_overflowing_tokens": True,
    "stride": 3,
    "padding": True,
    "return_tensors": "pt",
}


def windows_of(records: list[AttentionRecord]) -> list[str]:
    """Return the note on the window of each record."""
    return [note for record in records for note in record.notes if "indow" in note]


def shown(record: AttentionRecord, tokenizer: Any, sequence: int = 0) -> str:
    """Return the letters of one text of a record, without spaces."""
    tokens = record.tokens
    assert tokens.ids is not None
    ids = [one for one, text in zip(tokens.ids, tokens.sequence, strict=True) if text == sequence]
    return without_spaces(tokenizer.decode(ids))


def without_spaces(text: str) -> str:
    return re.sub(r"\s", "", text.lower())


def assert_parts(
    records: list[AttentionRecord], tokenizer: Any, name: str = "the text", sequence: int = 0
) -> None:
    """Assert that the characters of each note are those of the record, in ascending order."""
    starts = []
    for number, (record, note) in enumerate(zip(records, windows_of(records), strict=True), 1):
        pattern = rf"Window {number} of {len(records)}: .*characters (\d+) to (\d+) of {name}\."
        match = re.fullmatch(pattern, note)
        assert match, note
        start, end = map(int, match.groups())
        assert without_spaces(TEXT[start:end]) == shown(record, tokenizer, sequence)
        starts.append(start)
    assert starts == sorted(starts)


@pytest.mark.parametrize(
    "change",
    [
        lambda encoded: encoded,
        lambda encoded: encoded.pop("overflow_to_sample_mapping") is None or encoded,
    ],
    ids=["as it is", "without the mapping"],
)
def test_windows_of_a_text(minilm: tuple[Any, Any], change: Callable[[Any], Any]) -> None:
    model, tokenizer = minilm
    encoded = tokenizer(
        TEXT, truncation=True, max_length=12, return_offsets_mapping=True, **WINDOWS
    )
    records = extract(model, change(encoded), tokenizer=tokenizer, progress=False)
    assert len(records) > 2
    assert_parts(records, tokenizer)


def test_windows_of_the_second_text(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    encoded = tokenizer(QUESTION, TEXT, truncation="only_second", max_length=16, **WINDOWS)
    records = extract(model, encoded, tokenizer=tokenizer, progress=False)
    assert_parts(records, tokenizer, "the second text", sequence=1)


def test_windows_of_several_texts(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    texts = [TEXT, "A dog.", TEXT]
    encoded = tokenizer(texts, truncation=True, max_length=24, **WINDOWS)
    notes = [
        windows_of([record])
        for record in extract(model, encoded, tokenizer=tokenizer, progress=False)
    ]
    assert [len(of_record) for of_record in notes] == [1, 1, 0, 1, 1]
    assert notes[1][0].startswith("Window 2 of 2: characters ")
    assert notes[3][0].startswith("Window 1 of 2: characters 0 to ")


def test_windows_from_the_end_of_a_text(
    minilm: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = minilm
    monkeypatch.setattr(tokenizer, "truncation_side", "left")
    encoded = tokenizer(TEXT, truncation=True, max_length=12, **WINDOWS)
    records = extract(model, encoded, tokenizer=tokenizer, progress=False)
    # The first row is the end of the text.
    assert shown(records[0], tokenizer).endswith("allday.")
    assert_parts(records[::-1], tokenizer)


def test_windows_of_words(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    words = TEXT.split()
    encoded = tokenizer(words, is_split_into_words=True, truncation=True, max_length=12, **WINDOWS)
    records = extract(model, encoded, tokenizer=tokenizer, progress=False)
    for record, note in zip(records, windows_of(records), strict=True):
        match = re.search(r": words (\d+) to (\d+) of the text", note)
        assert match
        part = without_spaces("".join(words[int(match[1]) : int(match[2])]))
        # The first and the last word may be in the window only in part.
        assert shown(record, tokenizer) in part


def test_a_text_that_the_tokenizer_has_cut(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    encoded = tokenizer([TEXT, "A dog."], truncation=True, max_length=12, padding=True)
    cut, whole = extract(model, encoded, tokenizer=tokenizer, progress=False)
    [note] = [note for note in cut.notes if "cut" in note]
    match = re.fullmatch(
        r"The tokenizer has cut its input\. The record has characters 0 to (\d+) of the text\.",
        note,
    )
    assert match
    assert without_spaces(TEXT[: int(match[1])]) == shown(cut, tokenizer)
    assert not any("cut" in note for note in whole.notes)


def test_whole_texts_have_no_such_note(minilm: tuple[Any, Any]) -> None:
    model, tokenizer = minilm
    for texts in (TEXT, [TEXT, "A dog.", TEXT]):
        encoded = tokenizer(texts, truncation=True, max_length=99, **WINDOWS)
        records = extract(model, encoded, tokenizer=tokenizer, progress=False)
        for record in records if isinstance(records, list) else [records]:
            assert not [note for note in record.notes if "cut" in note or "indow" in note]
