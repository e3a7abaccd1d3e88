"""Display texts of the entries of a tokenizer's vocabulary.

An entry, such as "Ġcat", encodes spaces and other characters in an alphabet, which differs between
tokenizers.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import takewhile
from operator import eq
from typing import Any
from weakref import WeakKeyDictionary

from attnviz.extraction.preprocessors import call_reader
from attnviz.extraction.tokens.reading import Reading
from attnviz.record.tokens import make_visible
from attnviz.record.vocabulary import METASPACE, Alphabet, guess_alphabet, names_and_contents

# Display text and content of a token. The content is the part of the text for which it stands, or
# None if it stands for any text.
Name = tuple[str, str | None]


class Vocabulary:
    """Names of the ids of a tokenizer.

    A tokenizer for translation may have two vocabularies. `target` is whether the ids are those of
    the target. `entries` are known entries by id, which are used if the tokenizer is None.
    """

    def __init__(
        self, tokenizer: Any, *, target: bool = True, entries: Mapping[int, str] | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.unknown = getattr(tokenizer, "unk_token_id", None)
        self._delimiter = getattr(tokenizer, "word_delimiter_token", None)
        self._has_source = not target and hasattr(tokenizer, "get_src_vocab")
        self._known = entries or {}

    @cached_property
    def _source(self) -> dict[int, str]:
        return {number: entry for entry, number in self.tokenizer.get_src_vocab().items()}

    @cached_property
    def _added(self) -> Mapping[int, Any]:
        return _added_tokens(self.tokenizer)

    @cached_property
    def _roles(self) -> dict[str, str]:
        """Names of special tokens whose entries have no glyph, such as those of CANINE."""
        return {
            str(entry): f"[{role.removesuffix('_token').upper()}]"
            for role, entry in getattr(self.tokenizer, "special_tokens_map", {}).items()
            if not str(entry).isprintable()
        }

    @cached_property
    def _bytes_of(self) -> Callable[[int], bytes] | None:
        """Function that returns the bytes of a token, or None if the tokenizer has none.

        The entries of Tekken, a tokenizer of mistral-common, lack the bytes of incomplete
        characters. The bytes of a special token are empty.
        """
        wrapped = getattr(getattr(self.tokenizer, "tokenizer", None), "instruct_tokenizer", None)
        bytes_of: Callable[[int], bytes] | None = getattr(
            getattr(wrapped, "tokenizer", None), "id_to_byte_piece", None
        )
        return bytes_of

    @cached_property
    def _alphabet(self) -> Alphabet:
        if self.tokenizer is None:
            return guess_alphabet(list(self._known.values()))
        if self._bytes_of is not None:
            return "code points"
        return alphabet_of(self.tokenizer)

    def _entries(self, ids: Sequence[int]) -> list[str | None]:
        if self.tokenizer is None:
            return [self._known.get(identifier) for identifier in ids]
        entries = self._converted(ids)
        if self._has_source and self.tokenizer.convert_tokens_to_ids(entries) != list(ids):
            # A tokenizer with two vocabularies converts ids by that of the target.
            return [self._source.get(identifier) for identifier in ids]
        if self._bytes_of is not None:
            return [
                entry and (self._bytes_of(identifier).decode("latin-1") or entry)
                for identifier, entry in zip(ids, entries, strict=True)
            ]
        return entries

    def _converted(self, ids: Sequence[int]) -> list[str | None]:
        try:
            return list(self.tokenizer.convert_ids_to_tokens(list(ids)))
        except LookupError:
            # mistral-common raises this for an id beyond its vocabulary, for which other tokenizers
            # return None. Some models have more embeddings than their tokenizer has entries.
            if len(ids) == 1:
                return [None]
            return [entry for identifier in ids for entry in self._converted([identifier])]

    def names(self, ids: Sequence[int], *, alphabet: Alphabet | None = None) -> list[Name]:
        """Return the display text and the content of each token, from the vocabulary.

        The default of `alphabet` is that of the tokenizer.
        """
        entries = self._entries(ids)
        named = names_and_contents(
            [" " if entry and entry == self._delimiter else entry for entry in entries],
            alphabet=alphabet or self._alphabet,
            # The entries of added tokens are literal text, which must not be decoded.
            literal=[identifier in self._added for identifier in ids],
        )
        return [
            (f"#{identifier}", "")
            if entry is None
            else (
                name if entry.isprintable() else self._roles.get(entry, name),
                None if self._is_unknown(identifier, name, content) else content,
            )
            for identifier, entry, (name, content) in zip(ids, entries, named, strict=True)
        ]

    def _is_unknown(self, identifier: int, name: str, content: str) -> bool:
        """Whether a token stands for any text. It may be some of the bytes of a character."""
        is_unknown = identifier == self.unknown or name in _UNKNOWN
        return is_unknown or _INVALID_BYTE.search(content) is not None

    def decode(self, ids: Sequence[int]) -> str | None:
        """Return the text that the tokenizer returns for ids, or None if it cannot."""
        try:
            if self._has_source:
                text = self.tokenizer.convert_tokens_to_string(self._entries(ids))
            else:
                decode = partial(
                    self.tokenizer.decode, list(ids), clean_up_tokenization_spaces=False
                )
                text = decode()
                if self._alphabet == "metaspace" and METASPACE in text:
                    # With special tokens, mistral-common returns the entries of the vocabulary.
                    text = decode(skip_special_tokens=True)
        except Exception:  # noqa: BLE001 - names do not depend on a tokenizer that cannot decode
            return None
        return text if isinstance(text, str) else None

    def other_names(self, ids: Sequence[int]) -> Iterator[Sequence[Name]]:
        """Yield other display texts and contents of tokens, if those of `names` are not the text.

        They are the names without escaped characters, the pieces of the decoded text, and the names
        in other alphabets.
        """
        if self.tokenizer is None:
            return
        names = self.names(ids)
        if any("&" in (content or "") for _, content in names):
            # Vocabularies for translation have escaped characters, such as "&apos;".
            contents = [html.unescape(content or "") for _, content in names]
            yield [(make_visible(content), content) for content in contents]
        pieces = self._pieces(ids)
        if pieces is not None:
            yield pieces
        for alphabet in _PROBES:
            yield self.names(ids, alphabet=alphabet)

    def _pieces(self, ids: Sequence[int]) -> Sequence[Name] | None:
        """Return the display text and the content of each token, from the decoded text.

        Each token has what it adds to the decoded text of the few tokens before it. Return None if
        the tokenizer cannot decode, or if it drops a token, such as the second of two equal ones.
        """
        entries: list[bytes] = []
        for position in range(len(ids)):
            first = max(0, position - _WINDOW)
            before = self.decode(ids[first:position]) if position > first else ""
            text = self.decode(ids[first : position + 1])
            if before is None or text is None:
                return None
            # The replacement character stands for the bytes of an incomplete character.
            before, text = before.rstrip("\ufffd"), text.rstrip("\ufffd")
            piece = text[sum(takewhile(bool, map(eq, before, text))) :]
            data = piece.encode("utf-8", "surrogatepass")
            # Preceding tokens without a text have one byte each of this character.
            waiting = position - len(entries)
            if piece and waiting and len(piece[0].encode("utf-8", "surrogatepass")) != waiting + 1:
                return None
            if piece:
                entries += [data[index : index + 1] for index in range(waiting)] + [data[waiting:]]
        if len(entries) < len(ids):
            return None
        return names_and_contents(
            [entry.decode("latin-1") for entry in entries], alphabet="code points"
        )

    def read_again(self, ids: Sequence[int]) -> Reading:
        """Return ids as a reading of the decoded text, or without a text if this has other ids."""
        text = self.decode(ids) if getattr(self.tokenizer, "is_fast", False) else None
        if text is not None:
            # Some tokenizers read no plain text, but words with boxes.
            with suppress(Exception):
                encoded = call_reader(self.tokenizer, text, add_special_tokens=False, verbose=False)
                if list(encoded["input_ids"]) == list(ids) and encoded.encodings:
                    return Reading(self.tokenizer, (text,), tuple(ids), encoded.encodings[0], {})
        return Reading(self.tokenizer, (), tuple(ids), None, {})


# Entries for unknown words in vocabularies of tokenizers that do not state theirs.
_UNKNOWN = {"<unk>", "[UNK]"}
_INVALID_BYTE = re.compile("‹0x[0-9A-F]{2}›")
# Maximum number of tokens before a token with which it is decoded.
_WINDOW = 6


def _added_tokens(tokenizer: Any) -> Mapping[int, Any]:
    """Return the added tokens by id. Tokenizers of mistral-common do not have this mapping."""
    added = getattr(tokenizer, "added_tokens_decoder", None)
    return added if isinstance(added, Mapping) else {}


def special_ids(tokenizer: Any) -> set[int]:
    """Return the ids of special tokens, including those of chat templates and languages.

    The token for unknown words is included only if it has another role, too, such as padding.
    """
    if tokenizer is None:
        return set()
    special = set(tokenizer.all_special_ids)
    added = _added_tokens(tokenizer)
    special.update(identifier for identifier, token in added.items() if token.special)
    languages = getattr(tokenizer, "lang_code_to_id", None)
    if isinstance(languages, Mapping):
        special.update(languages.values())
    roles = list(getattr(tokenizer, "special_tokens_map", {}).values())
    if tokenizer.unk_token_id is not None and roles.count(tokenizer.unk_token) < 2:
        special.discard(tokenizer.unk_token_id)
    return special


# Entries of a vocabulary, and the text that they stand for in an alphabet.
_PROBES: dict[Alphabet, tuple[list[str], str]] = {
    "bytes": (["Ã", "©", "Ġ", "a"], "é a"),
    "code points": (["Ã", "©", " ", "a"], "é a"),
    "metaspace": (["▁a", "▁b"], "a b"),
    "##": (["a", "##b"], "ab"),
    "@@": (["a@@", "b"], "ab"),
}
_alphabets: WeakKeyDictionary[Any, Alphabet] = WeakKeyDictionary()


def alphabet_of(tokenizer: Any) -> Alphabet:
    """Return the alphabet of a tokenizer: how the entries of its vocabulary encode characters.

    The tokenizer's own conversion of entries into a text is called with entries of each alphabet.
    If it converts none of them, because a tokenizer without a decoder defines no text, for example,
    the alphabet is guessed from the vocabulary.
    """
    if tokenizer not in _alphabets:
        probed = [name for name, probe in _PROBES.items() if _converts(tokenizer, *probe)]
        _alphabets[tokenizer] = (probed or [guess_alphabet(list(tokenizer.get_vocab()))])[0]
    return _alphabets[tokenizer]


def _converts(tokenizer: Any, entries: Sequence[str], expected: str) -> bool:
    try:
        text = tokenizer.convert_tokens_to_string(list(entries))
    except Exception:  # noqa: BLE001 - the conversion is not made for such entries
        return False
    return isinstance(text, str) and text.strip().lower() == expected
