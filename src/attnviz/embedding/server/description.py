"""Description of the points of a corpus for a view: texts, tokens, columns and caveats.

Each different token is sent once, in the vocabulary. The tokens of points are sent as indices into
the vocabulary, because a corpus of a hundred thousand tokens has only a few thousand different
tokens. ``js/src/views/embedding/client/corpus.ts`` reads the description.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Literal, NotRequired, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from attnviz.corpus.columns import Column
from attnviz.corpus.corpus import Caveat, Corpus, caveats_of
from attnviz.record.token_kinds import is_punctuation
from attnviz.record.tokens import Tokens
from attnviz.server.description import Description, TokenList, describe

_NO_TOKENS: TokenList = {"text": [], "special": [], "sequence": []}


class PointTokens(TypedDict):
    """Tokens of all queries or of all keys, with one entry per point in each list.

    Attributes
    ----------
    text : list of int
        Index of the text.
    position : list of int
        Position in the text.
    token : list of int
        Index of the token in the vocabulary.
    """

    text: list[int]
    position: list[int]
    token: list[int]


class ColumnValues(TypedDict):
    """Values of one property of tokens (a column that the user passed), for the colours of points.

    Attributes
    ----------
    categories : list of str or None
        Names of the categories, null if the values are numbers.
    queries, keys : list of (float or None)
        Value of each point, null if unknown: a number, or the index of a category.
    """

    name: str
    categories: list[str] | None
    queries: list[float | None]
    keys: list[float | None]


class CorpusCaveat(TypedDict):
    """Sentence about an inexactness of the plots of some layers.

    Attributes
    ----------
    kind : {"moving", "bias"}
        "moving" is about the translation of keys. The view shows this caveat only if keys are
        translated.
    """

    layers: list[int]
    words: str
    kind: NotRequired[Literal["moving", "bias"]]


class CorpusGrid(TypedDict):
    """Tokens that are the patches of one image, row by row from the top left.

    Attributes
    ----------
    image : int
        Index of the image among the images of the text.
    start : int
        Position of the first patch among the tokens of the text.
    """

    text: int
    side: Literal["both", "queries", "keys"]
    image: int
    start: int
    rows: int
    columns: int


class CorpusPoints(TypedDict):
    """Description of the points of a stack.

    Attributes
    ----------
    total_points : int
        Number of queries and keys of all texts that were read.
    total_texts : int
        Number of texts from which the texts of the corpus were chosen.
    whole : bool
        Whether all tokens are points in each text that has points.
    num_skipped : int
        Number of texts that could not be read because they are empty or too long.
    stopped : bool
        Whether some texts or tokens have no points because the limit of points was reached.
    names : list of str
        Title of each text.
    text_tokens : list of int
        Number of query tokens of each text, 0 if the text has no points.
    frequency : list of int
        Number of occurrences of each vocabulary entry in all texts that were read.
    punctuation, special : list of int
        Indices of the vocabulary entries that are punctuation, or special tokens.
    queries : PointTokens
        Tokens of the queries.
    keys : PointTokens or None
        null if keys have the same tokens as queries.
    images : int
        Number of images whose patches are tokens.
    """

    num_queries: int
    num_keys: int
    total_points: int
    total_texts: int
    whole: bool
    num_skipped: NotRequired[int]
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


def describe_corpus(corpus: Corpus) -> Description:
    """Describe the model and the stacks of a corpus, without its points and tokens."""
    first = describe(corpus.records[0])
    first.pop("images", None)
    stacks = []
    for stack in first["stacks"]:
        if stack["name"] not in corpus.stack_names:
            continue
        # Remove entries that describe only the first text.
        stack.pop("sampled", None)
        stack |= {
            "query_tokens": _NO_TOKENS,
            "key_tokens": None if corpus.same_tokens(stack["name"]) else _NO_TOKENS,
            "patterns": [],
        }
        stacks.append(stack)
    return first | {"model": corpus.model, "notes": list(corpus.notes), "stacks": stacks}


def packed_points(corpus: Corpus, stack: str) -> bytes:
    """Return the JSON of `describe_points`, compressed with deflate."""
    text = json.dumps(describe_points(corpus, stack), separators=(",", ":"), allow_nan=False)
    return zlib.compress(text.encode("ascii"))


def describe_points(corpus: Corpus, stack: str) -> CorpusPoints:
    """Describe the points of a stack."""
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
        "total_points": int(points.total_points),
        "total_texts": int(corpus.total_texts),
        "whole": bool(points.whole),
        "num_skipped": int(corpus.num_skipped),
        "stopped": corpus.total_texts - corpus.num_skipped > len(chosen) or not points.whole,
        "seed": int(corpus.seed),
        "names": list(corpus.names),
        "text_tokens": [
            len(queries.shown) if index in chosen else 0 for index, (queries, _) in enumerate(sides)
        ],
        "vocabulary": vocabulary.entries,
        "frequency": vocabulary.frequency,
        "punctuation": [
            index for index, entry in enumerate(vocabulary.entries) if is_punctuation(entry)
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
    """List of different tokens in the order of their first occurrence, with their frequencies."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.frequency: list[int] = []
        self.special: set[int] = set()
        self._indices: dict[str, int] = {}

    def count(self, tokens: _Side) -> None:
        for text, special in zip(tokens.shown, tokens.tokens.special, strict=True):
            index = self._indices.setdefault(text, len(self.entries))
            if index == len(self.entries):
                self.entries.append(text)
                self.frequency.append(0)
            self.frequency[index] += 1
            if special:
                self.special.add(index)

    def index(self, text: str) -> int:
        return self._indices[text]


