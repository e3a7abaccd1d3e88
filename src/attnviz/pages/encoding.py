"""Page encoding: the form in which a page stores the weights of a record.

A page is an exported HTML file that contains a view and its data. A stack is the attention of one
kind in all layers of a model, such as self-attention. A signed stack has positive and negative
numbers instead of weights, for example the differences of two models. A page contains the weights
of a stack in one of three forms:

``"all"``
    Every weight in one byte, with an error of at most 0.004 of the largest possible weight. For a
    signed stack, the error is at most 0.008 of the largest possible absolute value.
``"strongest"``
    All weights that reach a threshold, and in each head the two largest weights of each query. The
    page spreads the rest of a query's weight evenly over other keys. For a signed stack, the page
    instead shows 0 for every number that it does not contain.
``"vectors"``
    Queries and keys, from which the page computes the weights.

The first two forms have the same encoding (`attnviz.pages.rows`). The form ``"all"`` has the
threshold 0. For the form ``"strongest"``, the weights of sampled queries determine the threshold.
Then all weights are computed and encoded. If the page is nevertheless too large, this is repeated
with a higher threshold. Small stacks of such a page have the form ``"all"``.

The page can also contain small maps, which are heat maps of all heads with at most 32 rows and
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.analysis.heads import weights_of_some
from attnviz.pages import limits
from attnviz.pages.limits import PagePrecision
from attnviz.pages.packing import Packer, packed
from attnviz.pages.picture import pool_maps
from attnviz.pages.rows import Rows, concatenate_rows, encode_rows, select_rows
from attnviz.pages.vectors import encode_vectors, size_of_vectors
from attnviz.record.pooling import cell_starts, join_signs, pool, split_signs
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import SAMPLED_QUERIES, sample_queries
from attnviz.record.softmax import as_rows, count_rows, row_groups
from attnviz.record.stack import AttentionStack
from attnviz.server.cells import Cells
from attnviz.server.codec import check_weights, decode
from attnviz.server.weights import Weights
from attnviz.utils.progress import part_of, report
from attnviz.utils.threads import map_ahead

#: Share of the total weight that the weights in a page with the form "strongest" must have
#: together, if the size limit allows it. The page contains no more weights than this share needs.
COVERED = 0.95
#: Maximum number of rows and columns of a small map.
MAP_SIZE = 32
# If a page has the form "all" and at most this many weights, it contains no small maps. The page
# computes them from the weights when it is opened.
_POOLED_WEIGHTS = 1_000_000
# Maximum number of weights in a layer for the form "vectors". A browser computes this many weights
# in about a second.
_COMPUTED_PAIRS = 16_000_000
# Ratio of the sizes after and before base64 encoding.
_TEXT = 4 / 3
# Upper bounds in bytes of what a page contains in addition to the codes of the weights: `_ROW` for
# the other numbers of a row (the weights of one query in one head), and `_PART` for the JSON header
# of a part of a layer, or of its small maps.
_ROW, _PART = 16, 1000
# Maximum number of weights of the sampled queries in all heads of the record together, unless a
# single query in each head has more weights.
_SAMPLED_WEIGHTS = 1 << 24
# A level is an integer from 0 to ``_LEVELS + 1`` that stands for a threshold. The threshold is
# ``(level / _LEVELS) ** 2`` times the `maximum` of the stack, which is the largest possible weight.
# With level 0, all weights are embedded in the page. No weight reaches the threshold of the level
# ``_LEVELS + 1``, so only the `MIN_KEYS` largest weights of each row are embedded.
_LEVELS = 4096
# Shares of the bytes that are available for rows. The page is first made with a level whose rows
# need at most the first share, according to the estimate from sampled queries. If this page is too
# large, the next share is tried. With the share 0, the page has only the `MIN_KEYS` largest weights
# of each row.
_USED = (0.96, 0.9, 0.75, 0.0)
# The search for a level ends when the estimated size of the rows is between this share of the
# available bytes and all of them.
_CLOSE = 0.98
# Maximum number of weights in a tile, unless a single row has more. A tile is a part of a layer
# that is encoded at once (`Tile`). This many weights fit into the cache of a processor.
_TILE = 1 << 19
# Maximum number of rows in a part. A layer is stored in parts, each with consecutive rows of all
# heads. A view decodes only the parts that it draws.
_PART_ROWS = 64

#: Entries of the JSON data of a page.
Entries = dict[str, Any]


def check_record(record: AttentionRecord, precision: PagePrecision) -> None:
    """Raise ValueError if a record has too many weights for a page with this precision.

    If the page can have the form "vectors", the limit for ``"exact"`` does not apply.
    """
    count = limits.count_weights(record)
    if precision == "exact" and count > limits.MAX_WEIGHTS and not _can_compute(record):
        raise ValueError(
            f'precision="exact": a page with all {count:,} weights would be too large (at most '
            f'{limits.MAX_WEIGHTS:,}). {limits.SMALLER} Or pass precision="auto", which stores '
            "only the strongest keys of a long text."
        )
    if precision == "auto" and count > limits.MAX_SEARCHED_WEIGHTS:
        raise ValueError(
            f"a page of {count:,} weights takes too long to compute (at most "
            f"{limits.MAX_SEARCHED_WEIGHTS:,}). {limits.SMALLER} Views in a notebook need no page, "
            "and show texts of any length."
        )


def embed_weights(
    record: AttentionRecord,
    *,
    precision: PagePrecision,
    max_bytes: int | None,
    size_of: Callable[[Entries], int],
) -> Entries:
    """Choose a form for the weights and return them as entries of the page's JSON data.

    `size_of` returns the size in bytes of the page with given entries. Raise ValueError if the page
    exceeds its size limit in every possible form.

    With ``precision="auto"``, the form is ``"all"`` if the page with all weights has at most
    `max_bytes` (by default 6 MB). Otherwise, the size limit is `max_bytes` or, by default,
    `limits.default_limit`, and the form is ``"strongest"`` or ``"vectors"``. The form
    ``"strongest"`` has as many weights as fit, but not more than are needed to cover 95% of the
    total weight. Stacks that need no more than an equal part of the space are stored whole. The
    form is ``"vectors"`` if the vectors fit and one of two conditions is met: the vectors need less
    space than these weights, or weights that cover 95% do not fit.

    With ``precision="exact"``, the form is ``"all"`` or unrounded ``"vectors"``, as
    `_embed_exact` explains.
    """
    if precision == "exact":
        return _embed_exact(record, max_bytes, size_of)
    full = limits.FULL_BYTES if max_bytes is None else max_bytes
    room = full - size_of({})
    if _largest_size(record) <= room:
        return _embed_rows(record, 0)
    sample = _Sample(record)
    if sample.size(0) <= room:
        entries = _embed_rows(record, 0)
        if size_of(entries) <= full:
            return entries
    limit = max_bytes or limits.default_limit(record)
    return _embed_strongest(record, sample, limit, size_of)


def _embed_strongest(
    record: AttentionRecord, sample: _Sample, limit: int, size_of: Callable[[Entries], int]
) -> Entries:
    """Embed the largest weights or the vectors in a page of at most `limit` bytes.

    `embed_weights` explains the choice. Raise ValueError if neither the vectors nor the `MIN_KEYS`
    largest weights of each row fit into such a page.
    """
    without = size_of({})
    if without >= limit:
        raise ValueError(limits.too_large_message(limit, without, "without weights"))
    room = limit - without - sample.size_of_maps
    sample.keep_whole(room)
    level = sample.level(_USED[0] * room)
    if _can_compute(record):
        size = size_of_vectors(record) * _TEXT
        if size < room and (level > sample.covering or size < sample.size(level)):
            return _embed_vectors(record)
    tried = -1
    for share in _USED:
        level = sample.level(share * room)
        if level == tried:
            continue
        tried = level
        entries = _embed_rows(record, level, whole=sample.whole)
        needed = size_of(entries)
        if needed <= limit:
            return entries
    contents = "with each query's two strongest keys"
    raise ValueError(limits.too_large_message(limit, needed, contents))


def _embed_exact(
    record: AttentionRecord, max_bytes: int | None, size_of: Callable[[Entries], int]
) -> Entries:
    """Embed all weights in one byte each, or unrounded queries and keys.

    Queries and keys are embedded only if `_can_compute` is True. In addition, they must need less
    space than the weights, or the record must have more than `limits.MAX_WEIGHTS` weights. Raise
    ValueError if `max_bytes` is not None and the page is larger.
    """
    all_fit = limits.count_weights(record) <= limits.MAX_WEIGHTS
    entries = None
    if _can_compute(record):
        size = size_of_vectors(record, exact=True) * _TEXT
        if not all_fit or size < _Sample(record).size(0):
            entries = _embed_vectors(record, exact=True)
    # Here, `entries` is None only if the page can contain all weights. Otherwise, `check_record`
    # has raised an error, or the form "vectors" is possible.
    entries = entries or _embed_rows(record, 0)
    if max_bytes is not None and (needed := size_of(entries)) > max_bytes:
        raise ValueError(limits.too_large_message(max_bytes, needed, 'with precision="exact"'))
    return entries


def _embed_vectors(record: AttentionRecord, *, exact: bool = False) -> Entries:
    vectors = encode_vectors(record, exact=exact)
    embedded = {
        name: {
            "form": "vectors",
            "covered": 1.0,
            "error": max(
                (layer["error"] for layer in vectors["errors"] if layer["stack"] == name),
                default=0.0,
            ),
        }
        for name in record.stacks
    }
    return vectors | {"maps": embed_maps(record), "embedded": embedded}


def embed_maps(record: AttentionRecord) -> list[Entries]:
    """Return small maps of the heads of all layers as entries of the page's JSON data."""
    layers = _layers(record)
    embedded = []
    for done, (stack, layer) in enumerate(layers):
        report("thumbnails", done, len(layers), "layer")
        heads = list(range(stack.num_heads(layer)))
        rows, columns = slice(0, len(stack.query_tokens)), slice(0, len(stack.key_tokens))
        weights = Weights(stack, layer, heads, rows, columns)
        maps = Cells(pooled="max", max_cells=MAP_SIZE).reply(weights)
        sampling = {"sampled": maps.header["sampled"]} if "sampled" in maps.header else {}
        embedded.append(_map_entry(stack, layer, decode(maps)) | sampling)
    return embedded


