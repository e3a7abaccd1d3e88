"""Spans of numbers: rows as a caller gives them, layers and heads as a reader says them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["full_slice", "spans"]


def full_slice(argument: str, wanted: slice | None, size: int) -> slice:
    """Read which rows or columns are wanted.

    Parameters
    ----------
    argument : str
        Its name, for errors.
    wanted : slice or None
        As given; None is all.
    size : int
        How many there are.

    Returns
    -------
    slice
        Start and stop given, inside of them.

    Raises
    ------
    TypeError, ValueError
        If it is no slice, or has a step.
    """
    if wanted is None:
        return slice(0, size)
    if not isinstance(wanted, slice):
        raise TypeError(f"{argument} must be a slice such as slice(0, 64); got {wanted!r}")
    start, stop, step = wanted.indices(size)
    if step != 1:
        raise ValueError(f"{argument}={wanted!r} has a step; take every row and pick from those")
    return slice(start, max(start, stop))


def spans(numbers: Sequence[int]) -> str:
    """Numbers as a reader would say them.

    Parameters
    ----------
    numbers : sequence of int
        Ascending.

    Returns
    -------
    str
        ``"0 to 5"`` or ``"0, 4, 8"``.
    """
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))
