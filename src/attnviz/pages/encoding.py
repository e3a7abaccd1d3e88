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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from attnviz.pages import errors as refusals
from attnviz.pages import limits
from attnviz.pages.estimate import size_of_whole
from attnviz.pages.limits import PagePrecision
from attnviz.pages.passes import SmallMaps, progress, weight_tiles
from attnviz.pages.search import Sample, Search
from attnviz.pages.strongest import KeptRows, joined, kept_rows
from attnviz.pages.vectors import carried_vectors, size_of_vectors
from attnviz.pages.whole import STRATEGIES, packed, whole_layer
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.server.codec import encode

__all__ = ["MAP_SIZE", "CarriedWeights", "carried_weights", "check_record"]

#: A page of strongest keys has this share of the weight, where there is room.
COVERED = 0.95

#: Small maps have at most this many cells a side.
MAP_SIZE = 32
# So few weights are pooled to maps when the page is opened.
_POOLED_WEIGHTS = 1_000_000
# Trained attention takes at least a bit for three weights: above, trying is in vain.
_WEIGHTS_PER_BYTE = 25
# So few are carried on trial.
_TRIED_WEIGHTS = 16_000_000
# What is estimated to take so many times the room is not tried; what is not so much less is tried
# in every way, as an estimate may be off.
_NEAR = 1.5
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
        What `attnviz.pages.vectors.carried_vectors` gives.
    """

    form: Literal["all", "vectors", "strongest"]
    covered: float = 1.0
    error: float = 0.0
    blocks: list[dict[str, Any]] = field(default_factory=list)
    maps: list[dict[str, Any]] = field(default_factory=list)
    vectors: dict[str, Any] | None = None

    @property
    def size(self) -> int:
        """Bytes that it adds to a page without weights."""
        said: dict[str, Any] = {
            "blocks": [each | {"data": ""} for each in self.blocks],
            "maps": [each | {"data": ""} for each in self.maps],
            "carried": self.summary(),
        }
        texts = [each["data"] for each in (*self.blocks, *self.maps)]
        if self.vectors is not None:
            arrays = self.vectors["arrays"]
            said["vectors"] = self.vectors | {"arrays": [""] * len(arrays)}
            texts += arrays
        whole = len(json.dumps(said, ensure_ascii=False).encode())
        return sum(map(len, texts)) + whole - len(json.dumps({"blocks": [], "maps": []}))

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
            raise ValueError(refusals.too_many(record, None))
        return
    if count > limits.MAX_LOOKED_AT:
        raise ValueError(refusals.too_long(record))


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
        The page's limit; by default one that grows with the text (`attnviz.pages.limits`).
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
    full = (limits.FULL_BYTES if max_bytes is None else max_bytes) - rest
    if limits.count_weights(record) <= _WEIGHTS_PER_BYTE * full:
        everything = _whole(record, full)
        if everything is not None:
            return everything
    sample = Sample(record)
    limit = limits.default_limit(record, sample.causal) if max_bytes is None else max_bytes
    if rest >= limit:
        raise ValueError(refusals.no_room(record, limit, without=rest))
    wanted = sample.size(COVERED) * _TEXT
    if _can_compute(record):
        size = size_of_vectors(record.stacks.values()) * _TEXT
        if size < limit - rest and (size < wanted or wanted > limit - rest):
            computed = _vectors(record)
            if computed.size + rest <= limit:
                return computed
    return _strongest(record, sample, limit, rest)


def _whole(record: AttentionRecord, room: float) -> CarriedWeights | None:
    """All weights, unless they take more than `room`; nothing large is packed in vain."""
    if limits.count_weights(record) <= _TRIED_WEIGHTS:
        return _all(record, room)
    about = size_of_whole(record)
    size = about.size * _TEXT
    if size > _NEAR * room:
        return None
    if size < room / _NEAR:
        everything = _all(record, room, [about.strategy])
        if everything is not None:
            return everything
    return _all(record, room)


def _all(
    record: AttentionRecord, room: float, strategies: Sequence[int] = STRATEGIES
) -> CarriedWeights | None:
    """All weights, unless they take more than `room`."""
    carried = CarriedWeights("all")
    small = limits.count_weights(record) <= _POOLED_WEIGHTS
    with progress(record, "all weights") as bar:
        for stack, layer in _layers(record):
            maps = None if small else _maps(stack, layer)
            # Half of it is packing them.
            header, data = whole_layer(stack, layer, maps, lambda rows: bar.update(rows / 2))
            place = {"stack": stack.name, "layer": layer}
            carried.blocks.append(place | header | {"data": packed(data, strategies)})
            if maps is not None:
                carried.maps.append(_small(stack, layer, maps))
            carried.error = max(carried.error, header["error"])
            if carried.size > room:
                return None
            bar.update(len(stack.kept_heads(layer)) * len(stack.query_tokens) / 2)
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
        everything = _whole(record, room if smallest is None else min(room, smallest.size))
        smallest = everything or smallest
    if smallest is None or smallest.size > room:
        raise ValueError(refusals.too_many(record, max_bytes))
    return smallest


def _vectors(record: AttentionRecord, *, exact: bool = False) -> CarriedWeights:
    """Queries and keys, and small maps."""
    vectors = carried_vectors(record.stacks.values(), exact=exact)
    carried = CarriedWeights("vectors", vectors=vectors)
    carried.error = max((each["error"] for each in vectors["layers"]), default=0.0)
    with progress(record, "maps") as bar:
        for stack, layer in _layers(record):
            maps = _maps(stack, layer)
            for place, head in enumerate(stack.kept_heads(layer)):
                for rows, weights in weight_tiles(stack, layer, head):
                    maps.add(place, rows, weights)
                    bar.update(len(weights))
            carried.maps.append(_small(stack, layer, maps))
    return carried


def _strongest(record: AttentionRecord, sample: Sample, limit: int, rest: int) -> CarriedWeights:
    """Each query's strongest keys."""
    carried = CarriedWeights("strongest")
    layers = []
    threshold = sample.threshold(COVERED, (limit - rest) / _TEXT)
    with progress(record, "strongest keys") as bar:
        for stack, layer in _layers(record):
            maps, parts = _maps(stack, layer), list[KeptRows]()
            for place, head in enumerate(stack.kept_heads(layer)):
                for rows, weights in weight_tiles(stack, layer, head):
                    maps.add(place, rows, weights)
                    parts.append(kept_rows(weights, threshold * stack.maximum))
                    bar.update(len(weights))
            carried.maps.append(_small(stack, layer, maps))
            layers.append((stack, layer, joined(parts)))
    search = Search(layers, threshold)
    room = limit - rest - carried.size - _SAID * len(layers)
    carried.blocks, carried.covered, carried.error = search.smallest(COVERED, room)
    if carried.size + rest > limit:
        needed = carried.size + rest
        raise ValueError(refusals.no_room(record, limit, without=rest, needed=needed))
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


def _layers(record: AttentionRecord) -> list[tuple[AttentionStack, int]]:
    return [(stack, layer) for stack in record.stacks.values() for layer in stack.layers]


def _maps(stack: AttentionStack, layer: int) -> SmallMaps:
    heads = len(stack.kept_heads(layer))
    return SmallMaps(heads, len(stack.query_tokens), len(stack.key_tokens), MAP_SIZE)


def _small(stack: AttentionStack, layer: int, maps: SmallMaps) -> dict[str, Any]:
    encoded = encode(maps.cells, "uint8", stack.maximum)
    place = {"stack": stack.name, "layer": layer}
    return place | encoded.header() | {"data": packed(encoded.data)}
