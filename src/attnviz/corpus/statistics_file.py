"""Files of head statistics, with a header and named arrays in safetensors format.

The bytes of a file do not depend on the order in which the texts were added.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.corpus.edges import EdgeColumns, KeptEdges, NearTokens
from attnviz.corpus.measuring import OFFSET_LABELS
from attnviz.corpus.totals import FIELDS, StackTotals, Tables
from attnviz.record.storage.safetensors_file import read_arrays, saved_file, write_arrays
from attnviz.utils.arguments import as_path, short_repr

if TYPE_CHECKING:
    from attnviz.corpus.statistics import HeadStatistics

__all__ = ["read_statistics", "statistics_state", "write_statistics"]

_KIND = "head statistics"
_FORMAT = 1
_EDGE_COLUMNS = {
    "order": np.uint64,
    "head": np.int32,
    "text": np.int64,
    "query": np.int32,
    "key": np.int32,
    "weight": np.float32,
}

_Arrays = dict[str, torch.Tensor]


def write_statistics(
    path: str | os.PathLike[str],
    statistics: HeadStatistics,
    *,
    arguments: Mapping[str, Any] | None = None,
) -> Path:
    """Write statistics to a file, and return the path of the file.

    In a checkpoint, `arguments` describes the call of `head_statistics`. The file is replaced
    atomically, so an interrupt does not damage an existing file.
    """
    arrays: _Arrays = {}
    state = statistics._state
    stacks = [
        _stack_to_header(name, totals.canonical(), arrays) for name, totals in state.stacks.items()
    ]
    header = {
        "kind": _KIND,
        "format": _FORMAT,
        "model": state.model,
        "weights": statistics.weights,
        "edges": statistics.edges,
        "seed": statistics.seed,
        "columns": list(statistics.class_systems[1:]),
        "frequencies": sorted(map(list, statistics._frequencies.items()), key=str),
        "remarks": list(statistics.remarks),
        "texts": [list(run) for run in state.texts],
        "tokens": state.tokens,
        "empty": state.empty,
        "too_long": state.too_long,
        "stacks": stacks,
        "arguments": dict(arguments) if arguments is not None else None,
    }
    return write_arrays(path, header, arrays)


def _stack_to_header(name: str, totals: StackTotals, arrays: _Arrays) -> dict[str, Any]:
    def put(key: str, values: NDArray[Any]) -> None:
        # Store uint64 as int64, because `write_arrays` does not support uint64.
        signed = values.view(np.int64) if values.dtype == np.uint64 else values
        arrays[f"{name}/{key}"] = torch.from_numpy(np.require(signed, requirements=["C", "W"]))

    for index, fields in enumerate(totals.scores.values()):
        put(f"scores/{index}", fields)
    put("offsets", totals.offsets)
    put("offset_counts", totals.offset_counts)
    for index, table in enumerate(totals.tables.values()):
        put(f"tables/{index}/sums", table.sums)
        put(f"tables/{index}/counts", table.counts)
    for kind in ("strongest", "sampled"):
        for column in _EDGE_COLUMNS:
            put(f"{kind}/{column}", getattr(getattr(totals.edges, kind), column))
    for side, tokens in enumerate(totals.edges.tokens):
        texts, counts = np.unique(tokens.text, return_counts=True)
        put(f"tokens/{side}/texts", texts)
        put(f"tokens/{side}/counts", counts)
        put(f"tokens/{side}/positions", tokens.position)
        put(f"tokens/{side}/codes", tokens.codes)
    return {
        "name": name,
        "layers": list(totals.layers),
        "heads_per_layer": list(totals.heads_per_layer),
        "causal": totals.causal,
        "one_text": totals.one_text,
        "scores": list(totals.scores),
        "tables": [[system, list(table.names)] for system, table in totals.tables.items()],
        "words": list(totals.edges.words[0]),
        "most": totals.edges.max_edges,
    }


def read_statistics(path: str | os.PathLike[str], kind: type[HeadStatistics]) -> Any:
    """Read statistics from a file. Raise ValueError if the file is damaged or has another format.

    `kind` is the class `HeadStatistics`, passed as an argument to avoid a circular import.
    """
    statistics, _ = statistics_state(path, kind)
    return statistics


def statistics_state(
    path: str | os.PathLike[str], kind: type[HeadStatistics]
) -> tuple[HeadStatistics, dict[str, Any] | None]:
    """Read statistics from a file. Return them and the arguments of a checkpoint, or None."""
    header, arrays = read_arrays(saved_file(as_path("path", path, "file")), verify=True)
    if header.get("kind") != _KIND:
        raise ValueError(
            f"path={str(path)!r} does not contain head statistics. Pass a file that "
            "HeadStatistics.save wrote."
        )
    if header.get("format") != _FORMAT:
        raise ValueError(
            f"path={str(path)!r} has format {short_repr(header.get('format'))}, but this version "
            f"of attnviz reads format {_FORMAT}. Update attnviz."
        )
    try:
        return _statistics(header, arrays, kind), header.get("arguments")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"path={str(path)!r} is damaged ({error}). Save it again.") from error


def _statistics(
    header: dict[str, Any], arrays: _Arrays, kind: type[HeadStatistics]
) -> HeadStatistics:
    from attnviz.corpus.statistics import _State

    statistics = kind(
        weights=_text(header["weights"]),
        edges=header["edges"],
        seed=header["seed"],
        columns=[_text(name) for name in header["columns"]],
        frequencies={_id(key): _count(value) for key, value in header["frequencies"]},
    )
    statistics.remarks = tuple(_text(item) for item in header["remarks"])
    stacks: dict[str, StackTotals] = {}
    _check(isinstance(header["stacks"], list), "stacks are not a list")
    for fields in header["stacks"]:
        name = _text(fields["name"])
        _check(name not in stacks, f"stack {name!r} exists twice")
        stacks[name] = _totals(fields, _Reader(name, arrays))
        systems = tuple(stacks[name].tables)
        _check(systems == statistics.class_systems, "systems of classes do not match the columns")
        _check(stacks[name].edges.max_edges == statistics.edges, "numbers of edges differ")
    runs = tuple((_count(start), _count(stop)) for start, stop in header["texts"])
    ends = [-1, *(end for run in runs for end in run)]
    _check(
        all(earlier < later for earlier, later in pairwise(ends)),
        "ranges of texts are not ascending",
    )
    state = _State(
        runs,
        _count(header["tokens"]),
        _count(header["empty"]),
        _count(header["too_long"]),
        MappingProxyType(stacks),
        None if header["model"] is None else _text(header["model"]),
    )
    _check(state.empty + state.too_long <= state.num_texts, "more texts are left out than exist")
    statistics._state = state
    return statistics


class _Reader:
    """Reader of the arrays of one stack. It checks their shape and dtype."""

    def __init__(self, stack: str, arrays: _Arrays) -> None:
        self._stack, self._arrays = stack, arrays

    def array(self, key: str, dtype: Any, *shape: int | None) -> NDArray[Any]:
        name = f"{self._stack}/{key}"
        # Copy the array, because it is mapped from the file, which could change.
        values = self._arrays[name].numpy().copy()
        stored_dtype = np.int64 if dtype == np.uint64 else dtype
        fits = values.ndim == len(shape) and all(
            size is None or size == actual for size, actual in zip(shape, values.shape, strict=True)
        )
        _check(fits and values.dtype == stored_dtype, f"{name} has a wrong shape or dtype")
        return values.view(np.uint64) if dtype == np.uint64 else values


def _totals(fields: dict[str, Any], read: _Reader) -> StackTotals:
    layers = tuple(_count(layer) for layer in fields["layers"])
    heads_per_layer = tuple(_count(count) for count in fields["heads_per_layer"])
    _check(len(layers) == len(heads_per_layer) > 0, "numbers of layers and heads differ")
    _check(sorted(set(layers)) == list(layers), "layers are not ascending")
    _check(min(heads_per_layer) > 0, "a layer has no heads")
    num_heads, one_text = sum(heads_per_layer), _flag(fields["one_text"])
    scores = [_text(score) for score in fields["scores"]]
    _check(len(set(scores)) == len(scores), "a score exists twice")
    tables = {}
    for index, (system, classes) in enumerate(fields["tables"]):
        names = tuple(_text(class_name) for class_name in classes)
        _check(
            len(set(names)) == len(names) and "" not in names, "a class is empty or exists twice"
        )
        tables[_text(system)] = Tables(
            names,
            read.array(f"tables/{index}/sums", np.int64, num_heads, len(names), len(names)),
            read.array(f"tables/{index}/counts", np.int64, num_heads, len(names)),
        )
    _check(len(tables) == len(fields["tables"]), "a system of classes exists twice")
    words = (
        tuple(_text(word) for word in fields["words"]),
        *(table.names for table in tables.values()),
    )
    tokens = tuple(_tokens(read, side, words) for side in range(1 if one_text else 2))
    max_edges = _count(fields["most"])
    strongest, sampled = (
        _edges(read, kind, max_edges, num_heads) for kind in ("strongest", "sampled")
    )
    _check_tokens(EdgeColumns.joined([strongest, sampled]), tokens)
    counts = read.array("offset_counts", np.int64, num_heads, len(OFFSET_LABELS))
    return StackTotals(
        layers=layers,
        heads_per_layer=heads_per_layer,
        causal=_flag(fields["causal"]),
        one_text=one_text,
        scores={
            score: read.array(f"scores/{index}", np.int64, len(FIELDS), num_heads)
            for index, score in enumerate(scores)
        },
        offsets=read.array("offsets", np.int64, num_heads, len(OFFSET_LABELS)),
        offset_counts=counts,
        tables=tables,
        edges=KeptEdges(max_edges, num_heads, strongest, sampled, tokens, words),
    )


def _edges(read: _Reader, kind: str, max_edges: int, num_heads: int) -> EdgeColumns:
    count = len(read.array(f"{kind}/order", np.uint64, None))
    columns = [
        read.array(f"{kind}/{column}", dtype, count) for column, dtype in _EDGE_COLUMNS.items()
    ]
    edges = EdgeColumns(*columns)
    _check(_within(edges.head, num_heads), f"{kind} edges have invalid heads")
    _check((np.diff(edges.head) >= 0).all(), f"{kind} edges are not sorted by head")
    _check(np.isfinite(edges.weight).all(), f"{kind} edges have weights that are not finite")
    _check((np.bincount(edges.head, minlength=1) <= max_edges).all(), f"too many {kind} edges")
    return edges


def _tokens(read: _Reader, side: int, words: Sequence[Sequence[str]]) -> NearTokens:
    texts = read.array(f"tokens/{side}/texts", np.int64, None)
    counts = read.array(f"tokens/{side}/counts", np.int64, len(texts))
    positions = read.array(f"tokens/{side}/positions", np.int32, None)
    codes = read.array(f"tokens/{side}/codes", np.int32, len(words), len(positions))
    valid = (counts > 0) & (counts <= len(positions))
    _check(valid.all() and int(counts.sum()) == len(positions), "numbers of tokens differ")
    _check((np.diff(texts) > 0).all() and (positions >= 0).all(), "texts are not ascending")
    tokens = NearTokens(np.repeat(texts, counts), positions, codes)
    same_text = np.diff(tokens.text) == 0
    _check((np.diff(positions)[same_text] > 0).all(), "positions are not ascending")
    _check(_within(codes[0], len(words[0])), "the text of a token does not exist")
    for row, names in zip(codes[1:], words[1:], strict=True):
        _check(_within(row + 1, len(names) + 1), "the class of a token does not exist")
    return tokens


def _check_tokens(edges: EdgeColumns, sides: Sequence[NearTokens]) -> None:
    """Raise ValueError unless `sides` has the tokens of the query and the key of every edge.

    `sides` has one entry if queries and keys are the same tokens, otherwise one for each.
    """
    for positions, side in ((edges.query, sides[0]), (edges.key, sides[-1])):
        kept = set(zip(side.text.tolist(), side.position.tolist(), strict=True))
        missing = set(zip(edges.text.tolist(), positions.tolist(), strict=True)) - kept
        _check(not missing, f"an edge has no tokens: text and position {missing}")


def _within(numbers: NDArray[Any], stop: int) -> bool:
    return bool(((numbers >= 0) & (numbers < stop)).all())


def _check(fits: object, what: str) -> None:
    if not fits:
        raise ValueError(what)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{short_repr(value)} is not a string")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise TypeError(f"{short_repr(value)} is not a count")
    return value


def _id(value: Any) -> int | str:
    return value if isinstance(value, str) else _count(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{short_repr(value)} is not a boolean")
    return value
