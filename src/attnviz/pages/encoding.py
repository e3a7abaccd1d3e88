"""The form in which a page embeds a record's weights, so that it stays small.

There are three, from the most exact to the smallest:

``"all"``
    Every weight, in one byte: off by at most 0.004.
``"vectors"``
    Queries and keys, from which the page computes the weights.
``"strongest"``
    Each query's strongest keys, with the rest of its weight spread evenly over the others.

All weights are tried first. Where they are too large, one sweep over them collects the strongest,
of which as many are taken as are needed, or as there is room for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from attnviz.pages import limits
from attnviz.pages.limits import PagePrecision, count_rows
from attnviz.pages.packing import packed
from attnviz.pages.strongest import Sweep
from attnviz.pages.vectors import embedded_vectors, size_of_vectors
from attnviz.record.record import AttentionRecord
from attnviz.record.softmax import tiles
from attnviz.record.stack import AttentionStack
from attnviz.server.codec import check_weights, encode
from attnviz.server.description import PageForm

__all__ = ["MAP_SIZE", "EmbeddedWeights", "check_record", "embedded_weights"]

#: A page of strongest keys has this share of the weight, where there is room.
COVERED = 0.95
#: Small maps have at most this many cells a side.
MAP_SIZE = 32
# So few weights are pooled to maps when the page is opened.
_POOLED_WEIGHTS = 1_000_000
# Trained attention takes at least a bit for three weights: above, trying is in vain.
_WEIGHTS_PER_BYTE = 25
# The page computes a layer's weights from its vectors within a second.
_COMPUTED_PAIRS = 16_000_000
# At most so many characters describe a layer beside its data.
_HEADER = 500
# base64.
_TEXT = 4 / 3


@dataclass
class EmbeddedWeights:
    """A record's weights in the form in which a page embeds them.

    Attributes
    ----------
    covered : float
        Share of the weight that is embedded as it is, 0 to 1.
    error : float
        Largest absolute error of a weight that the page shows, as it was measured.
    blocks, maps : list of dict
        By layer: weights, and small maps of all heads; fit for JSON.
    vectors : dict or None
        What `attnviz.pages.vectors.embedded_vectors` gives.
    """

    form: PageForm
    covered: float = 1.0
    error: float = 0.0
    blocks: list[dict[str, Any]] = field(default_factory=list)
    maps: list[dict[str, Any]] = field(default_factory=list)
    vectors: dict[str, Any] | None = None

    @property
    def size(self) -> int:
        """Bytes that it adds to a page without weights."""
        headers: dict[str, Any] = {
            "blocks": [each | {"data": ""} for each in self.blocks],
            "maps": [each | {"data": ""} for each in self.maps],
            "embedded": self.summary(),
        }
        texts = [each["data"] for each in (*self.blocks, *self.maps)]
        if self.vectors is not None:
            arrays = self.vectors["arrays"]
            headers["vectors"] = self.vectors | {"arrays": [""] * len(arrays)}
            texts += arrays
        whole = len(json.dumps(headers, ensure_ascii=False).encode())
        return sum(map(len, texts)) + whole - len(json.dumps({"blocks": [], "maps": []}))

    def summary(self) -> dict[str, Any]:
        """What a page says about how exact it is, fit for JSON."""
        return {"form": self.form, "covered": self.covered, "error": self.error}


def check_record(record: AttentionRecord, precision: PagePrecision) -> None:
    """Refuse a record with too many weights for a page, before anything is computed."""
    count = limits.count_weights(record)
    if precision == "exact":
        if count > limits.MAX_WEIGHTS and not _can_compute(record):
            raise ValueError(limits.too_many(record, None))
    elif count > limits.MAX_LOOKED_AT:
        raise ValueError(limits.too_long(record))


def embedded_weights(
    record: AttentionRecord, *, precision: PagePrecision, max_bytes: int | None, rest: int
) -> EmbeddedWeights:
    """Choose a form, and embed the weights in it; `rest` are the page's other bytes.

    All weights, where the page has at most 6 MB with them (or `max_bytes`). Otherwise the smaller
    of the other forms that covers 95% of the weight within the limit; where neither does, as much
    of the weight as the limit has room for.
    """
    if precision == "exact":
        return _exact(record, max_bytes, rest)
    full = (limits.FULL_BYTES if max_bytes is None else max_bytes) - rest
    if limits.count_weights(record) <= _WEIGHTS_PER_BYTE * full:
        everything = _all(record, full)
        if everything is not None:
            return everything
    limit = max_bytes
    if limit is None:
        limit = limits.default_limit(record, filter(_is_causal, record.stacks.values()))
    if rest >= limit:
        raise ValueError(limits.no_room(record, limit, without=rest))
    strongest = _strongest(record, limit - rest)
    fits = strongest.size + rest <= limit
    if _can_compute(record):
        size = size_of_vectors(record.stacks.values()) * _TEXT
        if size < limit - rest and (
            not fits or strongest.covered < COVERED or size < strongest.size
        ):
            computed = _vectors(record, strongest.maps)
            if computed.size + rest <= limit:
                return computed
    if not fits:
        needed = strongest.size + rest
        raise ValueError(limits.no_room(record, limit, without=rest, needed=needed))
    return strongest


def _all(record: AttentionRecord, room: float) -> EmbeddedWeights | None:
    """All weights, unless they take more than `room`."""
    embedded = EmbeddedWeights("all")
    small = limits.count_weights(record) <= _POOLED_WEIGHTS
    with progress(record, "all weights") as bar:
        for stack, layer in _layers(record):
            maps = None if small else _maps(stack, layer)
            # Half of it is packing them.
            header, data = _whole_layer(stack, layer, maps, lambda rows: bar.update(rows / 2))
            embedded.blocks.append({"stack": stack.name, "layer": layer, **header})
            embedded.blocks[-1]["data"] = packed(data)
            if maps is not None:
                embedded.maps.append(_small(stack, layer, maps))
            embedded.error = max(embedded.error, header["error"])
            if embedded.size > room:
                return None
            bar.update(len(stack.kept_heads(layer)) * len(stack.query_tokens) / 2)
    return embedded


def _exact(record: AttentionRecord, max_bytes: int | None, rest: int) -> EmbeddedWeights:
    """All weights, or queries and keys as they are."""
    room = float("inf") if max_bytes is None else max_bytes - rest
    smallest = None
    if _can_compute(record) and size_of_vectors(record.stacks.values(), exact=True) < room:
        smallest = _vectors(record, exact=True)
    if limits.count_weights(record) <= limits.MAX_WEIGHTS:
        # More than the vectors take is in vain.
        everything = _all(record, room if smallest is None else min(room, smallest.size))
        smallest = everything or smallest
    if smallest is None or smallest.size > room:
        raise ValueError(limits.too_many(record, max_bytes))
    return smallest


def _vectors(
    record: AttentionRecord, maps: list[dict[str, Any]] | None = None, *, exact: bool = False
) -> EmbeddedWeights:
    """Queries and keys, and small maps."""
    vectors = embedded_vectors(record.stacks.values(), exact=exact)
    error = max((each["error"] for each in vectors["layers"]), default=0.0)
    if maps is None:
        maps = _swept(record, "maps")
    return EmbeddedWeights("vectors", error=error, maps=maps, vectors=vectors)


def _strongest(record: AttentionRecord, room: float) -> EmbeddedWeights:
    """Each query's strongest keys, and small maps; larger than `room` where nothing fits."""
    sweep = Sweep(room / _TEXT)
    embedded = EmbeddedWeights("strongest", maps=_swept(record, "strongest keys", sweep))
    cut = sweep.cut(COVERED, room - embedded.size - _HEADER * len(embedded.maps))
    embedded.blocks, embedded.covered, embedded.error = cut.blocks, cut.covered, cut.error
    return embedded


