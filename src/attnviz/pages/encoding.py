"""Encoding of a record's weights in a page.

A page contains the weights in one of three forms:

``"all"``
    Every weight in one byte, with an error of at most 0.004 of the largest possible weight.
``"vectors"``
    Queries and keys, from which the page computes the weights.
``"strongest"``
    Weights of the strongest keys of each query. The rest of a query's weight is spread evenly over
    other keys (`attnviz.pages.strongest`).

The page can also contain small maps, which are heat maps of all heads with at most 32 rows and
columns.

A signed stack, such as a difference, has positive and negative numbers. In the form ``"all"``, each
number has one byte, with an error of at most 0.008 of the largest absolute value. In the form
``"strongest"``, the strongest keys have the largest absolute values, and all other numbers are 0. A
record with a signed stack cannot have the form ``"vectors"``.

The form ``"all"`` is tried first. If it is too large, one pass over the weights collects the
strongest keys. See `embed_weights` for the choice between the other two forms.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis.heads import weights_of_some
from attnviz.pages import limits
from attnviz.pages.limits import PagePrecision
from attnviz.pages.packing import (
    ELEMENT_BYTES,
    Packer,
    packed,
)
from attnviz.pages.strongest import StrongestRows, Sweep, first_level
from attnviz.pages.vectors import encode_vectors, size_of_vectors
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import sample_queries
from attnviz.record.stack import AttentionStack
from attnviz.server.codec import check_weights, encode, encode_bytes
from attnviz.server.description import PageForm
from attnviz.server.pooling import join_signs, split_signs
from attnviz.utils.progress import Pace, part_of, report
from attnviz.utils.threads import map_ahead

__all__ = ["MAP_SIZE", "EmbeddedWeights", "check_record", "drop_cached_results", "embed_weights"]

#: Share of the total weight that the strongest keys in a page cover, if the size limit allows it.
COVERED = 0.95
#: Maximum number of rows and columns of a small map.
MAP_SIZE = 32
# If a page has the form "all" and at most this many weights, it contains no small maps. The page
# computes them from the weights when it is opened.
_POOLED_WEIGHTS = 1_000_000
# Largest number of weights per byte in the form "all". The weights of trained models take at least
# one bit per three weights. If the page is too small even at this rate, the form is not tried.
_WEIGHTS_PER_BYTE = 25
# Maximum number of weights in a layer for the form "vectors". A browser computes them in a second.
_COMPUTED_PAIRS = 16_000_000
# If a record has at least this many weights, the size of the form "all" is estimated from sampled
# queries before the form is computed.
_ESTIMATED = 4_000_000
# Number of sampled queries per head for the estimate.
_ROWS_TRIED = 16
# The form "all" is not computed if its estimated size exceeds this multiple of the available bytes.
_FAR = 1.25
# Maximum size in bytes of a layer's entry in the page without its data.
_HEADER = 500
# Ratio of the sizes after and before base64 encoding.
_TEXT = 4 / 3
# Number of weights in a tile. About as many fit into a processor's cache.
_TILE = 1 << 19
# Maximum number of rows of a tile.
_TILE_ROWS = 512
#: Maximum size in bytes of the strongest keys that are cached in a record for its next page.
MAX_CACHED_BYTES = 400_000_000


@dataclass
class EmbeddedWeights:
    """Weights of a record, encoded for a page.

    Attributes
    ----------
    covered : float
        Share of the total weight that the page contains, from 0 to 1. For signed numbers, the share
        of the sum of absolute values.
    error : float
        Largest absolute error of a weight in the page: an upper bound, or a measured error.
    blocks, maps : list of dict
        JSON values: entries of layers with weights, and entries of layers with the small maps of
        their heads. The page computes the weights or maps of layers without an entry.
    vectors : dict or None
        Result of `attnviz.pages.vectors.encode_vectors`, only for the form ``"vectors"``.
    """

    form: PageForm
    covered: float = 1.0
    error: float = 0.0
    blocks: list[dict[str, Any]] = field(default_factory=list)
    maps: list[dict[str, Any]] = field(default_factory=list)
    vectors: dict[str, Any] | None = None

    @property
    def size(self) -> int:
        """Number of bytes that the weights add to a page."""
        headers = self.entries()
        for name in headers.keys() & {"blocks", "maps"}:
            headers[name] = [entry | {"data": ""} for entry in headers[name]]
        if self.vectors is not None:
            headers["vectors"] = self.vectors | {"arrays": [""] * len(self.vectors["arrays"])}
        whole = len(json.dumps(headers, ensure_ascii=False).encode())
        elements = ELEMENT_BYTES * len(self._texts)
        return self.data_size + elements + whole - len(json.dumps({"blocks": [], "maps": []}))

    @property
    def data_size(self) -> int:
        """Number of bytes of the encoded data, without headers and HTML elements."""
        return sum(map(len, self._texts))

    @property
    def _texts(self) -> list[str]:
        texts = [entry["data"] for entry in (*self.blocks, *self.maps)]
        return texts if self.vectors is None else [*texts, *self.vectors["arrays"]]

    def entries(self) -> dict[str, Any]:
        """Return the weights as entries of the page's JSON data."""
        entries = {"blocks": self.blocks, "maps": self.maps, "embedded": self.summary()}
        return entries if self.vectors is None else entries | {"vectors": self.vectors}

    def summary(self) -> dict[str, Any]:
        """Return the form of the weights, their covered share and their error, as JSON values."""
        return {"form": self.form, "covered": self.covered, "error": self.error}