class _Side:
    """Tokens of the queries, or of the keys, of one text.

    `shown` has the tokens as views show them: the patches of images are named by row and column.
    """

    def __init__(self, tokens: Tokens, num_images: int) -> None:
        self.tokens = tokens
        self.shown = list(tokens.text)
        for grid in tokens.grids:
            image = f" of image {grid.image}" if num_images > 1 else ""
            for index in range(grid.start, grid.stop):
                row, column = grid.cell(index)
                self.shown[index] = f"patch {row},{column}{image}"


_Sides = Sequence[tuple[_Side, _Side]]


def _sides(corpus: Corpus, stack: str, index: int) -> tuple[_Side, _Side]:
    record = corpus.records[index]
    attention_stack, images = record.stack(stack), len(record.images)
    return _Side(attention_stack.query_tokens, images), _Side(attention_stack.key_tokens, images)


def _points_of(
    texts: NDArray[np.int32],
    positions: NDArray[np.int32],
    sides: _Sides,
    side: int,
    vocabulary: _Vocabulary,
) -> dict[str, list[int]]:
    text_list, position_list = texts.tolist(), positions.tolist()
    tokens = [
        vocabulary.index(sides[text][side].shown[position])
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
    """Convert the values of a column to JSON values, with None for unknown values."""
    array = np.asarray(values, dtype=np.float64)
    if categories is None:
        return [float(value) if np.isfinite(value) else None for value in array]
    return [int(number) if np.isfinite(number) and number >= 0 else None for number in array]


def _caveats(corpus: Corpus, stack: str) -> list[dict[str, Any]]:
    """Return the different caveats of a stack's layers, each with the layers that have it."""
    layers: dict[Caveat, list[int]] = {}
    for layer in corpus.stack(stack).layers:
        for caveat in caveats_of(corpus.attention(stack, layer, 0)):
            layers.setdefault(caveat, []).append(layer)
    return [{"layers": numbers} | asdict(caveat) for caveat, numbers in layers.items()]


def _grids(sides: _Sides, chosen: set[int], *, same: bool) -> list[dict[str, Any]]:
    grids = []
    for text in sorted(chosen):
        queries, keys = sides[text]
        by_side = [("both", queries)] if same else [("queries", queries), ("keys", keys)]
        grids += [
            {"text": text, "side": side} | asdict(grid)
            for side, one in by_side
            for grid in one.tokens.grids
        ]
    return grids
