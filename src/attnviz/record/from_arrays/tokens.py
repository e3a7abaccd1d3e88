"""Conversion of the tokens that a caller passes to `Tokens`.

A caller passes display texts, or vocabulary entries such as ``Ġthe``, which are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attnviz.record.tokens import Tokens, token_strings
from attnviz.record.vocabulary import display_texts, guess_alphabet
from attnviz.utils.arguments import whole_number


def as_tokens(tokens: Sequence[str] | Tokens, sentence_b_start: int | None = None) -> Tokens:
    """Convert strings to `Tokens`. Strings that are vocabulary entries are decoded.

    `guess_alphabet` determines how the strings are encoded, if at all. If `tokens` is already a
    `Tokens`, its texts are not changed. `sentence_b_start` is the position of the first token of
    the second text of a pair. If it is not None, `Tokens.sequence` is set accordingly.
    """
    if isinstance(tokens, Tokens):
        display_tokens = tokens
    else:
        entries = token_strings(tokens)
        texts = display_texts(entries, alphabet=guess_alphabet(entries))
        display_tokens = replace(Tokens.of(entries), text=tuple(texts))
    if sentence_b_start is None:
        return display_tokens
    start = whole_number("sentence_b_start", sentence_b_start, 1, len(display_tokens) - 1)
    sequence = tuple(
        None if special else int(position >= start)
        for position, special in enumerate(display_tokens.special)
    )
    return replace(display_tokens, sequence=sequence)


def tokens_from_positions(count: int, start: int = 0) -> Tokens:
    """Return `count` tokens whose texts are their positions, from `start`.

    They are used if the caller passes no tokens.

    >>> tokens_from_positions(3).text
    ('[0]', '[1]', '[2]')
    """
    return Tokens.of([f"[{position}]" for position in range(start, start + count)])
