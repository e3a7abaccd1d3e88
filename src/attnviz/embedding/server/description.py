"""Description of the points of a corpus for a view: texts, tokens, columns and caveats.

A point is a query or a key of one token. A column has values of texts or tokens, which the user
passed and by which points can be coloured. A caveat is a reason why the points do not determine the
weights exactly.

Each different token is sent once, in the vocabulary. The tokens of points are sent as indices into
the vocabulary, because a corpus of a hundred thousand tokens has only a few thousand different
tokens. ``js/src/views/embedding/client/corpus.ts`` reads the description.
"""

from __future__ import annotations

from collections import Counter
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

# Maximum number of points in the small plot of a head.
_MAX_SMALL_PLOT_POINTS = 10_000
_NO_TOKENS: TokenList = {"text": [], "special": [], "sequence": []}


class PointTokens(TypedDict):
    """Tokens of all query points, or of all key points. Each list has one entry per point.

    Attributes
    ----------
    text : list of int
        Index of the text in `CorpusPoints.names`.
    position : list of int
        Position of the token in its text, from 0.
    token : list of int
        Index of the token in `CorpusPoints.vocabulary`.
    """

    text: list[int]
    position: list[int]
    token: list[int]


class ColumnValues(TypedDict):
    """Values of a column, by which points can be coloured.

    A column is a property of texts or tokens that the user passed, such as the part of speech.

    Attributes
    ----------
    categories : list of str or None
        Names of the categories, or None if the values of the column are numbers.
    queries, keys : list of (float or None)
        Value of each query point (`queries`) and of each key point (`keys`): a number, or an index
        into `categories`. None if the value is unknown.
    """

    name: str
    categories: list[str] | None
    queries: list[float | None]
    keys: list[float | None]


class CorpusCaveat(TypedDict):
    """Reason why the plots of some layers do not determine their attention weights exactly.

    Attributes
    ----------
    layers : list of int
        Numbers of the layers in the model.
    words : str
        Sentence that explains the reason to the reader.
    kind : {"moving", "bias"}
        Kind of reason. "moving": the layer has a soft cap or a sink, so moving the keys near the
        queries (`translate` of `PlotOptions.placing`) changes the weights. The view shows this
        caveat only for plots with moved keys. "bias": the layer adds a position bias to its logits,
        and the distances between points do not contain this bias.
    """

    layers: list[int]
    words: str
    kind: NotRequired[Literal["moving", "bias"]]


class CorpusPoints(TypedDict):
    """Description of the points of a stack, and of the texts and tokens that they belong to.

    Points are numbered from 0: first all queries, then all keys.

    Attributes
    ----------
    num_queries, num_keys : int
        Number of points that are queries (`num_queries`), and that are keys (`num_keys`).
    total_points : int
        Number of queries and keys of all texts in `names`, including those that are not points.
    total_texts : int
        Number of texts from which the texts in `names` were chosen, including skipped texts.
    whole : bool
        Whether all tokens are points in each text that has points. False if a single text exceeds
        the limit of points, so that only a random sample of its tokens are points.
    num_skipped : int
        Number of texts that could not be read, because they are empty or too long for the model.
    stopped : bool
        Whether some texts or tokens have no points because the limit of points was reached.
    seed : int
        Seed of the random choice of points.
    stride : int
        Small plots have every `stride`-th point: the points with the numbers 0, `stride`, 2
        `stride`, ...
    names : list of str
        Title of each text that was read.
    vocabulary : list of str
        Distinct tokens, as the view displays them.
    frequency : list of int
        Number of tokens that are equal to each entry of `vocabulary`, in all texts in `names`.
        Query tokens are counted, and also key tokens unless they are the same tokens.
    punctuation, special : list of int
        Indices into `vocabulary` of the tokens that are punctuation (`punctuation`), and of the
        special tokens (`special`).
    queries : PointTokens
        Tokens of the query points.
    keys : PointTokens or None
        Tokens of the key points. None if queries and keys are the same tokens.
    images : int
        Total number of images in the texts in `names`.
    """

    num_queries: int
    num_keys: int
    total_points: int
    total_texts: int
    whole: bool
    num_skipped: NotRequired[int]
    stopped: NotRequired[bool]
    seed: int
    stride: int
    names: list[str]
    vocabulary: list[str]
    frequency: list[int]
    punctuation: list[int]
    special: list[int]
    queries: PointTokens
    keys: PointTokens | None
    columns: list[ColumnValues]
    caveats: list[CorpusCaveat]
    images: int


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


