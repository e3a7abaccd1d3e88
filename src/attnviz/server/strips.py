"""A strip for each head: where its weight goes, from some queries of a long text.

A query's weights are parted by where their keys stand, seen from the query: the first token, the
token before it, its window, and elsewhere. Each weight counts once, so that the shares add up to 1:

    first token       key 0
    previous token    key i - 1 of query i, unless that is the first
    own window        keys i - before to i + after, without these two
    elsewhere         all others
    no key            what an attention sink takes

``js/src/client/requests/strips.ts`` reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention
from attnviz.record.rows import SAMPLED_QUERIES, sampled_queries
from attnviz.record.stack import AttentionStack, need_weights
from attnviz.server.codec import not_finite
from attnviz.server.protocol import heads_of, refuse_large
from attnviz.utils.progress import STEP, Pace, Steps

__all__ = ["NEAR", "PARTS", "Strips", "StripsHeader", "strips"]

#: Tokens before the query that make its window where the model has none; as many after it where
#: queries may look ahead.
NEAR = 64
#: The parts of a strip, in their order; those that a stack lacks are left out.
PARTS = ("first token", "elsewhere", "own window", "previous token", "no key")
_FIRST, _ELSEWHERE, _WINDOW, _PREVIOUS, _NO_KEY = range(len(PARTS))

# Less than this is what rounding leaves of weights that were given, and no sink's.
_ROUNDING = 0.005
# Heads whose shares are worked out together.
_HEADS_AT_ONCE = 1024


class StripsHeader(TypedDict):
    """What the numbers of some heads' strips say.

    Attributes
    ----------
    parts : list of str
        Names of the parts, in their order.
    queries, of : int
        Queries that were taken, and that there are.
    window : list of int or None
        Tokens before and after a query that are its window, where that can be said.
    own_window : bool
        Whether it is the model's own.
    """

    parts: list[str]
    queries: int
    of: int
    window: tuple[int, int] | None
    own_window: bool


@dataclass(frozen=True)
class Strips:
    """Where the weight of some heads goes.

    Attributes
    ----------
    parts : tuple of str
        Some of `PARTS`, in their order. There is no previous token and no window where queries and
        keys are different tokens, and ``"no key"`` only with attention sinks.
    shares : ndarray of float64, (heads, parts)
        The mean of the queries' shares; a row adds up to 1, or is NaN where none of the queries
        attends to anything.
    errors : ndarray of float64, (heads, parts)
        Their standard errors: 0 where all queries were taken.
    num_queries, of : int
        Queries that attend to anything among those taken (of the head with the fewest), and all
        that there are.
    window : (int, int) or None
        Tokens before and after the query that its window holds; None where there is none, or where
        only the model knows.
    own_window : bool
        Whether the window is the model's own.
    """

    parts: tuple[str, ...]
    shares: NDArray[np.float64]
    errors: NDArray[np.float64]
    num_queries: int
    of: int
    window: tuple[int, int] | None
    own_window: bool

    def header(self) -> StripsHeader:
        """What the numbers say, fit for JSON."""
        return {
            "parts": list(self.parts),
            "queries": self.num_queries,
            "of": self.of,
            "window": self.window,
            "own_window": self.own_window,
        }

    @property
    def data(self) -> bytes:
        """Shares and errors as float32, little endian, (heads, parts, 2)."""
        pairs = np.stack([self.shares, self.errors], axis=-1)
        return pairs.astype("<f4").tobytes()


def strips(
    stack: AttentionStack,
    layer: int,
    heads: Sequence[int] | None = None,
    *,
    queries: int = SAMPLED_QUERIES,
) -> Steps[Strips]:
    """Say where the weight of heads goes, from some of their queries, in steps.

    Notes
    -----
    The standard error of a mean of m out of n queries is s / sqrt(m) * sqrt(1 - m / n), with the
    standard deviation s of the queries taken (Cochran 1977, Sampling Techniques, theorem 2.2). They
    are one from each part of the text, which makes it a little too large rather than too small.

    Examples
    --------
    >>> import attnviz as av
    >>> record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"])
    >>> from attnviz.utils.progress import completed
    >>> found = completed(strips(record.stack(), 0))
    >>> dict(zip(found.parts, found.shares[0].round(6).tolist(), strict=True))
    {'first token': 0.7, 'elsewhere': 0.0, 'own window': 0.3, 'previous token': 0.0}
    """
    need_weights(stack, "strips")
    layer, heads = heads_of(stack, layer, stack.kept_heads(layer) if heads is None else heads)
    refuse_large(
        f"strips of {len(heads):,} heads", 8 * len(PARTS) * len(heads), "ask for fewer heads"
    )
    attention = stack.attention(layer)
    rows = sampled_queries(attention.num_queries, queries)
    window = _window(attention) if stack.key_tokens is stack.query_tokens else None
    masses = yield from _masses(attention, heads, rows, window)
    _refuse_nan(masses, f"stack {stack.name!r}, layer {layer}", heads, rows)
    if stack.normalized:
        masses[..., _NO_KEY] += _lost(masses.sum(axis=-1))
    totals = masses.sum(axis=-1, keepdims=True)
    # Weights are not always shares: of what was given, only its part of the row can be said.
    parted = np.divide(masses, totals, out=masses, where=totals > 0)
    counted = totals[..., 0] > 0
    shares, errors = np.empty((len(heads), len(PARTS))), np.empty((len(heads), len(PARTS)))
    for start in range(0, len(heads), _HEADS_AT_ONCE):
        some = slice(start, start + _HEADS_AT_ONCE)
        shares[some], errors[some] = _means(parted[some], counted[some], attention.num_queries)
    # A query that a mask lets attend to nothing says nothing about where weight goes.
    said = counted.sum(axis=1)
    there = [True, True, window is not None, window is not None, bool(parted[..., _NO_KEY].any())]
    return Strips(
        parts=tuple(np.array(PARTS)[there].tolist()),
        shares=shares[:, there],
        errors=errors[:, there],
        num_queries=int(said[said > 0].min(initial=len(rows))) if said.any() else 0,
        of=attention.num_queries,
        window=None if window is None else window.tokens,
        own_window=window is not None and window.own,
    )


@dataclass(frozen=True)
class _Window:
    """Tokens before and after a query, None where a mask alone knows; whether it is the mask's."""

    tokens: tuple[int, int] | None
    own: bool

    def keys(self, row: int, num_keys: int) -> slice:
        """Keys to look at for a query; of the mask's own window the previous token is enough."""
        before, after = (1, -1) if self.own or self.tokens is None else self.tokens
        return slice(max(0, row - before), max(0, min(num_keys, row + after + 1)))


