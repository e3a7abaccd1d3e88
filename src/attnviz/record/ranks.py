"""Ranks of the scores with which an indexer chooses the keys of each query.

An indexer is a small attention module without a softmax. For each query, it scores all keys, and
only the keys with the largest scores enter the softmax of the layer (DeepSeek sparse attention,
DeepSeek-AI 2025, arXiv 2512.02556, equation 1). With h heads of queries q, one head of keys k and
the weights w of the heads,

    score[t, s] = sum over h of w[h, t] max(0, q[h, t] . k[s])

Some indexers divide the keys into blocks of a few tokens, and score and choose whole blocks. Others
score and choose summaries, each of which is one key for several tokens.

Only the order of the scores of a query determines which keys are chosen. Therefore this module
computes ranks in place of weights.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch

from attnviz.record.attention import (
    CausalAttention,
    Columns,
    ComputedAttention,
    Heads,
    Normalizers,
)
from attnviz.record.masks import Rows
from attnviz.record.softmax import count_rows, row_groups

# Maximum number of products q[h, t] . k[s] that are in memory at once (64 MiB of float32).
_MAX_SCORES = 1 << 24


class Ranks(ComputedAttention):
    """Ranks of the keys of each query by the scores of an indexer.

    Let n be the number of scores of a query: one for each key, or for each block of keys, to which
    the query may attend. In place of a weight, each of these keys has the number (m + 1) / n, where
    m of the n scores are smaller than the score of the key or of its block. If a single score is
    the largest, its number is 1. Masked keys have 0.
    """

    @property
    def bound(self) -> float:
        return 1.0

    @abstractmethod
    def scores(self, heads: Heads, rows: Rows) -> torch.Tensor:
        """Return all scores of the queries `rows`, float32, (heads, rows, keys or blocks).

        Keys or blocks to which a query may not attend have minus infinity, and others do not.
        """

    @abstractmethod
    def scores_of(self, columns: slice) -> slice | torch.Tensor:
        """Return the indices, in the last axis of `scores`, of the scores of the keys `columns`."""

    def block(
        self, heads: Heads, rows: Rows, columns: Columns = None, normalizers: Normalizers = None
    ) -> torch.Tensor:
        del normalizers
        columns = columns or slice(0, self.num_keys)
        width = columns.stop - columns.start
        # The first axis of the first tensor has one entry for each head of the indexer.
        first = next(iter(self.parts.values()))
        block = torch.zeros(len(heads), count_rows(rows), width, device=first.device)
        max_rows = max(1, _MAX_SCORES // (len(first) * max(1, self.num_keys)))
        for part, group in row_groups(rows, max_rows):
            scores = self.scores(heads, group)
            num_masked = torch.isneginf(scores).sum(dim=-1, keepdim=True)
            shown = scores[..., self.scores_of(columns)].contiguous()
            # Number of scores that are smaller than each score. Masked scores are among them.
            num_before = torch.searchsorted(scores.sort(dim=-1).values, shown)
            shares = (num_before - num_masked + 1) / (scores.shape[-1] - num_masked)
            allowed = self.allowed(heads, group, columns).to(block.device)
            block[:, part] = shares.masked_fill_(~allowed, 0.0)
        return block


@dataclass(frozen=True)
class IndexerRanks(Ranks, CausalAttention):
    """Ranks of single keys, as attention with one head.

    Attributes
    ----------
    queries : Tensor
        (index_heads, tokens, key_dim): q, multiplied by a positive factor.
    keys : Tensor
        (1, tokens, key_dim): k.
    head_weights : Tensor
        (index_heads, tokens): w, multiplied by a positive factor.

    Examples
    --------
    >>> queries, keys = torch.ones(1, 3, 1), torch.tensor([[[2.0], [3.0], [1.0]]])
    >>> IndexerRanks(queries, keys, torch.ones(1, 3)).block([0], slice(0, 3))
    tensor([[[1.0000, 0.0000, 0.0000],
             [0.5000, 1.0000, 0.0000],
             [0.6667, 1.0000, 0.3333]]])
    >>> equal = torch.ones(1, 2, 1)
    >>> IndexerRanks(equal, equal, torch.ones(1, 2)).block([0], slice(1, 2))
    tensor([[[0.5000, 0.5000]]])
    """

    kind = "ranks"

    queries: torch.Tensor
    keys: torch.Tensor
    head_weights: torch.Tensor

    def __post_init__(self) -> None:
        heads, num_tokens, key_dim = self.queries.shape
        if self.keys.shape != (1, num_tokens, key_dim) or self.head_weights.shape != (
            heads,
            num_tokens,
        ):
            shapes = {name: tuple(part.shape) for name, part in self.parts.items()}
            raise ValueError(
                "queries must be (index_heads, tokens, key_dim), keys (1, tokens, key_dim) and "
                f"head_weights (index_heads, tokens); got {shapes}"
            )

    @property
    def num_heads(self) -> int:
        return 1

    @property
    def num_keys(self) -> int:
        return self.keys.shape[1]

    def scores(self, heads: Heads, rows: Rows) -> torch.Tensor:
        with torch.no_grad(), torch.autocast(self.keys.device.type, enabled=False):
            queries, keys = self.queries[:, rows].float(), self.keys.float()
            products = (queries @ keys.transpose(1, 2)).relu_()
            weights = self.head_weights[:, rows].float()
            scores = torch.einsum("hr,hrk->rk", weights, products)
        allowed = self.allowed(heads, rows).to(scores.device)
        return scores[None].masked_fill_(~allowed, -torch.inf)

    def scores_of(self, columns: slice) -> slice:
        return columns


@dataclass(frozen=True)
class BlockRanks(Ranks, CausalAttention):
    """Ranks of blocks of keys. All keys of a block have the number of the block.

    Attributes
    ----------
    block_scores : Tensor
        (heads, tokens, blocks): score of each block for each query. Infinity if the indexer always
        takes the block for this query. Minus infinity or the lowest number of the dtype if it never
        does.
    blocks : Tensor
        (tokens,): integers, the block of each token. They ascend from 0 in steps of 0 or 1.

    Examples
    --------
    >>> scores = torch.tensor([[5.0, 0.0], [5.0, 0.0], [2.0, 3.0], [4.0, 3.0]])
    >>> BlockRanks(scores[None], torch.tensor([0, 0, 1, 1])).block([0], slice(0, 4))
    tensor([[[1.0000, 0.0000, 0.0000, 0.0000],
             [1.0000, 1.0000, 0.0000, 0.0000],
             [0.5000, 0.5000, 1.0000, 0.0000],
             [1.0000, 1.0000, 0.5000, 0.5000]]])
    """

    kind = "block ranks"

    block_scores: torch.Tensor
    blocks: torch.Tensor

    def __post_init__(self) -> None:
        # Check shapes only: numbers that are copied from a device may arrive later.
        if self.block_scores.dim() != 3 or self.blocks.shape != self.block_scores.shape[1:2]:
            shapes = {name: tuple(part.shape) for name, part in self.parts.items()}
            raise ValueError(
                f"block_scores must be (heads, tokens, blocks) and blocks (tokens,); got {shapes}"
            )

    @property
    def num_heads(self) -> int:
        return len(self.block_scores)

    @property
    def num_keys(self) -> int:
        return len(self.blocks)

    def scores(self, heads: Heads, rows: Rows) -> torch.Tensor:
        scores = self.block_scores[:, rows][list(heads)].float()
        numbers = torch.arange(scores.shape[-1], device=scores.device)
        is_later = numbers > self.blocks[rows][:, None]
        lowest = torch.finfo(scores.dtype).min
        return scores.clamp_(min=lowest).masked_fill_(is_later, -torch.inf)

    def scores_of(self, columns: slice) -> torch.Tensor:
        return self.blocks[columns]


@dataclass(frozen=True)
class SummaryRanks(Ranks):
    """Ranks of summaries of several tokens. The keys are the summaries.

    Attributes
    ----------
    summary_scores : Tensor
        (heads, tokens, summaries): score of each summary for each query. Minus infinity if the
        query may not attend to the summary.

    Examples
    --------
    >>> scores = torch.tensor([[-torch.inf, -torch.inf], [3.0, -torch.inf], [3.0, 5.0]])
    >>> SummaryRanks(scores[None]).block([0], slice(0, 3))
    tensor([[[0.0000, 0.0000],
             [1.0000, 0.0000],
             [0.5000, 1.0000]]])
    """

    kind = "summary ranks"

    summary_scores: torch.Tensor

    def __post_init__(self) -> None:
        if self.summary_scores.dim() != 3:
            raise ValueError(
                "summary_scores must be (heads, tokens, summaries); got "
                f"{tuple(self.summary_scores.shape)}"
            )

    @property
    def num_heads(self) -> int:
        return self.summary_scores.shape[0]

    @property
    def num_queries(self) -> int:
        return self.summary_scores.shape[1]

    @property
    def num_keys(self) -> int:
        return self.summary_scores.shape[2]

    def allowed(self, heads: Heads, rows: Rows, columns: Columns = None) -> torch.Tensor:
        del heads
        flags: torch.Tensor = ~self.summary_scores[:1, rows, columns or slice(None)].isneginf()
        return flags.cpu()

    def scores(self, heads: Heads, rows: Rows) -> torch.Tensor:
        return self.summary_scores[:, rows][list(heads)].float()

    def scores_of(self, columns: slice) -> slice:
        return columns