def describe_points(corpus: Corpus, stack: str) -> CorpusPoints:
    """Describe the points of a stack."""
    points = corpus.points(stack)
    same = corpus.same_tokens(stack)
    # For each text, `tokens` has the tokens of its queries (and of its keys, if they differ), and
    # `words` has the strings with which a view displays these tokens.
    tokens: dict[tuple[int, str], Tokens] = {}
    for text, record in enumerate(corpus.records):
        own = record.stack(stack)
        tokens[text, "queries"] = own.query_tokens
        if not same:
            tokens[text, "keys"] = own.key_tokens
    words = {
        (text, side): _words(own, len(corpus.records[text].images))
        for (text, side), own in tokens.items()
    }
    # Different words in the order of their first occurrence.
    frequency = Counter(word for own in words.values() for word in own)
    index = {word: number for number, word in enumerate(frequency)}
    special = {
        index[word]
        for key, own in tokens.items()
        for word, is_special in zip(words[key], own.special, strict=True)
        if is_special
    }

    def described(side: str, texts: NDArray[np.int32], positions: NDArray[np.int32]) -> PointTokens:
        at = list(zip(texts.tolist(), positions.tolist(), strict=True))
        tokens_of = [index[words[text, side][position]] for text, position in at]
        return {"text": texts.tolist(), "position": positions.tolist(), "token": tokens_of}

    facts: dict[str, Any] = {
        "num_queries": points.num_queries,
        "num_keys": points.num_keys,
        "total_points": int(points.total_points),
        "total_texts": int(corpus.total_texts),
        "whole": bool(points.whole),
        "num_skipped": int(corpus.num_skipped),
        "stopped": corpus.total_texts - corpus.num_skipped > len(points.texts) or not points.whole,
        "seed": int(corpus.seed),
        "stride": small_plot_stride(len(points)),
        "names": list(corpus.names),
        "vocabulary": list(index),
        "frequency": list(frequency.values()),
        "punctuation": [number for word, number in index.items() if is_punctuation(word)],
        "special": sorted(special),
        "queries": described("queries", points.query_text, points.query_position),
        "keys": None if same else described("keys", points.key_text, points.key_position),
        "columns": [_column(corpus.column(stack, name)) for name in corpus.column_names],
        "caveats": _caveats(corpus, stack),
        "images": sum(len(record.images) for record in corpus.records),
    }
    return cast("CorpusPoints", facts)


def small_plot_stride(num_points: int) -> int:
    """Return n such that a small plot has every n-th of `num_points` points."""
    return max(1, -(-num_points // _MAX_SMALL_PLOT_POINTS))


def _words(tokens: Tokens, num_images: int) -> list[str]:
    """Return tokens as views show them: the patches of images are named by row and column."""
    words = list(tokens.text)
    for grid in tokens.pictured:
        image = f" of image {grid.image}" if num_images > 1 else ""
        image = f" of {grid.name}" if grid.name else image
        for index in grid.positions:
            row, column = grid.cell(index)
            words[index] = f"patch {row},{column}{image}"
    return words


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
    """Return the caveats of a stack, each with the layers that have it.

    The caveats of the first text hold for all texts, because all texts are from the same model.
    """
    layers: dict[Caveat, list[int]] = {}
    for layer in corpus.stack(stack).layers:
        for caveat in caveats_of(corpus.attention(stack, layer, 0)):
            layers.setdefault(caveat, []).append(layer)
    return [{"layers": numbers} | asdict(caveat) for caveat, numbers in layers.items()]