def check_record(record: AttentionRecord, precision: PagePrecision) -> None:
    """Raise ValueError if a record has too many weights for a page with this precision."""
    count = limits.count_weights(record)
    if precision == "exact":
        if count > limits.MAX_WEIGHTS and not _can_compute(record):
            raise ValueError(limits.too_many_message(record, None))
    elif count > limits.MAX_SEARCHED_WEIGHTS:
        raise ValueError(limits.too_long_message(record))


def embed_weights(
    record: AttentionRecord,
    *,
    precision: PagePrecision,
    max_bytes: int | None,
    other_bytes: int,
) -> EmbeddedWeights:
    """Choose a form for the weights and encode them.

    `other_bytes` is the size of the page without weights. The form is ``"all"`` if the page then
    has at most `max_bytes` (by default 6 MB).

    Otherwise the limit of the page is `max_bytes` or, by default, `limits.default_limit`. If
    strongest keys that cover 95% of the weight fit, and vectors fit too, the form is the smaller of
    the two. If only one of them fits, it is chosen. If neither fits, the page contains as many
    strongest keys as fit.

    Results are cached in the record for its next page, unless they need too much memory.

    Raise ValueError if even the smallest page exceeds the limit. With ``precision="exact"``, the
    form is the smaller of ``"all"`` and unrounded ``"vectors"``.
    """
    if precision == "exact":
        return _embed_exact(record, max_bytes, other_bytes)
    full = (limits.FULL_BYTES if max_bytes is None else max_bytes) - other_bytes
    if limits.count_weights(record) <= _WEIGHTS_PER_BYTE * full:
        everything = _embed_all(record, full)
        if everything is not None:
            return everything
    limit = max_bytes
    if limit is None:
        causal = {}
        for stack in record.stacks.values():
            causal[stack] = _is_causal(stack)
        limit = limits.default_limit(record, filter(causal.get, causal))
    if other_bytes >= limit:
        raise ValueError(limits.no_room_message(record, limit, without=other_bytes))
    strongest = _embed_strongest(record, limit, limit - other_bytes)
    fits = strongest.size + other_bytes <= limit
    if _can_compute(record):
        size = size_of_vectors(record.stacks.values()) * _TEXT
        if size < limit - other_bytes and (
            not fits or strongest.covered < COVERED or size < strongest.size
        ):
            computed = _embed_vectors(record, strongest.maps)
            if computed.size + other_bytes <= limit:
                return computed
    if not fits:
        needed = strongest.size + other_bytes
        raise ValueError(limits.no_room_message(record, limit, without=other_bytes, needed=needed))
    return strongest


