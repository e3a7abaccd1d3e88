"""Tokens of a record: the display text of each query and key, and the model's predictions.

Views, exports and tables show the display text of a token instead of its vocabulary entry. In a
display text, visible characters replace white space, control characters and characters that change
the direction of text, because these could mislead a reader.
"""

from __future__ import annotations

import unicodedata
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby, pairwise
from operator import attrgetter
from typing import Any

from attnviz.record.images import PatchGrid
from attnviz.utils.arguments import (
    as_integer,
    check_encodable,
    did_you_mean,
    resolve_negative,
    set_fields,
    short_repr,
    whole_number,
)

_SHOWN_AS = {" ": "·", "\n": "⏎", "\t": "⇥"}
# Zero-width non-joiner and joiner. Inside an emoji or an Indic word, for example, they change the
# glyphs and are kept. At either end of a text, or next to a space or another of these two
# characters, they have no effect and are replaced by their code point.
_JOINERS = {"\u200c", "\u200d"}
_JOINS_NOTHING = _JOINERS | {" "}


def make_visible(text: str) -> str:
    r"""Make every character of a token's text visible.

    The space U+0020 becomes ``·``, a newline ``⏎`` and a tab ``⇥``. Other characters without a
    visible glyph are replaced by their code point, such as ``‹U+202E›``. Examples are other spaces,
    control characters, unassigned characters and characters that change the direction of text. A
    zero-width joiner or non-joiner is kept if it stands between two characters that it can join. An
    empty text becomes ``∅``.

    >>> make_visible(" the"), make_visible("\n\n"), make_visible("\x00"), make_visible("\u202e")
    ('·the', '⏎⏎', '‹U+0000›', '‹U+202E›')
    """
    if not text:
        return "∅"
    if text.isprintable():
        # Most tokens take this fast path. isprintable() is False if the text has a character that
        # `_visible_character` replaces, except U+0020.
        return text.replace(" ", _SHOWN_AS[" "])
    around = zip(f" {text}", text, f"{text[1:]} ", strict=False)
    return "".join(
        _visible_character(character, joins=not {before, after} & _JOINS_NOTHING)
        for before, character, after in around
    )


def display_text(text: str) -> str:
    r"""Return a text as views may show it. Only spaces inside of it are kept.

    The names of some tokens have spaces, such as ``image 1``. All other characters are made visible
    by `make_visible`.

    >>> display_text("image 1"), display_text(" the"), display_text("a\u202e b"), display_text("")
    ('image 1', '·the', 'a‹U+202E› b', '∅')
    """
    if text.isprintable() and text.strip(" ") == text != "":
        return text
    inner = text.strip(" ")
    if not inner:
        return make_visible(text)
    before, after = text.split(inner, 1)
    words = " ".join(make_visible(word) if word else "" for word in inner.split(" "))
    return before.replace(" ", _SHOWN_AS[" "]) + words + after.replace(" ", _SHOWN_AS[" "])


def quote(text: str, *, longest: int = 80) -> str:
    r"""Return a text in quotation marks, with all characters except spaces made visible.

    A text of more than `longest` characters is first cut to `longest` characters, the last of which
    is ``…``. A text that is written from right to left is in an isolate (FSI, PDI), so that it does
    not move the numbers after it. A combining mark without a letter gets a dotted circle, so that
    it does not join the quotation mark.

    >>> quote("the street"), quote("two\nlines"), quote("a" * 9, longest=4)
    ('“the street”', '“two⏎lines”', '“aaa…”')
    >>> ascii(quote("\u05d0")), ascii(quote("\u0301"))
    ("'\\u201c\\u2068\\u05d0\\u2069\\u201d'", "'\\u201c\\u25cc\\u0301\\u201d'")
    """
    if len(text) > longest:
        text = f"{text[: longest - 1]}…"
    shown = " ".join(make_visible(part) if part else "" for part in text.split(" "))
    if unicodedata.category(shown[:1] or " ").startswith("M"):
        shown = f"\u25cc{shown}"
    if any(unicodedata.bidirectional(character) in {"R", "AL", "AN"} for character in shown):
        shown = f"\u2068{shown}\u2069"
    return f"“{shown}”"


