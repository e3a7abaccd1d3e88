"""What the points of a corpus are, told to a view: texts, tokens, columns and reservations.

A vocabulary is sent once and tokens as numbers of its entries: a corpus of a hundred thousand
tokens has a few thousand different ones. ``js/src/views/embedding/client/corpus.ts`` is the other
side.
"""

from __future__ import annotations

import json
import string
import unicodedata
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.corpus.caveats import Reservation, reservations_of
from attnviz.corpus.columns import Column
from attnviz.corpus.corpus import Corpus
from attnviz.record.tokens import Tokens
from attnviz.server.description import describe

__all__ = ["describe_corpus", "describe_points", "is_punctuation", "packed_points"]

# How a vocabulary writes that an entry begins a word or continues one.
_SPACE, _CONTINUES = "·", "##"
_NO_TOKENS: dict[str, Any] = {"text": [], "special": [], "sequence": []}


def describe_corpus(corpus: Corpus) -> dict[str, Any]:
    """Say what a corpus holds, without points and without the tokens of any text.

    Parameters
    ----------
    corpus : Corpus
        The corpus.

    Returns
    -------
    dict
        As `attnviz.server.description.describe` says it of a record; stacks have no tokens, which
        differ from text to text.
    """
    first = describe(corpus.records[0])
    first.pop("images", None)
    stacks = [
        # What holds for the first text alone is left out.
        {key: value for key, value in stack.items() if key not in {"zeros", "sampled"}}
        | {"query_tokens": _NO_TOKENS, "patterns": []}
        | {"key_tokens": None if corpus.same_tokens(stack["name"]) else _NO_TOKENS}
        for stack in first["stacks"]
        if stack["name"] in corpus.stack_names
    ]
    return first | {"model": corpus.model, "notes": list(corpus.notes), "stacks": stacks}


def packed_points(corpus: Corpus, stack: str) -> bytes:
    """Deflate what `describe_points` says.

    Parameters
    ----------
    corpus : Corpus
        The corpus.
    stack : str
        Name of the stack.

    Returns
    -------
    bytes
        Deflated UTF-8 of its JSON.

    Raises
    ------
    KeyError
        If there is no such stack.
    """
    text = json.dumps(describe_points(corpus, stack), separators=(",", ":"), allow_nan=False)
    return zlib.compress(text.encode("ascii"))


def describe_points(corpus: Corpus, stack: str) -> dict[str, Any]:
    """Say what the points of a stack are.

    Parameters
    ----------
    corpus : Corpus
        The corpus.
    stack : str
        Name of the stack.

    Returns
    -------
    dict
        Fit for JSON. ``queries`` and ``keys`` have, for each point, its text, its position and
        its entry in ``vocabulary``; ``keys`` is None where keys are the same tokens as queries.
        ``frequency`` counts each entry in all texts that were read, also those without points.
        ``left_out`` texts are empty or too long; ``stopped`` is whether others, or tokens, have no
        points because there are enough.

    Raises
    ------
    KeyError
        If there is no such stack.
    """
    points = corpus.points(stack)
    same = corpus.same_tokens(stack)
    sides = [_sides(corpus, stack, index) for index in range(len(corpus.records))]
    vocabulary = _Vocabulary()
    for queries, keys in sides:
        vocabulary.count(queries)
        if not same:
            vocabulary.count(keys)
    chosen = set(points.texts)
    grids = _grids(sides, chosen, same=same)
    return {
        "num_queries": points.num_queries,
        "num_keys": points.num_keys,
        "in_all": int(points.in_all),
        "texts_in_all": int(corpus.texts_in_all),
        "whole": bool(points.whole),
        "left_out": int(corpus.left_out),
        "stopped": corpus.texts_in_all - corpus.left_out > len(chosen) or not points.whole,
        "seed": int(corpus.seed),
        "names": list(corpus.names),
        "text_tokens": [
            len(queries.shown) if index in chosen else 0 for index, (queries, _) in enumerate(sides)
        ],
        "vocabulary": vocabulary.entries,
        "frequency": vocabulary.frequency,
        "punctuation": [
            place for place, entry in enumerate(vocabulary.entries) if is_punctuation(entry)
        ],
        "special": sorted(vocabulary.special),
        "queries": _points_of(points.query_text, points.query_position, sides, 0, vocabulary),
        "keys": None
        if same
        else _points_of(points.key_text, points.key_position, sides, 1, vocabulary),
        "columns": [_column(corpus.column(stack, name)) for name in corpus.column_names],
        "reservations": _reservations(corpus, stack),
        "images": sum(len(record.images) for record in corpus.records),
        **({"grids": grids} if grids else {}),
        **_one_grid(grids),
    }


