"""Display tokens from a tokenizer: what a reader sees for each id.

A vocabulary writes a token in its own alphabet: byte-level BPE writes bytes as other characters,
sentencepiece writes a space as ``▁`` and rare characters as bytes, WordPiece marks the inside of a
word with ``##``. The bytes are put together again over the whole text, so that a character that was
split over several tokens is shown as that character, with the part that each token holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Literal

from attnviz.tokens import Tokens, visible

__all__ = ["display_text", "display_tokens"]

_Alphabet = Literal["bytes", "metaspace", "plain"]
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_METASPACE = "▁"
_WORD_END = "</w>"


def display_tokens(
    ids: Sequence[int],
    *,
    tokenizer: Any = None,
    encoding: Any = None,
    sequence: Sequence[int | None] | None = None,
) -> Tokens:
    """Make display tokens for a list of ids.

    Parameters
    ----------
    ids : sequence of int
        Vocabulary ids.
    tokenizer : PreTrainedTokenizerBase, optional
        The tokenizer that made them. Without it, and without `encoding`, a token is ``#id``.
    encoding : tokenizers.Encoding, optional
        What the fast tokenizer made of the text: which tokens it added, and which text of a pair
        each belongs to.
    sequence : sequence of (int or None), optional
        The text of a pair that each token belongs to, where `encoding` doesn't say so; 0 by
        default.

    Returns
    -------
    Tokens
        Special tokens are those that the tokenizer added or counts as special; a token for an
        unknown word is text. They belong to neither text.

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
        counted = _special_ids(tokenizer)
        special = [
            flag or identifier in counted for flag, identifier in zip(special, ids, strict=True)
        ]
    if sequence is None:
        sequence = [0] * len(ids)
    return Tokens(
        text=tuple(_texts(ids, tokenizer, encoding)),
        special=tuple(special),
        sequence=tuple(
            None if flag else (0 if number is None else number)
            for flag, number in zip(special, sequence, strict=True)
        ),
        ids=tuple(ids),
    )


def _texts(ids: Sequence[int], tokenizer: Any, encoding: Any) -> list[str]:
    if tokenizer is None and encoding is None:
        return [f"#{identifier}" for identifier in ids]
    if tokenizer is None:
        entries: list[str | None] = list(encoding.tokens)
        return display_text(entries, alphabet=_alphabet_of_entries(entries))
    entries = list(tokenizer.convert_ids_to_tokens(list(ids)))
    # Added tokens are written as they are, whatever the alphabet.
    added = tokenizer.added_tokens_decoder
    literal = [identifier in added for identifier in ids]
    shown = display_text(entries, alphabet=_alphabet(tokenizer), literal=literal)
    return [
        f"#{identifier}" if entry is None else text
        for identifier, entry, text in zip(ids, entries, shown, strict=True)
    ]


def _special_ids(tokenizer: Any) -> set[int]:
    """Ids that count as special, those of chat templates included; an unknown word is text."""
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


def _alphabet(tokenizer: Any) -> _Alphabet:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        # A tokenizer written in Python says nothing about its alphabet; its vocabulary does.
        return _alphabet_of_entries(list(tokenizer.get_vocab()))
    parts = "".join(
        part.__getstate__().decode()
        for part in (backend.pre_tokenizer, backend.decoder)
        if part is not None
    )
    if "ByteLevel" in parts:
        return "bytes"
    if _METASPACE in parts or "\\u2581" in parts or "ByteFallback" in parts:
        return "metaspace"
    return "plain"


def _alphabet_of_entries(entries: Sequence[str | None]) -> _Alphabet:
    known = [entry for entry in entries if entry]
    if any(entry.startswith(_METASPACE) for entry in known):
        return "metaspace"
    if any(entry[0] in "ĠĊ" for entry in known):
        return "bytes"
    return "plain"


