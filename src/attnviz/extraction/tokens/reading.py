"""Readings: the texts that tokenizers convert into ids, observed while other code calls them.

A pipeline, a processor or another wrapper calls a tokenizer with its own settings. If the call is
observed, its texts and ids are known exactly, whatever code makes the call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial, wraps
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from attnviz.extraction.hooks import named_arguments
from attnviz.utils.cleanup import Cleanup, SharedReplacement


@dataclass(frozen=True)
class Reading:
    """Text, or pair of texts, that a tokenizer converted into ids.

    A call of a tokenizer for several texts is one reading for each row of the result. A window of a
    text that is longer than the limit is a reading of the whole text.

    Attributes
    ----------
    tokenizer : PreTrainedTokenizerBase
        The tokenizer.
    texts : tuple of str
        The text, or both texts of a pair. If the caller had split a text into words, they are
        joined with spaces. For a chat, this is the text that the template wrote.
    ids : tuple of int
        Ids of the row, including special tokens and padding.
    encoding : tokenizers.Encoding or None
        The row as the tokenizers library returned it, with the place of each token in the text.
        None for a tokenizer written in Python.
    options : mapping
        Keyword arguments of the call, such as ``truncation`` and ``max_length``.
    target : bool
        Whether the text was passed as ``text_target``. A tokenizer may have a second vocabulary for
        such texts.
    """

    tokenizer: Any
    texts: tuple[str, ...]
    ids: tuple[int, ...]
    encoding: Any
    options: Mapping[str, Any]
    target: bool = False

    @property
    def text(self) -> str:
        """The texts, joined with line breaks."""
        return "\n".join(self.texts)

    @property
    def is_cut(self) -> bool:
        """Whether the tokenizer may have truncated the texts."""
        limits = [self.options.get(name) for name in ("truncation", "max_length")]
        return any(limits) or "truncation_strategy" in self.options

    @cached_property
    def encoded(self) -> list[EncodedToken]:
        """The properties of each token in the encoding, or an empty list without one."""
        if self.encoding is None:
            return []
        columns = (getattr(self.encoding, name) for name in EncodedToken._fields)
        return list(map(EncodedToken, *columns))


class EncodedToken(NamedTuple):
    """Properties of a token in an encoding of the tokenizers library.

    `special_tokens_mask` is 1 if the tokenizer added the token. `sequence_ids` is the number of the
    text of a pair, and `word_ids` that of the word in it. `tokens` is the entry.
    """

    special_tokens_mask: int
    sequence_ids: int | None
    tokens: str
    word_ids: int | None


class _Observed(threading.local):
    """State of the observation in one thread."""

    def __init__(self) -> None:
        #: The lists to which the readings of this thread are added.
        self.lists: list[list[Reading]] = []
        #: Arguments of the outermost call of a tokenizer that runs, by name, or None.
        self.call: Mapping[str, Any] | None = None


_observed = _Observed()

# Methods that encode texts. A class may override any of them, and an override need not call the
# method of its parent class.
_METHODS = ("__call__", "encode", "_encode_plus")


def watch_tokenizers(undo: Cleanup) -> list[Reading]:
    """Return a list to which each reading of this thread is added until the block of `undo` ends.

    The readings of all tokenizers of transformers are added, for calls by any code. If a tokenizer
    reads a text in several nested calls, the reading of the innermost call is added, because it has
    exactly the text that was split into tokens. Texts that are passed as ids have no reading.

    Examples
    --------
    >>> with Cleanup() as undo, undo:
    ...     readings = watch_tokenizers(undo)
    >>> readings
    []
    """
    readings: list[Reading] = []
    undo.add(partial(_forget, readings))
    for owner in _classes(PreTrainedTokenizerBase):
        for name in vars(owner).keys() & set(_METHODS):
            _replacement_of(owner, name).hold(undo)
    _observed.lists.append(readings)
    return readings


def _forget(readings: list[Reading]) -> None:
    _observed.lists = [entry for entry in _observed.lists if entry is not readings]
    if not _observed.lists:
        _observed.call = None


def _classes(owner: type[Any]) -> Iterator[Any]:
    yield owner
    for subclass in type.__subclasses__(owner):
        yield from _classes(subclass)


@cache
def _replacement_of(owner: Any, name: str) -> SharedReplacement[Callable[..., Any]]:
    return SharedReplacement(
        partial(getattr, owner, name), partial(setattr, owner, name), _observing
    )


def _observing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls a tokenizer's method, and adds what it read to the lists."""

    @wraps(function)
    def observing(tokenizer: Any, *args: Any, **kwargs: Any) -> Any:
        if not _observed.lists:
            return function(tokenizer, *args, **kwargs)
        arguments = named_arguments(function, (tokenizer, *args), kwargs)
        arguments.pop("self", None)
        before = [(readings, len(readings)) for readings in _observed.lists]
        outermost = _observed.call is None
        if outermost:
            _observed.call = arguments
        try:
            result = function(tokenizer, *args, **kwargs)
            rows = list(_readings(tokenizer, arguments, result, _observed.call or arguments))
        finally:
            if outermost:
                _observed.call = None
        for readings, count in before:
            nested = readings[count:]
            readings += [reading for reading in rows if not _is_known(reading, nested)]
        return result

    return observing


