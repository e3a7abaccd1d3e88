"""Pairs of a query and a key of its own text that the head's mask allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.corpus.corpus import Corpus
from attnviz.record.attention import QueryKeyAttention

__all__ = ["OwnKeys", "OwnPairs", "own_keys", "own_pairs"]

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
    """For the queries of `rows`, which keys of their own text the mask allows, text by text.

    `rows` are numbers of queries among all queries of the points, ascending. Of a long text a few
    queries at a time.
    """
    points = corpus.points(stack)
    texts = points.query_text[rows]
    for text in np.unique(texts).tolist():
        keys = points.keys_of(text)
        if keys.start == keys.stop:
            continue
        attention = corpus.attention(stack, layer, text)
        positions = torch.from_numpy(points.key_position[keys].astype(np.int64))
        numbers = torch.from_numpy(rows[texts == text].astype(np.int64))
        for few in numbers.split(max(1, _FLAGS // attention.num_keys)):
            queries = torch.from_numpy(points.query_position[few.numpy()].astype(np.int64))
            yield OwnPairs(few, keys, _allowed(attention, heads, queries, positions))


@dataclass(frozen=True, eq=False)
class OwnKeys:
    """Some queries, and for each the keys of its own text, in rows of the same length.

    Attributes
    ----------
    rows : Tensor
        int64, (n,): numbers of the queries among all queries of the points.
    starts : Tensor
        int64, (n,): numbers of the first keys of their texts among all keys of the points.
    last : int
        The number of the last of all keys.
    allowed : Tensor
        bool, (heads, n, m), or (1, n, m) where it is the same for all heads: which of these keys
        are the query's own and allowed by its mask.
    """

    rows: torch.Tensor
    starts: torch.Tensor
    last: int
    allowed: torch.Tensor

    @property
    def columns(self) -> torch.Tensor:
        """Numbers of the keys, int64, (n, m); made anew, since those of a long text are many."""
        columns = self.starts[:, None] + torch.arange(self.allowed.shape[2])
        return columns.clamp_max_(self.last)


def own_keys(
    corpus: Corpus,
    stack: str | None,
    layer: int,
    heads: Sequence[int],
    rows: NDArray[np.int64],
    *,
    at_once: int,
) -> list[OwnKeys]:
    """The same as `own_pairs`, `at_once` queries at a time, whichever their texts.

    Queries of texts of like length stand together, so that little is filled up.
    """
    points = corpus.points(stack)
    texts = points.query_text[rows]
    lengths = np.zeros(len(corpus), np.int64)
    np.add.at(lengths, points.key_text, 1)
    order = np.argsort(lengths[texts], kind="stable")
    starts = np.searchsorted(points.key_text, texts)
    blocks: list[OwnKeys] = []
    slots: dict[int, tuple[int, int]] = {}
    for begin in range(0, len(rows), at_once):
        few = order[begin : begin + at_once]
        most = max(1, int(lengths[texts[few]].max()))
        slots.update({int(row): (len(blocks), line) for line, row in enumerate(rows[few])})
        blocks.append(
            OwnKeys(
                torch.from_numpy(rows[few].astype(np.int64)),
                torch.from_numpy(starts[few].astype(np.int64)),
                points.num_keys - 1,
                torch.zeros(1, len(few), most, dtype=torch.bool),
            )
        )
    for pairs in own_pairs(corpus, stack, layer, heads, rows):
        for number, row in enumerate(pairs.rows.tolist()):
            at, line = slots[row]
            flags = blocks[at].allowed
            if len(pairs.allowed) > len(flags):
                flags = flags.repeat(len(pairs.allowed), 1, 1)
                blocks[at] = replace(blocks[at], allowed=flags)
            flags[:, line, : pairs.allowed.shape[2]] = pairs.allowed[:, number]
    return blocks


def _allowed(
    attention: QueryKeyAttention, heads: Sequence[int], queries: torch.Tensor, keys: torch.Tensor
) -> torch.Tensor:
    mask = attention.mask
    if mask is None:
        return torch.ones(1, len(queries), len(keys), dtype=torch.bool)
    columns = slice(0, attention.num_keys)
    flags = [
        mask.allowed(head, queries, columns, torch.device("cpu"))[:, keys]
        for head in (heads if mask.num_heads > 1 else heads[:1])
    ]
    return torch.stack(flags)
