"""Runs of a text's tokens that stand for images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import isqrt
from typing import Any

from attnviz.record.images import PatchGrid
from attnviz.record.tokens import Tokens

__all__ = ["image_places", "renamed", "runs_of", "with_image_runs"]

_ID_NAMES = ("image_token_id", "image_token_index", "video_token_id", "video_token_index")


def image_places(tokens: Tokens, config: Any) -> list[list[int]]:
    """Find the runs of a text's tokens that stand for patches of images.

    Parameters
    ----------
    tokens : Tokens
        With ids.
    config : PreTrainedConfig
        The model's; its `image_token_id` says which tokens they are.

    Returns
    -------
    list of list of int
        For each run the places of its tokens; empty where no token stands for an image.
    """
    return runs_of(tokens, config, _ID_NAMES)


def runs_of(tokens: Tokens, config: Any, names: Sequence[str]) -> list[list[int]]:
    """Find runs of tokens whose ids a configuration names.

    Parameters
    ----------
    tokens : Tokens
        With ids.
    config : PreTrainedConfig
        The model's.
    names : sequence of str
        Of the configuration's attributes.

    Returns
    -------
    list of list of int
        For each run the places of its tokens.
    """
    wanted = {getattr(config, name, None) for name in names} - {None}
    runs: list[list[int]] = []
    for place, identifier in enumerate(tokens.ids or ()):
        if identifier not in wanted:
            continue
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def with_image_runs(
    tokens: Tokens, runs: Sequence[list[int]], shapes: Sequence[tuple[int, int]] | None
) -> Tokens:
    """Name the tokens of a text that stand for patches of images.

    Parameters
    ----------
    tokens : Tokens
        The text's.
    runs : sequence of list of int
        The runs, as `image_places` gives them.
    shapes : sequence of tuple of int, or None
        Rows and columns of the patches that each picture was cut into, as far as they are known.

    Returns
    -------
    Tokens
        Each as ``row,column``, with its grid, where the shapes, made coarser alike, account for
        just so many tokens; otherwise as ``image 1``, by run. The same object without runs.

    Examples
    --------
    >>> tokens = Tokens.of(["a", "?", "?"], ids=[5, 9, 9])
    >>> with_image_runs(tokens, [[1, 2]], [(2, 4)]).text
    ('a', '0,0', '0,1')
    """
    if not runs:
        return tokens
    places = [place for run in runs for place in run]
    coarser = None if not shapes else _coarser(shapes, len(places))
    if coarser is None:
        return renamed(
            tokens, {place: f"image {n}" for n, run in enumerate(runs, 1) for place in run}
        )
    names: dict[int, str] = {}
    grids = []
    starts = [0, *accumulate(rows * columns for rows, columns in coarser)]
    for number, (start, (rows, columns)) in enumerate(zip(starts, coarser, strict=False)):
        own = places[start : start + rows * columns]
        prefix = f"{number + 1}: " if len(coarser) > 1 else ""
        for offset, place in enumerate(own):
            row, column = divmod(offset, columns)
            names[place] = f"{prefix}{row},{column}"
        # Some models put a token behind each row: their patches are no single run.
        if own[-1] - own[0] == len(own) - 1:
            grids.append(PatchGrid(number, own[0], rows, columns))
    return replace(renamed(tokens, names), grids=tuple(grids))


def _coarser(shapes: Sequence[tuple[int, int]], count: int) -> list[tuple[int, int]] | None:
    """The same shapes with blocks of patches made one, so that they are just so many."""
    block = isqrt(sum(rows * columns for rows, columns in shapes) // count)
    if block < 1 or any(rows % block or columns % block for rows, columns in shapes):
        return None
    coarser = [(rows // block, columns // block) for rows, columns in shapes]
    return coarser if sum(rows * columns for rows, columns in coarser) == count else None


def renamed(tokens: Tokens, names: Mapping[int, str]) -> Tokens:
    """Give tokens other names, as words of the text that they stand in.

    Parameters
    ----------
    tokens : Tokens
        The text's.
    names : mapping of int to str
        By place.

    Returns
    -------
    Tokens
    """
    text, special, sequence = list(tokens.text), list(tokens.special), list(tokens.sequence)
    words = None if tokens.words is None else list(tokens.words)
    for place, name in names.items():
        text[place], special[place] = name, False
        sequence[place] = _sequence_near(tokens, place)
        if words is not None:
            # A word of its own, so that it stays where words are merged.
            words[place] = len(tokens) + place
    return replace(
        tokens,
        text=tuple(text),
        special=tuple(special),
        sequence=tuple(sequence),
        words=None if words is None else tuple(words),
    )


def _sequence_near(tokens: Tokens, place: int) -> int:
    """The text that a place belongs to: that of the nearest token before it which has one."""
    before = (tokens.sequence[each] for each in range(place, -1, -1))
    return next((number for number in before if number is not None), 0)