def _visible_character(character: str, *, joins: bool) -> str:
    replacement = _SHOWN_AS.get(character)
    if replacement is not None:
        return replacement
    code = ord(character)
    category = unicodedata.category(character)
    if character in _JOINERS and joins:
        return character
    # Show code points, because few monospace fonts have Unicode's symbols for control characters.
    # Zs, Zl and Zp are spaces and separators of lines and paragraphs. Cf are format characters such
    # as direction marks and joiners. Characters of Cc, Cs, Co and Cn have no glyph.
    if category in {"Zs", "Zl", "Zp", "Cf", "Cc", "Cs", "Co", "Cn"}:
        return f"‹U+{code:04X}›"
    return character


def only_position(positions: Sequence[int], token: str, name: str) -> int:
    """Return the only position of the tokens with the text `token`. `name` is for the error."""
    if len(positions) == 1:
        return positions[0]
    raise ValueError(
        f"{name}={token!r}: {len(positions)} tokens have this text. Pass the position of one "
        f"of them: {short_repr(list(positions))}"
    )


def _bare(token: str) -> str:
    """Return a display text as `Tokens.positions` compares it: without ``##`` and outer spaces.

    A leading ``##`` is removed, unless it is the whole text. Then all ``·`` at both ends are
    removed.
    """
    if token.startswith("##") and len(token) > 2:
        token = token[2:]
    return token.strip(_SHOWN_AS[" "])


def number_words(
    words: Sequence[int | None], special: Sequence[bool], sequence: Sequence[int | None]
) -> tuple[int | None, ...]:
    """Return `words` with new numbers, which are different for all words of both texts of a pair.

    Each argument has one entry per token. `words` contains the number of each token's word, or
    None. A tokenizer may start from 0 in each text. `sequence` is as in `Tokens`. Consecutive
    tokens are one word if they have the same number in `words` and the same entry in `sequence`.
    The words are numbered from 0 in order. Special tokens, and tokens with None in `words`, get
    None. Raise ValueError if the lengths of the arguments differ.

    >>> number_words([7, 7, None, 7], [False, False, True, False], [0, 0, None, 1])
    (0, 0, None, 1)
    """
    if not len(words) == len(special) == len(sequence):
        raise ValueError(
            f"words has {len(words)} entries, but there are {len(special)} tokens. Pass one entry "
            "per token, None for tokens outside words."
        )
    numbers: list[int | None] = []
    count = 0
    previous: tuple[int, int | None] | None = None
    for word, is_special, text in zip(words, special, sequence, strict=True):
        current = None if is_special or word is None else (int(word), text)
        count += current is not None and current != previous
        numbers.append(None if current is None else count - 1)
        previous = current
    return tuple(numbers)


def token_strings(text: Iterable[str]) -> list[str]:
    """Return the strings `text` as a list, after checking each of them.

    Raise TypeError if `text` is a single string, is not iterable, or contains an object that is not
    a string.

    >>> token_strings(("un", "do"))
    ['un', 'do']
    """
    if isinstance(text, str) or not isinstance(text, Iterable):
        raise TypeError(
            "tokens must be a sequence of strings, one per token; got "
            f"{short_repr(text)}. Split a text, for example with tokenizer.tokenize"
        )
    strings = list(text)
    for position, token in enumerate(strings):
        if not isinstance(token, str):
            raise TypeError(
                f"tokens must be strings; tokens[{position}] is a {type(token).__name__}"
            )
    return strings


