"""Functions that find the display text and the word of each token, and whether it is special.

The display text of a token is the text that views show, such as "·cat". The token's entry in the
vocabulary of a tokenizer, such as "Ġcat", encodes spaces and other characters in an alphabet, which
differs between tokenizers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from attnviz.extraction.preprocessors import call_reader
from attnviz.record.tokens import Tokens, number_words
from attnviz.record.vocabulary import METASPACE, Alphabet, display_texts, guess_alphabet
from attnviz.record.words import find_words


def display_tokens(
    ids: Sequence[int],
    *,
    tokenizer: Any = None,
    encoding: Any = None,
    sequence: Sequence[int | None] | None = None,
) -> Tokens:
    """Return the tokens with the given ids, with their display texts and words.

    Parameters
    ----------
    ids : sequence of int
        Vocabulary ids.
    tokenizer : PreTrainedTokenizerBase, optional
        The tokenizer of the ids. If neither `tokenizer` nor `encoding` is passed, the text of a
        token is ``#id``.
    encoding : tokenizers.Encoding, optional
        Result of a fast tokenizer for the same ids. It states which tokens the tokenizer added, and
        to which text of a pair each token belongs.
    sequence : sequence of (int or None), optional
        Text of a pair (0 or 1) to which each token belongs. It is ignored if `encoding` is passed.
        The default is 0 for all tokens.

    Returns
    -------
    Tokens
        A token is special if the tokenizer added it or defines it as special, unless it stands only
        for unknown words. Special tokens belong to no text. Words are as in `words_of`.

    Examples
    --------
    >>> display_tokens([5, 17]).text
    ('#5', '#17')
    """
    ids = [int(identifier) for identifier in ids]
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
    """Return the display text of each id, independently of the other ids in the list.

    If `tokenizer` is None, the text is ``#id``.

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
    # The vocabulary entries of added tokens are literal text, which must not be decoded.
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
    """Return the ids of special tokens, including those of chat templates.

    The token for unknown words is included only if it has another role, too, such as padding.
    """
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


# Character that stands for a space in vocabulary entries, by alphabet (see `alphabet_of`).
_SPACE = {"bytes": "Ġ", "metaspace": METASPACE, "plain": " "}
# Characters that stand for a line break, a tab or a carriage return, by alphabet.
_BREAKS = {"bytes": "Ċĉč", "metaspace": "\n\t\r", "plain": "\n\t\r"}
# Vocabulary entries that stand for a single byte, and the character of this byte.
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
    """Return the number of the word to which each token belongs.

    Parameters
    ----------
    ids : sequence of int
        Vocabulary ids.
    special : sequence of bool
        Whether each token is special.
    sequence : sequence of (int or None)
        Text of a pair (0 or 1) to which each token belongs. None for special tokens.
    tokenizer : PreTrainedTokenizerBase, optional
        The tokenizer of the ids.
    encoding : tokenizers.Encoding, optional
        Result of a fast tokenizer for the same ids.

    Returns
    -------
    tuple of (int or None), or None
        Numbers in the format of `Tokens.words`, or None if words are unknown. Words are those of a
        fast tokenizer that splits a text into words. In other cases (Llama 2, Gemma), words are
        determined from spaces and other marks in the vocabulary entries.
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
    """Decode the ids, encode the text again, and return the word of each token in this encoding.

    Consecutive tokens of one text, without special tokens, are encoded together. In each encoding,
    words are counted from 0. The word of a special token is None. Return None if any new ids differ
    from `ids`, because then the words are not those of the tokens.
    """
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
    """Whether no word has a space between two characters.

    Some tokenizers return phrases with spaces as words. These are not words for a reader.
    `words` has the number of each token's word, and `entries` the vocabulary entry of each token.
    """
    grouped = groupby(zip(words, entries, strict=True), key=lambda pair: pair[0])
    return not any(
        space in "".join(entry for _, entry in pairs).strip(space + breaks)
        for word, pairs in grouped
        if word is not None
    )


def alphabet_of(tokenizer: Any) -> Alphabet:
    """Return the alphabet of a tokenizer: how the entries of its vocabulary encode characters."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        # A tokenizer written in Python does not define its alphabet. Guess it from the vocabulary.
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
