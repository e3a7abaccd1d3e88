"""Columns that the user adds to a corpus: values of texts or of their tokens.

A column has an entry for each text. An entry is one value for the whole text, or a sequence with
one value for each token. In `attnviz.head_statistics`, values are classes of tokens. In `Corpus`,
they are values by which the points of a plot (queries and keys) can be coloured.

A stack is the attention of one kind, such as "self" or "cross", in all layers. In cross-attention,
queries and keys are different tokens.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from attnviz.corpus.texts import Texts
from attnviz.record.record import AttentionRecord

#: Names of the built-in colourings of the points. A column cannot have one of these names.
COLORINGS = ("type", "position", "position mod 5", "norm", "frequency", "punctuation", "text")

#: A pair of strings: the name of a stack, and either "query" or "key".
Side = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Column:
    """Values of a column for the points of a stack: queries and keys that a plot shows.

    Attributes
    ----------
    name : str
        Name of the column.
    queries, keys : ndarray
        `queries` has one value for each point that is a query, and `keys` one value for each point
        that is a key, in the order of `attnviz.corpus.points.Points`. The values of a numeric
        column are float64, and NaN if unknown. The values of any other column are int32 indices
        into `categories`, and -1 if unknown.
    categories : tuple of str, or None
        Distinct values of the column, sorted. None for a numeric column.
    """

    name: str
    queries: NDArray[Any]
    keys: NDArray[Any]
    categories: tuple[str, ...] | None


@dataclass(frozen=True, eq=False)
class GivenColumn:
    """Column that the user passed, with its values converted to numbers.

    `values` has one array for each text. A 0-d array is the value of the whole text. A 1-d array
    has one value for each token. The values of a numeric column are float64, and NaN if unknown,
    and `categories` is None. The values of any other column are int32 indices into `categories`,
    and -1 if unknown.
    """

    values: tuple[NDArray[Any], ...]
    categories: tuple[str, ...] | None

    def values_at(
        self, texts: NDArray[np.int32], positions: NDArray[np.int32], lengths: Sequence[int]
    ) -> NDArray[Any]:
        """Return the value of the column for each of the given tokens: only queries or only keys.

        `texts` has the index of each token's text, and `positions` its position in this text.
        `lengths` has the number of queries (or keys) of each text of the corpus.

        If the number of values of a text differs from its number of queries (or keys), the values
        of its tokens are unknown (NaN or -1). For example, in cross-attention, the user can pass
        values for the keys, which do not fit the queries.
        """
        unknown: float = np.nan if self.categories is None else -1
        result = np.full(len(texts), unknown, np.float64 if self.categories is None else np.int32)
        for text in np.unique(texts).tolist():
            text_values, in_text = self.values[text], texts == text
            if text_values.ndim == 0:
                result[in_text] = text_values
            elif len(text_values) == lengths[text]:
                result[in_text] = text_values[positions[in_text]]
        return result


def check_column_names(names: Iterable[Any]) -> None:
    """Raise TypeError or ValueError unless all names are non-empty strings not in `COLORINGS`.

    Examples
    --------
    >>> check_column_names(["author", "year"])
    """
    for name in names:
        if not isinstance(name, str) or not name:
            raise TypeError(f"columns: names must be non-empty strings, not {name!r}")
        if name in COLORINGS:
            raise ValueError(
                f"columns: {name!r} is the name of a built-in colouring. Use another name, such as "
                f"columns={{{'my ' + name!r}: [...]}}."
            )


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, infinite, or the ``NA`` or ``NaT`` of pandas."""
    # Recognize NA and NaT by the names of their types, because pandas may not be installed. A
    # comparison `value == NA` would not help: its result is NA.
    return (
        value is None
        or type(value).__name__ in {"NAType", "NaTType"}
        or (isinstance(value, float | np.floating) and not math.isfinite(value))
    )


