"""Chooses the form in which a page carries a record's weights, so that it stays small.

There are three, from the most exact to the smallest:

``"all"``
    Every weight, in one byte: off by at most 0.004.
``"vectors"``
    Queries and keys, from which the page computes the weights.
``"strongest"``
    Each query's strongest keys, with the rest of its weight spread evenly over the others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from tqdm.auto import tqdm

from attnviz.channel.codec import encode
from attnviz.record import AttentionRecord
from attnviz.snapshot import limits
from attnviz.snapshot.limits import PagePrecision
from attnviz.snapshot.passes import SmallMaps, weight_tiles
from attnviz.snapshot.search import Sample, Search
from attnviz.snapshot.strongest import KeptRows, joined, kept_rows
from attnviz.snapshot.vectors import carried_vectors, size_of_vectors
from attnviz.snapshot.whole import packed, whole_layer
from attnviz.stack import AttentionStack

__all__ = ["MAP_SIZE", "CarriedWeights", "carried_weights", "check_record"]

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
# At most so many characters are said of a layer beside its data.
_SAID = 500
# base64.
_TEXT = 4 / 3


@dataclass
class CarriedWeights:
    """A record's weights in the form in which a page carries them.

    Attributes
    ----------
    form : {"all", "vectors", "strongest"}
        How.
    covered : float
        Share of the weight that is carried as it is, 0 to 1.
    error : float
        Largest absolute error of a weight that the page shows, as it was measured.
    blocks, maps : list of dict
        By layer: weights, and small maps of all heads; fit for JSON.
    vectors : dict or None
        What `attnviz.snapshot.vectors.carried_vectors` gives.
    """

    form: Literal["all", "vectors", "strongest"]
    covered: float = 1.0
    error: float = 0.0
    blocks: list[dict[str, Any]] = field(default_factory=list)
    maps: list[dict[str, Any]] = field(default_factory=list)
    vectors: dict[str, Any] | None = None

    @property
    def size(self) -> int:
        """Bytes that it adds to a page."""
        vectors = self.vectors or {"arrays": [], "layers": []}
        texts = [each["data"] for each in (*self.blocks, *self.maps)] + vectors["arrays"]
        said = [each | {"data": ""} for each in (*self.blocks, *self.maps)] + vectors["layers"]
        return sum(map(len, texts)) + len(json.dumps(said)) + 4 * len(texts)

    def summary(self) -> dict[str, Any]:
        """What a page says about how exact it is, fit for JSON."""
        return {"form": self.form, "covered": self.covered, "error": self.error}


def check_record(record: AttentionRecord, precision: PagePrecision) -> None:
    """Refuse a record of which no page can be made, before anything is computed.

    Parameters
    ----------
    record : AttentionRecord
        The record.
    precision : {"auto", "exact"}
        As `carried_weights` takes it.

    Raises
    ------
    ValueError
        If there are too many weights; says how many would do.
    """
    count = limits.count_weights(record)
    if precision == "exact":
        if count > limits.MAX_WEIGHTS and not _can_compute(record):
            raise ValueError(_too_many(count, f"at most {limits.MAX_WEIGHTS:,}"))
        return
    if count <= limits.MAX_LOOKED_AT:
        return
    layers = [
        (len(stack.kept_heads(layer)), len(stack.query_tokens) * len(stack.key_tokens))
        for stack in record.stacks.values()
        for layer in stack.layers
    ]
    most = limits.MAX_LOOKED_AT // max(heads * pairs for heads, pairs in layers)
    heads = limits.MAX_LOOKED_AT // max(pairs for _, pairs in layers)
    ways = ["take a shorter text"]
    if most:
        ways.insert(0, f"choose layers with include_layers=[...], up to {most} of {len(layers)}")
    elif heads:
        ways.insert(0, f"keep up to {heads} of one layer's heads with extract(..., heads=...)")
    raise ValueError(
        f"a page would be made from {count:,} weights, which takes too long to compute (at most "
        f"{limits.MAX_LOOKED_AT:,}): {', or '.join(ways)}. Views in a notebook need no page, and "
        "show texts of any length"
    )


def carried_weights(
    record: AttentionRecord, *, precision: PagePrecision, max_bytes: int | None, rest: int
) -> CarriedWeights:
    """Choose a form, and carry the weights in it.

    All weights, where the page has at most 6 MB with them (or `max_bytes`). Otherwise the smallest
    of the other forms that covers 95% of the weight within the limit; where none does, as much of
    the weight as the limit has room for.

    Parameters
    ----------
    record : AttentionRecord
        The record.
    precision : {"auto", "exact"}
        ``"exact"``: all weights, or queries and keys as they are where that is smaller.
    max_bytes : int or None
        The page's limit; by default one that grows with the text (`attnviz.snapshot.limits`).
    rest : int
        Bytes of the page without its weights.

    Returns
    -------
    CarriedWeights

    Raises
    ------
    ValueError
        If no form fits, or finding it would take too long; says how to make it fit.
    """
    if precision == "exact":
        return _exact(record, max_bytes, rest)
    full = (max_bytes or limits.FULL_BYTES) - rest
    if limits.count_weights(record) <= _WEIGHTS_PER_BYTE * full:
        everything = _all(record, full)
        if everything is not None:
            return everything
    sample = Sample(record)
    limit = max_bytes or limits.default_limit(record, sample.causal)
    wanted = sample.size(COVERED) * _TEXT
    if _can_compute(record):
        size = size_of_vectors(record.stacks.values()) * _TEXT
        if size < limit - rest and (size < wanted or wanted > limit - rest):
            computed = _vectors(record)
            if computed.size + rest <= limit:
                return computed
    return _strongest(record, sample, limit, rest)


def _all(record: AttentionRecord, room: float) -> CarriedWeights | None:
    """All weights, unless they take more than `room`."""
    carried = CarriedWeights("all")
    small = limits.count_weights(record) <= _POOLED_WEIGHTS
    for stack, layer in _progress(record):
        maps = None if small else _maps(stack, layer)
        header, data = whole_layer(stack, layer, maps)
        place = {"stack": stack.name, "layer": layer}
        carried.blocks.append(place | header | {"data": packed(data)})
        if maps is not None:
            carried.maps.append(_small(stack, layer, maps))
        carried.error = max(carried.error, header["error"])
        if carried.size > room:
            return None
    return carried


def _exact(record: AttentionRecord, max_bytes: int | None, rest: int) -> CarriedWeights:
    """All weights, or queries and keys as they are."""
    room = float("inf") if max_bytes is None else max_bytes - rest
    smallest = None
    if _can_compute(record) and size_of_vectors(record.stacks.values(), exact=True) < room:
        smallest = _vectors(record, exact=True)
    count = limits.count_weights(record)
    if count <= limits.MAX_WEIGHTS:
        # More than the vectors take is in vain.
        everything = _all(record, room if smallest is None else min(room, smallest.size))
        smallest = everything or smallest
    if smallest is None or smallest.size > room:
        most = f"max_mb={max_bytes / 1e6:g}" if max_bytes else f"at most {limits.MAX_WEIGHTS:,}"
        raise ValueError(_too_many(count, most))
    return smallest


def _too_many(count: int, most: str) -> str:
    return (
        f'precision="exact": a page with all {count:,} weights would be too large ({most}); '
        "choose layers with include_layers=[...], take a shorter text, or let the page carry the "
        'strongest with precision="auto"'
    )


def _vectors(record: AttentionRecord, *, exact: bool = False) -> CarriedWeights:
    """Queries and keys, and small maps."""
    vectors = carried_vectors(record.stacks.values(), exact=exact)
    carried = CarriedWeights("vectors", vectors=vectors)
    carried.error = max((each["error"] for each in vectors["layers"]), default=0.0)
    for stack, layer in _progress(record):
        maps = _maps(stack, layer)
        for place, head in enumerate(stack.kept_heads(layer)):
            for rows, weights in weight_tiles(stack, layer, head):
                maps.add(place, rows, weights)
        carried.maps.append(_small(stack, layer, maps))
    return carried


def _strongest(record: AttentionRecord, sample: Sample, limit: int, rest: int) -> CarriedWeights:
    """Each query's strongest keys."""
    carried = CarriedWeights("strongest")
    layers = []
    threshold = sample.threshold(COVERED, (limit - rest) / _TEXT)
    for stack, layer in _progress(record):
        maps, parts = _maps(stack, layer), list[KeptRows]()
        for place, head in enumerate(stack.kept_heads(layer)):
            for rows, weights in weight_tiles(stack, layer, head):
                maps.add(place, rows, weights)
                parts.append(kept_rows(weights, threshold * stack.maximum))
        carried.maps.append(_small(stack, layer, maps))
        layers.append((stack, layer, joined(parts)))
    search = Search(layers, threshold)
    room = limit - rest - carried.size - _SAID * len(layers)
    carried.blocks, carried.covered, carried.error = search.smallest(COVERED, room)
    if carried.size + rest > limit:
        raise ValueError(
            f"a page of at most {limit / 1e6:g} MB has no room for this record: each query's two "
            f"strongest keys alone make {(carried.size + rest) / 1e6:.1f} MB; allow more with "
            "max_mb=, choose layers with include_layers=[...], or take a shorter text"
        )
    return carried


def _can_compute(record: AttentionRecord) -> bool:
    """Whether queries and keys are known, and a page computes weights from them fast enough."""
    stacks = record.stacks.values()
    return all(stack.has_vectors for stack in stacks) and all(
        len(stack.kept_heads(layer)) * len(stack.query_tokens) * len(stack.key_tokens)
        <= _COMPUTED_PAIRS
        for stack in stacks
        for layer in stack.layers
    )


def _progress(record: AttentionRecord) -> Any:
    layers = [(stack, layer) for stack in record.stacks.values() for layer in stack.layers]
    # Silent for the second that most pages take.
    return tqdm(layers, desc="page", unit="layer", delay=1.0, leave=False)


def _maps(stack: AttentionStack, layer: int) -> SmallMaps:
    heads = len(stack.kept_heads(layer))
    return SmallMaps(heads, len(stack.query_tokens), len(stack.key_tokens), MAP_SIZE)


def _small(stack: AttentionStack, layer: int, maps: SmallMaps) -> dict[str, Any]:
    encoded = encode(maps.cells, "uint8", stack.maximum)
    place = {"stack": stack.name, "layer": layer}
    return place | encoded.header() | {"data": packed(encoded.data)}
