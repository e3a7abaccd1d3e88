"""Functions that find the display text and the word of each token, and whether it is special.

The display text of a token is the text that views show, such as "·cat". The token's entry in the
vocabulary of a tokenizer, such as "Ġcat", encodes spaces and other characters in an alphabet, which
differs between tokenizers. Display texts are compared with the text that the tokenizer read, or
with the text that it returns for the ids.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any
from weakref import WeakKeyDictionary

from attnviz.extraction.preprocessors import call_reader
from attnviz.extraction.tokens.alignment import AlignedText, number_words_by
from attnviz.extraction.tokens.reading import Reading
from attnviz.record.tokens import Tokens, make_visible, number_words, quote
from attnviz.record.vocabulary import Alphabet, guess_alphabet, names_and_contents

# The reading of a token and the token's index in it. None if no reading has the token.
Origin = tuple[Reading, int] | None

NO_TOKENIZER_NOTE = "No tokenizer was passed: tokens are shown as #id."
UNKNOWN_NOTE = (
    "The tokenizer knows no part of the text: all its tokens stand for unknown words, which the "
    "model cannot distinguish."
)


def display_tokens(
    ids: Sequence[int],
    *,
    tokenizer: Any = None,
    encoding: Any = None,
    sequence: Sequence[int | None] | None = None,
    readings: Sequence[Reading] = (),
    target: bool = False,
) -> Tokens:
    """Return the tokens with the given ids, with their display texts and words.

    Parameters
    ----------
    ids : sequence of int
        Vocabulary ids.
    tokenizer : PreTrainedTokenizerBase, optional
        The tokenizer of ids that are in none of the `readings`. If no tokenizer is known, the text
        of a token is ``#id``.
    encoding : tokenizers.Encoding, optional
        Result of a fast tokenizer for the same ids. It states which tokens the tokenizer added, and
        to which text of a pair each token belongs.
    sequence : sequence of (int or None), optional
        Text of a pair (0 or 1) to which each token belongs. It is ignored for ids with an encoding.
        The default is 0 for all tokens.
    readings : sequence of Reading, optional
        Texts that tokenizers converted into ids. They may have other ids, too.
    target : bool, optional
        Whether these are ids of a decoder. It matters if a tokenizer has two vocabularies.

    Returns
    -------
    Tokens
        A token is special if the tokenizer added it or defines it as special, unless it stands only
        for unknown words. Special tokens belong to no text. The words of a text are the parts
        between white space, or the words of the tokenizer if these are shorter.

    Examples
    --------
    >>> display_tokens([5, 17]).text
    ('#5', '#17')
    """
    if encoding is not None:
        if len(encoding.ids) != len(ids):
            raise ValueError(f"ids has {len(ids)} entries but text has {len(encoding.ids)} tokens")
        readings = [Reading(None, (), tuple(ids), encoding, {})]
    return read_tokens(
        ids, tokenizer=tokenizer, sequence=sequence, readings=readings, target=target
    )[0]


def read_tokens(
    ids: Sequence[int],
    *,
    tokenizer: Any = None,
    sequence: Sequence[int | None] | None = None,
    readings: Sequence[Reading] = (),
    target: bool = False,
) -> tuple[Tokens, list[str]]:
    """Return the tokens as `display_tokens` does, and notes for the record.

    A note says that the display texts, joined, are not the text, or that the tokenizer knows no
    part of the text.
    """
    ids = [int(identifier) for identifier in ids]
    if hasattr(tokenizer, "get_src_vocab"):
        # In the other vocabulary, the same ids stand for other texts.
        readings = [reading for reading in readings if reading.target == target]
    origins = _origins(ids, readings, tokenizer)
    made = [origin[0].tokenizer for origin in origins if origin]
    tokenizer = next((one for one in made if one is not None), tokenizer)
    special_ids = _special_ids(tokenizer) if tokenizer is not None else set()
    special = [identifier in special_ids for identifier in ids]
    sequences = list(sequence) if sequence is not None else [0] * len(ids)
    entries: list[str | None] = [None] * len(ids)
    for reading, indices in _by_reading(origins):
        if reading.encoding is not None:
            # Each attribute of an encoding is a new list.
            encoding = reading.encoding
            masks, numbers = encoding.special_tokens_mask, encoding.sequence_ids
            encoded = encoding.tokens
            for position, index in indices:
                special[position] |= bool(masks[index])
                sequences[position] = numbers[index]
                entries[position] = encoded[index]
    sequences = [
        None if flag else (number or 0) for flag, number in zip(special, sequences, strict=True)
    ]
    vocabulary = Vocabulary(tokenizer, target=target)
    has_names = tokenizer is not None or any(entries)
    if tokenizer is not None:
        named = vocabulary.names(ids)
    elif has_names:
        named = names_and_contents(entries, alphabet=guess_alphabet(entries))
    else:
        named = [(f"#{identifier}", "") for identifier in ids]
    row = _Row(
        ids,
        origins,
        special,
        sequences,
        vocabulary=vocabulary,
        named=named,
        finds_sequences=sequence is None,
    )
    words = row.read()
    if not has_names:
        row.notes.append(NO_TOKENIZER_NOTE)
    unknown = getattr(tokenizer, "unk_token_id", None)
    regular = [identifier for identifier, flag in zip(ids, special, strict=True) if not flag]
    if unknown is not None and regular and all(identifier == unknown for identifier in regular):
        row.notes.append(UNKNOWN_NOTE)
    result = Tokens(
        text=tuple(name for name, _ in named),
        special=tuple(special),
        sequence=tuple(sequences),
        ids=tuple(ids),
        words=None if words is None else number_words(words, special, sequences),
    )
    return result, row.notes


def _by_reading(origins: Sequence[Origin]) -> Iterator[tuple[Reading, list[tuple[int, int]]]]:
    """Yield each reading with the positions of its tokens, and their indices in the reading."""
    indices: dict[int, list[tuple[int, int]]] = {}
    for position, origin in enumerate(origins):
        if origin is not None:
            indices.setdefault(id(origin[0]), []).append((position, origin[1]))
    for pairs in indices.values():
        origin = origins[pairs[0][0]]
        if origin is not None:
            yield origin[0], pairs


def token_texts(ids: Sequence[int], tokenizer: Any) -> list[str]:
    """Return the display text of each id, independently of the other ids in the list.

    If `tokenizer` is None, the text is ``#id``.

    Examples
    --------
    >>> token_texts([5, 17], None)
    ['#5', '#17']
    """
    if tokenizer is None:
        return [f"#{identifier}" for identifier in ids]
    return [name for name, _ in Vocabulary(tokenizer, target=True).names(ids, separate=True)]


class _Row:
    """Tokens of one row of ids, whose names and words are compared with the text."""

    def __init__(
        self,
        ids: list[int],
        origins: list[Origin],
        special: list[bool],
        sequences: list[int | None],
        *,
        vocabulary: Vocabulary,
        named: list[tuple[str, str]],
        finds_sequences: bool,
    ) -> None:
        self._ids, self._origins, self._named = ids, origins, named
        self._special, self._sequences = special, sequences
        self._vocabulary = vocabulary
        # Whether the texts of a pair are found by their tokens, because no types were passed.
        self._finds_sequences = finds_sequences
        self._texts: dict[tuple[int, int], AlignedText] = {}
        self.notes: list[str] = []

    def read(self) -> list[int | None] | None:
        """Correct the names where they differ from the text, and return the word of each token.

        Words are numbered in each run of tokens of one text. Return None if they are unknown.
        """
        words: list[int | None] = [None] * len(self._ids)
        is_known, count = True, 0

        def run_of(position: int) -> tuple[bool, int | None, int]:
            origin = self._origins[position]
            return self._special[position], self._sequences[position], id(origin and origin[0])

        for (is_special, *_), group in groupby(range(len(self._ids)), key=run_of):
            run = list(group)
            if is_special:
                continue
            numbers = self._words(run)
            is_known = is_known and numbers is not None
            for position, number in zip(run, numbers or (), strict=False):
                words[position] = count + number
            count += len(run)
        self._check_rest()
        return words if is_known else None

    def _words(self, run: Sequence[int]) -> list[int] | None:
        """Return the number of the word of each token in a run, or None if words are unknown."""
        ids = [self._ids[position] for position in run]
        origin = self._origins[run[0]]
        if origin is None and getattr(self._vocabulary.tokenizer, "is_fast", False):
            origin = self._vocabulary.read_again(ids)
        encoding = origin[0].encoding if origin else None
        first = origin[1] if origin else 0
        own = None if encoding is None else encoding.word_ids[first : first + len(run)]
        text, decoded = self._text_of(origin, self._sequences[run[0]]), None
        if text is None or own is None:
            decoded = self._vocabulary.decoded(ids)
        spans = self._spans(run, text or decoded, origin, decoded)
        if text is None and own is not None:
            # Spaces of the decoded text need not be in the text, but those of tokens are.
            text = AlignedText("".join(self._named[position][1] for position in run))
            spans = text.find([self._named[position][1] for position in run])
        if origin and self._finds_sequences and len(origin[0].texts) > 1 and encoding is None:
            self._sequence(run, spans or (), len(origin[0].texts[0].split()))
        if own is None and text is not None and decoded is not None:
            own = self._split(run, decoded)
        if own is None and spans is None and len(run) > 1:
            return None
        return number_words_by(spans or [None] * len(run), own)

    def _sequence(self, run: Sequence[int], spans: Sequence[Any], num_first: int) -> None:
        """Set the text of a pair to which each token belongs, from the part of the text.

        `num_first` is the number of parts between white space in the first text.
        """
        number = 0
        for position, span in zip(run, spans, strict=False):
            number = number if span is None else int(span[0] >= num_first)
            self._sequences[position] = number

    def _split(self, run: Sequence[int], decoded: AlignedText) -> list[int] | None:
        """Return the words of a tokenizer written in Python, which puts spaces between them.

        Some of these tokenizers put spaces between all tokens. Only spaces next to a character
        that is no letter of an alphabet and no digit are between words, as in BERT.
        """
        contents = [self._content(position) for position in run]
        spans = decoded.find(contents)
        if spans is None:
            return None
        numbers = number_words_by(spans)
        words, number = [0], 0
        for index in range(1, len(run)):
            around = ((contents[index - 1] or "")[-1:], (contents[index] or "")[:1])
            differs = numbers[index] != numbers[index - 1]
            number += differs and not all(_is_letter(character) for character in around)
            words.append(number)
        return words

    def _text_of(self, origin: Origin, number: int | None) -> AlignedText | None:
        if origin is None or not origin[0].texts:
            return None
        reading = origin[0]
        if reading.encoding is None or number is None or number >= len(reading.texts):
            number = -1
        key = (id(reading), number)
        if key not in self._texts:
            text = "\n".join(reading.texts) if number < 0 else reading.texts[number]
            self._texts[key] = AlignedText(text)
        return self._texts[key]

    def _content(self, position: int) -> str | None:
        """Return the part of the text for which a token stands, or None if it is unknown."""
        name, content = self._named[position]
        is_unknown = self._ids[position] == self._vocabulary.unknown or name in _UNKNOWN
        # A truncated text may end with some of the bytes of a character.
        return None if is_unknown or _INVALID_BYTE.search(content) else content

    def _spans(
        self,
        run: Sequence[int],
        text: AlignedText | None,
        origin: Origin,
        decoded: AlignedText | None,
    ) -> list[Any] | None:
        """Compare the names of a run with its text, and return the parts of the text of its tokens.

        If the names are not the text, they are replaced by what the tokenizer returns for the ids.
        If that is not the text either, add a note. Return None if the parts are unknown.
        """
        if text is None:
            text = AlignedText("".join(self._named[position][1] for position in run))
        contents = [self._content(position) for position in run]
        spans = text.find(contents, advance=True)
        if spans is not None:
            return spans
        ids = [self._ids[position] for position in run]
        decoded = decoded or self._vocabulary.decoded(ids)
        is_decoded = decoded is not None and decoded.find(contents) is not None
        for named in self._vocabulary.other_names(ids):
            repaired = [
                None if content is None else piece
                for content, (_, piece) in zip(contents, named, strict=True)
            ]
            spans = text.find(repaired, advance=True)
            if spans is not None or (
                not is_decoded and decoded is not None and decoded.find(repaired) is not None
            ):
                for position, content, name in zip(run, contents, named, strict=True):
                    if content is not None:
                        self._named[position] = name
                break
        if spans is None and origin is not None and origin[0].texts:
            self._note_difference(text, run)
        if spans is None and decoded is not None:
            # The words are those of the text that the tokenizer returns.
            return decoded.find([self._content(position) for position in run])
        return spans

    def _note_difference(self, text: AlignedText, run: Sequence[int]) -> None:
        self._texts = {key: other for key, other in self._texts.items() if other is not text}
        names = "".join("…" if part is None else part for part in map(self._content, run))
        self.notes.append(
            f"The tokenizer does not read the text as it is: {quote(text.text.strip())} was read "
            f"as {quote(names.strip())}."
        )

    def _check_rest(self) -> None:
        """Add a note if a tokenizer dropped a part of a text at its beginning or end."""
        positions = self._positions(special=True)
        if any(self._ids[position] == self._vocabulary.unknown for position in positions):
            # A special token stands for unknown words, too.
            return
        special = [self._named[position][0] for position in positions]
        for reading, pairs in _by_reading(self._origins):
            options = reading.options
            is_cut = options.get("truncation") or options.get("max_length") is not None
            if is_cut or "truncation_strategy" in options or len(pairs) < len(reading.ids):
                continue
            for (identifier, number), text in list(self._texts.items()):
                if identifier == id(reading) and text.unread(special):
                    self._note_difference(
                        text,
                        [
                            position
                            for position in self._positions(special=False)
                            if number < 0 or self._sequences[position] == number
                        ],
                    )

    def _positions(self, *, special: bool) -> list[int]:
        return [position for position, flag in enumerate(self._special) if flag == special]


def _is_letter(character: str) -> bool:
    """Whether a character is a letter of an alphabet or a digit, or no character."""
    return not character or (character.isalnum() and unicodedata.category(character) != "Lo")


class Vocabulary:
    """Names of the ids of a tokenizer.

    A tokenizer for translation may have two vocabularies. `target` is whether the ids are those of
    the target.
    """

    def __init__(self, tokenizer: Any, *, target: bool) -> None:
        self.tokenizer = tokenizer
        self.unknown = getattr(tokenizer, "unk_token_id", None)
        self._has_source = not target and hasattr(tokenizer, "get_src_vocab")

    @cached_property
    def _source(self) -> dict[int, str]:
        return {number: entry for entry, number in self.tokenizer.get_src_vocab().items()}

    def _entries(self, ids: Sequence[int]) -> list[str | None]:
        entries = list(self.tokenizer.convert_ids_to_tokens(list(ids)))
        if self._has_source and self.tokenizer.convert_tokens_to_ids(entries) != list(ids):
            # A tokenizer with two vocabularies converts ids by that of the target.
            return [self._source.get(identifier) for identifier in ids]
        return entries

    def names(
        self, ids: Sequence[int], *, separate: bool = False, alphabet: Alphabet | None = None
    ) -> list[tuple[str, str]]:
        """Return the display text and the content of each token, from the vocabulary.

        `separate` is whether a token is named without regard to the tokens around it. The default
        of `alphabet` is that of the tokenizer.
        """
        entries = self._entries(ids)
        delimiter = getattr(self.tokenizer, "word_delimiter_token", None)
        entries = [" " if entry is not None and entry == delimiter else entry for entry in entries]
        # The vocabulary entries of added tokens are literal text, which must not be decoded.
        added = _added_tokens(self.tokenizer)
        literal = [identifier in added for identifier in ids]
        alphabet = alphabet or alphabet_of(self.tokenizer)
        if separate:
            named = [
                names_and_contents([entry], alphabet=alphabet, literal=[flag])[0]
                for entry, flag in zip(entries, literal, strict=True)
            ]
        else:
            named = names_and_contents(entries, alphabet=alphabet, literal=literal)
        roles = self._roles() if not all(entry and entry.isprintable() for entry in entries) else {}
        return [
            (f"#{identifier}", "") if entry is None else (roles.get(entry, name), content)
            for identifier, entry, (name, content) in zip(ids, entries, named, strict=True)
        ]

    def _roles(self) -> dict[str, str]:
        """Return names for special tokens whose entries have no glyph, such as those of CANINE."""
        roles = {str(entry): role for role, entry in self.tokenizer.special_tokens_map.items()}
        return {
            entry: f"[{role.removesuffix('_token').upper()}]"
            for entry, role in roles.items()
            if not entry.isprintable()
        }

    def decode(self, ids: Sequence[int]) -> str | None:
        """Return the text that the tokenizer returns for ids, or None if it cannot."""
        try:
            if self._has_source:
                text = self.tokenizer.convert_tokens_to_string(self._entries(ids))
            else:
                text = self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
        except Exception:  # noqa: BLE001 - names do not depend on a tokenizer that cannot decode
            return None
        return text if isinstance(text, str) else None

    def decoded(self, ids: Sequence[int]) -> AlignedText | None:
        """Return the decoded text of ids, to compare tokens with it."""
        text = None if self.tokenizer is None else self.decode(ids)
        return None if text is None else AlignedText(text)

    def other_names(self, ids: Sequence[int]) -> Iterator[list[tuple[str, str]]]:
        """Yield other display texts and contents of tokens, if those of `names` are not the text.

        They are the names without escaped characters, the pieces of the decoded text, and the names
        in other alphabets.
        """
        if self.tokenizer is None:
            return
        own = self.names(ids)
        if any("&" in content for _, content in own):
            # Vocabularies for translation have escaped characters, such as "&apos;".
            contents = [html.unescape(content) for _, content in own]
            yield [(make_visible(content), content) for content in contents]
        pieces = self._pieces(ids)
        if pieces is not None:
            yield pieces
        for alphabet in _PROBES:
            yield self.names(ids, alphabet=alphabet)

    def _pieces(self, ids: Sequence[int]) -> list[tuple[str, str]] | None:
        """Return the display text and the content of each token, from the decoded text.

        Each token has what it adds to the decoded text of the few tokens before it. Return None if
        the tokenizer cannot decode, or if it drops a token, such as the second of two equal ones.
        """
        pieces: list[tuple[str, str]] = []
        waiting = 0
        for position in range(len(ids)):
            first = max(0, position - _WINDOW)
            before = self.decode(ids[first:position]) if position > first else ""
            text = self.decode(ids[first : position + 1])
            if before is None or text is None:
                return None
            # The replacement character stands for the bytes of an incomplete character.
            before, text = before.rstrip("\ufffd"), text.rstrip("\ufffd")
            piece = text[_num_common(before, text) :]
            pieces.append((make_visible(piece), piece))
            if not piece:
                waiting += 1
                continue
            if waiting:
                parts = len(piece[0].encode("utf-8", "surrogatepass"))
                if parts != waiting + 1:
                    return None
                glyph = make_visible(piece[0])
                pieces[-parts:] = [(f"{glyph} {part + 1}/{parts}", "") for part in range(parts)]
                rest = f" {make_visible(piece[1:])}" if piece[1:] else ""
                pieces[-1] = (pieces[-1][0] + rest, piece)
            waiting = 0
        return None if waiting else pieces

    def read_again(self, ids: Sequence[int]) -> Origin:
        """Decode ids and encode the text again, or return None if this gives other ids."""
        text = self.decode(ids)
        if text is None:
            return None
        try:
            encoded = call_reader(self.tokenizer, text, add_special_tokens=False, verbose=False)
        except Exception:  # noqa: BLE001 - some tokenizers read no plain text, but words with boxes
            return None
        if list(encoded["input_ids"]) != list(ids) or not encoded.encodings:
            return None
        return Reading(self.tokenizer, (text,), tuple(ids), encoded.encodings[0], {}), 0


def _num_common(first: str, second: str) -> int:
    """Return the number of characters at the beginning that two texts have in common."""
    pairs = enumerate(zip(first, second, strict=False))
    shorter = min(len(first), len(second))
    return next((index for index, (one, other) in pairs if one != other), shorter)


# Entries for unknown words in vocabularies of tokenizers that do not state theirs.
_UNKNOWN = {"<unk>", "[UNK]"}
_INVALID_BYTE = re.compile("‹0x[0-9A-F]{2}›")
# Maximum number of tokens before a token with which it is decoded.
_WINDOW = 6


def _origins(ids: Sequence[int], readings: Sequence[Reading], tokenizer: Any) -> list[Origin]:
    """Return the origin of each token in the readings."""
    origins: list[Origin] = [None] * len(ids)
    row = tuple(ids)
    # If readings have equally many ids, the last of the model's own tokenizer has priority.
    latest = readings[::-1]
    ranked = sorted(
        latest, key=lambda one: (one.ids != row, -len(one.ids), one.tokenizer is not tokenizer)
    )
    for reading in ranked:
        if reading.ids == row:
            return [(reading, index) for index in range(len(row))]
        # A row may have padding or a start token that the reading lacks, or the other way around.
        special = set() if reading.tokenizer is None else _special_ids(reading.tokenizer)
        shift = _shift(row, reading.ids, special)
        for index, identifier in enumerate(reading.ids if shift is not None else ()):
            position = index + (shift or 0)
            if 0 <= position < len(row) and row[position] == identifier:
                origins[position] = origins[position] or (reading, index)
    return origins


def _shift(row: tuple[int, ...], ids: tuple[int, ...], special: set[int]) -> int | None:
    """Return the position in `row` at which `ids` begin, apart from special tokens at their ends.

    If `row` is a part of `ids`, return the negative position of `row` in `ids`. Return None if
    neither is a part of the other.
    """
    for inner, outer, sign in ((ids, row, 1), (row, ids, -1)):
        regular = [index for index, number in enumerate(inner) if number not in special]
        if not regular:
            return None
        core = inner[regular[0] : regular[-1] + 1]
        for start in range(len(outer) - len(core) + 1):
            if outer[start : start + len(core)] == core:
                return sign * (start - regular[0])
    return None


def _added_tokens(tokenizer: Any) -> Mapping[int, Any]:
    """Return the added tokens by id. Tokenizers of mistral-common do not have this mapping."""
    added = tokenizer.added_tokens_decoder
    return added if isinstance(added, Mapping) else {}


def _special_ids(tokenizer: Any) -> set[int]:
    """Return the ids of special tokens, including those of chat templates and languages.

    The token for unknown words is included only if it has another role, too, such as padding.
    """
    special = set(tokenizer.all_special_ids)
    added = _added_tokens(tokenizer)
    special.update(identifier for identifier, token in added.items() if token.special)
    languages = getattr(tokenizer, "lang_code_to_id", None)
    if isinstance(languages, Mapping):
        special.update(languages.values())
    unknown = tokenizer.unk_token_id
    others = {
        getattr(tokenizer, f"{role}_token_id", None)
        for role in ("bos", "eos", "pad", "cls", "sep", "mask")
    }
    if unknown is not None and unknown not in others:
        special.discard(unknown)
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
