"""Which heads of two models belong together, by the likeness of their patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.comparison.aligned import aligned_layers
from attnviz.comparison.alignment import align_tokens
from attnviz.comparison.common import common_stacks
from attnviz.comparison.distance import rows_at_once
from attnviz.record.attention import (
    DerivedAttention,
    GivenWeights,
    HeadSubset,
    LayerAttention,
    QueryKeyAttention,
)
from attnviz.record.record import AttentionRecord, derived_record
from attnviz.record.rows import sampled_queries
from attnviz.record.stack import AttentionStack
from attnviz.utils.progress import Progress, Steps

__all__ = ["HeadPair", "corresponding_layers", "match_heads"]


class HeadPair(NamedTuple):
    """A head of one model and the head of another that belongs to it.

    Attributes
    ----------
    stack : str
        Name of their stack.
    layer, head : int
        The head of a.
    layer_b, head_b : int
        The head of b, by b's own numbers.
    distance : float
        How far their patterns lie apart: total variation, a mean over at most 64 queries, 0 to 1.
    random : float
        The same for heads of these two layers that are paired at random: its mean.

    Examples
    --------
    >>> import attnviz as av
    >>> weights = [[[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.1, 0.9]]]]
    >>> a = av.AttentionRecord.from_weights(weights, ["a", "b"])
    >>> b = av.AttentionRecord.from_weights([weights[0][::-1]], ["a", "b"])
    >>> [(pair.head, pair.head_b) for pair in av.compare(a, b, heads="match").pairs]
    [(0, 1), (1, 0)]
    """

    stack: str
    layer: int
    head: int
    layer_b: int
    head_b: int
    distance: float
    random: float


def corresponding_layers(a: Sequence[int], b: Sequence[int]) -> dict[int, int]:
    """For each layer of a the layer of b at the same depth.

    >>> corresponding_layers(range(4), range(12))
    {0: 0, 1: 4, 2: 7, 3: 11}
    """
    if len(a) == 1:
        return {a[0]: a[0] if a[0] in b else b[0]}
    scale = (len(b) - 1) / (len(a) - 1)
    return {layer: b[int(place * scale + 0.5)] for place, layer in enumerate(a)}


def match_heads(
    a: AttentionRecord, b: AttentionRecord, names: Sequence[str]
) -> Steps[tuple[AttentionRecord, list[HeadPair], list[str]]]:
    """Give b's heads the numbers of those of a that they are most like.

    Within each layer of a and the layer of b at the same depth, the sum of all distances is the
    smallest that a pairing has (Kuhn 1955). Returns b with its layers and heads under a's numbers,
    which heads belong together, and what a reader must know. ImportError without scipy.
    """
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ImportError(
            'heads="match" needs scipy; install attnviz with its extra: pip install '
            '"attnviz[match]"'
        ) from error
    pairs: list[HeadPair] = []
    stacks: dict[str, AttentionStack] = {}
    common = common_stacks((a, b), names)
    for name in common:
        one, two = a.stacks[name], b.stacks[name]
        queries = align_tokens(one.query_tokens, two.query_tokens)
        keys = align_tokens(one.key_tokens, two.key_tokens)
        both = np.flatnonzero((queries.a_lengths > 0) & (queries.b_lengths > 0))
        rows = both[sampled_queries(len(both))]
        depths = corresponding_layers(one.layers, two.layers)
        layers: dict[int, LayerAttention] = {}
        for number, (layer, other) in enumerate(depths.items()):
            its = aligned_layers(one.only(layer), queries.a_lengths, keys.a_lengths)[layer]
            others = aligned_layers(two.only(other), queries.b_lengths, keys.b_lengths)[other]
            apart = _distances(its, others, rows)
            random = float(apart.mean())
            order: list[int | None] = [None] * its.num_heads
            for left, right in zip(*linear_sum_assignment(apart), strict=True):
                head, head_b = its.kept_heads[left], others.kept_heads[right]
                order[head] = head_b
                distance = float(apart[left, right])
                pairs.append(HeadPair(name, layer, head, other, head_b, distance, random))
            layers[layer] = _renumbered(two.attention(other), order)
            yield Progress("heads", number + 1, len(depths), "layer")
        stacks[name] = AttentionStack(
            name,
            layers,
            two.query_tokens,
            None if two.key_tokens is two.query_tokens else two.key_tokens,
            normalized=two.normalized,
            measure=two.measure,
        )
    matched = derived_record(b, {**b.stacks, **stacks})
    return matched, pairs, _notes(pairs, common, (a, b), names)


def _distances(
    a: LayerAttention, b: LayerAttention, rows: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Mean total variation of each head of a and each of b, (heads, heads)."""
    total = np.zeros((len(a.kept_heads), len(b.kept_heads)))
    for some in rows_at_once(rows, a.num_keys * max(total.shape)):
        ones = [a.weights_of_rows(head, some)[0] for head in a.kept_heads]
        twos = np.stack([b.weights_of_rows(head, some)[0] for head in b.kept_heads])
        for place, one in enumerate(ones):
            difference = twos - one
            # What a sink takes counts as one more key.
            sums = np.abs(difference.sum(axis=-1, dtype=np.float64))
            moved = np.abs(difference, out=difference).sum(axis=-1, dtype=np.float64) + sums
            total[place] += moved.sum(axis=-1) / 2
    return total / max(1, len(rows))