def checked_entry(
    name: str, entry: Any, counts: Collection[int] = (), text: int | None = None
) -> Any:
    """Check the entry of a column for one text, and return it as a Python value or a list of them.

    `entry` is one value, or a sequence with one value for each token. `name` is the name of the
    column, and `text` the index of the text. Both are used only in error messages.

    Raise TypeError unless all values are strings, numbers, booleans or missing. Raise ValueError if
    the length of a sequence is not in `counts`, which has the numbers of query tokens and of key
    tokens of the text. If `counts` is empty, any length is valid.
    """
    several = _is_sequence(entry)
    values = [_to_python(value) for value in (entry if several else (entry,))]
    for value in values:
        # Reject numpy.timedelta64 explicitly: numpy registers it as a `numbers.Integral`.
        is_valid = isinstance(value, str | numbers.Real) and not isinstance(value, np.timedelta64)
        if not is_valid and not is_missing(value):
            raise TypeError(
                f"columns[{name!r}] must contain strings, numbers or booleans, not "
                f"{type(value).__name__}. Pass str(value) of each for categories, or a number."
            )
    if several and counts and len(values) not in counts:
        of, index = ("the text", "") if text is None else (f"text {text}", f"[{text}]")
        lengths = " or ".join(map(str, sorted(counts)))
        raise ValueError(
            f"columns[{name!r}]{index} has {len(values)} values but {of} has {lengths} "
            "tokens. Pass one value for each token or one for the whole text."
        )
    return values if several else values[0]


class TextColumns:
    """Columns of all texts, from the argument `columns` of `extract_corpus` or `head_statistics`.

    `columns` maps names to lists with an entry for each text. It can also be the name of a column
    of the dataset `texts`, or several such names. None means no columns.

    Examples
    --------
    >>> columns = TextColumns({"label": ["a", "b", "c"]}, Texts(["the", "cat", "sat"]))
    >>> columns[2]
    {'label': 'c'}
    """

    def __init__(self, columns: Mapping[str, Any] | Iterable[str] | None, texts: Texts) -> None:
        self._values: dict[str, tuple[Any, list[str] | None]]
        if isinstance(columns, Mapping):
            # The numbers of tokens are not known yet, so any length of an entry is valid.
            checked = _check_columns(columns, [()] * len(texts))
            self._values = {name: (entries, None) for name, entries in checked.items()}
        else:
            names = [columns] if isinstance(columns, str) else list(columns or ())
            check_column_names(names)
            self._values = {name: texts.values(name) for name in names}
        self.names = list(self._values)

    def __getitem__(self, text: int) -> dict[str, Any]:
        """Return the entry of each column for the text with the index `text`, by column name."""
        return {
            name: _class(values[text], classes) for name, (values, classes) in self._values.items()
        }

    def check(self, text: int, record: AttentionRecord) -> None:
        """Raise an error if an entry of the text with the index `text` does not fit its record.

        Raise TypeError if a value has an invalid type (`checked_entry`). Raise ValueError if an
        entry is a sequence and its length is neither the number of queries nor the number of keys
        of a stack that has query and key vectors. If the record has no such stack, any length is
        valid.
        """
        counts = {
            len(side)
            for stack in record.stacks.values()
            if stack.has_vectors
            for side in (stack.query_tokens, stack.key_tokens)
        }
        for name, entry in self[text].items():
            checked_entry(name, entry, counts, text)


def _class(value: Any, classes: list[str] | None) -> Any:
    """Return the name of the class with the index `value`, or None for an index such as -1.

    `classes` has the names of all classes. If it is None, the values of the column are not indices
    of classes, so return `value` unchanged.
    """
    if classes is None or value is None:
        return value
    return classes[value] if 0 <= value < len(classes) else None


def read_columns(
    columns: Mapping[Any, Any] | None, lengths: Mapping[Side, Sequence[int]], num_texts: int
) -> dict[str, GivenColumn]:
    """Check the argument `columns` of `Corpus`, and return its columns by name.

    `lengths` has two items for each stack: the numbers of queries of all texts, and the numbers of
    their keys. `num_texts` is the number of texts. An entry that is a sequence must have as many
    values as its text has queries or keys in one of the stacks. The result is empty if `columns` is
    None.
    """
    counts = [{of_side[text] for of_side in lengths.values()} for text in range(num_texts)]
    checked = _check_columns(columns or {}, counts)
    return {name: _to_column(entries) for name, entries in checked.items()}


