"""Hypothesis strategies for layers of attention and stacks, and functions for error bounds."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention, QueryKeyAttention, StoredWeights
from attnviz.record.difference import DifferenceAttention
from attnviz.record.masks import (
    BandMask,
    Bias,
    ChosenMask,
    DenseBias,
    DistanceBias,
    Mask,
    PackedMask,
    WindowBias,
    WindowMask,
)
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.record.units import UnitAttention, in_units
from rounding import UNIT, weights_error
from unit.formulas import weights_of
from unit.records import shares, vectors, words

HEADS, LAYER = 4, 3
counts = st.integers(1, 23)
seeds = st.integers(0, 999)


def random_numbers(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    """Return random numbers of both signs, of which about a third are 0."""
    generator = np.random.default_rng(seed)
    numbers = generator.normal(size=shape) * (generator.random(shape) > 1 / 3)
    return numbers.astype(np.float32)


@st.composite
def masks(draw: st.DrawFn, queries: int, keys: int) -> Mask | None:
    """Draw None, a band, packed or window mask, or a choice of keys."""
    kind = draw(st.sampled_from(["none", "band", "packed", "windows", "chosen"]))
    if kind == "chosen":
        chosen = draw(masks(queries, keys).filter(lambda mask: mask is not None))
        assert chosen is not None
        return ChosenMask(chosen, draw(masks(queries, keys)))
    if kind == "band":
        limits = st.none() | st.integers(-3, 9)
        return BandMask(draw(limits), draw(limits), draw(st.integers(-3, keys)))
    if kind == "packed":
        generator = np.random.default_rng(draw(seeds))
        flags = generator.random((draw(st.sampled_from([1, HEADS])), queries, keys))
        return PackedMask.pack(torch.from_numpy(flags < draw(st.sampled_from([0.1, 0.5, 0.9]))))
    if kind == "windows":
        size = draw(st.integers(1, 9))
        return WindowMask(torch.arange(queries) // size, torch.arange(keys) // size)
    return None


@st.composite
def biases(draw: st.DrawFn, queries: int, keys: int) -> Bias | None:
    """Draw None or a distance, dense or window bias."""
    kind = draw(st.sampled_from(["none", "distance", "dense", "windows"]))
    heads, seed = draw(st.sampled_from([1, HEADS])), draw(seeds)
    if kind == "distance":
        return DistanceBias(vectors(heads, queries + keys - 1, seed=seed), queries)
    if kind == "dense":
        return DenseBias(vectors(heads, draw(st.sampled_from([1, queries])), keys, seed=seed))
    if kind == "windows":
        size = draw(st.integers(1, 9))
        tokens = torch.arange(queries), torch.arange(keys)
        values = vectors(1, heads, size, size, seed=seed)
        return WindowBias(values, *(t // size for t in tokens), *(t % size for t in tokens))
    return None


@st.composite
def softmaxes(draw: st.DrawFn, queries: int, keys: int) -> QueryKeyAttention:
    """Draw a layer of four query heads and two key heads, with random options."""
    seed = draw(seeds)
    return QueryKeyAttention(
        vectors(HEADS, queries, 8, seed=seed),
        vectors(2, keys, 8, seed=seed + 1),
        0.35,
        mask=draw(masks(queries, keys)),
        bias=draw(biases(queries, keys)),
        softcap=draw(st.sampled_from([None, 2.0])),
        sinks=draw(st.sampled_from([None, vectors(HEADS, seed=seed + 2)])),
    )


@st.composite
def units_of(draw: st.DrawFn, base: LayerAttention, *, merged: bool = True) -> LayerAttention:
    """Divide the tokens of `base` into random units, some without tokens, some with several.

    If `merged` is False, no unit has several tokens.
    """
    starts = []
    for count in (base.num_queries, base.num_keys):
        inner = st.lists(st.integers(0, count), max_size=9)
        # Without `merged`, a unit begins at each token, and units without tokens are added.
        every = list(range(count)) if not merged else [0]
        starts.append(np.array(sorted(every + draw(inner)), np.int64))
    return in_units(base, *starts)


@st.composite
def stacks(draw: st.DrawFn, *kinds: str) -> AttentionStack:
    """Draw a stack of one layer. The kind of the layer is one of `kinds`, if kinds are given."""
    queries, keys = draw(counts), draw(counts)
    every_kind = ["softmax", "weights", "signed numbers", "units", "difference"]
    kind = draw(st.sampled_from(kinds or every_kind))
    attention: LayerAttention
    if kind == "softmax":
        attention = draw(softmaxes(queries, keys))
    elif kind == "weights":
        attention = StoredWeights(torch.from_numpy(shares(HEADS, queries, keys, seed=draw(seeds))))
    elif kind == "signed numbers":
        numbers = random_numbers(HEADS, queries, keys, seed=draw(seeds))
        attention = StoredWeights(torch.from_numpy(numbers))
    elif kind == "units":
        weights = StoredWeights(torch.from_numpy(shares(HEADS, queries, keys, seed=draw(seeds))))
        attention = draw(
            units_of(draw(softmaxes(queries, keys) | st.just(weights)), merged=draw(st.booleans()))
        )
    else:
        attention = DifferenceAttention(
            draw(softmaxes(queries, keys)), draw(softmaxes(queries, keys))
        )
    return stack_of(attention, signed=kind in {"signed numbers", "difference"})


def stack_of(
    attention: LayerAttention,
    *,
    signed: bool = False,
    normalized: bool = True,
    gates: torch.Tensor | None = None,
) -> AttentionStack:
    """Return a stack whose only layer is `attention`, with the number `LAYER`."""
    return AttentionStack(
        "self",
        {LAYER: attention},
        Tokens.of(words(attention.num_queries)),
        Tokens.of(words(attention.num_keys, "k")),
        normalized=normalized and not signed,
        signed=signed,
        measure="difference" if signed else "weight",
        gates=None if gates is None else {LAYER: gates},
    )


def numbers_of(stack: AttentionStack) -> NDArray[np.float64]:
    """Compute the weights or differences of layer `LAYER` by formula, (heads, queries, keys)."""
    return weights_of(stack.attention(LAYER))


def error_of(attention: LayerAttention) -> float:
    """Return a bound of the error of the layer's weights or differences in float32."""
    if isinstance(attention, DifferenceAttention):
        return weights_error(attention.a, attention.b)
    if isinstance(attention, UnitAttention):
        return error_of(attention.base)
    largest = float(np.abs(weights_of(attention)).max())
    return weights_error(attention) + 4 * UNIT * largest


heads_lists = st.lists(st.integers(0, HEADS - 1), min_size=1, unique=True)


@st.composite
def ranges(draw: st.DrawFn, count: int) -> slice:
    """Return a non-empty slice within `count` rows or keys."""
    start = draw(st.integers(0, count - 1))
    return slice(start, draw(st.integers(start + 1, count)))
