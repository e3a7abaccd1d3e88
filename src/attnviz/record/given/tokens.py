"""Tokens of what came from elsewhere: strings, entries of a vocabulary, or none at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, SupportsIndex

from attnviz.record.given.projected_keys import ProjectedKeys
from attnviz.record.tokens import Tokens
from attnviz.record.vocabulary import alphabet_of_entries, display_text

__all__ = ["key_tokens_of", "numbered_tokens", "tokens_of"]


def _token_strings(tokens: Any, argument: str) -> list[str]:
    """Tokens of the one example, or an error where they are anything else.

    Parameters
    ----------
    tokens : sequence of str
        What was given.
    argument : str
        Its name, for the error.

    Returns
    -------
    list of str

    Raises
    ------
    TypeError
        If it is no sequence of strings.
    ValueError
        If it is the tokens of several examples.
    """
    one_string = isinstance(tokens, (str, bytes))
    if one_string or isinstance(tokens, Mapping) or not hasattr(tokens, "__getitem__"):
        what = f"one string ({tokens[:40]!r})" if one_string else type(tokens).__name__
        raise TypeError(
            f"{argument} must be a sequence of strings, one a token; got {what}. Split a text "
            "as its model did, for example with tokenizer.convert_ids_to_tokens(input_ids[0])"
        )
    strings = list(tokens)
    for position, token in enumerate(strings):
        if isinstance(token, Sequence) and len(token) and isinstance(token[0], str):
            if isinstance(token, str):
                continue
            raise ValueError(
                f"{argument} holds {len(strings)} list{'s' if len(strings) > 1 else ''} of "
                f"tokens; a record is one example: give {argument}[i] with the weights of "
                "example i"
            )
        if not isinstance(token, str):
            raise TypeError(
                f"{argument} must be strings; {argument}[{position}] is a {type(token).__name__}"
            )
    return strings


def tokens_of(
    tokens: Sequence[str] | Tokens, argument: str, sentence_b_start: int | None
) -> Tokens:
    """Display tokens from what was given for them.

    Parameters
    ----------
    tokens : sequence of str or Tokens
        Entries of a vocabulary are shown as the text that they stand for.
    argument : str
        Its name, for errors.
    sentence_b_start : int or None
        Where the second text of a pair begins.

    Returns
    -------
    Tokens

    Raises
    ------
    TypeError, ValueError
        As in `AttentionRecord.from_weights`.
    """
    if isinstance(tokens, Tokens):
        made = tokens
    else:
        entries = _token_strings(tokens, argument)
        made = Tokens.of(entries)
        shown = display_text(entries, alphabet=alphabet_of_entries(entries))
        made = replace(made, text=tuple(shown))
    if sentence_b_start is None:
        return made
    if not isinstance(sentence_b_start, SupportsIndex):
        raise TypeError(f"sentence_b_start must be the place of a token; got {sentence_b_start!r}")
    if not 0 < sentence_b_start < len(made):
        raise ValueError(
            f"sentence_b_start={sentence_b_start!r} must lie between 1 and {len(made) - 1}, "
            f"inside the {len(made)} tokens"
        )
    sequence = [int(position >= sentence_b_start) for position in range(len(made))]
    return replace(
        made,
        sequence=tuple(
            None if special else number
            for special, number in zip(made.special, sequence, strict=True)
        ),
    )


def key_tokens_of(
    tokens: Sequence[str] | Tokens | ProjectedKeys, argument: str, queries: Tokens, num_keys: int
) -> tuple[Tokens, list[str]]:
    """Display tokens of keys that differ from the queries.

    Parameters
    ----------
    tokens : sequence of str, Tokens or ProjectedKeys
        What was given for them.
    argument : str
        Its name, for errors.
    queries : Tokens
        The tokens that projected keys are made of.
    num_keys : int
        How many keys there are.

    Returns
    -------
    tokens : Tokens
    notes : list of str
        What a reader must be told of them.

    Raises
    ------
    TypeError, ValueError
        As in `AttentionRecord.from_weights`.
    """
    if isinstance(tokens, ProjectedKeys):
        return tokens.tokens(queries, num_keys), tokens.notes(num_keys)
    return tokens_of(tokens, argument, None), []


def numbered_tokens(count: int, start: int = 0) -> Tokens:
    """Tokens of which nothing is known but their places.

    Parameters
    ----------
    count : int
        How many.
    start : int
        Place of the first.

    Returns
    -------
    Tokens

    Examples
    --------
    >>> numbered_tokens(3).text
    ('[0]', '[1]', '[2]')
    """
    return Tokens.of([f"[{place}]" for place in range(start, start + count)])
