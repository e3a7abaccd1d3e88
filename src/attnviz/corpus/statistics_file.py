"""Files of head statistics in the safetensors format, which has named arrays and a JSON header.

A file has `Totals`, the sums over the texts of a corpus.

A stack is the attention of one kind, such as "self" or "cross", in all layers. An edge is a pair of
a query and a key with its weight. A system of classes, such as parts of speech, assigns at most one
class to each token.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.corpus.edges import EdgeColumns, KeptEdges, NearTokens
from attnviz.corpus.measuring import NUM_BASELINES, OFFSET_LABELS
from attnviz.corpus.totals import (
    ClassTotals,
    Settings,
    StackTotals,
    Totals,
    join_ranges,
)
from attnviz.record.storage.safetensors_file import read_arrays, saved_file, write_arrays
from attnviz.utils.arguments import as_path

_KIND = "head statistics"
#: Version of the file format. Files with another version cannot be read.
_FORMAT = 1
_EDGE_DTYPES = {
    column.name: getattr(EdgeColumns.empty(), column.name).dtype for column in fields(EdgeColumns)
}

# Attributes of `Totals`, and of the `StackTotals` of each stack, that the header of the file stores
# under the same names.
_OF_TOTALS = ("model", "weights", "texts", "tokens", "empty", "too_long", "remarks")
_OF_STACKS = ("layers", "heads_per_layer", "causal", "one_text", "linear")

_Count = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True)
class _SettingsHeader:
    """Attributes of `Settings`. Frequencies are stored as pairs (token, count).

    Frequencies are not stored as a JSON object, because its keys can only be strings, but a token
    can be an id (int).
    """

    edges: int
    seed: int
    columns: tuple[str, ...]
    frequencies: tuple[tuple[int | str, _Count], ...]


@dataclass(frozen=True)
class _StackHeader:
    """Name of a stack, and those attributes of its `StackTotals` that are not arrays."""

    name: str
    layers: tuple[_Count, ...]
    heads_per_layer: tuple[_Count, ...]
    causal: bool
    one_text: bool
    # Names of the scores.
    scores: tuple[str, ...]
    # For each system of classes, the names of its classes.
    classes: dict[str, tuple[str, ...]]
    # Distinct texts of the tokens near the edges.
    words: tuple[str, ...]
    linear: bool


@dataclass(frozen=True)
class _Header:
    """Header of a file: its format, and the attributes of `Totals` without arrays."""

    format: int
    settings: _SettingsHeader
    model: str | None
    weights: str
    texts: tuple[tuple[_Count, _Count], ...]
    tokens: _Count
    empty: _Count
    too_long: _Count
    remarks: tuple[str, ...]
    stacks: tuple[_StackHeader, ...]


def write_totals(path: str | os.PathLike[str], totals: Totals) -> Path:
    """Write totals to a file, and return the path of the file.

    An existing file is replaced atomically, so that an interrupt does not damage it.
    """
    stacks = totals.settled().stacks
    header = {
        "kind": _KIND,
        "format": _FORMAT,
        "settings": {
            **asdict(totals.settings),
            "frequencies": sorted(map(list, totals.settings.frequencies.items()), key=str),
        },
        **{name: getattr(totals, name) for name in _OF_TOTALS},
        "stacks": [
            {
                "name": name,
                **{field: getattr(stack, field) for field in _OF_STACKS},
                "scores": list(stack.scores),
                "classes": {system: classes.names for system, classes in stack.classes.items()},
                "words": stack.edges[0].words,
            }
            for name, stack in stacks.items()
        ],
    }
    arrays = {
        f"{name}/{key}": _stored(values)
        for name, stack in stacks.items()
        for key, values in _arrays(stack).items()
    }
    return write_arrays(path, header, arrays)


def _arrays(stack: StackTotals) -> dict[str, NDArray[Any]]:
    arrays = {"offsets": stack.offsets}
    for index, sums in enumerate(stack.scores.values()):
        arrays[f"scores/{index}"] = sums
    for index, classes in enumerate(stack.classes.values()):
        arrays[f"classes/{index}/weights"] = classes.weights
        arrays[f"classes/{index}/queries"] = classes.queries
    [kept] = stack.edges
    for kind, edges in (("strongest", kept.strongest), ("sampled", kept.sampled)):
        for column in _EDGE_DTYPES:
            arrays[f"{kind}/{column}"] = getattr(edges, column)
    for side, tokens in enumerate(kept.tokens):
        for column in ("text", "position", "codes"):
            arrays[f"tokens/{side}/{column}"] = getattr(tokens, column)
    return arrays


def _stored(values: NDArray[Any]) -> torch.Tensor:
    # Store uint64 as int64 with the same bits, because `write_arrays` does not support uint64.
    signed = values.view(np.int64) if values.dtype == np.uint64 else values
    return torch.from_numpy(np.require(signed, requirements=["C", "W"]))


def read_totals(path: str | os.PathLike[str]) -> Totals:
    """Return the totals in a file.

    Raise FileNotFoundError if the file does not exist. Raise ValueError if it is damaged, has no
    head statistics, or was written by a version of attnviz with another format.
    """
    header, arrays = read_arrays(saved_file(as_path("path", path, "file")))
    if header.get("kind") != _KIND:
        raise ValueError(
            f"path={str(path)!r} does not contain head statistics. Pass a file that "
            "HeadStatistics.save wrote."
        )
    if header.get("format") != _FORMAT:
        raise ValueError(
            f"path={str(path)!r} has the format {header.get('format')!r}, but this version of "
            f"attnviz reads {_FORMAT}. Measure the texts again, or load it with the version that "
            "saved it."
        )
    try:
        return _totals(msgspec.convert(header, _Header), arrays)
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(f"path={str(path)!r} is damaged ({error}). Save it again.") from error


def _totals(header: _Header, arrays: Mapping[str, torch.Tensor]) -> Totals:
    saved = header.settings
    settings = Settings(saved.edges, saved.seed, saved.columns, dict(saved.frequencies))
    # Raise ValueError if a text occurs twice.
    join_ranges(header.texts, [])
    # `settled` sets the attribute `KeptEdges.max_edges`, which is not in the file. It also sorts
    # the edges, which could have another order in the file.
    stacks = {stack.name: _stack(stack, arrays).settled(settings.edges) for stack in header.stacks}
    return Totals(settings, stacks=stacks, **{name: getattr(header, name) for name in _OF_TOTALS})


def _stack(header: _StackHeader, arrays: Mapping[str, torch.Tensor]) -> StackTotals:
    def read(key: str, dtype: Any, *shape: int | None) -> NDArray[Any]:
        """Return the array `key` of the stack that `header` describes.

        Raise ValueError unless it has the given dtype and shape. None in `shape` allows any size.
        """
        # Copy the array, because it is mapped from the file, which could change.
        values = arrays[f"{header.name}/{key}"].numpy().copy()
        stored_dtype = np.int64 if dtype == np.uint64 else dtype
        fits = [size in (None, actual) for size, actual in zip(shape, values.shape, strict=True)]
        if not all(fits) or values.dtype != stored_dtype:
            raise ValueError(f"{header.name}/{key} has a wrong shape or dtype")
        return values.view(dtype)

    def read_edges(kind: str) -> EdgeColumns:
        count = len(read(f"{kind}/order", np.uint64, None))
        columns = [read(f"{kind}/{name}", dtype, count) for name, dtype in _EDGE_DTYPES.items()]
        return EdgeColumns(*columns)

    def read_tokens(side: int) -> NearTokens:
        text = read(f"tokens/{side}/text", np.int64, None)
        position = read(f"tokens/{side}/position", np.int32, len(text))
        codes = read(f"tokens/{side}/codes", np.int32, len(text))
        return NearTokens(text, position, codes)[np.lexsort((position, text))]

    num_heads = sum(header.heads_per_layer)
    classes = {}
    for index, (system, names) in enumerate(header.classes.items()):
        count = len(names)
        classes[system] = ClassTotals(
            names,
            read(f"classes/{index}/weights", np.float64, num_heads, count, count),
            read(f"classes/{index}/queries", np.float64, num_heads, count),
        )
    edges = KeptEdges(
        num_heads,
        read_edges("strongest"),
        read_edges("sampled"),
        tuple(map(read_tokens, range(1 if header.one_text else 2))),
        header.words,
    )
    scores = {
        score: read(f"scores/{index}", np.float64, 1 + NUM_BASELINES, 4, num_heads)
        for index, score in enumerate(header.scores)
    }
    return StackTotals(
        **{field: getattr(header, field) for field in _OF_STACKS},
        scores=scores,
        offsets=read("offsets", np.float64, 2, num_heads, len(OFFSET_LABELS)),
        classes=classes,
        edges=(edges,),
    )
