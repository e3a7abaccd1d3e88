"""Validation of arguments: numbers, slices and paths. Errors contain the argument's name."""

from __future__ import annotations

import difflib
import operator
import os
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

__all__ = [
    "MAX_NUMBERS",
    "as_list",
    "as_path",
    "did_you_mean",
    "format_numbers",
    "resolve_negative",
    "resolve_slice",
    "short_repr",
    "whole_number",
    "whole_numbers",
]

#: Maximum number of layers, heads or keys that one argument may list. No model has more layers or
#: heads.
MAX_NUMBERS = 100_000

_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = _SHORT.maxdict = 24
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 400


def short_repr(given: Any) -> str:
    """Return ``repr(given)`` for an error message, shortened if it is long.

    >>> short_repr([0, 5]), len(short_repr(list(range(10**6)))) < 200
    ('[0, 5]', True)
    """
    try:
        return _SHORT.repr(given)
    except Exception:  # noqa: BLE001 - __repr__ of a foreign object may raise anything
        return f"<{type(given).__name__}>"


def did_you_mean(
    name: str, names: Iterable[str], other_names: Mapping[str, str] | None = None
) -> str:
    """Return the hint that ends an error about an unknown name, or "" if no name is similar.

    `other_names` maps names that other libraries use to the names in attnviz.

    >>> did_you_mean("head", ["heads", "layer"]), did_you_mean("x", ["heads", "layer"])
    ("; did you mean 'heads'?", '')
    """
    meant = (other_names or {}).get(name)
    near = [meant] if meant else difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def whole_number(
    name: str, given: Any, least: int | None = None, most: int | None = None, *, hint: str = ""
) -> int:
    """Return `given` as an int after checking that it is a whole number within the bounds.

    Raise TypeError or ValueError otherwise. The message ends with `hint`.

    >>> whole_number("queries", 64, 1)
    64
    >>> whole_number("queries", 0, 1, hint="the number of queries to measure")
    Traceback (most recent call last):
    ValueError: queries=0 must be at least 1, the number of queries to measure
    """
    hint = f", {hint}" if hint else ""
    number = _index(given)
    if number is None:
        raise TypeError(f"{name}={short_repr(given)} must be a whole number{hint}")
    if (least is not None and number < least) or (most is not None and number > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name}={short_repr(number)} must be {bounds}{hint}")
    return number


def whole_numbers(name: str, given: Any, *, hint: str = "such as [0, 5]") -> tuple[int, ...]:
    """Return `given` as a tuple of ints.

    Raise TypeError if it is not a list of whole numbers, or ValueError if it has more than
    `MAX_NUMBERS` items. The message contains `hint`.

    >>> whole_numbers("layers", range(3))
    (0, 1, 2)
    """
    refused = f"{name}={short_repr(given)} must be a list of whole numbers, {hint}"
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(refused)
    numbers = []
    # The iterable may be infinite.
    for each in islice(iter(given), MAX_NUMBERS + 1):
        number = _index(each)
        if number is None:
            raise TypeError(f"{refused}; {short_repr(each)} is not one")
        numbers.append(number)
    if len(numbers) > MAX_NUMBERS:
        raise ValueError(
            f"{name}={short_repr(given)} has more than {MAX_NUMBERS:,} numbers, {hint}"
        )
    return tuple(numbers)


def as_list(given: Any) -> Any:
    """Return a single number as a list of one number. Return anything else unchanged.

    `whole_numbers` checks the result.

    >>> as_list(3), as_list([0, 3])
    ([3], [0, 3])
    """
    number = _index(given)
    return given if number is None else [number]


def resolve_negative(number: Any, numbers: Sequence[int]) -> Any:
    """Return the element of ascending `numbers` that a negative index means, as in Python.

    Return anything else unchanged, so that the caller's check of valid numbers rejects it.

    >>> [resolve_negative(number, [0, 4, 8]) for number in (-1, 4, -9)]
    [8, 4, -9]
    """
    place = _index(number)
    if place is None or not -len(numbers) <= place < 0:
        return number
    return numbers[place]


def _index(given: Any) -> int | None:
    """Return `given` as an int, or None if it is not a whole number. A bool is not a number."""
    try:
        return None if isinstance(given, bool) else operator.index(given)
    except TypeError:
        return None


def resolve_slice(argument: str, wanted: slice | None, size: int) -> slice:
    """Return the slice of `size` rows or columns with explicit start and stop. None means all.

    Raise TypeError if `wanted` is not a slice, or ValueError if it has a step.
    """
    if wanted is None:
        return slice(0, size)
    if not isinstance(wanted, slice):
        raise TypeError(f"{argument} must be a slice such as slice(0, 64); got {wanted!r}")
    start, stop, step = wanted.indices(size)
    if step != 1:
        raise ValueError(f"{argument}={wanted!r} has a step; take every row and pick from those")
    return slice(start, max(start, stop))


def format_numbers(numbers: Sequence[int]) -> str:
    """Return ascending numbers as text: ``"0 to 5"`` or ``"0, 4, 8"``."""
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def as_path(argument: str, given: Any, kind: str) -> Path:
    """Return `given` as the path of a `kind` (``"folder"``, ``"file"``), with ``~`` expanded.

    Raise TypeError if it is not a path, or ValueError if it is empty or not a valid file name.

    >>> as_path("spool", "long/0", "folder").as_posix()
    'long/0'
    """
    if not isinstance(given, str | os.PathLike) or not isinstance(os.fspath(given), str):
        raise TypeError(
            f"{argument} must be the path of a {kind}, a text or a pathlib.Path; got "
            f"{type(given).__name__}"
        )
    said = os.fspath(given)
    if not said:
        # pathlib reads "" as the working directory.
        raise ValueError(f"{argument}='' is not the name of a {kind}; give one")
    try:
        encoded = os.fsencode(said)
    except UnicodeEncodeError as error:
        raise ValueError(f"{argument}={said!r} cannot be the name of a {kind}: {error}") from error
    if b"\0" in encoded:
        raise ValueError(
            f"{argument}={said!r} cannot be the name of a {kind}: it has a null character"
        )
    try:
        return Path(said).expanduser()
    except RuntimeError as error:
        raise ValueError(
            f"{argument}={said!r}: no home folder is known for {Path(said).parts[0]!r}; write the "
            f"path in full, or ./ before a {kind} of that name"
        ) from error
