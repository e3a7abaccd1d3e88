"""Display text of vocabulary entries.

The entries of a vocabulary are often not the text of its tokens. Byte-level BPE writes each byte of
the text as a character. SentencePiece writes a space as ``▁``, and a rare character as several
tokens of one byte each. WordPiece marks tokens inside of words with ``##``, which display texts
keep. Some vocabularies mark the end of a word with ``</w>``, which becomes a space.

Some characters are split over several tokens, each of which has only some of the bytes. Consecutive
tokens are therefore decoded together. Each token of a split character shows the whole character and
the number of the token's part, such as ``é 1/2``.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Literal

from attnviz.record.tokens import make_visible

Alphabet = Literal["bytes", "metaspace", "plain"]
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
METASPACE = "▁"
_WORD_END = "</w>"


def guess_alphabet(entries: Sequence[str | None]) -> Alphabet:
    """Guess the encoding of a vocabulary from the first character of each entry.

    If any entry begins with ``▁``, return ``"metaspace"`` (SentencePiece). Otherwise, if any entry
    begins with ``Ġ`` or ``Ċ``, return ``"bytes"`` (byte-level BPE). Otherwise, return ``"plain"``.

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
    """Return the byte that each character represents in byte-level BPE.

    The table is that of the GPT-2 code (Radford et al. 2019). A printable character represents the
    byte with its code point. The characters from U+0100 on represent the remaining bytes, in order.
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
    """Convert the vocabulary entries of consecutive tokens into display texts.

    `alphabet` is the encoding of the vocabulary, as in `guess_alphabet`. Entries whose flag in
    `literal` is True (added tokens) are not decoded. An entry that is None or empty becomes ``∅``.
    If a character is split over several tokens, each of these tokens shows the character and the
    number of the token's part.

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
        if run:
            _decode_run(run, texts)
            run = []
        text = entry or ""
        if text.endswith(_WORD_END) and text != _WORD_END:
            text = text.removesuffix(_WORD_END) + " "
        texts[index] = make_visible(text)
    _decode_run(run, texts)
    return texts


def _content(entry: str, alphabet: Alphabet) -> bytes | None:
    """Return the bytes of an entry's text in UTF-8, or None if the entry is this text.

    The result is None if `alphabet` is ``"plain"``, if the entry is empty, or if an entry of
    ``"bytes"`` contains a character that represents no byte.
    """
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
    """Decode consecutive tokens together, and store their display texts in `texts`.

    `run` contains, for each token, its index in `texts` and its bytes.
    """
    # Index of the first byte of each token in the joined bytes, and the total number of bytes.
    starts = list(accumulate((len(content) for _, content in run), initial=0))
    # The display text of a token has three pieces, each of which may be empty. `before` is a part,
    # such as ``é 2/2``, of a character that began in an earlier token. `complete` has characters
    # that are only in this token. `after` is the first part, such as ``é 1/2``, of a character that
    # ends in a later token.
    before, complete, after = [""] * len(run), [""] * len(run), [""] * len(run)
    for start, stop, glyph in _characters(b"".join(content for _, content in run)):
        first, last = bisect_right(starts, start) - 1, bisect_left(starts, stop) - 1
        if first == last:
            complete[first] += glyph
            continue
        for token in range(first, last + 1):
            part = f"{make_visible(glyph)} {token - first + 1}/{last - first + 1} "
            if token == first:
                after[token] = part
            else:
                before[token] = part
    for token, (index, _) in enumerate(run):
        # make_visible("") is ``∅``. Do not show this next to the name of a part.
        has_parts = before[token] or after[token]
        visible = "" if has_parts and not complete[token] else make_visible(complete[token])
        texts[index] = f"{before[token]}{visible}{after[token]}".strip(" ")


def _characters(data: bytes) -> list[tuple[int, int, str]]:
    """Decode UTF-8. Return the text of each character and the range of its bytes in `data`.

    The tuple of a character contains the index of its first byte, the index after its last byte,
    and the text. An invalid byte counts as a character. Its text is its hexadecimal value, such as
    ``‹0xFF›``.
    """
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
    """Return the number of bytes of a UTF-8 character from its first byte (RFC 3629, section 3)."""
    if first >= 0xF0:
        return 4
    if first >= 0xE0:
        return 3
    return 2 if first >= 0xC0 else 1