def _embed_all(record: AttentionRecord, room: float) -> EmbeddedWeights | None:
    """Encode the form ``"all"``. Return None if it takes more than `room` bytes."""
    cached = _cached_results(record)
    if cached.everything is not None:
        return cached.everything if cached.everything.size <= room else None
    if cached.more_than >= room:
        return None
    if _exceeds_room(record, room):
        cached.more_than = room
        return None
    embedded = EmbeddedWeights("all")
    small = limits.count_weights(record) <= _POOLED_WEIGHTS
    total, done = _count_tile_weights(record), 0.0
    packer = Packer()
    key_indices, key_indices_shape = np.zeros(0, np.int64), [0, 0, 0]
    for stack, layer in _stack_layers(record):
        # A short text needs no small maps, because they would be copies of its weights.
        short = max(len(stack.query_tokens), len(stack.key_tokens)) <= MAP_SIZE
        maps = None if small or short else _empty_maps(stack, layer)
        before = done
        parts = head_tiles(stack, layer)
        steps_of_layer = _encode_layer(stack, layer, parts, maps, done=before, total=total)
        header, codes = steps_of_layer
        _, *shape = codes.shape
        shape.append(header["reach"])
        if shape != key_indices_shape:
            # Compute the indices only if shape or reach differ from the layer before.
            key_indices, key_indices_shape = np.flatnonzero(np.tri(*shape, dtype=np.bool_)), shape
        tiled = sum(part.size for part in parts)
        flat = codes.reshape(len(codes), -1)
        chosen = flat if len(key_indices) == flat.shape[1] else np.take(flat, key_indices, axis=1)
        # In the progress bar, computing the weights is half of the work for a layer. Compressing
        # them is the other half.
        half = tiled / 2
        with part_of("all weights", before + half, total, "weight", size=half):
            data = packer.pack(chosen.tobytes())
        embedded.blocks.append({"stack": stack.name, "layer": layer, **header, "data": data})
        if maps is not None:
            embedded.maps.append(_encode_maps(stack, layer, maps))
        embedded.error = max(embedded.error, header["error"])
        if embedded.data_size > room:
            cached.more_than = room
            return None
        done = before + tiled
        report("all weights", done, total)
    if embedded.size > room:
        cached.more_than = room
        return None
    cached.everything = embedded
    return embedded


def _exceeds_room(record: AttentionRecord, room: float) -> bool:
    """Whether the form ``"all"`` would take far more than `room` bytes.

    The size is estimated from sampled queries. Return False without an estimate if the record has
    few weights or a signed stack.
    """
    stacks = list(record.stacks.values())
    size, count, packer = 0.0, limits.count_weights(record), Packer()
    if count < _ESTIMATED or any(stack.signed for stack in stacks):
        return False
    sampled = _ROWS_TRIED * sum(
        len(stack.key_tokens) * stack.num_heads(layer) for stack, layer in _stack_layers(record)
    )
    pace = Pace("sampled queries", 2 * sampled)
    for stack, layer in _stack_layers(record):
        rows = sample_queries(len(stack.query_tokens), _ROWS_TRIED)
        for _, weights, _ in weights_of_some(stack, layer, range(stack.num_heads(layer)), rows):
            clipped = np.clip(np.nan_to_num(weights), 0.0, stack.maximum)
            codes, _ = encode_bytes(clipped, stack.maximum)
            text = packer.pack(codes.tobytes())
            size += len(text) * len(stack.query_tokens) / len(rows)
            pace.advance(2 * weights.size)
    return size > _FAR * room


