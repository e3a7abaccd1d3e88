"""Columns of a corpus, by which points can be coloured.

A column has one value for each text, or one value for each token of each text.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "COLORINGS",
    "Column",
    "GivenColumn",
    "Side",
    "check_column_names",
    "check_entry",
    "is_missing",
    "read_columns",
]

#: Names of the built-in colourings. A column cannot have one of these names.
COLORINGS = ("type", "position", "position mod 5", "norm", "frequency", "punctuation", "text")

#: Name of a stack, and "query" or "key".
Side = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Column:
    """Values of a column for the points of a stack, which are queries and keys.

    Attributes
    ----------
    name : str
        Name of the column.
    queries, keys : ndarray
        `queries` has one value for each query, and `keys` one value for each key. The values of a
        numeric column are float64, and NaN if unknown. The values of any other column are int32
        indices into `categories`, and -1 if unknown.
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
    has one value for each token. The numbers and `categories` have the meaning that they have in
    `Column`.
    """

    name: str
    values: tuple[NDArray[Any], ...]
    categories: tuple[str, ...] | None

    def values_at(
        self, texts: NDArray[np.int32], positions: NDArray[np.int32], lengths: Sequence[int]
    ) -> NDArray[Any]:
        """Return the value of each token, given the text of each token and its position.

        All tokens are queries, or all are keys. `lengths` has the number of queries or keys of each
        text. If a text has another number of values (in cross-attention, its values can be those of
        the keys), its tokens get the value for unknown, NaN or -1.
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
    """Raise unless all names are non-empty strings that are not in `COLORINGS`.

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


def read_columns(
    columns: Mapping[Any, Any] | None, lengths: Mapping[Side, Sequence[int]], num_texts: int
) -> dict[str, GivenColumn]:
    """Check and convert the argument `columns` of `Corpus`.

    `lengths` has the number of tokens of each text, for the queries and the keys of each stack.
    """
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise TypeError(
            "columns must be a mapping of names to values, {name: values}, not "
            f"{type(columns).__name__}"
        )
    check_column_names(columns)
    return {
        name: _to_column(name, _entries_by_text(name, values, lengths, num_texts))
        for name, values in columns.items()
    }


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, infinite, or the ``NA`` or ``NaT`` of pandas."""
    # Compare the type name, because pandas may not be installed, and `==` does not work with NA and
    # NaT.
    return (
        value is None
        or type(value).__name__ in {"NAType", "NaTType"}
        or (isinstance(value, float | np.floating) and not math.isfinite(value))
    )


def check_entry(name: str, text: int, entry: Any, counts: Collection[int] = ()) -> None:
    """Raise unless `entry` is a valid value, or a sequence of valid values with a valid length.

    `name` and `text` are the column and the index of the text, for the error. `counts` has the
    valid lengths of a sequence. If `counts` is empty, any length is valid.
    """
    several = _is_sequence(entry)
    values = [_to_python(value) for value in entry] if several else [_to_python(entry)]
    _check_kinds(name, values)
    if several and counts and len(values) not in counts:
        raise ValueError(
            f"columns[{name!r}][{text}] has {len(values)} values but text {text} has "
            f"{_join_or(counts)} tokens. Pass one value for each token or one for the whole text."
        )


def _is_sequence(value: Any) -> TypeGuard[Iterable[Any]]:
    """Whether `value` is a sequence of values, such as a list, array, tensor or Series."""
    is_scalar = getattr(value, "ndim", 1) == 0 or isinstance(value, str | bytes | Mapping)
    return not is_scalar and hasattr(value, "__len__") and hasattr(value, "__iter__")


def _to_python(value: Any) -> Any:
    """Convert a numpy or torch scalar to a Python value."""
    # Return times unchanged: `item` may convert a time to a number of nanoseconds.
    if not hasattr(value, "item") or isinstance(value, np.datetime64 | np.timedelta64):
        return value
    return value.item()


def _entries_by_text(
    name: str, entries_given: Any, lengths: Mapping[Side, Sequence[int]], num_texts: int
) -> list[Any]:
    """Return one entry for each text: a value, or a list with one value for each token.

    If `entries_given` is a flat sequence of the values of all tokens, divide the sequence by text.
    """
    if not _is_sequence(entries_given):
        raise TypeError(
            f"columns[{name!r}] must be a sequence with a value for each text or token, not "
            f"{type(entries_given).__name__}"
        )
    entries = list(entries_given)
    if len(entries) == num_texts:
        for text, entry in enumerate(entries):
            if not _is_sequence(entry):
                continue
            check_entry(name, text, entry, {counts[text] for counts in lengths.values()})
            entries[text] = [_to_python(value) for value in entry]
        return [entry if isinstance(entry, list) else _to_python(entry) for entry in entries]
    totals = {sum(counts) for counts in lengths.values()}
    fitting = next((counts for counts in lengths.values() if sum(counts) == len(entries)), None)
    if fitting is None:
        raise ValueError(
            f"columns[{name!r}] has {len(entries)} values, but there are {num_texts} texts with "
            f"{_join_or(totals)} tokens in total. Pass one value for each text, one sequence for "
            "each text with a value for each of its tokens, or one value for each token of all "
            "texts."
        )
    ends = np.cumsum(fitting).tolist()
    values = [_to_python(value) for value in entries]
    return [values[end - count : end] for end, count in zip(ends, fitting, strict=True)]


def _join_or(counts: Iterable[int]) -> str:
    *before, last = map(str, sorted(counts))
    return f"{', '.join(before)} or {last}" if before else last


def _check_kinds(name: str, values: Iterable[Any]) -> None:
    for value in values:
        if is_missing(value):
            continue
        # Reject numpy.timedelta64 explicitly: numpy registers it as a `numbers.Integral`.
        if isinstance(value, np.timedelta64) or not isinstance(value, str | numbers.Real):
            raise TypeError(
                f"columns[{name!r}] must contain strings, numbers or booleans, not "
                f"{type(value).__name__}. Pass str(value) of each for categories, or a number."
            )


def _to_column(name: str, entries: Sequence[Any]) -> GivenColumn:
    """Convert the values of a column to numbers.

    If any value is a string or a boolean, convert all values to strings. The numbers are then
    indices into the sorted distinct strings.
    """
    flat = [value for entry in entries for value in (entry if isinstance(entry, list) else [entry])]
    _check_kinds(name, flat)
    present = [value for value in flat if not is_missing(value)]
    categories: tuple[str, ...] | None = None
    if any(isinstance(value, str | bool) for value in present):
        categories = tuple(sorted({str(value) for value in present}))
        codes = {category: number for number, category in enumerate(categories)}

        def read(value: Any) -> float:
            return -1 if is_missing(value) else codes[str(value)]
    else:

        def read(value: Any) -> float:
            return math.nan if is_missing(value) else float(value)

    kind = np.float64 if categories is None else np.int32
    values = [
        np.array([read(value) for value in entry] if isinstance(entry, list) else read(entry), kind)
        for entry in entries
    ]
    return GivenColumn(name, tuple(values), categories)
