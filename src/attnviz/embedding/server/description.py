"""What the points of a corpus are, told to a view: texts, tokens, columns and caveats.

A vocabulary is sent once and tokens as numbers of its entries: a corpus of a hundred thousand
tokens has a few thousand different ones. ``js/src/views/embedding/client/corpus.ts`` is the other
side.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Literal, NotRequired, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis.token_kinds import is_punctuation
from attnviz.corpus.columns import Column
from attnviz.corpus.corpus import Caveat, Corpus, caveats_of
from attnviz.record.tokens import Tokens
from attnviz.server.description import Description, TokenList, describe_in_steps
from attnviz.utils.progress import Steps

__all__ = [
    "CorpusPoints",
    "describe_corpus",
    "describe_points",
    "packed_points",
]

_NO_TOKENS: TokenList = {"text": [], "special": [], "sequence": []}


class PointTokens(TypedDict):
    """Of each point of one side: its text, its position in it and its entry of the vocabulary."""

    text: list[int]
    position: list[int]
    token: list[int]


class ColumnValues(TypedDict):
    """What points are coloured by that the reader gave.

    Attributes
    ----------
    categories : list of str or None
        null: its values are numbers.
    queries, keys : list of (float or None)
        Of each point a number or the index of a category; null where it is not known.
    """

    name: str
    categories: list[str] | None
    queries: list[float | None]
    keys: list[float | None]


class CorpusCaveat(TypedDict):
    """What is not exact on the plots of some layers, in a sentence.

    Attributes
    ----------
    kind : {"moving", "bias"}
        "moving": only where the keys are moved.
    """

    layers: list[int]
    words: str
    kind: NotRequired[Literal["moving", "bias"]]


class CorpusGrid(TypedDict):
    """A run of tokens that are the patches of one image, row by row from the top left.

    Attributes
    ----------
    image : int
        Which of the text's images.
    start : int
        Position of the first patch.
    """

    text: int
    side: Literal["both", "queries", "keys"]
    image: int
    start: int
    rows: int
    columns: int


class CorpusPoints(TypedDict):
    """What the points of a stack are.

    Attributes
    ----------
    in_all, texts_in_all : int
        How many points there would be without sampling, and of how many texts.
    whole : bool
        Whether each text that has points has all its tokens.
    left_out : int
        Texts that could not be read, being empty or too long.
    stopped : bool
        Whether texts or tokens are missing because there were points enough.
    text_tokens : list of int
        How many tokens each text has, 0 where it has no points.
    frequency : list of int
        How often each entry of the vocabulary occurs in all texts that were read.
    punctuation, special : list of int
        Entries of the vocabulary.
    keys : PointTokens or None
        null: the same tokens as the queries.
    images : int
        How many images there are whose patches are tokens.
    """

    num_queries: int
    num_keys: int
    in_all: int
    texts_in_all: int
    whole: bool
    left_out: NotRequired[int]
    stopped: NotRequired[bool]
    seed: int
    names: list[str]
    text_tokens: list[int]
    vocabulary: list[str]
    frequency: list[int]
    punctuation: list[int]
    special: list[int]
    queries: PointTokens
    keys: PointTokens | None
    columns: list[ColumnValues]
    caveats: list[CorpusCaveat]
    images: int
    grids: NotRequired[list[CorpusGrid]]


def describe_corpus(corpus: Corpus) -> Steps[Description]:
    """What a corpus holds, without points and tokens, which differ from text to text; in steps."""
    first = yield from describe_in_steps(corpus.records[0])
    first.pop("images", None)
    stacks = []
    for stack in first["stacks"]:
        if stack["name"] not in corpus.stack_names:
            continue
        # What holds for the first text alone is left out.
        stack.pop("sampled", None)
        stack |= {
            "query_tokens": _NO_TOKENS,
            "key_tokens": None if corpus.same_tokens(stack["name"]) else _NO_TOKENS,
            "patterns": [],
        }
        stacks.append(stack)
    return first | {"model": corpus.model, "notes": list(corpus.notes), "stacks": stacks}


def packed_points(corpus: Corpus, stack: str) -> bytes:
    """What `describe_points` says: deflated UTF-8 of its JSON."""
    text = json.dumps(describe_points(corpus, stack), separators=(",", ":"), allow_nan=False)
    return zlib.compress(text.encode("ascii"))


def describe_points(corpus: Corpus, stack: str) -> CorpusPoints:
    """What the points of a stack are."""
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
    described: dict[str, Any] = {
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
        "caveats": _caveats(corpus, stack),
        "images": sum(len(record.images) for record in corpus.records),
        **({"grids": grids} if grids else {}),
    }
    return cast("CorpusPoints", described)


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
                row, column = grid.cell(place)
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


def _caveats(corpus: Corpus, stack: str) -> list[dict[str, Any]]:
    """Each sentence once, with the layers that it holds for."""
    layers: dict[Caveat, list[int]] = {}
    for layer in corpus.stack(stack).layers:
        for caveat in caveats_of(corpus.attention(stack, layer, 0)):
            layers.setdefault(caveat, []).append(layer)
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