def _check_columns(columns: Any, counts: Sequence[Collection[int]]) -> dict[str, list[Any]]:
    """Check the columns, and return the entries of each column as Python values and lists.

    `columns` must be a mapping of valid names to sequences with one entry for each text. Otherwise
    raise TypeError or ValueError. `counts` has the argument `counts` of `checked_entry` for each
    text.
    """
    if not isinstance(columns, Mapping):
        raise TypeError(
            "columns must be a mapping of names to values, {name: values}, not "
            f"{type(columns).__name__}"
        )
    check_column_names(columns)
    checked = {}
    for name, values in columns.items():
        if not _is_sequence(values):
            raise TypeError(
                f"columns[{name!r}] must be a sequence with a value for each text, not "
                f"{type(values).__name__}"
            )
        if len(values) != len(counts):
            raise ValueError(
                f"columns[{name!r}] has {len(values)} values, but there are {len(counts)} texts. "
                "Pass one value for each text, or one sequence for each text with a value for each "
                "of its tokens."
            )
        checked[name] = [
            checked_entry(name, entry, counts[text], text) for text, entry in enumerate(values)
        ]
    return checked


def _is_sequence(value: Any) -> TypeGuard[Collection[Any]]:
    """Whether `value` is a sequence of values, such as a list, array, tensor or Series.

    Strings, mappings and 0-d arrays are not sequences of values.
    """
    is_scalar = getattr(value, "ndim", 1) == 0 or isinstance(value, str | bytes | Mapping)
    return not is_scalar and hasattr(value, "__len__") and hasattr(value, "__iter__")


def _to_python(value: Any) -> Any:
    """Convert a numpy or torch scalar to a Python value. Return other values unchanged."""
    # Return dates and durations of numpy unchanged, because `item` can convert them to a number of
    # nanoseconds.
    if not hasattr(value, "item") or isinstance(value, np.datetime64 | np.timedelta64):
        return value
    return value.item()


def category_codes(values: Sequence[Any]) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Return an index for each value, and the sorted distinct strings to which the indices refer.

    Values are converted to strings. The index of a missing value is -1.

    >>> category_codes(["b", None, "a"])
    (array([ 1, -1,  0], dtype=int32), ('a', 'b'))
    """
    texts = [None if is_missing(value) else str(value) for value in values]
    categories = tuple(sorted({text for text in texts if text is not None}))
    code_of: dict[str | None, int] = {category: code for code, category in enumerate(categories)}
    return np.array([code_of.get(text, -1) for text in texts], np.int32), categories


def _to_column(entries: Sequence[Any]) -> GivenColumn:
    """Convert the values of a column to numbers.

    `entries` has an entry for each text: one value, or a list with one value for each token. If any
    value is a string or a boolean, each value is converted to a string, and then to its index in
    the sorted distinct strings. A missing value becomes -1. Otherwise each value becomes a float,
    and a missing value becomes NaN.
    """
    flat = [value for entry in entries for value in (entry if isinstance(entry, list) else [entry])]
    numbers: NDArray[Any]
    categories = None
    if any(isinstance(value, str | bool) for value in flat):
        numbers, categories = category_codes(flat)
    else:
        numbers = np.array([math.nan if is_missing(value) else float(value) for value in flat])
    lengths = [len(entry) if isinstance(entry, list) else 1 for entry in entries]
    by_text = np.split(numbers, np.cumsum(lengths)[:-1])
    values = (
        of_text if isinstance(entry, list) else of_text[0]
        for entry, of_text in zip(entries, by_text, strict=True)
    )
    return GivenColumn(tuple(map(np.asarray, values)), categories)
