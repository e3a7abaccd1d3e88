"""Display text of vocabulary entries.

A vocabulary encodes token text: byte-level BPE writes bytes as other characters, sentencepiece
writes a space as ``▁`` and rare characters as bytes, and WordPiece marks word-internal tokens with
``##``. Bytes are decoded over the whole text. A character that is split over several tokens is
therefore shown as that character, with the part that each token has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Literal

from attnviz.record.tokens import make_visible

__all__ = ["METASPACE", "Alphabet", "display_texts", "guess_alphabet"]

Alphabet = Literal["bytes", "metaspace", "plain"]
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
METASPACE = "▁"
_WORD_END = "</w>"


def guess_alphabet(entries: Sequence[str | None]) -> Alphabet:
    """Guess the encoding of a vocabulary from the first characters of its entries.

    The result is ``"plain"`` if no entry indicates another encoding.

    >>> guess_alphabet(["The", "Ġcat"]), guess_alphabet(["▁The", "▁cat"])
    ('bytes', 'metaspace')
    """
    nonempty = [entry for entry in entries if entry]
    if any(entry.startswith(METASPACE) for entry in nonempty):
        return "metaspace"
    if any(entry[0] in "ĠĊ" for entry in nonempty):
        return "bytes"
    return "plain"


@cache
def _byte_of() -> dict[str, int]:
    """Return the byte of each character of byte-level BPE (Radford et al. 2019, GPT-2 code).

    Printable bytes represent themselves. The characters from U+0100 on represent the others in
    order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    hidden = (byte for byte in range(0x100) if byte not in printable)
    table.update({chr(0x100 + offset): byte for offset, byte in enumerate(hidden)})
    return table


def display_texts(
    entries: Sequence[str | None],
    *,
    alphabet: Alphabet = "plain",
    literal: Sequence[bool] | None = None,
) -> list[str]:
    """Convert the vocabulary entries of a text's tokens into display texts.

    `literal` entries (added tokens) are not decoded. A character that is split over several tokens
    appears in each of them with its part.

    >>> display_texts(["Ġcaf", "Ã", "©"], alphabet="bytes")
    ['·caf', 'é 1/2', 'é 2/2']
    >>> display_texts(["▁the", "re"], alphabet="metaspace")
    ['·the', 're']
    """
    texts: list[str] = [""] * len(entries)
    run: list[tuple[int, bytes]] = []
    for index, entry in enumerate(entries):
        is_literal = literal is not None and literal[index]
        content = None if is_literal else _content(entry or "", alphabet)
        if content is not None:
            run.append((index, content))
            continue
        _decode_run(run, texts)
        run = []
        text = entry or ""
        if text.endswith(_WORD_END) and text != _WORD_END:
            text = text.removesuffix(_WORD_END) + " "
        texts[index] = make_visible(text)
    _decode_run(run, texts)
    return texts


def _content(entry: str, alphabet: Alphabet) -> bytes | None:
    """Return the bytes of an entry's text, or None if the entry is plain text."""
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
            return entry.replace(METASPACE, " ").encode("utf-8", "surrogatepass")
    return None


def _decode_run(run: Sequence[tuple[int, bytes]], texts: list[str]) -> None:
    """Decode consecutive tokens together, and store each token's display text in `texts`."""
    data = b"".join(content for _, content in run)
    starts = [0]
    for _, content in run:
        starts.append(starts[-1] + len(content))
    characters = _characters(data)
    first = 0
    for (token_index, _), (start, stop) in zip(run, pairwise(starts), strict=True):
        while first < len(characters) and characters[first][1] <= start:
            first += 1
        parts: list[str] = []
        complete = ""
        index = first
        while index < len(characters) and characters[index][0] < stop:
            begin, end, glyph = characters[index]
            if begin >= start and end <= stop:
                # Whole characters together, because a joiner belongs to the adjacent characters.
                complete += glyph
            else:
                part = f"{make_visible(glyph)}{_part(begin, end, start, starts)}"
                parts += [make_visible(complete), part] if complete else [part]
                complete = ""
            index += 1
        if complete or not parts:
            parts.append(make_visible(complete))
        texts[token_index] = "".join(parts).strip(" ")


def _part(begin: int, end: int, start: int, starts: Sequence[int]) -> str:
    """Return which part of a character a token has, such as `` 1/2 ``."""
    # Tokens that begin inside the character, in addition to the one with its first byte.
    inner = [boundary for boundary in starts[:-1] if begin < boundary < end]
    number = 1 + sum(boundary <= start for boundary in inner)
    return f" {number}/{len(inner) + 1} "


def _characters(data: bytes) -> list[tuple[int, int, str]]:
    """Split bytes into characters with start and stop. Invalid bytes are shown in hexadecimal."""
    characters: list[tuple[int, int, str]] = []
    position = 0
    while position < len(data):
        length = _length(data[position])
        try:
            glyph = data[position : position + length].decode()
        except UnicodeDecodeError:
            length, glyph = 1, f"‹0x{data[position]:02X}›"
        characters.append((position, position + length, glyph))
        position += length
    return characters


def _length(first: int) -> int:
    """Return the length of a UTF-8 character from its first byte (RFC 3629, section 3)."""
    if first >= 0xF0:
        return 4
    if first >= 0xE0:
        return 3
    return 2 if first >= 0xC0 else 1