@cache
def _byte_of() -> dict[str, int]:
    """Map the characters of byte-level BPE to bytes (Radford et al. 2019, GPT-2's encoder.py).

    Printable bytes stand for themselves; the others, in order, for the characters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    hidden = (byte for byte in range(0x100) if byte not in printable)
    table.update({chr(0x100 + place): byte for place, byte in enumerate(hidden)})
    return table


def display_text(
    entries: Sequence[str | None],
    *,
    alphabet: _Alphabet = "plain",
    literal: Sequence[bool] | None = None,
) -> list[str]:
    """Turn vocabulary entries into display texts.

    Parameters
    ----------
    entries : sequence of (str or None)
        A token's entry in its vocabulary, in the order of the text.
    alphabet : {"bytes", "metaspace", "plain"}
        How the vocabulary writes its entries.
    literal : sequence of bool, optional
        Entries that are written as they are (added tokens).

    Returns
    -------
    list of str
        Visible text; a character that several tokens share is shown in each, with its part.

    Examples
    --------
    >>> display_text(["Ġcaf", "Ã", "©"], alphabet="bytes")
    ['·caf', 'é 1/2', 'é 2/2']
    >>> display_text(["▁the", "re"], alphabet="metaspace")
    ['·the', 're']
    """
    shown: list[str] = [""] * len(entries)
    run: list[tuple[int, bytes]] = []
    for place, entry in enumerate(entries):
        written = literal is not None and literal[place]
        content = None if written else _content(entry or "", alphabet)
        if content is not None:
            run.append((place, content))
            continue
        _show(run, shown)
        run = []
        text = entry or ""
        if text.endswith(_WORD_END) and text != _WORD_END:
            text = text.removesuffix(_WORD_END) + " "
        shown[place] = visible(text)
    _show(run, shown)
    return shown


def _content(entry: str, alphabet: _Alphabet) -> bytes | None:
    """Bytes of the text that an entry stands for; None where it is text already."""
    if alphabet == "bytes":
        table = _byte_of()
        ending = " " if entry.endswith(_WORD_END) else ""
        characters = entry.removesuffix(_WORD_END)
        if characters and all(character in table for character in characters):
            return bytes(table[character] for character in characters) + ending.encode()
    elif alphabet == "metaspace":
        byte = _BYTE_TOKEN.fullmatch(entry)
        if byte is not None:
            return bytes([int(byte[1], 16)])
        if entry:
            return entry.replace(_METASPACE, " ").encode("utf-8", "surrogatepass")
    return None


def _show(run: Sequence[tuple[int, bytes]], shown: list[str]) -> None:
    """Decode neighbouring tokens together and give each its characters, whole or in part."""
    data = b"".join(content for _, content in run)
    starts = [0]
    for _, content in run:
        starts.append(starts[-1] + len(content))
    pieces = _characters(data)
    first = 0
    for (place, _), (start, stop) in zip(run, pairwise(starts), strict=True):
        while first < len(pieces) and pieces[first][1] <= start:
            first += 1
        parts: list[str] = []
        whole = ""
        index = first
        while index < len(pieces) and pieces[index][0] < stop:
            begin, end, glyph = pieces[index]
            if begin >= start and end <= stop:
                # Made visible together: a joiner belongs to the glyphs around it.
                whole += glyph
            else:
                part = f"{visible(glyph)}{_part(begin, end, start, starts)}"
                parts += [visible(whole), part] if whole else [part]
                whole = ""
            index += 1
        if whole or not parts:
            parts.append(visible(whole))
        shown[place] = "".join(parts).strip(" ")


def _part(begin: int, end: int, start: int, starts: Sequence[int]) -> str:
    """Say which part of a character a token holds, such as `` 1/2 ``."""
    # Tokens that begin within the character, and the one that holds its first byte.
    within = [place for place in starts[:-1] if begin < place < end]
    number = 1 + sum(place <= start for place in within)
    return f" {number}/{len(within) + 1} "


def _characters(data: bytes) -> list[tuple[int, int, str]]:
    """Split bytes into characters with their places; a byte of none is shown by its number."""
    pieces: list[tuple[int, int, str]] = []
    place = 0
    while place < len(data):
        length = _length(data[place])
        try:
            glyph = data[place : place + length].decode()
        except UnicodeDecodeError:
            length, glyph = 1, f"‹0x{data[place]:02X}›"
        pieces.append((place, place + length, glyph))
        place += length
    return pieces


def _length(first: int) -> int:
    """Length of a UTF-8 character by its first byte (RFC 3629, section 3)."""
    if first >= 0xF0:
        return 4
    if first >= 0xE0:
        return 3
    return 2 if first >= 0xC0 else 1