def _embed_exact(
    record: AttentionRecord, max_bytes: int | None, other_bytes: int
) -> EmbeddedWeights:
    """Encode all weights, or unrounded queries and keys if they are smaller."""
    room = float("inf") if max_bytes is None else max_bytes - other_bytes
    smallest = None
    if _can_compute(record) and size_of_vectors(record.stacks.values(), exact=True) < room:
        smallest = _embed_vectors(record, exact=True)
    if limits.count_weights(record) <= limits.MAX_WEIGHTS:
        # Stop when the weights take more bytes than the vectors.
        enough = room if smallest is None else min(room, smallest.size)
        smallest = (_embed_all(record, enough)) or smallest
    if smallest is None or smallest.size > room:
        raise ValueError(limits.too_many_message(record, max_bytes))
    return smallest


def _embed_vectors(
    record: AttentionRecord, maps: list[dict[str, Any]] | None = None, *, exact: bool = False
) -> EmbeddedWeights:
    """Encode queries and keys, with small maps. If `maps` is None, compute the small maps."""
    vectors = encode_vectors(record.stacks.values(), exact=exact)
    error = max((layer["error"] for layer in vectors["layers"]), default=0.0)
    if maps is None:
        maps = _sweep_weights(record, "maps", None)
    return EmbeddedWeights("vectors", error=error, maps=maps, vectors=vectors)


def _embed_strongest(record: AttentionRecord, limit: float, room: float) -> EmbeddedWeights:
    """Encode the strongest keys, with small maps, in about `room` bytes.

    `limit` is the limit of the whole page. If even the fewest keys do not fit, the result takes
    more than `room` bytes.
    """
    cached = _cached_results(record)
    if cached.swept is None or not cached.swept[0].suffices(limit):
        keys = Sweep(limit, (first_level(record, COVERED, limit)))
        cached.swept = keys, (_sweep_weights(record, "strongest keys", keys))
    sweep, maps = cached.swept
    embedded = EmbeddedWeights("strongest", maps=maps)
    cut = sweep.cut(COVERED, room - embedded.size - _HEADER * len(maps))
    if sweep.num_bytes > MAX_CACHED_BYTES:
        cached.swept = None
    return replace(embedded, blocks=cut.blocks, covered=cut.covered, error=cut.error)


@dataclass
class _CachedResults:
    """Results of a page. The next page of the same record can use them.

    Attributes
    ----------
    everything : EmbeddedWeights or None
        Form ``"all"`` if it was computed completely, otherwise None.
    more_than : float
        Number of bytes that the form ``"all"`` is known to exceed. 0 if nothing is known.
    swept : tuple or None
        Collected strongest keys of all rows, and encoded small maps of all layers.
    """

    everything: EmbeddedWeights | None = None
    more_than: float = 0.0
    swept: tuple[Sweep, list[dict[str, Any]]] | None = None


# Key of the `_CachedResults` in `record.computed`.
_CACHE_KEY = "pages"


def drop_cached_results(record: AttentionRecord) -> None:
    """Delete the results that earlier pages cached in a record."""
    record.computed.pop(_CACHE_KEY, None)


def _cached_results(record: AttentionRecord) -> _CachedResults:
    results = record.computed.setdefault(_CACHE_KEY, _CachedResults())
    if not isinstance(results, _CachedResults):
        raise TypeError(f"record.computed[{_CACHE_KEY!r}] must be results that pages cached")
    return results


def _sweep_weights(record: AttentionRecord, doing: str, keys: Sweep | None) -> list[dict[str, Any]]:
    """Compute small maps of all layers in one pass over the weights, and return them encoded.

    If `keys` is not None, the same pass adds the strongest keys to `keys`.
    """
    done, total = 0.0, _count_tile_weights(record)
    encoded = []
    for stack, layer in _stack_layers(record):
        maps = _empty_maps(stack, layer)
        if keys is not None:
            keys.begin(stack, layer)
        tile_pass = _TilePass(stack, layer, maps, keys)
        for part, cells, rows in map_ahead(tile_pass, head_tiles(stack, layer)):
            maps.merge(part.heads, cells)
            done += part.size
            report(doing, done, total)
            if keys is not None and rows is not None:
                keys.add_rows(rows)
                keys.drop_excess()
        encoded.append(_encode_maps(stack, layer, maps))
    if keys is not None:
        keys.finish()
    return encoded


