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

from attnviz.corpus.edges import EdgeColumns
from attnviz.corpus.measuring import OFFSET_LABELS
from attnviz.corpus.totals import FIELDS, KeptTokens, Pool, StackTotals, Tables
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
    words = _Words()
    stacks = [
        _stack_to_header(name, totals.canonical(), arrays, words)
        for name, totals in state.stacks.items()
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
        "words": words.sorted(arrays),
        "arguments": dict(arguments) if arguments is not None else None,
    }
    return write_arrays(path, header, arrays)


class _Words:
    """Sorted table of all distinct tokens and class names. Arrays in the file have indices into it.

    `add` collects the strings of an array. `sorted` sorts the table and creates all arrays.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._named: list[tuple[str, list[int]]] = []

    def add(self, name: str, texts: Sequence[str]) -> None:
        numbers = [self._numbers.setdefault(text, len(self._numbers)) for text in texts]
        self._named.append((name, numbers))

    def sorted(self, arrays: _Arrays) -> list[str]:
        words = sorted(self._numbers)
        indices = np.zeros(len(words), np.int32)
        for index, word in enumerate(words):
            indices[self._numbers[word]] = index
        for name, numbers in self._named:
            arrays[name] = torch.from_numpy(indices[np.array(numbers, np.int64)])
        return words


def _stack_to_header(
    name: str, totals: StackTotals, arrays: _Arrays, words: _Words
) -> dict[str, Any]:
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
    for kind, pool in (("strongest", totals.strongest), ("sampled", totals.sampled)):
        for column in _EDGE_COLUMNS:
            put(f"{kind}/{column}", getattr(pool.kept, column))
    for side, parts in enumerate(totals.tokens):
        tokens_by_text = parts[0] if parts else {}
        put(f"tokens/{side}/texts", np.array(list(tokens_by_text), np.int64))
        put(
            f"tokens/{side}/counts",
            np.array([len(k.positions) for k in tokens_by_text.values()], np.int64),
        )
        positions = [
            position
            for text_tokens in tokens_by_text.values()
            for position in text_tokens.positions
        ]
        put(f"tokens/{side}/positions", np.array(positions, np.int32))
        words.add(
            f"{name}/tokens/{side}/tokens",
            [token for text_tokens in tokens_by_text.values() for token in text_tokens.tokens],
        )
        for system in range(len(totals.tables)):
            classes = [
                text_tokens
                for text_tokens_of_system in tokens_by_text.values()
                for text_tokens in text_tokens_of_system.classes[system]
            ]
            words.add(f"{name}/tokens/{side}/classes/{system}", classes)
    return {
        "name": name,
        "layers": list(totals.layers),
        "heads_per_layer": list(totals.heads_per_layer),
        "causal": totals.causal,
        "one_text": totals.one_text,
        "scores": list(totals.scores),
        "tables": [[system, list(table.names)] for system, table in totals.tables.items()],
        "most": totals.strongest.max_edges,
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
    words = [_text(item) for item in header["words"]]
    stacks: dict[str, StackTotals] = {}
    _check(isinstance(header["stacks"], list), "stacks are not a list")
    for fields in header["stacks"]:
        name = _text(fields["name"])
        _check(name not in stacks, f"stack {name!r} exists twice")
        stacks[name] = _totals(fields, _Reader(name, arrays, words))
        systems = tuple(stacks[name].tables)
        _check(systems == statistics.class_systems, "systems of classes do not match the columns")
        _check(stacks[name].strongest.max_edges == statistics.edges, "numbers of edges differ")
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

    def __init__(self, stack: str, arrays: _Arrays, words: Sequence[str]) -> None:
        self._stack, self._arrays, self._words = stack, arrays, words

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

    def words(self, key: str, count: int) -> list[str]:
        numbers = self.array(key, np.int32, count)
        _check(_within(numbers, len(self._words)), f"{key} contains an invalid word index")
        return [self._words[number] for number in numbers.tolist()]


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
    sides = tuple((_tokens(read, side, len(tables)),) for side in range(1 if one_text else 2))
    max_edges = _count(fields["most"])
    pools = [_pool(read, kind, max_edges, num_heads) for kind in ("strongest", "sampled")]
    for pool in pools:
        _check_tokens(pool.kept, sides)
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
        strongest=pools[0],
        sampled=pools[1],
        tokens=sides,
        num_tokens=sum(
            len(text_tokens.positions) for side in sides for text_tokens in side[0].values()
        ),
    )


def _pool(read: _Reader, kind: str, max_edges: int, num_heads: int) -> Pool:
    count = len(read.array(f"{kind}/order", np.uint64, None))
    columns = [
        read.array(f"{kind}/{column}", dtype, count) for column, dtype in _EDGE_COLUMNS.items()
    ]
    edges = EdgeColumns(*columns)
    _check(_within(edges.head, num_heads), f"{kind} edges have invalid heads")
    _check((np.diff(edges.head) >= 0).all(), f"{kind} edges are not sorted by head")
    _check(np.isfinite(edges.weight).all(), f"{kind} edges have weights that are not finite")
    _check((np.bincount(edges.head, minlength=1) <= max_edges).all(), f"too many {kind} edges")
    return Pool(max_edges, num_heads, edges)


def _tokens(read: _Reader, side: int, num_systems: int) -> dict[int, KeptTokens]:
    texts = read.array(f"tokens/{side}/texts", np.int64, None)
    counts = read.array(f"tokens/{side}/counts", np.int64, len(texts))
    positions = read.array(f"tokens/{side}/positions", np.int32, None)
    _check((counts > 0).all() and int(counts.sum()) == len(positions), "numbers of tokens differ")
    _check((np.diff(texts) > 0).all() and (positions >= 0).all(), "texts are not ascending")
    tokens = read.words(f"tokens/{side}/tokens", len(positions))
    systems = [
        read.words(f"tokens/{side}/classes/{system}", len(positions))
        for system in range(num_systems)
    ]
    by_text = {}
    start = 0
    for text, count in zip(texts.tolist(), counts.tolist(), strict=True):
        of_text = slice(start, start + count)
        start += count
        text_positions = tuple(positions[of_text].tolist())
        _check(
            all(earlier < later for earlier, later in pairwise(text_positions)),
            "positions are not ascending",
        )
        by_text[text] = KeptTokens(
            text_positions,
            tuple(tokens[of_text]),
            tuple(tuple(system_classes[of_text]) for system_classes in systems),
        )
    return by_text


def _check_tokens(edges: EdgeColumns, sides: Sequence[tuple[dict[int, KeptTokens]]]) -> None:
    """Raise ValueError unless `sides` has the tokens of the query and the key of every edge.

    `sides` has one entry if queries and keys are the same tokens, otherwise one for each.
    """
    for positions, side in ((edges.query, sides[0][0]), (edges.key, sides[-1][0])):
        kept_positions = {text: set(text_tokens.positions) for text, text_tokens in side.items()}
        for text, position in zip(edges.text.tolist(), positions.tolist(), strict=True):
            _check(
                position in kept_positions.get(text, ()), f"an edge of text {text} has no tokens"
            )


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
