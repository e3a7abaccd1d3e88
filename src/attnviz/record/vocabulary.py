"""Display text of vocabulary entries.

The entries of a vocabulary are often not the text of its tokens. Byte-level BPE writes each byte of
the text as a character. SentencePiece writes a space as ``▁``, and a rare character as several
tokens of one byte each. WordPiece marks tokens inside of words with ``##``, which display texts
keep. Some vocabularies mark the end of a word with ``</w>``, which becomes a space, or a token that
does not end its word with ``@@``, which is removed.

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

#: Encodings of vocabularies. The characters of an entry represent bytes, by the table of GPT-2
#: (``"bytes"``) or by their code point (``"code points"``); ``▁`` represents a space
#: (``"metaspace"``); ``##`` or ``@@`` marks that a word continues; or entries are plain text.
Alphabet = Literal["bytes", "code points", "metaspace", "##", "@@", "plain"]
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

    `alphabet` is the encoding of the vocabulary, such as the result of `guess_alphabet`. Entries
    whose flag in `literal` is True (added tokens) are not decoded. An entry that is None or empty
    becomes ``∅``. If a character is split over several tokens, each of these tokens shows the
    character and the number of the token's part.

    >>> display_texts(["Ġcaf", "Ã", "©"], alphabet="bytes")
    ['·caf', 'é 1/2', 'é 2/2']
    >>> display_texts(["▁the", "re"], alphabet="metaspace")
    ['·the', 're']
    """
    return [name for name, _ in names_and_contents(entries, alphabet=alphabet, literal=literal)]


def names_and_contents(
    entries: Sequence[str | None],
    *,
    alphabet: Alphabet = "plain",
    literal: Sequence[bool] | None = None,
) -> list[tuple[str, str]]:
    """Return the display text of each token, and the part of the text that the token stands for.

    The arguments are as in `display_texts`. A character that is split over several tokens counts as
    the content of the first of them. The content of an invalid byte is its name, as in ``‹0xFF›``.

    >>> names_and_contents(["un", "##done"], alphabet="##")
    [('un', 'un'), ('##done', 'done')]
    >>> names_and_contents(["Ã", "©"], alphabet="bytes")
    [('é 1/2', 'é'), ('é 2/2', '')]
    """
    results = [("", "")] * len(entries)
    run: list[tuple[int, bytes]] = []
    for index, entry in enumerate(entries):
        is_literal = literal is not None and literal[index]
        content = None if is_literal else _content(entry or "", alphabet)
        if content is not None:
            run.append((index, content))
            continue
        if run:
            _decode_run(run, results)
            run = []
        text = entry or ""
        if text.endswith(_WORD_END) and text != _WORD_END:
            text = text.removesuffix(_WORD_END) + " "
        continues = not is_literal and len(text) > len(alphabet)
        if continues and alphabet == "@@" and text.endswith(alphabet):
            text = text.removesuffix(alphabet)
        results[index] = (
            make_visible(text),
            text.removeprefix(alphabet) if continues and alphabet == "##" else text,
        )
    _decode_run(run, results)
    return results


def _content(entry: str, alphabet: Alphabet) -> bytes | None:
    """Return the bytes of an entry's text in UTF-8, or None if the entry is this text.

    The result is None if the entry is empty, if no part of an entry represents a space or bytes in
    `alphabet`, or if a character represents no byte in ``"bytes"`` or ``"code points"``.
    """
    ending = " " if entry.endswith(_WORD_END) and entry != _WORD_END else ""
    characters = entry.removesuffix(_WORD_END) if ending else entry
    if not characters:
        return None
    if alphabet == "bytes":
        table = _byte_of()
        if all(character in table for character in characters):
            return bytes(table[character] for character in characters) + ending.encode()
    elif alphabet == "code points":
        if all(ord(character) < 0x100 for character in characters):
            return characters.encode("latin-1")
    elif alphabet == "metaspace":
        byte = _BYTE_TOKEN.fullmatch(entry)
        if byte is not None:
            return bytes([int(byte[1], 16)])
        text = characters.replace(METASPACE, " ") + ending
        return text.encode("utf-8", "surrogatepass")
    return None


def _decode_run(run: Sequence[tuple[int, bytes]], results: list[tuple[str, str]]) -> None:
    """Decode consecutive tokens together, and store their texts in `results`.

    `run` contains, for each token, its index in `results` and its bytes. A result is a tuple of the
    display text and the content, as in `names_and_contents`.
    """
    # Index of the first byte of each token in the joined bytes, and the total number of bytes.
    starts = list(accumulate((len(content) for _, content in run), initial=0))
    # The display text of a token has three pieces, each of which may be empty. `before` is a part,
    # such as ``é 2/2``, of a character that began in an earlier token. `complete` has characters
    # that are only in this token. `after` is the first part, such as ``é 1/2``, of a character that
    # ends in a later token, which is in `begun`.
    before, complete, after, begun = ([""] * len(run) for _ in range(4))
    for start, stop, glyph in _characters(b"".join(content for _, content in run)):
        first, last = bisect_right(starts, start) - 1, bisect_left(starts, stop) - 1
        if first == last:
            complete[first] += glyph
            continue
        begun[first] = glyph
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
        name = f"{before[token]}{visible}{after[token]}".strip(" ")
        results[index] = (name, complete[token] + begun[token])


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