@dataclass(frozen=True)
class _TilePass:
    """Function that pools a tile into cells of small maps, and finds the tile's strongest keys.

    Several threads call it at the same time.
    """

    stack: AttentionStack
    layer: int
    maps: SmallMaps
    keys: Sweep | None

    def __call__(self, part: HeadTiles) -> tuple[HeadTiles, MapCells, StrongestRows | None]:
        """Return the tile, its map cells, and its strongest keys (None if `keys` is None)."""
        weights = tile_of_heads(self.stack, self.layer, part)
        rows = None
        if self.keys is not None:
            # Merge the axes of heads and rows.
            flat = weights.reshape(-1, weights.shape[2])
            rows = self.keys.strongest(self.stack, flat, part.tile.columns.start)
        return part, self.maps.pooled(part.tile, weights), rows


def _can_compute(record: AttentionRecord) -> bool:
    """Whether the form "vectors" is possible.

    It needs queries and keys in all stacks, and layers that are small enough for a browser.
    """
    stacks = record.stacks.values()
    return all(stack.has_vectors for stack in stacks) and all(
        stack.num_heads(layer) * len(stack.query_tokens) * len(stack.key_tokens) <= _COMPUTED_PAIRS
        for stack in stacks
        for layer in stack.layers
    )


def _is_causal(stack: AttentionStack) -> bool:
    """Whether no query attends to a later key.

    If the masks do not show this, the weights of two queries of each head decide.
    """
    if stack.causal:
        return True
    num_queries, num_keys = len(stack.query_tokens), len(stack.key_tokens)
    queries = np.unique([0, num_queries // 2])
    keys = np.arange(num_keys)
    ahead_of = keys > (queries + num_keys - num_queries)[:, None].clip(-1)
    pace = Pace("first rows", sum(stack.heads_per_layer) * ahead_of.size)
    for layer in stack.layers:
        heads = range(stack.num_heads(layer))
        for _, weights, _ in weights_of_some(stack, layer, heads, queries):
            if weights[:, ahead_of].any():
                return False
            pace.advance(weights.size, len(weights))
    return True


def _stack_layers(record: AttentionRecord) -> list[tuple[AttentionStack, int]]:
    return [(stack, layer) for stack in record.stacks.values() for layer in stack.layers]


def _empty_maps(stack: AttentionStack, layer: int) -> SmallMaps:
    heads = stack.num_heads(layer)
    sides = len(stack.query_tokens), len(stack.key_tokens)
    return SmallMaps(heads, *sides, MAP_SIZE, signed=stack.signed)


def _encode_maps(stack: AttentionStack, layer: int, maps: SmallMaps) -> dict[str, Any]:
    encoded = encode(maps.cells, "uint8", stack.maximum, signed=stack.signed)
    header: dict[str, Any] = {"stack": stack.name, "layer": layer, **encoded.header()}
    return header | {"data": packed(encoded.data)}


def _encode_layer(
    stack: AttentionStack,
    layer: int,
    parts: list[HeadTiles],
    maps: SmallMaps | None,
    *,
    done: float,
    total: float,
) -> tuple[dict[str, Any], NDArray[Any]]:
    """Encode all weights of a layer, one byte each. Return the header and the codes.

    ``header["reach"]`` is the smallest number (at least 0) for which every row r has only zeros
    after its first ``r + 1 + reach`` keys. If `maps` is not None, the weights are also pooled into
    the small maps. For the progress bar, `done` of `total` weights were encoded before.
    """
    rows, columns = len(stack.query_tokens), len(stack.key_tokens)
    heads = stack.num_heads(layer)
    codes = np.zeros((heads, rows, columns), np.uint8)
    error = 0.0

    def encode_tile(part: HeadTiles) -> tuple[HeadTiles, NDArray[Any], float, MapCells | None]:
        weights = tile_of_heads(stack, layer, part)
        cells = None if maps is None else maps.pooled(part.tile, weights)
        tile_codes, tile_error = encode_bytes(weights, stack.maximum, signed=stack.signed)
        return part, tile_codes, tile_error, cells

    for part, tile_codes, tile_error, cells in map_ahead(encode_tile, parts):
        codes[part.heads, part.tile.rows, part.tile.columns] = tile_codes
        error = max(error, tile_error)
        if maps is not None and cells is not None:
            maps.merge(part.heads, cells)
        # Computing is half of the work. The other half is compressing.
        done += part.size / 2
        report("all weights", done, total)
    has_weight = codes.max(axis=0) > 0
    ends = np.where(has_weight.any(axis=1), columns - has_weight[:, ::-1].argmax(axis=1), 0)
    reach = int(np.max(ends - np.arange(rows) - 1, initial=0))
    header = {
        "shape": [heads, rows, columns],
        "encoding": "int8-sqrt" if stack.signed else "uint8-sqrt",
        "maximum": stack.maximum,
        "error": error,
        "reach": reach,
    }
    return header, codes


class Tile(NamedTuple):
    """Range of queries (`rows`), and the range of keys to which they may attend (`columns`)."""

    rows: slice
    columns: slice

    @property
    def size(self) -> int:
        rows, columns = self
        size: int = (rows.stop - rows.start) * (columns.stop - columns.start)
        return size


def tiles_of_head(stack: AttentionStack, layer: int) -> list[Tile]:
    """Return the tiles of a head, from the first to the last query.

    All heads of a layer have the same tiles.
    """
    num_queries, keys = len(stack.query_tokens), len(stack.key_tokens)
    attention = stack.attention(layer)
    tiles = []
    start = 0
    while start < num_queries:
        rows, columns = slice(start, start + 1), slice(0, keys)
        # The number of rows depends on the number of keys, and the keys depend on the rows. The
        # second iteration uses the keys of the first.
        for _ in range(2):
            num_columns = max(1, columns.stop - columns.start)
            rows = slice(
                start, min(num_queries, start + max(1, min(_TILE_ROWS, _TILE // num_columns)))
            )
            columns = attention.key_range(rows)
        # A tile has at least one key, so that queries that may attend to no key are in a tile, too.
        tiles.append(Tile(rows, columns if columns.stop > columns.start else slice(0, 1)))
        start = rows.stop
    return tiles


class HeadTiles(NamedTuple):
    """Tile of several heads: a range of heads, with the same rows and columns in each head."""

    heads: slice
    tile: Tile

    @property
    def size(self) -> int:
        count: int = self.heads.stop - self.heads.start
        return count * self.tile.size


def head_tiles(stack: AttentionStack, layer: int) -> list[HeadTiles]:
    """Return the tiles of all heads, head by head.

    If a head has only one tile, several heads are combined into one `HeadTiles`.
    """
    heads, tiles = stack.num_heads(layer), tiles_of_head(stack, layer)
    num_together = max(1, _TILE // tiles[0].size) if len(tiles) == 1 else 1
    return [
        HeadTiles(slice(start, min(start + num_together, heads)), tile)
        for start in range(0, heads, num_together)
        for tile in tiles
    ]


def tile_of_heads(stack: AttentionStack, layer: int, part: HeadTiles) -> NDArray[np.float32]:
    """Compute the weights of a tile, (heads, rows, columns).

    Raise ValueError if a weight is not finite or out of range.
    """
    attention = stack.attention(layer)
    heads = range(part.heads.start, part.heads.stop)
    rows, columns = part.tile
    if attention.stored_weights is None:
        weights = np.stack([attention.weights(head, rows, columns) for head in heads])
    else:
        queries = np.arange(rows.start, rows.stop)
        weights = attention.rows_of_each_head(heads, queries)[0][..., columns]
    try:
        check_weights(weights, stack.maximum, signed=stack.signed, label="")
    except ValueError:
        for head, head_weights in zip(heads, weights, strict=True):
            label = f"stack {stack.name!r}, layer {layer}, head {head}"
            check_weights(head_weights[None], stack.maximum, signed=stack.signed, label=label)
        raise
    return weights


def _count_tile_weights(record: AttentionRecord) -> int:
    """Return the number of weights in the tiles of all heads and layers."""
    return sum(
        tile.size * stack.num_heads(layer)
        for stack, layer in _stack_layers(record)
        for tile in tiles_of_head(stack, layer)
    )


class MapCells(NamedTuple):
    """Maximum weights of some cells of small maps.

    `maxima` has the shape (1, heads, rows, columns). For signed numbers, the first axis has length
    2: maxima of the positive numbers, and of the absolute values of the negative numbers.
    """

    rows: slice
    columns: slice
    maxima: NDArray[np.float32]


class SmallMaps:
    """Small maps of a layer's heads, whose weights are added tile by tile.

    A cell is the maximum of its weights, as in `attnviz.server.codec.pool_max`. Adding a tile a
    second time changes nothing. For signed numbers, a cell is the number with the largest absolute
    value (`attnviz.server.pooling`).

    Examples
    --------
    >>> maps = SmallMaps(1, 4, 4, size=2)
    >>> all_keys = slice(0, 4)
    >>> head, weights = slice(0, 1), np.eye(4, dtype=np.float32)[None]
    >>> maps.add(head, Tile(slice(0, 3), all_keys), weights[:, :3])
    >>> maps.add(head, Tile(slice(3, 4), all_keys), weights[:, 3:] / 2)
    >>> maps.cells
    array([[[1., 0.],
            [0., 1.]]], dtype=float32)
    """

    def __init__(
        self, heads: int, rows: int, columns: int, size: int, *, signed: bool = False
    ) -> None:
        self._starts = [_starts(rows, size), _starts(columns, size)]
        self._signed = signed
        self._parts = np.zeros((1 + signed, heads, *map(len, self._starts)), np.float32)

    @property
    def cells(self) -> NDArray[np.float32]:
        """Cells of the maps, (heads, rows, columns)."""
        return join_signs(self._parts)

    def add(self, index: slice, tile: Tile, weights: NDArray[np.float32]) -> None:
        """Add the weights of a tile, (heads, rows, columns), to the maps of the heads `index`."""
        self.merge(index, self.pooled(tile, weights))

    def pooled(self, tile: Tile, weights: NDArray[np.float32]) -> MapCells:
        """Return the maximum of `weights`, (heads, rows, columns), in each cell with a weight."""
        pooled = split_signs(weights, signed=self._signed)
        across = []
        # Pool along keys first, because this axis is contiguous in memory.
        for axis in (1, 0):
            side, starts = tile[axis], self._starts[axis]
            first = int(np.searchsorted(starts, side.start, side="right")) - 1
            last = int(np.searchsorted(starts, side.stop, side="left"))
            begins = np.maximum(starts[first:last] - side.start, 0)
            pooled = np.maximum.reduceat(pooled, begins, axis=axis + 2)
            across.append(slice(first, last))
        return MapCells(across[1], across[0], pooled)

    def merge(self, heads: slice, pooled: MapCells) -> None:
        """Update the maps of some heads with the result of `pooled`."""
        cells = self._parts[:, heads, pooled.rows, pooled.columns]
        np.maximum(cells, pooled.maxima, out=cells)


def _starts(count: int, size: int) -> NDArray[np.int64]:
    cells = min(count, size)
    return np.arange(cells) * count // cells
