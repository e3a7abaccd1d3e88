"""Pairs of a query and a key of its own text: those that a head can attend to, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.corpus import Corpus
from attnviz.masks import PackedMask
from attnviz.weights import QueryKeyAttention

__all__ = ["OwnPairs", "own_pairs"]

# Flags of a mask that are made at once; of a long text only some keys are points.
_FLAGS = 1 << 22


@dataclass(frozen=True, eq=False)
class OwnPairs:
    """Some queries of one text with all keys of it that are points.

    Attributes
    ----------
    rows : Tensor
        int64, (n,): numbers of the queries among all queries of the points.
    keys : slice
        Which of the keys of the points are the text's, m of them.
    allowed : Tensor
        bool, (heads, n, m), or (1, n, m) where the mask is the same for all heads.
    """

    rows: torch.Tensor
    keys: slice
    allowed: torch.Tensor


def own_pairs(
    corpus: Corpus,
    stack: str | None,
    layer: int,
    heads: Sequence[int],
    rows: NDArray[np.int64],
) -> Iterator[OwnPairs]:
    """Tell for some queries which keys of their own text the mask lets them attend to.

    Parameters
    ----------
    corpus : Corpus
        The texts.
    stack : str or None
        One of its stacks; None is the first.
    layer : int
        The model's number of the layer.
    heads : sequence of int
        The model's numbers of the heads.
    rows : ndarray of int64
        Numbers of the queries among all queries of the points, ascending.

    Yields
    ------
    OwnPairs
        Text by text; of a long one a few queries at a time.
    """
    points = corpus.points(stack)
    texts = points.query_text[rows]
    for text in np.unique(texts).tolist():
        keys = points.keys_of(text)
        if keys.start == keys.stop:
            continue
        attention = corpus.attention(stack, layer, text)
        kept = corpus.stack(stack).kept_heads(layer)
        places = [kept.index(head) for head in heads]
        positions = torch.from_numpy(points.key_position[keys].astype(np.int64))
        numbers = torch.from_numpy(rows[texts == text].astype(np.int64))
        for some in numbers.split(max(1, _FLAGS // attention.num_keys)):
            queries = torch.from_numpy(points.query_position[some.numpy()].astype(np.int64))
            yield OwnPairs(some, keys, _allowed(attention, places, queries, positions))


def _allowed(
    attention: QueryKeyAttention, heads: Sequence[int], queries: torch.Tensor, keys: torch.Tensor
) -> torch.Tensor:
    mask = attention.mask
    if mask is None:
        return torch.ones(1, len(queries), len(keys), dtype=torch.bool)
    by_head = isinstance(mask, PackedMask) and len(mask.bits) > 1
    columns = slice(0, attention.num_keys)
    flags = [
        mask.allowed(head, queries, columns, torch.device("cpu"))[:, keys]
        for head in (heads if by_head else heads[:1])
    ]
    return torch.stack(flags)
