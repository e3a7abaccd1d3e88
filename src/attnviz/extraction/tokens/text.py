"""Tokens of a text: their display texts, special tokens, and words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from attnviz.extraction.preprocessors import call_reader
from attnviz.record.tokens import Tokens, number_words
from attnviz.record.vocabulary import METASPACE, Alphabet, display_texts, guess_alphabet
from attnviz.record.words import find_words

__all__ = ["alphabet_of", "display_tokens", "token_texts", "words_of"]


def display_tokens(
    ids: Sequence[int],
    *,
    tokenizer: Any = None,
    encoding: Any = None,
    sequence: Sequence[int | None] | None = None,
) -> Tokens:
    """Return display tokens for a list of ids.

    Parameters
    ----------
    ids : sequence of int
        Vocabulary ids.
    tokenizer : PreTrainedTokenizerBase, optional
        The tokenizer that made them. Without it, and without `encoding`, a token is ``#id``.
    encoding : tokenizers.Encoding, optional
        Encoding of a fast tokenizer, with the added tokens and the text of a pair that each token
        belongs to.
    sequence : sequence of (int or None), optional
        The text of a pair that each token belongs to, without `encoding`. Default: 0.

    Returns
    -------
    Tokens
        Special tokens are those that the tokenizer added or defines as special. The token of an
        unknown word is not special. Special tokens belong to no text. Words are those of a fast
        tokenizer that splits a text into words, otherwise those that the vocabulary marks, if any.

    Raises
    ------
    ValueError
        If `ids` and `encoding` have different lengths.

    Examples
    --------
    >>> display_tokens([5, 17]).text
    ('#5', '#17')
    """
    ids = [int(identifier) for identifier in ids]
    if encoding is not None and len(encoding.ids) != len(ids):
        raise ValueError(f"encoding has {len(encoding.ids)} tokens but ids has {len(ids)}")
    special = [False] * len(ids)
    if encoding is not None:
        special = [bool(flag) for flag in encoding.special_tokens_mask]
        sequence = encoding.sequence_ids
    if tokenizer is not None:
        special_ids = _special_ids(tokenizer)
        special = [
            flag or identifier in special_ids for flag, identifier in zip(special, ids, strict=True)
        ]
    if sequence is None:
        sequence = [0] * len(ids)
    sequence = tuple(
        None if flag else (0 if number is None else number)
        for flag, number in zip(special, sequence, strict=True)
    )
    return Tokens(
        text=tuple(_texts(ids, tokenizer, encoding)),
        special=tuple(special),
        sequence=sequence,
        ids=tuple(ids),
        words=words_of(ids, special, sequence, tokenizer=tokenizer, encoding=encoding),
    )


def token_texts(ids: Sequence[int], tokenizer: Any) -> list[str]:
    """Return display texts for ids that are not consecutive, or ``#id`` without a tokenizer.

    Examples
    --------
    >>> token_texts([5, 17], None)
    ['#5', '#17']
    """
    return _texts(ids, tokenizer, None, separate=True)


def _texts(
    ids: Sequence[int], tokenizer: Any, encoding: Any, *, separate: bool = False
) -> list[str]:
    if tokenizer is None and encoding is None:
        return [f"#{identifier}" for identifier in ids]
    if tokenizer is None:
        entries: list[str | None] = list(encoding.tokens)
        return display_texts(entries, alphabet=guess_alphabet(entries))
    entries = list(tokenizer.convert_ids_to_tokens(list(ids)))
    # Added tokens are displayed literally in every alphabet.
    added = tokenizer.added_tokens_decoder
    literal = [identifier in added for identifier in ids]
    alphabet = alphabet_of(tokenizer)
    if separate:
        texts = [
            display_texts([entry], alphabet=alphabet, literal=[flag])[0]
            for entry, flag in zip(entries, literal, strict=True)
        ]
    else:
        texts = display_texts(entries, alphabet=alphabet, literal=literal)
    return [
        f"#{identifier}" if entry is None else text
        for identifier, entry, text in zip(ids, entries, texts, strict=True)
    ]


def _special_ids(tokenizer: Any) -> set[int]:
    """Return ids of special tokens, with those of chat templates and without the unknown word."""
    special = set(tokenizer.all_special_ids)
    special.update(
        identifier for identifier, token in tokenizer.added_tokens_decoder.items() if token.special
    )
    unknown = tokenizer.unk_token_id
    others = {
        getattr(tokenizer, f"{role}_token_id", None)
        for role in ("bos", "eos", "pad", "cls", "sep", "mask")
    }
    if unknown is not None and unknown not in others:
        special.discard(unknown)
    return special


# Spaces and other word separators in each alphabet of a vocabulary.
_SPACE = {"bytes": "Ġ", "metaspace": METASPACE, "plain": " "}
_BREAKS = {"bytes": "Ċĉč", "metaspace": "\n\t\r", "plain": "\n\t\r"}
_BYTE_ENTRIES = {"<0x0A>": "\n", "<0x09>": "\t", "<0x0D>": "\r"}
_WORD_END = "</w>"

Words = Sequence[int | None]


def words_of(
    ids: Sequence[int],
    special: Sequence[bool],
    sequence: Sequence[int | None],
    *,
    tokenizer: Any = None,
    encoding: Any = None,
) -> tuple[int | None, ...] | None:
    """Return the word that each token belongs to.

    Parameters
    ----------
    ids : sequence of int
        Vocabulary ids.
    special : sequence of bool
        Whether each token is special.
    sequence : sequence of (int or None)
        The text of a pair that each token belongs to.
    tokenizer : PreTrainedTokenizerBase, optional
        The tokenizer that made them.
    encoding : tokenizers.Encoding, optional
        Encoding of a fast tokenizer.

    Returns
    -------
    tuple of (int or None), or None
        As `Tokens.words`: the words of a fast tokenizer, or those that the vocabulary marks if the
        tokenizer is slow or does not split texts into words (Llama 2, Gemma). None if words are
        unknown.
    """
    if tokenizer is None and encoding is None:
        return None
    if tokenizer is None:
        entries = list(encoding.tokens)
        alphabet = guess_alphabet(entries)
    else:
        entries = [entry or "" for entry in tokenizer.convert_ids_to_tokens(list(ids))]
        alphabet = alphabet_of(tokenizer)
    space = _SPACE[alphabet]
    entries = [_BYTE_ENTRIES.get(entry, entry.replace(_WORD_END, space)) for entry in entries]
    word_ids: Words | None = None
    if encoding is not None:
        word_ids = encoding.word_ids
    elif getattr(tokenizer, "is_fast", False):
        word_ids = _encoded_again(ids, special, sequence, tokenizer)
    if word_ids is not None:
        words = number_words(word_ids, special, sequence)
        if _are_words(words, entries, space, _BREAKS[alphabet]):
            return words
    return find_words(entries, special, sequence, space=space, breaks=_BREAKS[alphabet])


def _encoded_again(
    ids: Sequence[int], special: Sequence[bool], sequence: Sequence[int | None], tokenizer: Any
) -> Words | None:
    """Return words from encoding the text of the ids again, or None if the ids differ."""
    words: list[int | None] = []
    runs = groupby(range(len(ids)), key=lambda position: (special[position], sequence[position]))
    for (is_special, _), positions in runs:
        run = [ids[position] for position in positions]
        if is_special:
            words += [None] * len(run)
            continue
        text = tokenizer.decode(run, clean_up_tokenization_spaces=False)
        encoded = call_reader(tokenizer, text, add_special_tokens=False, verbose=False)
        if list(encoded["input_ids"]) != run:
            return None
        words += encoded.word_ids()
    return words


def _are_words(words: Words, entries: Sequence[str], space: str, breaks: str) -> bool:
    """Whether no word contains a space. If one does, the tokenizer does not split into words."""
    grouped = groupby(zip(words, entries, strict=True), key=lambda pair: pair[0])
    return not any(
        space in "".join(entry for _, entry in pairs).strip(space + breaks)
        for word, pairs in grouped
        if word is not None
    )


def alphabet_of(tokenizer: Any) -> Alphabet:
    """Return the alphabet of a tokenizer's vocabulary."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        # A tokenizer written in Python does not define its alphabet. Read it from the vocabulary.
        return guess_alphabet(list(tokenizer.get_vocab()))
    parts = "".join(
        part.__getstate__().decode()
        for part in (backend.pre_tokenizer, backend.decoder)
        if part is not None
    )
    if "ByteLevel" in parts:
        return "bytes"
    if METASPACE in parts or "\\u2581" in parts or "ByteFallback" in parts:
        return "metaspace"
    return "plain"
