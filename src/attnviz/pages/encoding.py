"""The form in which a page embeds a record's weights, so that it stays small.

There are three, from the most exact to the smallest:

``"all"``
    Every weight, in one byte: off by at most 0.004.
``"vectors"``
    Queries and keys, from which the page computes the weights.
``"strongest"``
    Each query's strongest keys, with the rest of its weight spread evenly over the others.

Of signed numbers, such as differences, ``"all"`` has a byte each with its sign, off by at most
0.008 of the largest; ``"strongest"`` has those of the largest size, and nothing is spread. A record
with such a stack has no form ``"vectors"``.

All weights are tried first. Where they are too large, one sweep over them collects the strongest,
of which as many are taken as are needed, or as there is room for.
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
from attnviz.pages.vectors import size_of_vectors, vectors_in_steps
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import sampled_queries
from attnviz.record.stack import AttentionStack
from attnviz.server.codec import byte_codes, check_weights, encode
from attnviz.server.description import PageForm
from attnviz.server.pooling import joined, parted
from attnviz.utils.progress import Pace, Progress, Steps, run_steps, scale_progress
from attnviz.utils.threads import map_ahead

__all__ = ["MAP_SIZE", "EmbeddedWeights", "check_record", "embedded_weights", "forget_computed"]

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
# Of so many weights it is estimated first what they take, from so many queries of each head; where
# that is so many times what there is room for, they are not tried.
_ESTIMATED = 4_000_000
_ROWS_TRIED = 16
_FAR = 1.25
# At most so many characters describe a layer beside its data.
_HEADER = 500
# base64.
_TEXT = 4 / 3
# Weights that are computed and looked at together, about as many as a processor's cache holds: a
# matrix product of fewer rows is slow, and memory would be waited for with more.
_TILE = 1 << 19
_TILE_ROWS = 512
#: Bytes of strongest keys that stay with a record for the next page.
KEPT_BYTES = 400_000_000


@dataclass
class EmbeddedWeights:
    """A record's weights in the form in which a page embeds them.

    Attributes
    ----------
    covered : float
        Share of the weight that is embedded as it is, 0 to 1; of sizes, where numbers are signed.
    error : float
        Largest absolute error of a weight that the page shows, as it was measured.
    blocks, maps : list of dict
        By layer: weights, and small maps of all heads; fit for JSON.
    vectors : dict or None
        What `attnviz.pages.vectors.vectors_in_steps` gives.
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
        headers = self.entries()
        for name in headers.keys() & {"blocks", "maps"}:
            headers[name] = [each | {"data": ""} for each in headers[name]]
        if self.vectors is not None:
            headers["vectors"] = self.vectors | {"arrays": [""] * len(self.vectors["arrays"])}
        whole = len(json.dumps(headers, ensure_ascii=False).encode())
        elements = ELEMENT_BYTES * len(self._texts)
        return self.data_size + elements + whole - len(json.dumps({"blocks": [], "maps": []}))

    @property
    def data_size(self) -> int:
        """Bytes of the weights alone, without what says what they are: less than `size`."""
        return sum(map(len, self._texts))

    @property
    def _texts(self) -> list[str]:
        texts = [each["data"] for each in (*self.blocks, *self.maps)]
        return texts if self.vectors is None else [*texts, *self.vectors["arrays"]]

    def entries(self) -> dict[str, Any]:
        """What a page's data have of it, fit for JSON."""
        found = {"blocks": self.blocks, "maps": self.maps, "embedded": self.summary()}
        return found if self.vectors is None else found | {"vectors": self.vectors}

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
    record: AttentionRecord,
    *,
    precision: PagePrecision,
    max_bytes: int | None,
    rest: int,
) -> Steps[EmbeddedWeights]:
    """Choose a form, and embed the weights in it, step by step; `rest` are the page's other bytes.

    All weights, where the page has at most 6 MB with them (or `max_bytes`). Otherwise the smaller
    of the other forms that covers 95% of the weight within the limit; where neither does, as much
    of the weight as the limit has room for.

    What was computed stays with the record: a second page takes no second pass over the weights.
    """
    if precision == "exact":
        return (yield from _exact(record, max_bytes, rest))
    full = (limits.FULL_BYTES if max_bytes is None else max_bytes) - rest
    if limits.count_weights(record) <= _WEIGHTS_PER_BYTE * full:
        everything = yield from _all(record, full)
        if everything is not None:
            return everything
    limit = max_bytes
    if limit is None:
        causal = {}
        for stack in record.stacks.values():
            causal[stack] = yield from _is_causal(stack)
        limit = limits.default_limit(record, filter(causal.get, causal))
    if rest >= limit:
        raise ValueError(limits.no_room(record, limit, without=rest))
    strongest = yield from _strongest(record, limit, limit - rest)
    fits = strongest.size + rest <= limit
    if _can_compute(record):
        size = size_of_vectors(record.stacks.values()) * _TEXT
        if size < limit - rest and (
            not fits or strongest.covered < COVERED or size < strongest.size
        ):
            computed = yield from _vectors(record, strongest.maps)
            if computed.size + rest <= limit:
                return computed
    if not fits:
        needed = strongest.size + rest
        raise ValueError(limits.no_room(record, limit, without=rest, needed=needed))
    return strongest


