"""How strong a weight has to be, for a page to carry it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from attnviz.pages.limits import count_rows
from attnviz.pages.sparse import encode_sparse
from attnviz.pages.strongest import KeptRows, joined, kept_rows, sparse_rows
from attnviz.pages.whole import STRATEGIES, packed
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import sampled_queries
from attnviz.record.stack import AttentionStack

__all__ = ["Sample", "Search"]

# Thresholds that are told apart: squares of so many parts of the largest weight's root.
_LEVELS = 4096
# Weights that a sample is made of: a second's computing.
_SAMPLED_WEIGHTS = 6_000_000
_SAMPLED_ROWS = (4, 64)
# What a key takes once deflated: its place about 4 bits, its weight about 6.
_BYTES_PER_KEY = 1.25
# So much more is collected than the sample asks for, which may be off.
_MARGIN = 0.01
_MARGIN_OF_SIZE = 1.5
_TRIES = 8
# The next try aims a little below the limit.
_SPARE = 0.985


class _Histogram:
    """How many weights there are of each level, and what they have together."""

    def __init__(self, total: float) -> None:
        self.total = total
        self.counts, self.masses = np.zeros((2, _LEVELS + 1))
        # Those that are carried whatever the threshold.
        self.count, self.mass = 0.0, 0.0

    def add(self, kept: KeptRows, maximum: float, times: float = 1.0) -> None:
        shares = kept.weights[~kept.always]
        levels = np.sqrt(np.minimum(shares / maximum, 1), dtype=np.float32) * _LEVELS
        places = levels.astype(np.int32)
        bins = _LEVELS + 1
        self.counts += times * np.bincount(places, minlength=bins)
        self.masses += times * np.bincount(places, shares, minlength=bins)
        self.count += times * np.count_nonzero(kept.always)
        self.mass += times * float(kept.weights[kept.always].sum(dtype=np.float64))

    def covering(self, share: float) -> int:
        """The highest level from which on weights have this share; 0 where none has."""
        above = (self.mass + np.cumsum(self.masses[::-1])[::-1]) / self.total
        return int(np.flatnonzero(above >= share).max(initial=0))

    def keys(self, level: int) -> float:
        """How many keys are carried from a level on."""
        return self.count + float(self.counts[level:].sum())

    def holding(self, keys: float) -> int:
        """The lowest level from which on there are no more than so many keys."""
        above = self.count + np.cumsum(self.counts[::-1])[::-1]
        fitting = np.flatnonzero(above <= keys)
        return int(fitting[0]) if len(fitting) else _LEVELS + 1


def _threshold(level: int) -> float:
    return (level / _LEVELS) ** 2


class Sample:
    """Some queries of every head, which say about what there is.

    Parameters
    ----------
    record : AttentionRecord
        The record.

    Attributes
    ----------
    causal : frozenset of str
        Names of the stacks of which no query that was looked at looks ahead.
    """

    def __init__(self, record: AttentionRecord) -> None:
        columns = max(len(stack.key_tokens) for stack in record.stacks.values())
        heads = sum(
            len(stack.kept_heads(layer))
            for stack in record.stacks.values()
            for layer in stack.layers
        )
        least, most = _SAMPLED_ROWS
        rows = min(most, max(least, _SAMPLED_WEIGHTS // (heads * columns)))
        causal = set()
        parts = []
        bar = tqdm(total=heads, desc="page: a sample", unit="head", delay=1.0, leave=False)
        for stack in record.stacks.values():
            queries = sampled_queries(len(stack.query_tokens), rows)
            rows_of_heads = []
            for layer in stack.layers:
                for head in stack.kept_heads(layer):
                    weights = stack.attention(layer).weights_of_rows(head, queries)[0]
                    rows_of_heads.append(kept_rows(weights, 0.0))
                    bar.update()
            found = joined(rows_of_heads)
            parts.append((found, stack.maximum, count_rows(stack) / len(found.counts)))
            offset = len(stack.key_tokens) - len(stack.query_tokens)
            ahead = found.ends - 1 - np.tile(queries, len(found.counts) // len(queries)) - offset
            if (ahead <= 0).all():
                causal.add(stack.name)
        bar.close()
        self.causal = frozenset(causal)
        total = sum(times * float(found.sums.sum()) for found, _, times in parts)
        self._all = _Histogram(max(total, np.finfo(float).tiny))
        for found, maximum, times in parts:
            self._all.add(found, maximum, times)

    def size(self, share: float) -> float:
        """About the bytes that it takes to cover a share of the weight.

        Parameters
        ----------
        share : float
            0 to 1.

        Returns
        -------
        float
        """
        return _BYTES_PER_KEY * self._all.keys(self._all.covering(share))

    def threshold(self, share: float, room: float) -> float:
        """Weights to collect, for the share or for the room to be reached with some to spare.

        Parameters
        ----------
        share : float
            0 to 1.
        room : float
            Bytes.

        Returns
        -------
        float
            As a share of the largest weight that can occur.
        """
        wanted = self._all.covering(min(1.0, share + _MARGIN))
        held = self._all.holding(_MARGIN_OF_SIZE * room / _BYTES_PER_KEY)
        return _threshold(max(wanted, min(held, _LEVELS)))


class Search:
    """The weights of all layers that may be carried, of which the weaker can still be left out.

    Parameters
    ----------
    layers : sequence of (AttentionStack, int, KeptRows)
        Each with its number and what was collected of it.
    threshold : float
        From which on they were collected, as a share of the largest weight that can occur.
    """

    def __init__(
        self, layers: Sequence[tuple[AttentionStack, int, KeptRows]], threshold: float
    ) -> None:
        self._layers = layers
        self._lowest = round(threshold**0.5 * _LEVELS)
        total = sum(float(kept.sums.sum()) for _, _, kept in layers)
        self._all = _Histogram(max(total, np.finfo(float).tiny))
        for stack, _, kept in layers:
            self._all.add(kept, stack.maximum)

    def smallest(self, share: float, room: float) -> tuple[list[dict[str, Any]], float, float]:
        """The fewest weights that cover a share, or as many as there is room for.

        Parameters
        ----------
        share : float
            0 to 1.
        room : float
            Bytes of a page.

        Returns
        -------
        blocks : list of dict
            The layers, fit for JSON; larger than `room` where even the fewest are.
        covered, error : float
            The share that they have, and how far a weight of the page is off at most.
        """
        level = max(self._lowest, self._all.covering(share))
        # One layer says about how much room a key takes, and how zlib does it best.
        one = len(self._layers) // 2
        trial = self._layer(*self._layers[one], level)
        tried, strategies = level, [trial.strategy]
        size = _size([trial]) * self._all.keys(level) / max(1, trial.keys)
        for last in range(1 - _TRIES, 1):
            if size > room:
                holding = self._all.holding(_SPARE * self._all.keys(level) * room / size)
                # In the end the fewest there are: what they take is what a page needs.
                level = max(level + 1, holding) if last else _LEVELS + 1
            if level > _LEVELS:
                strategies = list(STRATEGIES)
            layers = [
                trial if (place, level) == (one, tried) else self._layer(*each, level, strategies)
                for place, each in enumerate(_packing(self._layers))
            ]
            size = _size(layers)
            if size <= room or level > _LEVELS:
                break
        covered = min(1.0, sum(each.mass for each in layers) / self._all.total)
        return [each.block for each in layers], covered, max(each.error for each in layers)

    @staticmethod
    def _layer(
        stack: AttentionStack,
        layer: int,
        kept: KeptRows,
        level: int,
        strategies: Sequence[int] = STRATEGIES,
    ) -> _Layer:
        kept = kept.raised(_threshold(level) * stack.maximum)
        shape = (len(stack.kept_heads(layer)), len(stack.query_tokens), len(stack.key_tokens))
        rows, error = sparse_rows(kept, shape, stack.maximum)
        header, data = encode_sparse(rows)
        mass = float(kept.weights.sum(dtype=np.float64))
        total = float(kept.sums.sum())
        said = {"error": error, "covered": min(1.0, mass / total) if total > 0 else 1.0}
        place = {"stack": stack.name, "layer": layer}
        texts = {each: packed(data, [each]) for each in strategies}
        strategy = min(texts, key=lambda each: len(texts[each]))
        block = place | header | said | {"data": texts[strategy]}
        return _Layer(block, len(kept.keys), mass, error, strategy)


@dataclass(frozen=True)
class _Layer:
    """A layer as it is carried."""

    block: dict[str, Any]
    keys: int
    mass: float
    error: float
    strategy: int


def _packing(
    layers: Sequence[tuple[AttentionStack, int, KeptRows]],
) -> Iterable[tuple[AttentionStack, int, KeptRows]]:
    return tqdm(layers, desc="page: packing", unit="layer", delay=1.0, leave=False)


def _size(layers: Sequence[_Layer]) -> int:
    return sum(len(each.block["data"]) for each in layers)