def _embed_rows(
    record: AttentionRecord, level: int, *, whole: Container[str] = frozenset()
) -> Entries:
    """Compute all weights once. Embed the largest of them, and small maps if the page needs them.

    The embedded weights are those that reach the threshold of `level`, and the `MIN_KEYS` largest
    weights of each row. They are all weights of the stacks with a name in `whole`.
    """
    small = level == 0 and limits.count_weights(record) <= _POOLED_WEIGHTS
    layers = _layers(record)
    blocks: list[Entries] = []
    maps: list[Entries] = []
    # For each stack: the sum of the embedded weights, and of all weights.
    masses = {name: np.zeros(2) for name in record.stacks}
    packer = Packer()
    for done, (stack, layer) in enumerate(layers):
        # Make no small maps of a text with at most `MAP_SIZE` tokens. They would be copies of its
        # weights.
        with_maps = not small and max(len(stack.query_tokens), len(stack.key_tokens)) > MAP_SIZE
        with part_of("weights", done, len(layers), "layer"):
            used = 0 if stack.name in whole else level
            parts, cells = _select_in_layer(stack, layer, used, with_maps=with_maps)
            # The last part comes first, because the packer needs typical bytes first. With a causal
            # mask, the first queries attend to few keys.
            encoded = []
            for start, rows in reversed(parts.items()):
                queries = np.arange(start, min(start + _PART_ROWS, len(stack.query_tokens)))
                shape = stack.num_heads(layer), len(queries), len(stack.key_tokens)
                spread = _spread_over_scored(stack, layer, queries, rows)
                header, runs = encode_rows(
                    spread, shape, stack.maximum, signed=stack.signed, queries=queries
                )
                entry = {"stack": stack.name, "layer": layer, "start": start, **header}
                encoded.append(entry | {"data": packer.pack(*runs)})
                masses[stack.name] += rows.mass, rows.mass + float(rows.rests.sum())
            blocks += reversed(encoded)
        if cells is not None:
            maps.append(_map_entry(stack, layer, cells))
    embedded = {
        name: {
            "form": "all" if mass == sum_of_all else "strongest",
            "covered": mass / sum_of_all if sum_of_all > 0 else 1.0,
            "error": max(block["error"] for block in blocks if block["stack"] == name),
        }
        for name, (mass, sum_of_all) in masses.items()
    }
    return {"blocks": blocks, "maps": maps, "embedded": embedded}


