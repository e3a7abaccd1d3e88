"""Ranks of the scores with which an indexer chooses the keys of each query.

An indexer is a small attention module without a softmax. For each query, it scores all keys, and
only the keys with the largest scores enter the softmax of the layer (DeepSeek sparse attention,
DeepSeek-AI 2025, arXiv 2512.02556, equation 1). With h heads of queries q, one head of keys k and
the weights w of the heads,

    score[t, s] = sum over h of w[h, t] max(0, q[h, t] . k[s])

Only the order of the scores of a query determines which keys are chosen. Therefore this module
computes ranks in place of weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from attnviz.record.attention import CausalAttention, Columns, Heads, Normalizers
from attnviz.record.masks import Rows
from attnviz.record.softmax import count_rows, row_groups

# Maximum number of products q[h, t] . k[s] that are in memory at once (64 MiB of float32).
_MAX_SCORES = 1 << 24


@dataclass(frozen=True)
class IndexerRanks(CausalAttention):
    """Ranks of the keys of each query by the scores of an indexer, as attention with one head.

    Let n be the number of keys to which a query may attend. In place of a weight, each of them has
    the number (m + 1) / n, where m of the n keys have a smaller score. If a single key
    has the largest score, its number is 1. Masked keys have 0.

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

    @property
    def bound(self) -> float:
        return 1.0

    def scores(self, rows: Rows) -> torch.Tensor:
        """Return the scores of all keys, float32, (rows, keys). Masked keys have minus infinity."""
        with torch.no_grad(), torch.autocast(self.keys.device.type, enabled=False):
            queries, keys = self.queries[:, rows].float(), self.keys.float()
            products = (queries @ keys.transpose(1, 2)).relu_()
            weights = self.head_weights[:, rows].float()
            scores = torch.einsum("hr,hrk->rk", weights, products)
        allowed = self.allowed([0], rows)[0].to(scores.device)
        return scores.masked_fill_(~allowed, -torch.inf)

    def block(
        self, heads: Heads, rows: Rows, columns: Columns = None, normalizers: Normalizers = None
    ) -> torch.Tensor:
        del normalizers
        columns = columns or slice(0, self.num_keys)
        width = columns.stop - columns.start
        block = torch.zeros(count_rows(rows), width, device=self.keys.device)
        max_rows = max(1, _MAX_SCORES // (len(self.queries) * max(1, self.num_keys)))
        for part, group in row_groups(rows, max_rows):
            scores = self.scores(group)
            num_masked = torch.isneginf(scores).sum(dim=-1, keepdim=True)
            shown = scores[:, columns].contiguous()
            # Number of masked keys and of keys with a smaller score.
            num_before = torch.searchsorted(scores.sort(dim=-1).values, shown)
            shares = (num_before - num_masked + 1) / (self.num_keys - num_masked)
            block[part] = shares.masked_fill(torch.isneginf(shown), 0.0)
        return block.expand(len(heads), -1, -1)