def _window(attention: LayerAttention) -> _Window:
    mask = None if attention.vectors is None else attention.vectors.mask
    if mask is not None and mask.local:
        return _Window(mask.window, own=True)
    return _Window((NEAR, 0 if attention.causal else NEAR), own=False)


def _masses(
    attention: LayerAttention,
    heads: Sequence[int],
    rows: NDArray[np.int64],
    window: _Window | None,
) -> Steps[NDArray[np.float64]]:
    """Weight in each of `PARTS`, (heads, rows, parts)."""
    masses = np.zeros((len(heads), len(rows), len(PARTS)))
    pace = Pace("strips", len(heads) * len(rows) * attention.num_keys)
    # Of heads that read the same keys, a row's weights near its query are held together.
    together = max(1, STEP // max(len(rows) * 2 * NEAR, attention.num_keys))
    for start in range(0, len(heads), together):
        for numbers, group in attention.rows_of_heads(heads[start : start + together], rows):
            places = [start + number for number in numbers]
            found = np.zeros((len(places), len(rows), len(PARTS)))
            found[..., _FIRST] = group.weights(slice(None), slice(0, 1))[..., 0]
            found[..., _NO_KEY] = group.sunk
            if window is not None:
                for number, row in enumerate(rows.tolist()):
                    keys = window.keys(row, attention.num_keys)
                    if keys.stop > keys.start:
                        near = group.weights(slice(number, number + 1), keys)[:, 0]
                        _add_near(found[:, number], near, row, keys)
            rest = np.maximum(0, group.totals + group.sunk - found.sum(axis=-1))
            # All that a mask's own window lets through lies in it.
            found[..., _WINDOW if window is not None and window.own else _ELSEWHERE] += rest
            masses[places] = found
            yield from pace.did(len(places) * len(rows) * attention.num_keys, len(rows))
    return masses


def _refuse_nan(
    masses: NDArray[np.float64], of: str, heads: Sequence[int], rows: NDArray[np.int64]
) -> None:
    wrong = np.argwhere(~np.isfinite(masses).all(axis=-1))
    if len(wrong):
        head, row = heads[int(wrong[0, 0])], int(rows[wrong[0, 1]])
        raise not_finite(of, f"the first of head {head}, query {row}")


def _add_near(
    masses: NDArray[np.float64], weights: NDArray[np.float64], row: int, keys: slice
) -> None:
    """Part the weights of the keys near a query, the last axis; the first token is not theirs."""
    numbers = np.arange(keys.start, keys.start + weights.shape[-1])
    previous = (numbers == row - 1) & (numbers > 0)
    masses[..., _PREVIOUS] = weights[..., previous].sum(axis=-1)
    masses[..., _WINDOW] = weights[..., ~previous & (numbers > 0)].sum(axis=-1)


def _lost(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """What shares of one lack of it where they were given, (heads, rows): a sink took it."""
    lost = np.where(totals > 0, np.maximum(0, 1 - totals), 0)
    return lost if lost.max(initial=0) > _ROUNDING else np.zeros_like(lost)


def _means(
    parted: NDArray[np.float64], counted: NDArray[np.bool_], of: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means over the rows that count, and their standard errors."""
    count = counted.sum(axis=1)[:, None]
    weights = counted[..., None]
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(weights, parted, 0).sum(axis=1) / count
        squares = (np.where(weights, parted - means[:, None], 0) ** 2).sum(axis=1)
        # Of those that attend to nothing as large a share was taken as of the others.
        left = np.sqrt(np.maximum(0, 1 - parted.shape[1] / of))
        errors = np.sqrt(squares / np.maximum(1, count - 1) / count) * left
    return means, errors