def _select_in_layer(
    stack: AttentionStack, layer: int, level: int, *, with_maps: bool
) -> tuple[dict[int, Rows], NDArray[np.float32] | None]:
    """Select, in each row of a layer, the keys whose weights are embedded in the page.

    `level` determines the threshold. The first result has the rows of each part with these keys, by
    the first query of the part. The second result has the small maps of the heads, (heads, rows,
    columns), or is None if `with_maps` is False.
    """
    threshold = _threshold(level) * stack.maximum
    starts = (
        cell_starts(len(stack.query_tokens), MAP_SIZE),
        cell_starts(len(stack.key_tokens), MAP_SIZE),
    )
    # The first axis has length 1. For signed numbers, it has length 2: positive numbers and the
    # absolute values of negative numbers are pooled separately (`split_signs`).
    maxima = np.zeros((1 + stack.signed, stack.num_heads(layer), *map(len, starts)), np.float32)

    def select(tile: Tile) -> tuple[Tile, Rows, NDArray[np.float32]]:
        weights = _weights_of_tile(stack, layer, tile)
        cells = np.zeros_like(maxima[:, tile.heads])
        if with_maps:
            positions = np.arange(tile.rows.start, tile.rows.stop), tile.columns
            signs = split_signs(weights, signed=stack.signed)
            pool(cells, signs, positions, starts, np.maximum)
        # Merge the axes of heads and rows.
        flat = weights.reshape(-1, weights.shape[2])
        first = tile.columns.start
        return tile, select_rows(flat, threshold, stack.maximum, first, signed=stack.signed), cells

    tiles = _tiles(stack, layer)
    total, done = sum(tile.size for tile in tiles), 0
    parts: dict[int, list[Rows]] = {}
    for tile, rows, cells in map_ahead(select, tiles):
        parts.setdefault(tile.rows.start // _PART_ROWS * _PART_ROWS, []).append(rows)
        np.maximum(maxima[:, tile.heads], cells, out=maxima[:, tile.heads])
        done += tile.size
        report("weights", done, total)
    joined = {start: concatenate_rows(tiles) for start, tiles in parts.items()}
    return joined, join_signs(maxima) if with_maps else None


def _spread_over_scored(
    stack: AttentionStack, layer: int, queries: NDArray[np.int64], rows: Rows
) -> Rows:
    """Return the rows of some queries of a layer, with larger rests if the stack chooses keys.

    The rest of a row is the sum of the weights that are not embedded. A page spreads it evenly over
    the other keys between the first and the last key with weight, and then sets the keys that the
    softmax did not score to 0. Multiply each rest by a factor, so that the scored keys still get
    the original rest.
    """
    if not stack.chooses_keys:
        return rows
    attention = stack.attention(layer)
    heads = range(attention.num_heads)
    step = max(1, _TILE // (attention.num_heads * attention.num_keys))
    allowed = [
        attention.allowed(heads, group).sum(dim=-1).numpy()
        for _, group in row_groups(as_rows(queries), step)
    ]
    shape = attention.num_heads, len(queries)
    scored = np.broadcast_to(np.concatenate(allowed, axis=1), shape).ravel() - rows.counts
    others = rows.ends - rows.firsts - rows.counts
    return replace(rows, rests=rows.rests * others / np.maximum(scored, 1))


class _Sample:
    """Weights of sampled queries in all heads, from which the size of a page is estimated."""

    def __init__(self, record: AttentionRecord) -> None:
        layers = _layers(record)
        keys = sum(stack.num_heads(layer) * len(stack.key_tokens) for stack, layer in layers)
        num_queries = max(1, min(SAMPLED_QUERIES, _SAMPLED_WEIGHTS // keys))
        # For each layer: its stack, the positions of the sampled queries, and their weights,
        # (heads, queries, keys).
        self._layers: list[tuple[AttentionStack, NDArray[np.int64], NDArray[np.float32]]] = []
        self._sizes: dict[tuple[str, int], float] = {}
        self._packer = Packer()
        #: Names of the stacks that are stored whole at every level.
        self.whole: frozenset[str] = frozenset()
        done = 0
        for stack, layer in layers:
            queries = sample_queries(len(stack.query_tokens), num_queries)
            parts = []
            for _, weights in weights_of_some(stack, layer, range(stack.num_heads(layer)), queries):
                # Replace NaN and infinite weights, so that the estimates are finite. When such
                # weights are encoded, `_weights_of_tile` raises an error.
                parts.append(weights if np.isfinite(weights).all() else np.nan_to_num(weights))
                done += weights.size
                report("sampled queries", done, num_queries * keys)
            self._layers.append((stack, queries, np.concatenate(parts)))

    def keep_whole(self, room: float) -> None:
        """Store stacks whole, if the size of all their weights is at most an equal part of `room`.

        The space that such a stack does not need is divided among the others. The largest stack is
        not stored whole.
        """
        names = dict.fromkeys(stack.name for stack, _, _ in self._layers)
        sizes = sorted((self._size_of(name, 0), name) for name in names)
        for left, (size, name) in zip(range(len(sizes), 1, -1), sizes[:-1], strict=True):
            if size > room / left:
                return
            self.whole |= {name}
            room -= size

    @cached_property
    def size_of_maps(self) -> int:
        """Estimated size of all small maps in a page, in bytes."""
        size = 0
        for stack, _, sampled in self._layers:
            maps = pool_maps(sampled, MAP_SIZE, signed=stack.signed)
            size += _PART // 4 + len(_map_entry(stack, 0, maps)["data"])
        return size

    @cached_property
    def _levels(self) -> tuple[NDArray[np.float64], int]:
        """Numbers of weights, (_LEVELS + 2,), and the level `covering`.

        The first array has, for each level, the number of weights of the record that reach the
        threshold of the level. It is estimated from the sampled queries. The comment of `_LEVELS`
        explains levels.
        """
        counts, masses = np.zeros((2, _LEVELS + 2))
        for stack, queries, sampled in self._layers:
            if stack.name in self.whole:
                continue
            factor = len(stack.query_tokens) / len(queries)
            sizes = np.abs(sampled[sampled != 0])
            shares = np.minimum(sizes / stack.maximum, 1)
            levels = (np.sqrt(shares) * _LEVELS).astype(np.int32)
            counts += factor * np.bincount(levels, minlength=_LEVELS + 2)
            masses += factor * np.bincount(levels, sizes, minlength=_LEVELS + 2)
        above, covered = (np.cumsum(numbers[::-1])[::-1] for numbers in (counts, masses))
        return above, int(np.flatnonzero(covered >= COVERED * masses.sum()).max(initial=0))

    @property
    def covering(self) -> int:
        """Highest level at which the weights that reach the threshold have the share `COVERED`.

        Their share of the total weight is estimated from the sampled queries.
        """
        return self._levels[1]

    def size(self, level: int) -> float:
        """Estimate the size in bytes of all rows in a page with the threshold of `level`.

        The comment of `_LEVELS` explains levels.
        """
        names = dict.fromkeys(stack.name for stack, _, _ in self._layers)
        return sum(self._size_of(name, 0 if name in self.whole else level) for name in names)

    def _size_of(self, name: str, level: int) -> float:
        """Estimate the size in bytes of the rows of one stack."""
        if (name, level) not in self._sizes:
            size = 0.0
            for stack, queries, sampled in self._layers:
                if stack.name != name:
                    continue
                flat = sampled.reshape(-1, sampled.shape[2])
                threshold = _threshold(level) * stack.maximum
                rows = select_rows(flat, threshold, stack.maximum, signed=stack.signed)
                arguments = (sampled.shape, stack.maximum)
                _, runs = encode_rows(rows, *arguments, signed=stack.signed, queries=queries)
                with part_of("sampled queries", 1, 1, "weight", size=0):
                    num_bytes = len(self._packer.pack(*runs))
                size += num_bytes * len(stack.query_tokens) / len(queries)
                size += _PART // 4 * _count_parts(stack)
            self._sizes[name, level] = size
        return self._sizes[name, level]

    def level(self, room: float) -> int:
        """Return the lowest level with which all rows need at most `room` bytes.

        The result is at least `covering`. The sizes are estimates. The search may end at a level
        that is a little higher than necessary. If no level is high enough, return ``_LEVELS + 1``.
        """
        low, high = self.covering, _LEVELS + 1
        if self.size(low) <= room:
            return low
        # In each step, the rows with level `low` need more than `room` bytes. The rows with level
        # `high` fit into `room`, except perhaps if this is the highest level, ``_LEVELS + 1``.
        while high - low > 1 and self.size(high) < _CLOSE * room:
            # Interpolate the number of weights that fit, because each embedded weight needs about
            # the same number of bytes.
            low_size, high_size = self.size(low), self.size(high)
            share = (room - high_size) / (low_size - high_size)
            counts = self._levels[0]
            num_keys = counts[high] + share * (counts[low] - counts[high])
            fitting = int(np.flatnonzero(counts <= num_keys)[0])
            level = min(max(low + 1, fitting), high - 1)
            low, high = (low, level) if self.size(level) <= room else (level, high)
        return high


def _threshold(level: int) -> float:
    return (level / _LEVELS) ** 2


def _largest_size(record: AttentionRecord) -> float:
    """Return an upper bound in bytes of the size of the form "all" in a page, with small maps."""
    return sum(
        _TEXT * stack.num_heads(layer) * len(stack.query_tokens) * (len(stack.key_tokens) + _ROW)
        + _TEXT * stack.num_heads(layer) * MAP_SIZE * (MAP_SIZE + _ROW)
        + _PART * (1 + _count_parts(stack))
        for stack, layer in _layers(record)
    )


def _count_parts(stack: AttentionStack) -> int:
    """Return the number of parts in which a layer of the stack is stored."""
    return -(-len(stack.query_tokens) // _PART_ROWS)


def _can_compute(record: AttentionRecord) -> bool:
    """Whether the form "vectors" is possible.

    All stacks must have queries and keys. Each layer may have at most `_COMPUTED_PAIRS` weights.
    """
    return all(
        stack.has_vectors
        and stack.num_heads(layer) * len(stack.query_tokens) * len(stack.key_tokens)
        <= _COMPUTED_PAIRS
        for stack, layer in _layers(record)
    )


def _layers(record: AttentionRecord) -> list[tuple[AttentionStack, int]]:
    return [(stack, layer) for stack in record.stacks.values() for layer in stack.layers]


class Tile(NamedTuple):
    """Block of weights of a layer that are encoded at once.

    The block has a range of heads, of queries (`rows`) and of keys (`columns`). The weights of
    these queries on all other keys are 0.
    """

    heads: slice
    rows: slice
    columns: slice

    @property
    def size(self) -> int:
        size: int = np.prod([side.stop - side.start for side in self])
        return size


def _tiles(stack: AttentionStack, layer: int) -> list[Tile]:
    """Return the tiles of a layer: all tiles of one part, then those of the next part.

    The tiles of a part go from the first to the last head. If all rows of a head in the part fit
    into one tile, a tile contains as many heads as fit. Otherwise, the tiles of a head go from the
    first to the last query.
    """
    attention, num_heads = stack.attention(layer), stack.num_heads(layer)
    tiles = []
    for part in _split(slice(0, len(stack.query_tokens)), _PART_ROWS):
        columns = attention.key_range(part)
        # If the queries may attend to no key, the tile nevertheless has one key. Without a key,
        # the tile could not contain the rows of these queries.
        columns = columns if columns.stop > columns.start else slice(0, 1)
        max_rows = max(1, _TILE // (columns.stop - columns.start))
        for heads in _split(slice(0, num_heads), max(1, max_rows // count_rows(part))):
            tiles += [Tile(heads, rows, columns) for rows in _split(part, max_rows)]
    return tiles


def _split(side: slice, size: int) -> list[slice]:
    starts = range(side.start, side.stop, size)
    return [slice(start, min(start + size, side.stop)) for start in starts]


def _weights_of_tile(stack: AttentionStack, layer: int, tile: Tile) -> NDArray[np.float32]:
    """Compute the weights of a tile, (heads, rows, columns).

    Raise ValueError if a weight is not finite, or is not in the range of its stack.
    """
    heads = range(tile.heads.start, tile.heads.stop)
    block = stack.attention(layer).block(heads, tile.rows, tile.columns)
    weights: NDArray[np.float32] = block.cpu().numpy()
    label = f"stack {stack.name!r}, layer {layer}"
    check_weights(weights, stack.maximum, signed=stack.signed, label=label)
    return weights


def _map_entry(stack: AttentionStack, layer: int, cells: NDArray[np.float32]) -> Entries:
    """Return the small maps of a layer as an entry of the JSON data.

    `cells` has the values of the maps, (heads, rows of a map, columns of a map).
    """
    flat = cells.reshape(-1, cells.shape[2])
    rows = select_rows(flat, 0.0, stack.maximum, signed=stack.signed)
    header, runs = encode_rows(rows, cells.shape, stack.maximum, signed=stack.signed)
    return {"stack": stack.name, "layer": layer, **header, "data": packed(*runs)}