def _all(record: AttentionRecord, room: float) -> Steps[EmbeddedWeights | None]:
    """All weights, unless they take more than `room`."""
    known = _computed(record)
    if known.everything is not None:
        return known.everything if known.everything.size <= room else None
    if known.more_than >= room:
        return None
    if (yield from _are_far_too_large(record, room)):
        known.more_than = room
        return None
    embedded = EmbeddedWeights("all")
    small = limits.count_weights(record) <= _POOLED_WEIGHTS
    total, done = _count_tiled(record), 0.0
    packer = Packer()
    held, held_of = np.zeros(0, np.int64), [0, 0, 0]
    for stack, layer in _layers(record):
        # Of a short text they would be the weights once more.
        short = max(len(stack.query_tokens), len(stack.key_tokens)) <= MAP_SIZE
        maps = None if small or short else _maps(stack, layer)
        before = done
        parts = head_tiles(stack, layer)
        whole = _whole_layer(stack, layer, parts, maps, done=before, total=total)
        header, codes = yield from whole
        _, *place = codes.shape
        place.append(header["reach"])
        if place != held_of:
            # As a rule that of the layer before.
            held, held_of = np.flatnonzero(np.tri(*place, dtype=np.bool_)), place
        tiled = sum(part.size for part in parts)
        flat = codes.reshape(len(codes), -1)
        chosen = flat if len(held) == flat.shape[1] else np.take(flat, held, axis=1)
        steps = packer.packing(chosen.tobytes())
        # Half of a layer is computing its weights.
        half = tiled / 2
        data = yield from scale_progress(
            steps, "all weights", before + half, total, "weight", size=half
        )
        embedded.blocks.append({"stack": stack.name, "layer": layer, **header, "data": data})
        if maps is not None:
            embedded.maps.append(_small(stack, layer, maps))
        embedded.error = max(embedded.error, header["error"])
        if embedded.data_size > room:
            known.more_than = room
            return None
        done = before + tiled
        yield Progress("all weights", done, total)
    if embedded.size > room:
        known.more_than = room
        return None
    known.everything = embedded
    return embedded


def _are_far_too_large(record: AttentionRecord, room: float) -> Steps[bool]:
    """Whether all weights take far more than `room`, estimated from some queries of all heads.

    Signed numbers are not estimated.
    """
    stacks = list(record.stacks.values())
    size, count, packer = 0.0, limits.count_weights(record), Packer()
    if count < _ESTIMATED or any(stack.signed for stack in stacks):
        return False
    sampled = _ROWS_TRIED * sum(
        len(stack.key_tokens) * stack.num_heads(layer) for stack, layer in _layers(record)
    )
    pace = Pace("some queries", 2 * sampled)
    for stack, layer in _layers(record):
        rows = sampled_queries(len(stack.query_tokens), _ROWS_TRIED)
        for _, weights, _ in weights_of_some(stack, layer, range(stack.num_heads(layer)), rows):
            tried = np.clip(np.nan_to_num(weights), 0.0, stack.maximum)
            codes, _ = byte_codes(tried, stack.maximum)
            text = run_steps(packer.packing(codes.tobytes()))
            size += len(text) * len(stack.query_tokens) / len(rows)
            yield from pace.advance(2 * weights.size)
    return size > _FAR * room


