"""Functions that find the display text and the word of each token, and whether it is special.

The display text of a token is the text that views show, such as "·cat". It is compared with the
text that the tokenizer read, or with the text that it returns for the ids.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from attnviz.extraction.tokens.alignment import Alignment, Span, align, number_words_by, plain
from attnviz.extraction.tokens.entries import Name, Vocabulary, special_ids
from attnviz.extraction.tokens.reading import Reading
from attnviz.record.notes import Note
from attnviz.record.tokens import Tokens, number_words, quote

# The reading of a token and the token's index in it. None if no reading has the token.
Origin = tuple[Reading, int] | None

NO_TOKENIZER_NOTE = "No tokenizer was passed: tokens are shown as #id."
UNKNOWN_NOTE = Note(
    "The tokenizer knows no part of the text: all its tokens stand for unknown words, which the "
    "model cannot distinguish.",
    "part of a text",
)


def read_tokens(
    ids: Sequence[int],
    *,
    tokenizer: Any = None,
    sequence: Sequence[int | None] | None = None,
    readings: Sequence[Reading] = (),
    target: bool = False,
) -> tuple[Tokens, list[str]]:
    """Return the tokens with the given ids, with their display texts and words, and notes.

    Parameters
    ----------
    ids : sequence of int
        Vocabulary ids.
    tokenizer : PreTrainedTokenizerBase, optional
        The tokenizer of ids that are in none of the `readings`. If no tokenizer is known, the text
        of a token is ``#id``.
    sequence : sequence of (int or None), optional
        Text of a pair (0 or 1) to which each token belongs. It is ignored for ids of a reading with
        an encoding. The default is 0 for all tokens.
    readings : sequence of Reading, optional
        Texts that tokenizers converted into ids. They may have other ids, too.
    target : bool, optional
        Whether these are ids of a decoder. It matters if a tokenizer has two vocabularies.

    Returns
    -------
    tokens : Tokens
        A token is special if the tokenizer added it or defines it as special, unless it stands only
        for unknown words. Special tokens belong to no text. The words of a text are the parts
        between white space, or the words of the tokenizer if these are shorter.
    notes : list of str
        Notes that the display texts, joined, are not the text, or that the tokenizer knows no part
        of the text.

    Examples
    --------
    >>> read_tokens([5, 17])[0].text
    ('#5', '#17')
    """
    ids = [int(identifier) for identifier in ids]
    if hasattr(tokenizer, "get_src_vocab"):
        # In the other vocabulary, the same ids stand for other texts.
        readings = [reading for reading in readings if reading.target == target]
    origins = _origins(tuple(ids), readings, tokenizer)
    made = [origin[0].tokenizer for origin in origins if origin]
    tokenizer = next((one for one in made if one is not None), tokenizer)
    known_special = special_ids(tokenizer)
    special = [identifier in known_special for identifier in ids]
    sequences: list[int | None] = list(sequence) if sequence is not None else [0] * len(ids)
    entries: dict[int, str] = {}
    for position, origin in enumerate(origins):
        if origin is not None and origin[0].encoded:
            token = origin[0].encoded[origin[1]]
            special[position] |= bool(token.special_tokens_mask)
            sequences[position] = token.sequence_ids
            entries[ids[position]] = token.tokens
    sequences = [
        None if flag else (number or 0) for flag, number in zip(special, sequences, strict=True)
    ]
    vocabulary = Vocabulary(tokenizer, target=target, entries=entries)
    names = vocabulary.names(ids)
    special_names = [name for name, flag in zip(names, special, strict=True) if flag]
    notes = [] if tokenizer is not None or entries else [NO_TOKENIZER_NOTE]
    words: list[int | None] = [None] * len(ids)
    are_known = True

    def text_of(position: int) -> tuple[object, ...]:
        """Return equal values for consecutive tokens that are compared with one text."""
        origin = origins[position]
        return (id(origin[0]),) if origin else (special[position], sequences[position])

    for _, group in groupby(range(len(ids)), key=text_of):
        run = list(group)
        regular = [position for position in run if not special[position]]
        if not regular:
            continue
        # Tokens before which the text may have more: after special tokens, and in the second text.
        gaps = [
            index
            for index, (before, after) in enumerate(pairwise(regular), 1)
            if after > before + 1 or sequences[before] != sequences[after]
        ]
        reading, first = origins[run[0]] or (vocabulary.read_again([ids[one] for one in run]), 0)
        indices = [position - run[0] + first for position in regular]
        part = _read_part(
            vocabulary, [names[position] for position in regular], reading, indices, gaps
        )
        are_known = are_known and part.words is not None
        numbers = _texts_of_pair(reading, part.spans) if sequence is None else []
        for index, position in enumerate(regular):
            names[position] = part.names[index]
            words[position] = run[0] + part.words[index] if part.words else None
            sequences[position] = numbers[index] if numbers else sequences[position]
        is_whole = len(run) == len(reading.ids) and not reading.is_cut
        notes += _notes_on_text(reading, part, special_names if is_whole else None)
    regular_ids = {identifier for identifier, flag in zip(ids, special, strict=True) if not flag}
    if vocabulary.unknown is not None and regular_ids == {vocabulary.unknown}:
        notes.append(UNKNOWN_NOTE)
    tokens = Tokens(
        text=tuple(name for name, _ in names),
        special=tuple(special),
        sequence=tuple(sequences),
        ids=tuple(ids),
        words=number_words(words, special, sequences) if are_known else None,
    )
    return tokens, notes


class _Part(NamedTuple):
    """Names and words of the tokens of one text.

    Attributes
    ----------
    names : list of Name
        Display text and content of each token.
    spans : list of Span or None
        Part of the text between white space of each token. None if the text lacks the tokens.
    words : list of int or None
        Number of the word of each token. None if words are unknown.
    unread : str or None
        Characters of the text of the reading that no token has. None if the text lacks the tokens.
    """

    names: list[Name]
    spans: list[Span] | None
    words: list[int] | None
    unread: str | None


def _read_part(
    vocabulary: Vocabulary,
    names: list[Name],
    reading: Reading,
    indices: list[int],
    gaps: list[int],
) -> _Part:
    """Compare the names of regular tokens with their text, and find their words.

    `indices` has the index of each token in the reading, and `gaps` is as in `align`.
    """
    ids = [reading.ids[index] for index in indices]
    own: Sequence[int | None] | None
    own = [reading.encoded[index].word_ids for index in indices] if reading.encoded else None
    decoded = None if own and reading.texts else vocabulary.decode(ids)
    text = reading.text if reading.texts else decoded
    if text is None:
        text = "".join(content or "" for _, content in names)
    alignment = align(text, [content for _, content in names], gaps)
    unread = alignment.unread if alignment else None
    if alignment is None:
        names, alignment, is_text = _repaired(vocabulary, ids, names, text, gaps)
        unread = alignment.unread if alignment and is_text else None
    spans = alignment.spans if alignment else None
    contents = [content for _, content in names]
    if own is None and decoded is not None:
        own = _split(decoded, contents, gaps)
    elif own is not None and not reading.texts:
        # Spaces of the decoded text need not be in the text, but those of tokens are.
        parts = ["?" if content is None else content for content in contents]
        joined = align("".join(parts), parts)
        spans = joined.spans if joined else None
    words = None
    if own is not None or spans is not None or len(ids) == 1:
        words = number_words_by(spans or [None] * len(ids), own)
    return _Part(names, spans, words, unread)


def _repaired(
    vocabulary: Vocabulary, ids: list[int], names: list[Name], text: str, gaps: list[int]
) -> tuple[list[Name], Alignment | None, bool]:
    """Return names that are a text, the alignment with it, and whether it is `text`.

    The other text is the one that the tokenizer returns for the ids. If no names are a text, return
    `names` and no alignment.
    """
    candidates = [names] + [
        [old if old[1] is None else new for old, new in zip(names, others, strict=True)]
        for others in vocabulary.other_names(ids)
        # Another alphabet must not have invalid bytes.
        if all(
            old is None or new is not None for (_, old), (_, new) in zip(names, others, strict=True)
        )
    ]
    for whole in (text, vocabulary.decode(ids)):
        for candidate in candidates:
            contents = [content for _, content in candidate]
            alignment = None if whole is None else align(whole, contents, gaps)
            if alignment is not None:
                return candidate, alignment, whole is text
    return names, None, False


def _split(decoded: str, contents: list[str | None], gaps: list[int]) -> list[int] | None:
    """Return the words of a tokenizer written in Python, which puts spaces between them.

    Some of these tokenizers put spaces between all tokens. A space is between two words only if the
    character before it or after it is no letter of an alphabet, and no digit.
    """
    alignment = align(decoded, contents, gaps)
    if alignment is None:
        return None
    words = [0]
    for (before, first), (after, second) in pairwise(
        zip(contents, number_words_by(alignment.spans), strict=True)
    ):
        around = (before or "")[-1:] + (after or "")[:1]
        words.append(words[-1] + (first != second and not all(map(_is_letter, around))))
    return words


def _is_letter(character: str) -> bool:
    """Whether a character is a letter of an alphabet, or a digit. Chinese has no alphabet."""
    return character.isalnum() and unicodedata.category(character) != "Lo"


def _texts_of_pair(reading: Reading, spans: Sequence[Span] | None) -> list[int]:
    """Return the text of a pair to which each token belongs, or an empty list if it is unknown.

    The encoding of a fast tokenizer has these numbers, too.
    """
    if len(reading.texts) < 2 or reading.encoded:
        return []
    num_first = len(reading.texts[0].split())
    numbers = [0]
    for span in spans or ():
        numbers.append(numbers[-1] if span is None else int(span[0] >= num_first))
    return numbers[1:]


def _notes_on_text(reading: Reading, part: _Part, special: Sequence[Name] | None) -> list[str]:
    """Return a list with a note if the names of tokens are not the text, else an empty list.

    `special` has the names of special tokens, which may be in the text, too, or stand for unknown
    words. It is None if the tokens need not be the whole text.
    """
    unread = part.unread
    if unread and (special is None or any(content is None for _, content in special)):
        unread = ""
    for name, _ in special or ():
        unread = unread and unread.replace(plain(name), "", 1)
    if not reading.texts or unread == "":
        return []
    read = "".join("…" if content is None else content for _, content in part.names)
    note = (
        "The tokenizer does not read the text as it is: "
        f"{quote(reading.text.strip())} was read as {quote(read.strip())}."
    )
    return [Note(note, "part of a text")]


def _origins(row: tuple[int, ...], readings: Sequence[Reading], tokenizer: Any) -> list[Origin]:
    """Return the origin of each token in the readings."""
    origins: list[Origin] = [None] * len(row)
    # If readings have equally many ids, the last of the model's own tokenizer has priority.
    latest = readings[::-1]
    ranked = sorted(
        latest,
        key=lambda one: (one.ids != row, -len(one.ids), one.tokenizer is not tokenizer),
    )
    for reading in ranked:
        if all(origins):
            break
        shift = _shift(row, reading)
        for index, identifier in enumerate(reading.ids if shift is not None else ()):
            position = index + (shift or 0)
            if 0 <= position < len(row) and row[position] == identifier:
                origins[position] = origins[position] or (reading, index)
    return origins


def _shift(row: tuple[int, ...], reading: Reading) -> int | None:
    """Return the position in `row` at which a reading begins, or None if it has other ids.

    Special tokens at the ends may differ, because a row may have padding or a start token that the
    reading lacks. If `row` is a part of the reading, the position is negative.
    """
    if reading.ids == row:
        return 0
    special = special_ids(reading.tokenizer)
    for inner, outer, sign in ((reading.ids, row, 1), (row, reading.ids, -1)):
        regular = [index for index, number in enumerate(inner) if number not in special]
        if not regular:
            return None
        core = inner[regular[0] : regular[-1] + 1]
        for start in range(len(outer) - len(core) + 1):
            if outer[start : start + len(core)] == core:
                return sign * (start - regular[0])
    return None


def token_texts(ids: Sequence[int], tokenizer: Any) -> list[str]:
    """Return the display text of each id, independently of the other ids in the list.

    If `tokenizer` is None, the text is ``#id``.

    Examples
    --------
    >>> token_texts([5, 17], None)
    ['#5', '#17']
    """
    vocabulary = Vocabulary(tokenizer, target=True)
    return [vocabulary.names([identifier])[0][0] for identifier in ids]