def _column(
    name: str,
    values: Any,
    kinds: Collection[type],
    convert: Callable[[str, Any], Any] | None = None,
) -> tuple[Any, ...]:
    """Return `values` as a tuple of entries whose types are in `kinds`.

    Entries of other types are converted by ``convert(name, entry)``. `name` is the name of the
    attribute. Raise TypeError if `values` is not a sequence, or an entry cannot be converted.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{name}={short_repr(values)} must be a sequence")
    entries = tuple(values.tolist() if hasattr(values, "tolist") else values)
    if set(map(type, entries)).issubset(kinds):
        return entries
    if convert is not None:
        return tuple(
            entry if type(entry) in kinds else convert(f"{name}[{index}]", entry)
            for index, entry in enumerate(entries)
        )
    kind = next(iter(kinds)).__name__
    raise TypeError(f"{name}={short_repr(values)} must be a sequence of {kind}")


def _string(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name}={short_repr(value)} must be a string")
    # Convert a subclass, such as the strings of numpy.
    return str(value)


def _flag(name: str, value: Any) -> bool:
    try:
        return bool(as_integer(name, value))
    except TypeError as error:
        raise TypeError(f"{name}={short_repr(value)} must be True or False") from error


@dataclass(frozen=True)
class Candidate:
    """A token that the model considered at a generation step, with its probability.

    Attributes
    ----------
    text : str
        Display text (see `make_visible`).
    id : int
        Vocabulary id.
    probability : float
        Probability of the token in the softmax of the model's logits, from 0 to 1. Temperature and
        other sampling settings are not applied.

    Raises
    ------
    TypeError
        If an attribute has the wrong type.
    ValueError
        If the probability is less than 0, or exceeds 1 by more than a rounding error.

    Examples
    --------
    >>> Candidate("·cat", id=3797, probability=0.25).probability
    0.25
    """

    text: str
    id: int
    probability: float

    def __post_init__(self) -> None:
        set_fields(
            self,
            text=display_text(_string("text", self.text)),
            id=as_integer("id", self.id),
            probability=float(self.probability),
        )
        if not 0.0 <= self.probability <= 1.0 + 1e-6:
            raise ValueError(f"probability must be from 0 to 1; got {self.probability!r}")


@dataclass(frozen=True)
class Prediction:
    """A predicted token of a stack, with the query that predicted it.

    The token was generated by the model, or it belongs to a target text: an answer that the user
    passed, whose tokens the model predicts one after the other.

    Attributes
    ----------
    query : int
        Position of the query at which the model predicted the token, usually that of the token
        before. The weights of this query are the attention during the prediction.
    token : Candidate
        The generated token, or the token of the target text.
    candidates : tuple of Candidate
        The most probable tokens at this query, in descending order of probability. The predicted
        token may be missing.
    row : int or None
        Position of the predicted token itself among the queries. None if the model did not read it
        as an input. For example, an encoder-decoder model does not read the last token of its
        output.

    Raises
    ------
    TypeError
        If an attribute has the wrong type.
    ValueError
        If a position is negative.

    Examples
    --------
    >>> cat = Candidate("·cat", 17, 0.6)
    >>> Prediction(query=3, token=cat, candidates=(cat,), row=4).token.text
    '·cat'
    """

    query: int
    token: Candidate
    candidates: tuple[Candidate, ...]
    row: int | None

    def __post_init__(self) -> None:
        set_fields(
            self,
            query=as_integer("query", self.query),
            candidates=_column("candidates", self.candidates, [Candidate]),
            row=None if self.row is None else as_integer("row", self.row),
        )
        if not isinstance(self.token, Candidate):
            raise TypeError(f"token={short_repr(self.token)} must be a Candidate")
        if self.query < 0 or (self.row is not None and self.row < 0):
            raise ValueError(
                f"query and row must be at least 0; got query {self.query} and row {self.row}"
            )


@dataclass(frozen=True)
class Passage:
    """Named run of tokens, such as a document of a prompt or a turn of a chat.

    Attributes
    ----------
    name : str
        Name of the passage, which no other passage of the tokens has.
    start, stop : int
        Positions of its first token and of the token after its last one.

    Raises
    ------
    TypeError, ValueError
        If the name is not a string that UTF-8 can encode, or is empty. If the passage has no
        tokens.

    Examples
    --------
    >>> Passage("doc 3", 120, 410).stop
    410
    """

    name: str
    start: int
    stop: int

    def __post_init__(self) -> None:
        check_encodable("passages", self.name)
        for name in ("start", "stop"):
            set_fields(self, **{name: as_integer(name, getattr(self, name))})
        set_fields(self, name=display_text(self.name))
        if not (self.name.strip("∅·") and 0 <= self.start < self.stop):
            raise ValueError(f"{self} must have a name and 0 <= start < stop")


@dataclass(frozen=True)
class Tokens:
    """Tokens of the queries or of the keys of a stack, in order.

    Attributes
    ----------
    text : tuple of str
        Display text of each token (see `make_visible`).
    special : tuple of bool
        Whether the tokenizer added the token or considers it special.
    sequence : tuple of (int or None)
        0 for the tokens of a single text, or of the first text of a pair. 1 for the tokens of the
        second text. None for tokens that belong to neither text.
    ids : tuple of int, or None
        Vocabulary ids. None if they are unknown.
    words : tuple of (int or None), or None
        Number of the word that each token belongs to, or None for a token in no word, such as a
        special token. `words` itself is None if words are unknown. Consecutive tokens with the same
        number are one word. The tokenizer defines the words: most tokenizers separate punctuation,
        and many split "didn't" into ``didn`` and ``'t``.
    grids : tuple of PatchGrid
        Places of the tokens: which of them are the patches of an image, the frames of a sound, the
        steps of a time series, or another named group, ordered by position.
    predictions : tuple of Prediction
        Tokens that the model generated, or the tokens of a target text, in the order of the text.
        Empty if the record has no such text.
    passages : tuple of Passage
        Named runs of tokens, such as the documents of a prompt, ordered by position.

    Examples
    --------
    >>> tokens = Tokens.of(["The", " cat"])
    >>> len(tokens), tokens[1], list(tokens)
    (2, '·cat', ['The', '·cat'])
    """

    text: tuple[str, ...]
    special: tuple[bool, ...]
    sequence: tuple[int | None, ...]
    ids: tuple[int, ...] | None = None
    words: tuple[int | None, ...] | None = None
    grids: tuple[PatchGrid, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    passages: tuple[Passage, ...] = ()

    def __post_init__(self) -> None:
        """Convert the columns to tuples of strings, bools and ints, and check them.

        Numbers of numpy and torch become ints, so that a record of the tokens can be saved. Raise
        TypeError if an entry is of another type. Raise ValueError if the lengths of the attributes
        differ, or if positions are wrong. A grid, a prediction or a passage must lie inside the
        tokens. Grids must not overlap, and must be ordered by position. Passages must not overlap
        or have the same name.
        """
        texts = _column("text", self.text, [str], _string)
        together = "".join(texts)
        if not together.isprintable() or " " in together or not all(texts):
            texts = tuple(map(display_text, texts))
        numbers = partial(_column, kinds=[int, type(None)], convert=as_integer)
        set_fields(
            self,
            text=texts,
            special=_column("special", self.special, [bool], _flag),
            sequence=numbers("sequence", self.sequence),
            ids=None if self.ids is None else _column("ids", self.ids, [int], as_integer),
            words=None if self.words is None else numbers("words", self.words),
            grids=_column("grids", self.grids, [PatchGrid]),
            predictions=_column("predictions", self.predictions, [Prediction]),
            passages=tuple(
                sorted(_column("passages", self.passages, [Passage]), key=attrgetter("start"))
            ),
        )
        _check_passages(self.passages, len(texts))
        for name in ("sequence", "ids", "words"):
            try:
                array("q", filter(None, getattr(self, name) or ()))
            except OverflowError as error:
                raise ValueError(f"{name}: a number does not fit in 64 bits") from error
        for name, column in (
            ("special", self.special),
            ("sequence", self.sequence),
            ("ids", self.ids),
            ("words", self.words),
        ):
            if column is not None and len(column) != len(self.text):
                raise ValueError(
                    f"{name} has {len(column)} entries but text has {len(self.text)} tokens; "
                    "both must have the same length"
                )
        end = 0
        for grid in self.grids:
            if grid.stop > len(self.text):
                raise ValueError(
                    f"grids: {grid} needs the tokens {grid.start} to {grid.stop - 1}, but there "
                    f"are {len(self.text)} tokens. Pass start, rows and columns of the patches "
                    "among these tokens."
                )
            if grid.start < end:
                raise ValueError(
                    f"grids: {grid} starts before token {end}, the end of the grid before it. Pass "
                    "grids in the order of their tokens, without common tokens."
                )
            end = grid.stop
        for prediction in self.predictions:
            if max(prediction.query, prediction.row or 0) >= len(self.text):
                raise ValueError(
                    f"predictions must lie inside the {len(self.text)} tokens; got query "
                    f"{prediction.query} and row {prediction.row}"
                )

    @classmethod
    def of(
        cls,
        text: Sequence[str],
        *,
        special: Sequence[bool] | None = None,
        sequence: Sequence[int | None] | None = None,
        ids: Sequence[int] | None = None,
        words: Sequence[int | None] | None = None,
        grids: Sequence[PatchGrid] = (),
    ) -> Tokens:
        """Create tokens from strings.

        Parameters
        ----------
        text : sequence of str
            One string per token. `make_visible` is applied to each string.
        special : sequence of bool, optional
            Whether each token is special. By default, no token is special.
        sequence : sequence of (int or None), optional
            For each token, 0 or 1 for the first or second text of a pair, or None for neither. The
            default is None for special tokens and 0 for all others.
        ids : sequence of int, optional
            Vocabulary ids. By default, the ids are unknown.
        words : sequence of (int or None), optional
            Number of the word that each token belongs to, such as the ``word_ids()`` of a fast
            tokenizer's output. Consecutive tokens with the same number are one word. Words are
            renumbered, because both texts of a pair may have words with the same number. By
            default, the words are unknown.
        grids : sequence of PatchGrid
            Places of the tokens, ordered by position.

        Returns
        -------
        Tokens

        Raises
        ------
        TypeError
            If `text` is a single string, or contains an object that is not a string.
        ValueError
            If the arguments have different lengths, or if `grids` overlap, are not ordered by
            position, or exceed the tokens.

        Examples
        --------
        >>> Tokens.of(["un", "do", " it"], words=[0, 0, 1]).words
        (0, 0, 1)
        """
        strings = token_strings(text)
        flags = (False,) * len(strings) if special is None else tuple(map(bool, special))
        if sequence is None:
            sequence = [None if flag else 0 for flag in flags]
        # Convert numpy integers to int, because JSON supports only the latter.
        texts = tuple(None if number is None else int(number) for number in sequence)
        return cls(
            text=tuple(make_visible(token) for token in strings),
            special=flags,
            sequence=texts,
            ids=None if ids is None else tuple(int(identifier) for identifier in ids),
            words=None if words is None else number_words(words, flags, texts),
            grids=tuple(grids),
        )

    def positions(self, text: str) -> tuple[int, ...]:
        """Return the positions of all tokens with a given text.

        Parameters
        ----------
        text : str
            Text of the tokens. ``"it"`` matches the tokens ``it``, ``·it`` and ``it·``, or if there
            are none, the tokens ``##it``. ``" it"``, ``"·it"``, ``"Ġit"`` and ``"▁it"`` match the
            tokens ``·it``, or if there are none, the same tokens as ``"it"``. ``"##it"`` matches
            only the tokens ``##it``. Case is significant.

        Returns
        -------
        tuple of int
            Ascending positions, empty if no token has the text.

        Raises
        ------
        TypeError
            If `text` is not a string.

        Examples
        --------
        >>> Tokens.of(["The", " cat", " and", " the", " cat"]).positions("cat")
        (1, 4)
        """
        if not isinstance(text, str):
            raise TypeError(f"text={text!r} must be a string")
        # Ġ and ▁ are the marks for a space in vocabularies.
        with_space = f" {text[1:]}" if text[:1] in ("Ġ", "▁") else text
        display_texts = {make_visible(text), make_visible(with_space)}
        exact = tuple(
            position for position, token in enumerate(self.text) if token in display_texts
        )
        bare = _bare(make_visible(with_space))
        if not bare or (exact and bare not in display_texts) or text.startswith("##"):
            return exact
        candidates = [position for position, token in enumerate(self.text) if _bare(token) == bare]
        unmarked = [position for position in candidates if not self.text[position].startswith("##")]
        return tuple(unmarked or candidates)

    def index(self, text: str) -> int:
        """Return the position of the only token with a given text.

        Parameters
        ----------
        text : str
            Text of the token, as in `positions`.

        Returns
        -------
        int

        Raises
        ------
        ValueError
            If no token has the text, or several tokens have it.

        Examples
        --------
        >>> Tokens.of(["The", " cat", " sat"]).index("cat")
        1
        """
        return self.position(text)

    def position(self, token: int | str, name: str = "token") -> int:
        """Return the position of a token that is passed as a position or as a text.

        Parameters
        ----------
        token : int or str
            Position, or text as in `positions`. Negative positions count from the end. Exactly one
            token must have the text.
        name : str, default "token"
            Name of the argument in error messages.

        Returns
        -------
        int
            Position of the token, from 0.

        Raises
        ------
        TypeError
            If `token` is neither an integer nor a string.
        IndexError
            If the position is out of range.
        ValueError
            If no token has the text, or several tokens have it. In the first case, the message
            contains a similar text of a token, if one exists. In the second case, it lists the
            positions of the tokens with the text.

        Examples
        --------
        >>> Tokens.of(["The", " cat", " sat", "."]).position("cat")
        1
        >>> Tokens.of(["The", " cat", " sat", "."]).position(-1)
        3
        """
        if not isinstance(token, str):
            number = whole_number(name, token, hint="or the text of a token")
            number = resolve_negative(number, range(len(self)))
            if not 0 <= number < len(self):
                raise IndexError(f"{name}={token!r}: there are tokens 0 to {len(self) - 1}")
            return int(number)
        positions = self.positions(token)
        if not positions:
            meant = did_you_mean(_bare(make_visible(token)), map(_bare, self.text))
            named = ", ".join(repr(passage.name) for passage in self.passages)
            names = f". Passages are {named}" * bool(named)
            raise ValueError(
                f"{name}={token!r}: no token has this text{meant or '.'} A word may "
                "consist of several tokens. Pass the text of a token, or a number from 0 to "
                f"{len(self) - 1}{names}"
            )
        return only_position(positions, token, name)

    def passage(self, name: object) -> Passage | None:
        """Return the passage with a name, or None if there is none.

        Parameters
        ----------
        name : object
            Name of the passage.

        Returns
        -------
        Passage or None
        """
        return next((passage for passage in self.passages if passage.name == name), None)

    @property
    def pictured(self) -> tuple[PatchGrid, ...]:
        """Grids of the tokens that are patches of images in the record."""
        return tuple(grid for grid in self.grids if grid.image is not None)

    def __len__(self) -> int:
        return len(self.text)

    def __iter__(self) -> Iterator[str]:
        return iter(self.text)

    def __getitem__(self, position: int) -> str:
        return self.text[position]

    def __repr__(self) -> str:
        text = " ".join(self.text[:12]) + (" …" if len(self) > 12 else "")
        return f"<{len(self)} tokens: {text}>"


def _check_passages(passages: Sequence[Passage], count: int) -> None:
    if passages and passages[-1].stop > count:
        raise ValueError(
            f"passages: {passages[-1]} ends after the last of the {count} tokens. Pass stop <= "
            f"{count}."
        )
    for before, passage in pairwise(passages):
        if before.stop > passage.start:
            raise ValueError(
                f"passages: {before} and {passage} have common tokens. Pass passages that do not "
                "overlap."
            )
    names = [passage.name for passage in passages]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise ValueError(f"passages: several have the name {double!r}. Pass different names.")


def own_tokens(
    tokens: Tokens,
    names: Tokens | Sequence[str] | None,
    owner: str,
    *,
    special: Sequence[bool] | None,
    groups: Sequence[str | None] | None,
    grids: Sequence[PatchGrid] | None,
) -> Tokens:
    """Return `tokens` with names, specials, groups and grids of the user's own.

    The arguments are those of `AttentionRecord.with_tokens`. `owner` describes the tokens for
    errors, such as "the queries of stack 'self'".
    """
    if isinstance(names, Tokens):
        _check_count("tokens", len(names), len(tokens), owner)
        tokens, names = names, names.text
    laid_out = tokens.grids if grids is None else _column("grids", grids, [PatchGrid])
    if groups is not None:
        groups = _column("groups", groups, [str, type(None)], _string)
        _check_count("groups", len(groups), len(tokens), owner)
        taken = {position for grid in laid_out for position in range(grid.start, grid.stop)}
        own = [None if position in taken else group for position, group in enumerate(groups)]
        starts = accumulate([0, *(len(list(run)) for _, run in groupby(own))])
        runs = [
            PatchGrid(None, start, 1, end - start, name=_string(f"groups[{start}]", own[start]))
            for start, end in pairwise(starts)
            if own[start] is not None
        ]
        laid_out = tuple(sorted((*laid_out, *runs), key=attrgetter("start")))
    tokens = replace(tokens, grids=laid_out)
    text = list(tokens.text)
    if names is None and grids is not None:
        for grid in grids:
            for position, name in zip(grid.positions, grid.names(), strict=True):
                text[position] = name
    elif names is not None:
        text = token_strings(names)
        _check_count("tokens", len(text), len(tokens), owner)
    flags = tokens.special
    if special is not None:
        flags = _column("special", special, [bool], _flag)
        _check_count("special", len(flags), len(tokens), owner)
    if tuple(text) != tokens.text:
        # Names of places are not parts of words.
        tokens = replace(tokens, text=tuple(text), words=tuple(range(len(text))))
    sequence = tuple(
        None if flag else entry or 0 for flag, entry in zip(flags, tokens.sequence, strict=True)
    )
    return tokens if special is None else replace(tokens, special=flags, sequence=sequence)


def _check_count(name: str, count: int, num_tokens: int, owner: str) -> None:
    if count != num_tokens:
        raise ValueError(
            f"{name} has {count} entries, but {owner} are {num_tokens}. Pass one entry per token."
        )


def passages_at(passages: Sequence[Passage], positions: Sequence[int]) -> tuple[Passage, ...]:
    """Return the passages of the tokens at ascending `positions`, numbered from 0.

    Passages without any of these tokens are left out.
    """
    return tuple(
        replace(passage, start=first, stop=last)
        for passage in passages
        if (first := bisect_left(positions, passage.start))
        < (last := bisect_left(positions, passage.stop))
    )


def selected_tokens(tokens: Tokens, positions: Sequence[int]) -> Tokens:
    """Return the tokens at ascending `positions`, without patch grids and predictions."""
    columns: dict[str, Any] = {}
    for name in ("text", "special", "sequence", "ids", "words"):
        column = getattr(tokens, name)
        columns[name] = None if column is None else tuple(column[index] for index in positions)
    return Tokens(**columns, passages=passages_at(tokens.passages, positions))


def joined_tokens(first: Tokens, second: Tokens) -> Tokens:
    """Join two sequences of tokens, their grids of patches, their predictions and their passages.

    Ids are kept only if both `first` and `second` have ids, and words only if both have words.
    """
    ids = None if first.ids is None or second.ids is None else first.ids + second.ids
    special, sequence = first.special + second.special, first.sequence + second.sequence
    words = None
    if first.words is not None and second.words is not None:
        words = number_words(first.words + second.words, special, sequence)
    start = len(first)
    predictions = [
        replace(
            prediction,
            query=prediction.query + start,
            row=None if prediction.row is None else prediction.row + start,
        )
        for prediction in second.predictions
    ]
    return Tokens(
        text=first.text + second.text,
        special=special,
        sequence=sequence,
        ids=ids,
        words=words,
        grids=first.grids + tuple(replace(grid, start=grid.start + start) for grid in second.grids),
        predictions=(*first.predictions, *predictions),
        passages=first.passages
        + tuple(
            replace(passage, start=passage.start + start, stop=passage.stop + start)
            for passage in second.passages
        ),
    )