def _exact(record: AttentionRecord, max_bytes: int | None, rest: int) -> Steps[EmbeddedWeights]:
    """All weights, or queries and keys as they are."""
    room = float("inf") if max_bytes is None else max_bytes - rest
    smallest = None
    if _can_compute(record) and size_of_vectors(record.stacks.values(), exact=True) < room:
        smallest = yield from _vectors(record, exact=True)
    if limits.count_weights(record) <= limits.MAX_WEIGHTS:
        # More than the vectors take is in vain.
        enough = room if smallest is None else min(room, smallest.size)
        smallest = (yield from _all(record, enough)) or smallest
    if smallest is None or smallest.size > room:
        raise ValueError(limits.too_many(record, max_bytes))
    return smallest


def _vectors(
    record: AttentionRecord, maps: list[dict[str, Any]] | None = None, *, exact: bool = False
) -> Steps[EmbeddedWeights]:
    """Queries and keys, and small maps."""
    vectors = yield from vectors_in_steps(record.stacks.values(), exact=exact)
    error = max((each["error"] for each in vectors["layers"]), default=0.0)
    if maps is None:
        maps = yield from _swept(record, "maps", None)
    return EmbeddedWeights("vectors", error=error, maps=maps, vectors=vectors)


def _strongest(record: AttentionRecord, limit: float, room: float) -> Steps[EmbeddedWeights]:
    """Each query's strongest keys, and small maps; larger than `room` where nothing fits."""
    known = _computed(record)
    if known.swept is None or not known.swept[0].suffices(limit):
        keys = Sweep(limit, (yield from first_level(record, COVERED, limit)))
        known.swept = keys, (yield from _swept(record, "strongest keys", keys))
    sweep, maps = known.swept
    embedded = EmbeddedWeights("strongest", maps=maps)
    cut = yield from sweep.cutting(COVERED, room - embedded.size - _HEADER * len(maps))
    if sweep.num_bytes > KEPT_BYTES:
        known.swept = None
    return replace(embedded, blocks=cut.blocks, covered=cut.covered, error=cut.error)


@dataclass
class _Computed:
    """What was computed for pages of a record.

    Attributes
    ----------
    everything : EmbeddedWeights or None
        All weights, where they fitted.
    more_than : float
        Bytes that they take more than, where they did not.
    swept : tuple or None
        The strongest keys of all rows, and small maps of all layers.
    """

    everything: EmbeddedWeights | None = None
    more_than: float = 0.0
    swept: tuple[Sweep, list[dict[str, Any]]] | None = None


# Where that is kept.
_COMPUTED = "pages"


def forget_computed(record: AttentionRecord) -> None:
    """Let go of what was computed for pages of a record: a next page begins anew."""
    record.computed.pop(_COMPUTED, None)


def _computed(record: AttentionRecord) -> _Computed:
    found = record.computed.setdefault(_COMPUTED, _Computed())
    if not isinstance(found, _Computed):
        raise TypeError("record.computed does not have what pages keep there")
    return found


def _swept(record: AttentionRecord, doing: str, keys: Sweep | None) -> Steps[list[dict[str, Any]]]:
    """Small maps of all layers, from one pass over the weights that a sweep takes in, too."""
    done, total = 0.0, _count_tiled(record)
    small = []
    for stack, layer in _layers(record):
        maps = _maps(stack, layer)
        if keys is not None:
            keys.begin(stack, layer)
        look = _Look(stack, layer, maps, keys)
        for part, cells, rows in map_ahead(look, head_tiles(stack, layer)):
            maps.take(part.heads, cells)
            done += part.size
            yield Progress(doing, done, total)
            if keys is not None and rows is not None:
                keys.take(rows)
                for _ in keys.thinned():
                    yield Progress(doing, done, total)
        small.append(_small(stack, layer, maps))
    if keys is not None:
        for _ in keys.dropped():
            yield Progress(doing, total, total)
    return small


@dataclass(frozen=True)
class _Look:
    """What a pass over a layer's weights takes from each tile, in any thread."""

    stack: AttentionStack
    layer: int
    maps: SmallMaps
    keys: Sweep | None

    def __call__(self, part: HeadTiles) -> tuple[HeadTiles, MapCells, StrongestRows | None]:
        """Compute a tile of some heads, and look at it."""
        weights = tile_of_heads(self.stack, self.layer, part)
        rows = None
        if self.keys is not None:
            # The rows of one head after those of another.
            flat = weights.reshape(-1, weights.shape[2])
            rows = self.keys.strongest(self.stack, flat, part.tile.columns.start)
        return part, self.maps.pooled(part.tile, weights), rows


