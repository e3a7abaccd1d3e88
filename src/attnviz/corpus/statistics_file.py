"""Files of head statistics, with a header and named arrays in safetensors format."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.corpus.edges import EdgeColumns, KeptEdges, NearTokens
from attnviz.corpus.measuring import OFFSET_LABELS
from attnviz.corpus.totals import (
    ClassTotals,
    Settings,
    StackTotals,
    Totals,
    join_ranges,
)
from attnviz.record.storage.safetensors_file import read_arrays, saved_file, write_arrays
from attnviz.utils.arguments import as_path, short_repr

_KIND = "head statistics"
_FORMAT = 2
_EDGE_COLUMNS = {
    "order": np.uint64,
    "head": np.int32,
    "text": np.int64,
    "query": np.int32,
    "key": np.int32,
    "weight": np.float32,
}
_Kind = TypeVar("_Kind")


def write_totals(
    path: str | os.PathLike[str], totals: Totals, checkpoint: Mapping[str, Any] | None = None
) -> Path:
    """Write totals to a file, and return the path of the file.

    `checkpoint` describes the call of `head_statistics` that writes a checkpoint. The file is
    replaced atomically, so an interrupt does not damage an existing file.
    """
    arrays: dict[str, torch.Tensor] = {}
    header = {
        "kind": _KIND,
        "format": _FORMAT,
        "settings": {
            **asdict(totals.settings),
            "frequencies": sorted(map(list, totals.settings.frequencies.items()), key=str),
        },
        **{
            name: getattr(totals, name)
            for name in ("model", "weights", "texts", "tokens", "empty", "too_long", "remarks")
        },
        "stacks": [
            _stack_to_header(name, stack, arrays) for name, stack in totals.settled().stacks.items()
        ],
        "checkpoint": checkpoint,
    }
    return write_arrays(path, header, arrays)


def _stack_to_header(
    name: str, totals: StackTotals, arrays: dict[str, torch.Tensor]
) -> dict[str, Any]:
    """Return the header of a stack, and add its arrays to `arrays`."""

    def put(key: str, values: NDArray[Any]) -> None:
        # Store uint64 as int64, because `write_arrays` does not support uint64.
        signed = values.view(np.int64) if values.dtype == np.uint64 else values
        arrays[f"{name}/{key}"] = torch.from_numpy(np.require(signed, requirements=["C", "W"]))

    for index, sums in enumerate(totals.scores.values()):
        put(f"scores/{index}", sums)
    put("offsets", totals.offsets)
    for index, classes in enumerate(totals.classes.values()):
        put(f"classes/{index}/weights", classes.weights)
        put(f"classes/{index}/queries", classes.queries)
    [kept] = totals.edges
    for kind, edges in (("strongest", kept.strongest), ("sampled", kept.sampled)):
        for column in _EDGE_COLUMNS:
            put(f"{kind}/{column}", getattr(edges, column))
    for side, tokens in enumerate(kept.tokens):
        put(f"tokens/{side}/text", tokens.text)
        put(f"tokens/{side}/position", tokens.position)
        put(f"tokens/{side}/codes", tokens.codes)
    return {
        "name": name,
        "layers": totals.layers,
        "heads_per_layer": totals.heads_per_layer,
        "causal": totals.causal,
        "one_text": totals.one_text,
        "scores": list(totals.scores),
        "classes": {system: classes.names for system, classes in totals.classes.items()},
        "words": kept.words[0],
    }


def read_totals(path: str | os.PathLike[str]) -> tuple[Totals, dict[str, Any] | None]:
    """Read totals from a file. Also return the description of a checkpoint, or None.

    Raise FileNotFoundError if the file does not exist, or ValueError if it is damaged or has
    another format.
    """
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
        return _totals(header, arrays), header.get("checkpoint")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"path={str(path)!r} is damaged ({error}). Save it again.") from error


def _totals(header: Mapping[str, Any], arrays: Mapping[str, torch.Tensor]) -> Totals:
    saved = header["settings"]
    settings = Settings(
        saved["edges"],
        saved["seed"],
        _listed(str, saved["columns"]),
        {
            token if isinstance(token, str) else _count(token): _count(count)
            for token, count in saved["frequencies"]
        },
    )
    stacks = {}
    for stack in _of_type(list, header["stacks"]):
        name = _of_type(str, stack["name"])
        _check(name not in stacks, f"stack {name!r} exists twice")
        stacks[name] = _stack(stack, _Reader(name, arrays), settings)
    totals = Totals(
        settings,
        model=None if header["model"] is None else _of_type(str, header["model"]),
        weights=_of_type(str, header["weights"]),
        texts=join_ranges([(_count(start), _count(stop)) for start, stop in header["texts"]], []),
        tokens=_count(header["tokens"]),
        empty=_count(header["empty"]),
        too_long=_count(header["too_long"]),
        remarks=_listed(str, header["remarks"]),
        stacks=stacks,
    )
    _check(totals.num_texts >= 0, "more texts are left out than exist")
    return totals


class _Reader:
    """Reader of the arrays of one stack. It checks their shape and dtype."""

    def __init__(self, stack: str, arrays: Mapping[str, torch.Tensor]) -> None:
        self._stack, self._arrays = stack, arrays

    def array(self, key: str, dtype: Any, *shape: int | None) -> NDArray[Any]:
        """Return an array. None in `shape` stands for any size."""
        name = f"{self._stack}/{key}"
        # Copy the array, because it is mapped from the file, which could change.
        values = self._arrays[name].numpy().copy()
        fits = values.ndim == len(shape) and all(
            size in (None, actual) for size, actual in zip(shape, values.shape, strict=True)
        )
        stored_dtype = np.int64 if dtype == np.uint64 else dtype
        _check(fits and values.dtype == stored_dtype, f"{name} has a wrong shape or dtype")
        return values.view(np.uint64) if dtype == np.uint64 else values

    def edges(self, kind: str, num_heads: int) -> EdgeColumns:
        count = len(self.array(f"{kind}/order", np.uint64, None))
        edges = EdgeColumns(
            *(
                self.array(f"{kind}/{column}", dtype, count)
                for column, dtype in _EDGE_COLUMNS.items()
            )
        )
        _check(((edges.head >= 0) & (edges.head < num_heads)).all(), "an edge has an invalid head")
        _check(np.isfinite(edges.weight).all(), "an edge has a weight that is not finite")
        return edges

    def tokens(self, side: int, words: Sequence[Sequence[str]]) -> NearTokens:
        text = self.array(f"tokens/{side}/text", np.int64, None)
        position = self.array(f"tokens/{side}/position", np.int32, len(text))
        codes = self.array(f"tokens/{side}/codes", np.int32, len(words), len(text))
        for row, known in zip(codes, words, strict=True):
            _check(((row >= -1) & (row < len(known))).all(), "a token has an invalid code")
        _check((codes[0] >= 0).all(), "a token has no text")
        order = np.lexsort((position, text))
        return NearTokens(text, position, codes)[order]


def _stack(header: Mapping[str, Any], read: _Reader, settings: Settings) -> StackTotals:
    layers = tuple(map(_count, header["layers"]))
    heads_per_layer = tuple(map(_count, header["heads_per_layer"]))
    _check(
        len(layers) == len(heads_per_layer) > 0 and min(heads_per_layer) > 0,
        "numbers of layers and heads differ",
    )
    _check(sorted(set(layers)) == list(layers), "layers are not ascending")
    num_heads, one_text = sum(heads_per_layer), _of_type(bool, header["one_text"])
    classes = {}
    _check(tuple(header["classes"]) == settings.class_systems, "classes do not match the columns")
    for index, (system, listed) in enumerate(header["classes"].items()):
        names = _listed(str, listed)
        _check(len(set(names)) == len(names) and "" not in names, "a class is not valid")
        classes[system] = ClassTotals(
            names,
            read.array(f"classes/{index}/weights", np.float64, num_heads, len(names), len(names)),
            read.array(f"classes/{index}/queries", np.float64, num_heads, len(names)),
        )
    words = (_listed(str, header["words"]), *(totals.names for totals in classes.values()))
    edges = KeptEdges(
        num_heads,
        read.edges("strongest", num_heads),
        read.edges("sampled", num_heads),
        tuple(read.tokens(side, words) for side in range(1 if one_text else 2)),
        words,
    )
    _check_tokens(edges)
    totals = StackTotals(
        layers=layers,
        heads_per_layer=heads_per_layer,
        causal=_of_type(bool, header["causal"]),
        one_text=one_text,
        scores={
            score: read.array(f"scores/{index}", np.float64, 3, 4, num_heads)
            for index, score in enumerate(_listed(str, header["scores"]))
        },
        offsets=read.array("offsets", np.float64, 2, num_heads, len(OFFSET_LABELS)),
        classes=classes,
        edges=(edges,),
    )
    # Sort the edges, which may have another order in the file.
    return totals.settled(settings.edges)


def _check_tokens(edges: KeptEdges) -> None:
    """Raise ValueError unless the query and the key of every edge are kept."""
    every = EdgeColumns.joined([edges.strongest, edges.sampled])
    for positions, side in ((every.query, edges.tokens[0]), (every.key, edges.tokens[-1])):
        kept = set(zip(side.text.tolist(), side.position.tolist(), strict=True))
        missing = set(zip(every.text.tolist(), positions.tolist(), strict=True)) - kept
        _check(not missing, f"an edge has no tokens: text and position {missing}")


def _check(fits: object, what: str) -> None:
    if not fits:
        raise ValueError(what)


def _of_type(kind: type[_Kind], value: Any) -> _Kind:
    if not isinstance(value, kind):
        raise TypeError(f"{short_repr(value)} is not a {kind.__name__}")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not 0 <= _of_type(int, value) < 1 << 62:
        raise ValueError(f"{short_repr(value)} is not a count")
    return int(value)


def _listed(kind: type[_Kind], values: Any) -> tuple[_Kind, ...]:
    return tuple(_of_type(kind, value) for value in _of_type(list, values))
