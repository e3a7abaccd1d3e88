"""Which word each token is a part of, as its tokenizer has it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from attnviz.record.tokens import numbered_words
from attnviz.record.vocabulary import METASPACE, Alphabet, alphabet_of_entries
from attnviz.record.words import words_from_text

__all__ = ["alphabet_of", "words_of"]

# How vocabularies write a space, and what else separates words.
_SPACE = {"bytes": "Ġ", "metaspace": METASPACE, "plain": " "}
_BREAKS = {"bytes": "Ċĉč", "metaspace": "\n\t\r", "plain": "\n\t\r"}
_WRITTEN = {"<0x0A>": "\n", "<0x09>": "\t", "<0x0D>": "\r"}
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
    """Find the word that each token is a part of.

    Parameters
    ----------
    ids : sequence of int
        Vocabulary ids.
    special : sequence of bool
        Which of them are special.
    sequence : sequence of (int or None)
        The text of a pair that each belongs to.
    tokenizer : PreTrainedTokenizerBase, optional
        The tokenizer that made them.
    encoding : tokenizers.Encoding, optional
        What the fast tokenizer made of the text.

    Returns
    -------
    tuple of (int or None), or None
        As `Tokens.words`: a fast tokenizer's own words; where it does not split texts into words
        (Llama 2, Gemma) or is slow, those that the vocabulary's signs tell. None where nothing
        does.
    """
    if tokenizer is None and encoding is None:
        return None
    if tokenizer is None:
        entries = list(encoding.tokens)
        alphabet = alphabet_of_entries(entries)
    else:
        entries = [entry or "" for entry in tokenizer.convert_ids_to_tokens(list(ids))]
        alphabet = alphabet_of(tokenizer)
    space = _SPACE[alphabet]
    entries = [_WRITTEN.get(entry, entry.replace(_WORD_END, space)) for entry in entries]
    given: Words | None = None
    if encoding is not None:
        given = encoding.word_ids
    elif getattr(tokenizer, "is_fast", False):
        given = _encoded_again(ids, special, sequence, tokenizer)
    if given is not None:
        words = numbered_words(given, special, sequence)
        if _are_words(words, entries, space, _BREAKS[alphabet]):
            return words
    return words_from_text(entries, special, sequence, space=space, breaks=_BREAKS[alphabet])


def _encoded_again(
    ids: Sequence[int], special: Sequence[bool], sequence: Sequence[int | None], tokenizer: Any
) -> Words | None:
    """Words of ids whose text is encoded again, where that gives the same ids."""
    words: list[int | None] = []
    runs = groupby(range(len(ids)), key=lambda place: (special[place], sequence[place]))
    for (is_special, _), places in runs:
        run = [ids[place] for place in places]
        if is_special:
            words += [None] * len(run)
            continue
        text = tokenizer.decode(run, clean_up_tokenization_spaces=False)
        encoded = tokenizer(text, add_special_tokens=False, verbose=False)
        if list(encoded["input_ids"]) != run:
            return None
        words += encoded.word_ids()
    return words


def _are_words(words: Words, entries: Sequence[str], space: str, breaks: str) -> bool:
    """Whether no word holds a space inside: otherwise the tokenizer takes a text for one word."""
    grouped = groupby(zip(words, entries, strict=True), key=lambda pair: pair[0])
    return not any(
        space in "".join(entry for _, entry in pairs).strip(space + breaks)
        for word, pairs in grouped
        if word is not None
    )


def alphabet_of(tokenizer: Any) -> Alphabet:
    """How a tokenizer's vocabulary writes its entries."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        # A tokenizer written in Python says nothing about its alphabet; its vocabulary does.
        return alphabet_of_entries(list(tokenizer.get_vocab()))
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
