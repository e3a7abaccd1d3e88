"""Columns: what is known of each text or token of a corpus, to colour points by."""

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

#: What points can be coloured by in any corpus, whatever columns it has.
COLORINGS = ("type", "position", "position mod 5", "norm", "frequency", "punctuation", "text")

#: A stack's name and one of its two sides, "query" or "key".
Side = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Column:
    """A column's values at the points of a stack.

    Attributes
    ----------
    name : str
        As it was given.
    queries, keys : ndarray
        One value a query and a key: float64, NaN where it is not known, where the column holds
        numbers; otherwise int32, places in `categories`, -1 where it is not known.
    categories : tuple of str, or None
        What the column's values are, sorted; None where they are numbers.
    """

    name: str
    queries: NDArray[Any]
    keys: NDArray[Any]
    categories: tuple[str, ...] | None


@dataclass(frozen=True, eq=False)
class GivenColumn:
    """A column as it was given, made numbers.

    `values` holds for each text a value for all of it (no axis) or one a token; these and
    `categories` are as in `Column`.
    """

    name: str
    values: tuple[NDArray[Any], ...]
    categories: tuple[str, ...] | None

    def at(
        self, texts: NDArray[np.int32], positions: NDArray[np.int32], lengths: Sequence[int]
    ) -> NDArray[Any]:
        """Values at the tokens (`texts`, `positions`), given how many tokens each text has.

        Unknown where a text's values are those of the other side's tokens.
        """
        unknown: float = np.nan if self.categories is None else -1
        found = np.full(len(texts), unknown, np.float64 if self.categories is None else np.int32)
        for text in np.unique(texts).tolist():
            given, here = self.values[text], texts == text
            if given.ndim == 0:
                found[here] = given
            elif len(given) == lengths[text]:
                found[here] = given[positions[here]]
        return found


def check_column_names(names: Iterable[Any]) -> None:
    """Refuse names that are not texts, or are those of a colouring that every corpus has.

    Examples
    --------
    >>> check_column_names(["author", "year"])
    """
    for name in names:
        if not isinstance(name, str) or not name:
            raise TypeError(f"columns: a name must be a text that is not empty; got {name!r}")
        # One colouring would hide the other, and the legend would be of neither.
        if name in COLORINGS:
            raise ValueError(
                f"columns: every corpus can be coloured by {name!r} already; give your column "
                f"another name, such as columns={{{'my ' + name!r}: [...]}}"
            )


def read_columns(
    columns: Mapping[Any, Any] | None, lengths: Mapping[Side, Sequence[int]], num_texts: int
) -> dict[str, GivenColumn]:
    """Read columns as `Corpus` takes them; `lengths` are the numbers of tokens of each text."""
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise TypeError(
            f"columns must be a mapping of names to values, {{name: values}}; got "
            f"{type(columns).__name__}"
        )
    check_column_names(columns)
    return {
        name: _numbered(name, _by_text(name, given, lengths, num_texts))
        for name, given in columns.items()
    }


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, infinite, or the ``NA`` or ``NaT`` of pandas."""
    # Those of pandas are known by name: it need not be there, and they equal nothing.
    return (
        value is None
        or type(value).__name__ in {"NAType", "NaTType"}
        or (isinstance(value, float | np.floating) and not math.isfinite(value))
    )


def check_entry(name: str, text: int, entry: Any, counts: Collection[int] = ()) -> None:
    """Refuse what cannot be a column's entry for a text: a value, or a sequence of one a token.

    `counts` are the numbers of tokens that the text has; empty where they are not known yet.
    """
    several = _is_sequence(entry)
    values = [_plain(value) for value in entry] if several else [_plain(entry)]
    _check_kinds(name, values)
    if several and counts and len(values) not in counts:
        raise ValueError(
            f"columns[{name!r}][{text}] has {len(values)} values but text {text} has "
            f"{_either(counts)} tokens; give one value for each, or one for the whole text"
        )


def _is_sequence(value: Any) -> TypeGuard[Iterable[Any]]:
    """Whether it holds several values: a list, an array, a tensor, a Series."""
    unlike = getattr(value, "ndim", 1) == 0 or isinstance(value, str | bytes | Mapping)
    return not unlike and hasattr(value, "__len__") and hasattr(value, "__iter__")


def _plain(value: Any) -> Any:
    """A value as Python's own."""
    # A time as a number of nanoseconds would be a scale that was not asked for.
    if not hasattr(value, "item") or isinstance(value, np.datetime64 | np.timedelta64):
        return value
    return value.item()


def _by_text(
    name: str, given: Any, lengths: Mapping[Side, Sequence[int]], num_texts: int
) -> list[Any]:
    """One entry a text: a value, or a list with one a token."""
    if not _is_sequence(given):
        raise TypeError(
            f"columns[{name!r}] must be a sequence with a value for each text or token; got "
            f"{type(given).__name__}"
        )
    entries = list(given)
    if len(entries) == num_texts:
        for text, entry in enumerate(entries):
            if not _is_sequence(entry):
                continue
            check_entry(name, text, entry, {each[text] for each in lengths.values()})
            entries[text] = [_plain(value) for value in entry]
        return [entry if isinstance(entry, list) else _plain(entry) for entry in entries]
    totals = {sum(each) for each in lengths.values()}
    fitting = next((each for each in lengths.values() if sum(each) == len(entries)), None)
    if fitting is None:
        raise ValueError(
            f"columns[{name!r}] has {len(entries)} values, but there are {num_texts} texts with "
            f"{_either(totals)} tokens in all; give one value for each text, or one sequence for "
            "each text with a value for each of its tokens, or one value for each token of all "
            "texts"
        )
    ends = np.cumsum(fitting).tolist()
    values = [_plain(value) for value in entries]
    return [values[end - count : end] for end, count in zip(ends, fitting, strict=True)]


def _either(counts: Iterable[int]) -> str:
    *before, last = map(str, sorted(counts))
    return f"{', '.join(before)} or {last}" if before else last


def _check_kinds(name: str, values: Iterable[Any]) -> None:
    for value in values:
        if is_missing(value):
            continue
        # A span of numpy's is a whole number to Python.
        if isinstance(value, np.timedelta64) or not isinstance(value, str | numbers.Real):
            raise TypeError(
                f"columns[{name!r}] must hold texts, numbers or True and False; got "
                f"{type(value).__name__}: give str(value) of each, for categories, or a number"
            )


def _numbered(name: str, entries: Sequence[Any]) -> GivenColumn:
    """Values as numbers, or as places among all values that there are."""
    flat = [value for entry in entries for value in (entry if isinstance(entry, list) else [entry])]
    _check_kinds(name, flat)
    known = [value for value in flat if not is_missing(value)]
    categories: tuple[str, ...] | None = None
    if any(isinstance(value, str | bool) for value in known):
        categories = tuple(sorted({str(value) for value in known}))
        place = {category: number for number, category in enumerate(categories)}

        def read(value: Any) -> float:
            return -1 if is_missing(value) else place[str(value)]
    else:

        def read(value: Any) -> float:
            return math.nan if is_missing(value) else float(value)

    kind = np.float64 if categories is None else np.int32
    values = [
        np.array([read(value) for value in entry] if isinstance(entry, list) else read(entry), kind)
        for entry in entries
    ]
    return GivenColumn(name, tuple(values), categories)