def _renumbered(attention: LayerAttention, order: Sequence[int | None]) -> LayerAttention:
    """The heads of a layer under other numbers: head h of the result is ``order[h]``."""
    if isinstance(attention, DerivedAttention):
        return replace(attention, base=_renumbered(attention.base, order))
    if list(order) == list(range(attention.num_heads)):
        return attention
    kept = [head for head, its in enumerate(order) if its is not None]
    places = [attention.index(its) for its in order if its is not None]
    known = attention.base if isinstance(attention, HeadSubset) else attention
    if isinstance(known, QueryKeyAttention):
        known = known.select_heads(places)
    elif isinstance(known, GivenWeights):
        known = GivenWeights(known.values[places])
    else:
        raise TypeError(f"heads of a {type(known).__name__} cannot be given other numbers")
    if len(kept) == len(order):
        return known
    key_heads = None if known.vectors is None else len(order)
    return HeadSubset(known, tuple(kept), len(order), key_heads)


def _notes(
    pairs: Sequence[HeadPair],
    stacks: Sequence[str],
    records: tuple[AttentionRecord, AttentionRecord],
    names: Sequence[str],
) -> list[str]:
    found = []
    for name in stacks:
        here = [pair for pair in pairs if pair.stack == name]
        mean, random = (
            np.mean([getattr(pair, each) for pair in here]) for each in ("distance", "random")
        )
        layers = {pair.layer: pair.layer_b for pair in here}
        depths = ""
        if any(layer != other for layer, other in layers.items()):
            depths = " of layers at the same depth"
        said = (
            f"Heads{depths} are paired by the likeness of their patterns, and have the numbers of "
            f"{names[0]}: pairs lie {mean:.2f} apart on average, heads paired at random "
            f"{random:.2f}."
        )
        lonely = [
            f"{sum(count) - len(here)} of {its}"
            for count, its in (
                (_counts(record.stacks[name], set(used)), its)
                for record, used, its in (
                    (records[0], layers, names[0]),
                    (records[1], layers.values(), names[1]),
                )
            )
            if sum(count) > len(here)
        ]
        if lonely:
            said += f" Without a partner: {' and '.join(lonely)}."
        unused = [each for each in records[1].stacks[name].layers if each not in layers.values()]
        if unused:
            said += (
                f" Layers of {names[1]} that no layer of {names[0]} belongs to are left out: "
                f"{', '.join(map(str, unused))}."
            )
        found.append(said if len(stacks) == 1 else f"Stack {name!r}: {said}")
    return found


def _counts(stack: AttentionStack, layers: set[int]) -> list[int]:
    return [len(stack.kept_heads(layer)) for layer in layers]