def is_punctuation(entry: str) -> bool:
    """Whether a token is punctuation and nothing else.

    Parameters
    ----------
    entry : str
        As it is shown.

    Returns
    -------
    bool
        True where all characters but the signs of spaces and of words that go on are punctuation:
        ASCII's, or of Unicode's categories P.

    Examples
    --------
    >>> is_punctuation("·("), is_punctuation("##,"), is_punctuation("·"), is_punctuation("don't")
    (True, True, False, False)
    """
    characters = entry.removeprefix(_CONTINUES).replace(_SPACE, "")
    return bool(characters) and all(
        each in string.punctuation or unicodedata.category(each).startswith("P")
        for each in characters
    )


class _Vocabulary:
    """Different tokens in the order of their first occurrence, and how often each occurs."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.frequency: list[int] = []
        self.special: set[int] = set()
        self._places: dict[str, int] = {}

    def count(self, tokens: _Side) -> None:
        for text, special in zip(tokens.shown, tokens.tokens.special, strict=True):
            place = self._places.setdefault(text, len(self.entries))
            if place == len(self.entries):
                self.entries.append(text)
                self.frequency.append(0)
            self.frequency[place] += 1
            if special:
                self.special.add(place)

    def place(self, text: str) -> int:
        return self._places[text]


class _Side:
    """Tokens of one side of a text, patches called by their place as in all views."""

    def __init__(self, tokens: Tokens, num_images: int) -> None:
        self.tokens = tokens
        self.shown = list(tokens.text)
        for grid in tokens.grids:
            image = f" of image {grid.image}" if num_images > 1 else ""
            for place in range(grid.start, grid.stop):
                row, column = grid.place(place)
                self.shown[place] = f"patch {row},{column}{image}"


_Sides = Sequence[tuple[_Side, _Side]]


def _sides(corpus: Corpus, stack: str, index: int) -> tuple[_Side, _Side]:
    record = corpus.records[index]
    found, images = record.stack(stack), len(record.images)
    return _Side(found.query_tokens, images), _Side(found.key_tokens, images)


def _points_of(
    texts: NDArray[np.int32],
    positions: NDArray[np.int32],
    sides: _Sides,
    side: int,
    vocabulary: _Vocabulary,
) -> dict[str, list[int]]:
    text_list, position_list = texts.tolist(), positions.tolist()
    tokens = [
        vocabulary.place(sides[text][side].shown[position])
        for text, position in zip(text_list, position_list, strict=True)
    ]
    return {"text": text_list, "position": position_list, "token": tokens}


def _column(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "categories": None if column.categories is None else list(column.categories),
        "queries": _values(column.queries, column.categories),
        "keys": _values(column.keys, column.categories),
    }


def _values(values: Iterable[Any], categories: Sequence[str] | None) -> list[int | float | None]:
    """Numbers that JSON knows; None where one is not known."""
    array = np.asarray(values, dtype=np.float64)
    if categories is None:
        return [float(each) if np.isfinite(each) else None for each in array]
    return [int(each) if np.isfinite(each) and each >= 0 else None for each in array]


def _reservations(corpus: Corpus, stack: str) -> list[dict[str, Any]]:
    """Each sentence once, with the layers that it holds for."""
    layers: dict[Reservation, list[int]] = {}
    for layer in corpus.stack(stack).layers:
        for reservation in reservations_of(corpus.attention(stack, layer, 0)):
            layers.setdefault(reservation, []).append(layer)
    return [{"layers": numbers} | asdict(each) for each, numbers in layers.items()]


def _grids(sides: _Sides, chosen: set[int], *, same: bool) -> list[dict[str, Any]]:
    found = []
    for text in sorted(chosen):
        queries, keys = sides[text]
        by_side = [("both", queries)] if same else [("queries", queries), ("keys", keys)]
        found += [
            {"text": text, "side": side} | asdict(grid)
            for side, one in by_side
            for grid in one.tokens.grids
        ]
    return found


def _one_grid(grids: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The grid, where all images have the same."""
    kinds = {(each["start"], each["rows"], each["columns"], each["side"]) for each in grids}
    once = len({(each["text"], each["side"]) for each in grids}) == len(grids)
    if len(kinds) != 1 or not once:
        return {}
    return {"grid": {name: grids[0][name] for name in ("start", "rows", "columns")}}
