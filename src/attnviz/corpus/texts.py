"""Access to the texts of a corpus: a list, a dataset (datasets.Dataset) or a table (DataFrame)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from attnviz.record.notes import kind_of

_KINDS = (
    "a list of texts, of pairs of texts or of images, or a dataset or table (datasets.Dataset, "
    "DataFrame) with column="
)


class Texts:
    """Sequence of texts, pairs of texts, or images. An item is loaded when it is accessed.

    In a dataset or table, `column` is the name of the column with the texts. In a list, an item can
    be a dict, in which `column` is the key of the text. If it has the key ``"text_pair"``, too, the
    item is a pair of texts. A dict without `column` is returned unchanged.

    Examples
    --------
    >>> texts = Texts(["the cat", {"text": "sat"}, None], "text")
    >>> len(texts), texts[1], texts[2] is None
    (3, 'sat', True)
    """

    def __init__(self, texts: Any, column: str = "text") -> None:
        if isinstance(texts, Mapping):
            splits = ", ".join(map(repr, list(texts)[:5]))
            raise TypeError(f"texts is a mapping of {splits}. Pass one of its entries.")
        if isinstance(texts, str | bytes):
            raise TypeError("texts is one text. Pass a list, [text].")
        self._names: tuple[str, ...] | None = None
        self._table: Any = texts
        if hasattr(texts, "columns") and hasattr(texts, "shape"):
            self._names = tuple(texts.columns)
            _check_name(column, self._names, "table")
            texts = texts[column]
        # Convert a pandas Series to a list, because ``series[0]`` is the item with the label 0, and
        # not the first item. Convert an array of strings or objects to a list, too, because its
        # items can be numpy strings. Do not convert other sequences, so that their items are loaded
        # only when accessed.
        if hasattr(texts, "iloc") or (isinstance(texts, np.ndarray) and texts.dtype.kind in "OUT"):
            texts = texts.tolist()
        if not hasattr(texts, "__len__") or not hasattr(texts, "__getitem__"):
            raise TypeError(
                f"texts must be {_KINDS}. {type(texts).__name__} has no random access. Pass "
                "list(texts), or list(texts.take(1000)) for a stream."
            )
        if hasattr(texts, "column_names"):
            self._names = tuple(texts.column_names)
            _check_name(column, self._names, "dataset")
        self._texts, self._column = texts, column
        if not len(self):
            raise ValueError(f"texts is empty. Pass {_KINDS}.")

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int) -> Any:
        text = self._texts[index]
        if isinstance(text, Mapping) and self._column in text:
            second = text.get("text_pair")
            return text[self._column] if second is None else (text[self._column], second)
        return text

    def values(self, name: str) -> tuple[Any, list[str] | None]:
        """Return the values of the column `name`, and the names of its classes or None.

        The second item is None unless the column is a ``datasets.ClassLabel`` of a dataset, whose
        values are indices of classes. Raise ValueError if the column does not exist, or if the
        texts are a list and not a dataset or table.
        """
        if self._names is None:
            raise ValueError(
                f"columns: {name!r} must be a column of the dataset, but texts is not a dataset. "
                f"Pass a mapping, columns={{{name!r}: values}}."
            )
        if name not in self._names:
            names = ", ".join(map(repr, self._names))
            raise ValueError(f"columns: {name!r} is not one of the columns of the dataset, {names}")
        feature = getattr(self._table, "features", {}).get(name)
        values = self._table[name]
        # Convert a pandas Series to a list, because ``series[0]`` is the item with the label 0, and
        # not the first item.
        listed = values.tolist() if hasattr(values, "iloc") else values
        return listed, getattr(feature, "names", None)


def _check_name(column: str, names: tuple[str, ...], kind: str) -> None:
    """Raise ValueError unless exactly one column has the name `column`.

    `names` has the names of all columns. `kind` is "dataset" or "table", for the error message.
    """
    if names.count(column) != 1:
        raise ValueError(
            f"column={column!r}: the {kind} has the columns {', '.join(map(repr, names))}. Pass "
            "the name of the column with the texts."
        )


def named_error(error: Exception, name: str) -> Exception:
    """Return `error` with the name of a text, such as "texts[3]", before its message.

    The result is a new TypeError, ValueError, MemoryError, NotImplementedError or RuntimeError: the
    first of these classes of which `error` is an instance. If it is an instance of none of them, or
    a torch.OutOfMemoryError, return `error` with a note that names the text.
    """
    kinds = (TypeError, ValueError, MemoryError, NotImplementedError, RuntimeError)
    kind = next((candidate for candidate in kinds if isinstance(error, candidate)), None)
    if kind is None or isinstance(error, torch.OutOfMemoryError):
        error.add_note(f"This was {name}.")
        return error
    # Use the built-in base class of the error, because its own class may need arguments besides
    # the message.
    named = kind(f"{name}: {error}")
    named.__cause__ = error
    return named


def notes_on_left_out(empty: int, too_long: int) -> list[str]:
    """Return a sentence for each reason why texts were left out, with the number of these texts.

    `empty` and `too_long` are the numbers of texts for the two reasons. A number of 0 gives no
    sentence.
    """
    reasons = ((empty, "empty"), (too_long, "too long for the model"))
    return [
        f"{'1 text is' if count == 1 else f'{count:,} texts are'} left out: {reason}."
        for count, reason in reasons
        if count
    ]


# Parts of notes on parts of texts that differ between texts: quotes of the text, and numbers other
# than those of settings, such as ``part=1``.
_OF_ONE_TEXT = re.compile(r"“[^”]*”|(?<![=\d])\d[\d,]*(?=[ ).])")


def note_on_some_texts(note: str) -> str:
    """Return a note without numbers and quotes if the model read only a part of a text.

    The result is the same for all such texts. Other notes are returned as they are.

    >>> from attnviz.record.notes import Note
    >>> text = "The text was truncated to the first 256 of its 1,302 tokens."
    >>> note_on_some_texts(Note(text, "part of a text"))
    'Some texts: The text was truncated to the first … of its … tokens.'
    """
    if kind_of(note) != "part of a text":
        return note
    # The advice on other values of `part` is for one record.
    note = re.sub(r"The record shows call \S+ (\(part=\d+\)).*", r"Only one call is read \1.", note)
    return "Some texts: " + _OF_ONE_TEXT.sub("…", note)


def summed_up(notes: Iterable[str]) -> list[str]:
    """Return the notes of all records of a corpus, with one note for similar notes on texts.

    >>> summed_up(["No tokenizer.", "The text was truncated to 9 tokens.", "No tokenizer."])
    ['No tokenizer.', 'The text was truncated to 9 tokens.']
    """
    similar: dict[str, set[str]] = {}
    for note in notes:
        similar.setdefault(note_on_some_texts(note), set()).add(note)
    return [min(same) if len(same) == 1 else general for general, same in similar.items()]