def _swept(record: AttentionRecord, doing: str, sweep: Sweep | None = None) -> list[dict[str, Any]]:
    """Small maps of all layers, from one pass over the weights that a sweep takes in, too."""
    small = []
    with progress(record, doing) as bar:
        for stack, layer in _layers(record):
            maps = _maps(stack, layer)
            if sweep is not None:
                sweep.begin(stack, layer)
            for index, head in enumerate(stack.kept_heads(layer)):
                for rows, weights in weight_tiles(stack, layer, head):
                    maps.add(index, rows, weights)
                    if sweep is not None:
                        sweep.add(weights)
                    bar.update(len(weights))
            small.append(_small(stack, layer, maps))
    return small


def _can_compute(record: AttentionRecord) -> bool:
    """Whether queries and keys are known, and a page computes weights from them fast enough."""
    stacks = record.stacks.values()
    return all(stack.has_vectors for stack in stacks) and all(
        len(stack.kept_heads(layer)) * len(stack.query_tokens) * len(stack.key_tokens)
        <= _COMPUTED_PAIRS
        for stack in stacks
        for layer in stack.layers
    )


def _is_causal(stack: AttentionStack) -> bool:
    """Whether queries do not look ahead: the masks say so, or two queries of each head do."""
    if stack.causal:
        return True
    offset = len(stack.key_tokens) - len(stack.query_tokens)
    queries = np.unique([0, len(stack.query_tokens) // 2])
    return not any(
        weights[max(0, query + offset + 1) :].any()
        for layer in stack.layers
        for head in stack.kept_heads(layer)
        for query, weights in zip(
            queries, stack.attention(layer).weights_of_rows(head, queries)[0], strict=True
        )
    )


def _layers(record: AttentionRecord) -> list[tuple[AttentionStack, int]]:
    return [(stack, layer) for stack in record.stacks.values() for layer in stack.layers]


def _maps(stack: AttentionStack, layer: int) -> SmallMaps:
    heads = len(stack.kept_heads(layer))
    return SmallMaps(heads, len(stack.query_tokens), len(stack.key_tokens), MAP_SIZE)


def _small(stack: AttentionStack, layer: int, maps: SmallMaps) -> dict[str, Any]:
    encoded = encode(maps.cells, "uint8", stack.maximum)
    header: dict[str, Any] = {"stack": stack.name, "layer": layer, **encoded.header()}
    return header | {"data": packed(encoded.data)}


def _whole_layer(
    stack: AttentionStack, layer: int, maps: SmallMaps | None, done: Callable[[int], object]
) -> tuple[dict[str, Any], bytes]:
    """All weights of a layer's heads in one byte each, row by row.

    Row r is embedded for its first ``r + 1 + reach`` keys, after which there are zeros alone.
    `maps` take in the same weights; `done` hears how many rows were computed.
    """
    rows, columns = len(stack.query_tokens), len(stack.key_tokens)
    heads = stack.kept_heads(layer)
    codes = np.empty((len(heads), rows, columns), np.uint8)
    error = 0.0
    for index, head in enumerate(heads):
        for tile, weights in weight_tiles(stack, layer, head):
            encoded = encode(weights[None], "uint8", stack.maximum)
            error = encoded.error
            codes[index, tile] = np.frombuffer(encoded.data, np.uint8).reshape(-1, columns)
            if maps is not None:
                maps.add(index, tile, weights)
            done(tile.stop - tile.start)
    some = codes.max(axis=0) > 0
    ends = np.where(some.any(axis=1), columns - some[:, ::-1].argmax(axis=1), 0)
    reach = int(np.max(ends - np.arange(rows) - 1, initial=0))
    embedded = np.tri(rows, columns, reach, dtype=np.bool_)
    header = {
        "shape": [len(heads), rows, columns],
        "encoding": "uint8-sqrt",
        "maximum": stack.maximum,
        "error": error,
        "reach": reach,
    }
    return header, codes[:, embedded].tobytes()


def progress(record: AttentionRecord, doing: str) -> Any:
    """A bar over all queries of all heads, silent for the second that most pages take."""
    rows = sum(map(count_rows, record.stacks.values()))
    return tqdm(
        total=rows, desc=f"page: {doing}", unit="row", unit_scale=True, delay=1.0, leave=False
    )


def weight_tiles(
    stack: AttentionStack, layer: int, head: int
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """A head's weights, tile by tile of neighbouring rows; checked."""
    of = f"stack {stack.name!r}, layer {layer}, head {head}"
    for rows in tiles(slice(0, len(stack.query_tokens)), len(stack.key_tokens)):
        weights = stack.weights(layer=layer, head=head, rows=rows)
        check_weights(weights[None], stack.maximum, of=of)
        yield rows, weights


class SmallMaps:
    """Maps of a layer's heads, pooled by the maximum tile by tile.

    Cells cover what those of `attnviz.server.codec.pool_max` do.

    Examples
    --------
    >>> maps = SmallMaps(1, 4, 4, size=2)
    >>> maps.add(0, slice(0, 3), np.eye(4, dtype=np.float32)[:3])
    >>> maps.add(0, slice(3, 4), np.eye(4, dtype=np.float32)[3:] / 2)
    >>> maps.cells
    array([[[1., 0.],
            [0., 1.]]], dtype=float32)
    """

    def __init__(self, heads: int, rows: int, columns: int, size: int) -> None:
        self._starts = [_starts(rows, size), _starts(columns, size)]
        self.cells = np.zeros((heads, *map(len, self._starts)), np.float32)

    def add(self, index: int, rows: slice, weights: NDArray[np.float32]) -> None:
        """Take in some rows of a head, (rows, columns)."""
        row_starts, column_starts = self._starts
        first = int(np.searchsorted(row_starts, rows.start, side="right")) - 1
        last = int(np.searchsorted(row_starts, rows.stop, side="left"))
        begins = np.maximum(row_starts[first:last] - rows.start, 0)
        # Along the rows first, as they lie in memory.
        pooled = np.maximum.reduceat(weights, column_starts, axis=1)
        pooled = np.maximum.reduceat(pooled, begins, axis=0)
        cells = self.cells[index, first:last]
        np.maximum(cells, pooled, out=cells)


def _starts(count: int, size: int) -> NDArray[np.int64]:
    cells = min(count, size)
    return np.arange(cells) * count // cells