def _can_compute(record: AttentionRecord) -> bool:
    """Whether queries and keys are known, and a page computes weights from them fast enough."""
    stacks = record.stacks.values()
    return all(stack.has_vectors for stack in stacks) and all(
        stack.num_heads(layer) * len(stack.query_tokens) * len(stack.key_tokens) <= _COMPUTED_PAIRS
        for stack in stacks
        for layer in stack.layers
    )


def _is_causal(stack: AttentionStack) -> Steps[bool]:
    """Whether queries do not look ahead: the masks say so, or two queries of each head do."""
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
            yield from pace.advance(weights.size, len(weights))
    return True


def _layers(record: AttentionRecord) -> list[tuple[AttentionStack, int]]:
    return [(stack, layer) for stack in record.stacks.values() for layer in stack.layers]


def _maps(stack: AttentionStack, layer: int) -> SmallMaps:
    heads = stack.num_heads(layer)
    sides = len(stack.query_tokens), len(stack.key_tokens)
    return SmallMaps(heads, *sides, MAP_SIZE, signed=stack.signed)


def _small(stack: AttentionStack, layer: int, maps: SmallMaps) -> dict[str, Any]:
    encoded = encode(maps.cells, "uint8", stack.maximum, signed=stack.signed)
    header: dict[str, Any] = {"stack": stack.name, "layer": layer, **encoded.header()}
    return header | {"data": packed(encoded.data)}


def _whole_layer(
    stack: AttentionStack,
    layer: int,
    parts: list[HeadTiles],
    maps: SmallMaps | None,
    *,
    done: float,
    total: float,
) -> Steps[tuple[dict[str, Any], NDArray[Any]]]:
    """All weights of a layer's heads, in `parts`, as codes of one byte each.

    Row r has codes for its first ``r + 1 + reach`` keys, after which there are zeros alone.
    `maps` take in the same weights; `done` of `total` weights were embedded before.
    """
    rows, columns = len(stack.query_tokens), len(stack.key_tokens)
    heads = stack.num_heads(layer)
    codes = np.zeros((heads, rows, columns), np.uint8)
    error = 0.0

    def one(part: HeadTiles) -> tuple[HeadTiles, NDArray[Any], float, MapCells | None]:
        weights = tile_of_heads(stack, layer, part)
        cells = None if maps is None else maps.pooled(part.tile, weights)
        found, off = byte_codes(weights, stack.maximum, signed=stack.signed)
        return part, found, off, cells

    for part, found, off, cells in map_ahead(one, parts):
        codes[part.heads, part.tile.rows, part.tile.columns] = found
        error = max(error, off)
        if maps is not None and cells is not None:
            maps.take(part.heads, cells)
        # Half of it is packing them.
        done += part.size / 2
        yield Progress("all weights", done, total)
    some = codes.max(axis=0) > 0
    ends = np.where(some.any(axis=1), columns - some[:, ::-1].argmax(axis=1), 0)
    reach = int(np.max(ends - np.arange(rows) - 1, initial=0))
    header = {
        "shape": [heads, rows, columns],
        "encoding": "int8-sqrt" if stack.signed else "uint8-sqrt",
        "maximum": stack.maximum,
        "error": error,
        "reach": reach,
    }
    return header, codes


class TilePlace(NamedTuple):
    """Neighbouring queries, and the keys that any of them may attend to."""

    rows: slice
    columns: slice

    @property
    def size(self) -> int:
        """How many weights these are."""
        rows, columns = self
        size: int = (rows.stop - rows.start) * (columns.stop - columns.start)
        return size