def _is_known(reading: Reading, nested: Sequence[Reading]) -> bool:
    """Whether a nested call of the same tokenizer has read the same texts, or returned these ids.

    The ids differ if the outer call pads the rows of the nested calls.
    """
    return any(
        entry.tokenizer is reading.tokenizer
        and (entry.texts == reading.texts or entry.ids == reading.ids)
        for entry in nested
    )


def _readings(
    tokenizer: Any, arguments: Mapping[str, Any], result: Any, outermost: Mapping[str, Any]
) -> Iterator[Reading]:
    """Yield a reading for each row of the result of a call, with options of the outermost call."""
    options = {name: value for name, value in outermost.items() if not name.startswith("text")}
    text, pair = arguments.get("text"), arguments.get("text_pair")
    if text is None:
        text, pair = arguments.get("text_target"), arguments.get("text_pair_target")
    target = text is not None and text is outermost.get("text_target")
    has_names = isinstance(result, Mapping)
    rows = _id_rows(result.get("input_ids") if has_names else result)
    encodings = getattr(result, "encodings", None) or [None] * len(rows)
    owners = _id_rows(result.get("overflow_to_sample_mapping") if has_names else None)
    if text is None or not rows or len(encodings) != len(rows):
        return
    # Windows of one text are several rows, and `owner` is the number of the text.
    owner = owners[0] if owners and len(owners[0]) == len(rows) else tuple(range(len(rows)))
    split = bool(arguments.get("is_split_into_words"))
    examples = _examples(text, pair, len(set(owner)), split=split)
    if len(examples) == 1:
        owner = (0,) * len(rows)
    for row, encoding, number in zip(rows, encodings, owner, strict=True):
        example: Any = examples[number] if number < len(examples) else (None,)
        # A list of two strings is a pair, or one text that the caller had split into two words.
        if isinstance(example, list) and encoding is not None and encoding.n_sequences == 1:
            example = (example,)
        if not all(_is_text(part) for part in example):
            continue
        texts = tuple(part if isinstance(part, str) else " ".join(part) for part in example)
        yield Reading(tokenizer, texts, row, encoding, options, target)


def _examples(text: Any, pair: Any, count: int, *, split: bool) -> list[Any]:
    """Return the parts of each of `count` examples. A part is a string or a list of words."""
    is_list = isinstance(text, list | tuple) and bool(text)
    if is_list and isinstance(text[0], str):
        # The words of one text, unless there are as many texts.
        is_list = not split and len(text) == count
    if not is_list or isinstance(text[0], int):
        return [(text, pair) if pair else (text,)]
    if isinstance(pair, list | tuple) and len(pair) == len(text):
        return list(zip(text, pair, strict=True))
    # A tuple of two texts is a pair, and so is a list, unless it has the words of one text.
    return [
        entry
        if isinstance(entry, list | tuple)
        and len(entry) == 2
        and (not split or isinstance(entry, tuple))
        else (entry,)
        for entry in text
    ]


def _is_text(part: Any) -> bool:
    if isinstance(part, list | tuple):
        return bool(part) and all(isinstance(word, str) for word in part)
    return isinstance(part, str)


def _id_rows(values: Any) -> list[tuple[int, ...]]:
    """Return rows of ids as tuples. `values` is a tensor, an array, a list, or a list of these."""
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, list | tuple) or not values:
        return []
    rows = [values] if isinstance(values[0], int) else values
    rows = [row.tolist() if hasattr(row, "tolist") else row for row in rows]
    are_ids = all(
        isinstance(row, list | tuple) and all(isinstance(number, int) for number in row)
        for row in rows
    )
    return list(map(tuple, rows)) if are_ids else []