def tile_places(stack: AttentionStack, layer: int) -> list[TilePlace]:
    """All rows of a head in order, a tile of them after the other; heads of a layer are alike."""
    count, keys = len(stack.query_tokens), len(stack.key_tokens)
    attention = stack.attention(layer)
    places = []
    start = 0
    while start < count:
        rows, columns = slice(start, start + 1), slice(0, keys)
        # Rows that reach few keys are many to a tile.
        for _ in range(2):
            wide = max(1, columns.stop - columns.start)
            rows = slice(start, min(count, start + max(1, min(_TILE_ROWS, _TILE // wide))))
            columns = attention.key_range(rows)
        # At least one key: rows that attend to nothing are rows, too.
        places.append(TilePlace(rows, columns if columns.stop > columns.start else slice(0, 1)))
        start = rows.stop
    return places


class HeadTiles(NamedTuple):
    """A tile of some heads that follow each other."""

    heads: slice
    tile: TilePlace

    @property
    def size(self) -> int:
        """How many weights these are."""
        count: int = self.heads.stop - self.heads.start
        return count * self.tile.size


def head_tiles(stack: AttentionStack, layer: int) -> list[HeadTiles]:
    """All tiles of all heads, head by head; of a short text those of several heads together."""
    heads, places = stack.num_heads(layer), tile_places(stack, layer)
    together = max(1, _TILE // places[0].size) if len(places) == 1 else 1
    return [
        HeadTiles(slice(start, min(start + together, heads)), place)
        for start in range(0, heads, together)
        for place in places
    ]


def tile_of_heads(stack: AttentionStack, layer: int, part: HeadTiles) -> NDArray[np.float32]:
    """Weights of a tile of some heads, (heads, rows, columns); checked."""
    attention = stack.attention(layer)
    heads = range(part.heads.start, part.heads.stop)
    rows, columns = part.tile
    if attention.given_weights is None:
        weights = np.stack([attention.weights(head, rows, columns) for head in heads])
    else:
        queries = np.arange(rows.start, rows.stop)
        weights = attention.rows_of_each_head(heads, queries)[0][..., columns]
    try:
        check_weights(weights, stack.maximum, signed=stack.signed, of="")
    except ValueError:
        for head, each in zip(heads, weights, strict=True):
            of = f"stack {stack.name!r}, layer {layer}, head {head}"
            check_weights(each[None], stack.maximum, signed=stack.signed, of=of)
        raise
    return weights


def _count_tiled(record: AttentionRecord) -> int:
    """Weights of all tiles."""
    return sum(
        place.size * stack.num_heads(layer)
        for stack, layer in _layers(record)
        for place in tile_places(stack, layer)
    )


class MapCells(NamedTuple):
    """Some cells of small maps, and the largest weight of each, (parts, heads, rows, columns)."""

    rows: slice
    columns: slice
    most: NDArray[np.float32]


class SmallMaps:
    """Maps of a layer's heads, pooled by the maximum tile by tile.

    Cells cover what those of `attnviz.server.codec.pool_max` do. A tile may be taken in again. Of
    signed numbers a cell shows the one of the largest size (`attnviz.server.pooling`).

    Examples
    --------
    >>> maps = SmallMaps(1, 4, 4, size=2)
    >>> all_keys = slice(0, 4)
    >>> head, weights = slice(0, 1), np.eye(4, dtype=np.float32)[None]
    >>> maps.add(head, TilePlace(slice(0, 3), all_keys), weights[:, :3])
    >>> maps.add(head, TilePlace(slice(3, 4), all_keys), weights[:, 3:] / 2)
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
        """The maps, (heads, rows, columns)."""
        return joined(self._parts)

    def add(self, index: slice, tile: TilePlace, weights: NDArray[np.float32]) -> None:
        """Take in a tile of some heads, (heads, rows, columns)."""
        self.take(index, self.pooled(tile, weights))

    def pooled(self, tile: TilePlace, weights: NDArray[np.float32]) -> MapCells:
        """What a tile of some heads, (heads, rows, columns), gives to their cells."""
        pooled = parted(weights, signed=self._signed)
        across = []
        # Along the rows first, as they lie in memory.
        for axis in (1, 0):
            side, starts = tile[axis], self._starts[axis]
            first = int(np.searchsorted(starts, side.start, side="right")) - 1
            last = int(np.searchsorted(starts, side.stop, side="left"))
            begins = np.maximum(starts[first:last] - side.start, 0)
            pooled = np.maximum.reduceat(pooled, begins, axis=axis + 2)
            across.append(slice(first, last))
        return MapCells(across[1], across[0], pooled)

    def take(self, index: slice, found: MapCells) -> None:
        """Take in what a tile of some heads gives."""
        cells = self._parts[:, index, found.rows, found.columns]
        np.maximum(cells, found.most, out=cells)


def _starts(count: int, size: int) -> NDArray[np.int64]:
    cells = min(count, size)
    return np.arange(cells) * count // cells
