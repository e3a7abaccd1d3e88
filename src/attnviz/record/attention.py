"""The one formula: attention weights from queries, keys and what else goes into the logits.

For a head with queries q, keys k (as the model's attention receives them, after rotary position
and normalisation), a scale, a position bias b, a mask m, a soft cap c and a sink logit s,

    logits = cap(scale * q k^T) + b        cap(x) = c tanh(x / c)
    weights = softmax over the allowed keys and the sink, the sink's column dropped

(Vaswani et al. 2017, equation 1; Gemma 2 report, section 2, for the cap; gpt-oss model card for the
sink). Rows sum to 1, except with a sink (1 minus its share) and where no key is allowed (zeros).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.masks import BandMask, Bias, Mask
from attnviz.record.softmax import blocks, powers, tiles
from attnviz.record.windows import Rows

__all__ = ["GivenWeights", "LayerAttention", "QueryKeyAttention"]

# Rows that blocks of keys are multiplied with at once.
_ROWS_AT_ONCE = 256


def _all_within(mask: Mask, rows: Rows, columns: slice) -> bool:
    """Whether a mask is known to allow all of a block without being looked at."""
    return isinstance(mask, BandMask) and mask.covers(rows, columns)


class LayerAttention(Protocol):
    """What a record needs of a layer, however its weights came."""

    @property
    def num_heads(self) -> int:
        """Number of query heads that the model has."""
        ...

    @property
    def kept_heads(self) -> tuple[int, ...]:
        """Numbers of the heads whose weights are known, ascending."""
        ...

    @property
    def num_queries(self) -> int:
        """Number of rows."""
        ...

    @property
    def num_keys(self) -> int:
        """Number of columns."""
        ...

    @property
    def causal(self) -> bool:
        """Whether no query may look ahead, as far as the mask says."""
        ...

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Weights of a head's block, float32, (rows, columns)."""
        ...

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        """Whether the mask lets a head's queries attend to keys, bool, (rows, columns)."""
        ...


@dataclass(frozen=True)
class QueryKeyAttention:
    """A layer's attention, kept as queries and keys; weights are computed when asked for.

    Attributes
    ----------
    queries : Tensor
        (heads, queries, head_dim), in the dtype that the model's attention received.
    keys : Tensor
        (key_heads, keys, head_dim); ``heads`` is a multiple of ``key_heads`` and query head h reads
        key head ``h // (heads // key_heads)`` (grouped-query attention, Ainslie et al. 2023), if
        `key_heads` does not say otherwise.
    scale : float
        Factor of the dot products, usually 1 / sqrt(head_dim).
    mask : BandMask, PackedMask, WindowMask or None
        Which keys each query may attend to; None is all.
    bias : DistanceBias, DenseBias, WindowBias or None
        Added to the logits after the soft cap.
    softcap : float or None
        Bound of the soft cap.
    sinks : Tensor or None
        (heads,): a learned logit a head, which takes its share of each row.
    key_heads : tuple of int or None
        For each query head the entry of `keys` that it reads, where only some heads of each group
        are there; None for whole groups.

    Raises
    ------
    ValueError
        If the shapes do not fit together.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    scale: float
    mask: Mask | None = None
    bias: Bias | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None
    key_heads: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse shapes that do not fit together."""
        queries, keys = tuple(self.queries.shape), tuple(self.keys.shape)
        if len(queries) != 3 or len(keys) != 3:
            raise ValueError(
                f"queries and keys must be (heads, tokens, head_dim); got {queries} and {keys}"
            )
        if queries[2] != keys[2]:
            raise ValueError(
                f"queries have head_dim {queries[2]} but keys {keys[2]}; they must be equal"
            )
        if self.key_heads is not None:
            fits = len(self.key_heads) == queries[0]
            if not fits or any(not 0 <= place < keys[0] for place in self.key_heads):
                raise ValueError(
                    f"key_heads={self.key_heads!r} must say for each of the {queries[0]} query "
                    f"heads which of the {keys[0]} key heads it reads"
                )
        elif keys[0] == 0 or queries[0] % keys[0]:
            raise ValueError(
                f"{queries[0]} query heads cannot share {keys[0]} key heads; "
                "the first must be a multiple of the second"
            )
        if self.sinks is not None and tuple(self.sinks.shape) != (queries[0],):
            raise ValueError(
                f"sinks must be ({queries[0]},), a logit a head; got {tuple(self.sinks.shape)}"
            )

    @property
    def num_heads(self) -> int:
        """Number of query heads."""
        return self.queries.shape[0]

    @property
    def kept_heads(self) -> tuple[int, ...]:
        """Numbers of all heads."""
        return tuple(range(self.num_heads))

    @property
    def num_queries(self) -> int:
        """Number of rows."""
        return self.queries.shape[1]

    @property
    def num_keys(self) -> int:
        """Number of columns."""
        return self.keys.shape[1]

    @property
    def causal(self) -> bool:
        """Whether no query may look ahead: where the mask is a band that ends at the query."""
        mask = self.mask
        return isinstance(mask, BandMask) and mask.after is not None and mask.after <= 0

    def key_head(self, head: int) -> int:
        """Key head that a query head reads."""
        if self.key_heads is not None:
            return self.key_heads[head]
        return head // (self.num_heads // self.keys.shape[0])

    def logits(self, head: int, rows: Rows, columns: slice | None = None) -> torch.Tensor:
        """Logits of some queries and keys.

        Parameters
        ----------
        head : int
            Query head.
        rows : slice or Tensor
            Queries: start and stop given, or their numbers, int64.
        columns : slice, optional
            Keys, start and stop given; all when left out.

        Returns
        -------
        Tensor
            float32, (rows, columns), on the device of the queries; minus infinity where a key is
            not allowed.
        """
        columns = slice(0, self.num_keys) if columns is None else columns
        queries = self.queries[head, rows].float()
        keys = self.keys[self.key_head(head), columns].float()
        device = queries.device
        # What is stored gives the same weights wherever it is read.
        with torch.autocast(device.type, enabled=False):
            logits = queries @ keys.T
        # In place: a block of a long text is made many thousand times.
        logits *= self.scale
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        if self.bias is not None:
            logits += self.bias.added(head, rows, columns, device)
        if self.mask is not None and not _all_within(self.mask, rows, columns):
            allowed = self.mask.allowed(head, rows, columns, device)
            logits = logits.masked_fill_(~allowed, -torch.inf)
        return logits

    def reach(self, rows: Rows) -> slice:
        """Keys outside of which the mask allows some queries nothing.

        Parameters
        ----------
        rows : slice or Tensor
            Queries, as for `logits`; at least one.

        Returns
        -------
        slice
            All keys where the mask is no band.
        """
        if isinstance(self.mask, BandMask):
            return self.mask.reach(rows, self.num_keys)
        return slice(0, self.num_keys)

    def log_sum_exp(self, head: int, rows: Rows) -> torch.Tensor:
        """Logarithm of what each query's weights are divided by.

        ``exp(logits - log_sum_exp)`` are its weights, of whichever keys (`normalized`). It is
        summed up over blocks of keys, each against the largest logit so far (Milakov and
        Gimelshein 2018, arXiv 1805.02867), so that no row is ever held whole.

        Parameters
        ----------
        head : int
            Query head.
        rows : slice or Tensor
            Queries, as for `logits`.

        Returns
        -------
        Tensor
            float32, (rows,), on the device of the queries, the sink included; minus infinity where
            nothing is allowed.

        Examples
        --------
        >>> attention = QueryKeyAttention(torch.zeros(1, 2, 4), torch.zeros(1, 8, 4), 0.5)
        >>> attention.log_sum_exp(0, slice(0, 2)).exp()
        tensor([8.0000, 8.0000])
        """
        numbers = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        device = self.queries.device
        found = torch.empty(len(numbers), dtype=torch.float32, device=device)
        with torch.no_grad():
            for start in range(0, len(numbers), _ROWS_AT_ONCE):
                some = slice(start, min(start + _ROWS_AT_ONCE, len(numbers)))
                part: Rows = numbers[some]
                if isinstance(rows, slice):
                    part = slice(rows.start + some.start, rows.start + some.stop)
                found[some] = self._sum_of(head, part, some.stop - some.start)
        return found

    def _sum_of(self, head: int, rows: Rows, count: int) -> torch.Tensor:
        device = self.queries.device
        most = torch.full((count,), -torch.inf, device=device)
        total = torch.zeros(count, device=device)
        if self.sinks is not None:
            most = self.sinks[head].float().to(device).expand(count)
            total = torch.ones(count, device=device)
        for columns in blocks(self.reach(rows), count, device):
            logits = self.logits(head, rows, columns)
            higher = torch.maximum(most, logits.amax(dim=1))
            # A row that has seen nothing yet is held against 0: infinities have no difference.
            against = higher.masked_fill(torch.isneginf(higher), 0.0)
            logits -= against[:, None]
            total = total * torch.exp(most - against) + powers(logits).sum(dim=1)
            most = higher
        return most + torch.log(total)

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Weights of a head's block.

        Parameters
        ----------
        head : int
            Query head.
        rows, columns : slice
            Start and stop given.

        Returns
        -------
        ndarray
            float32, (rows, columns).
        """
        block = np.empty((rows.stop - rows.start, columns.stop - columns.start), np.float32)
        device = self.queries.device.type
        with torch.no_grad(), torch.autocast(device, enabled=False):
            for tile in tiles(rows, self.num_keys):
                logits = self.logits(head, tile)
                if self.sinks is not None:
                    sink = self.sinks[head].float().to(logits.device).expand(len(logits), 1)
                    weights = torch.softmax(torch.cat([logits, sink], dim=1), dim=1)[:, :-1]
                else:
                    # A row in which no key is allowed gives NaN: it attends to nothing.
                    weights = torch.softmax(logits, dim=1)
                    nothing = torch.isneginf(logits).all(dim=1, keepdim=True)
                    weights = weights.masked_fill(nothing, 0.0)
                start = tile.start - rows.start
                block[start : start + len(weights)] = weights[:, columns].cpu().numpy()
        return block

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        """Whether the mask lets a head's queries attend to keys.

        Parameters
        ----------
        head : int
            Query head.
        rows, columns : slice
            Start and stop given.

        Returns
        -------
        ndarray
            bool, (rows, columns).
        """
        if self.mask is None:
            return _all_allowed(rows, columns)
        flags: NDArray[np.bool_] = self.mask.allowed(head, rows, columns).cpu().numpy()
        return flags


@dataclass(frozen=True)
class GivenWeights:
    """A layer's attention, given as weights.

    Attributes
    ----------
    values : Tensor
        Floating point, (heads, queries, keys).
    """

    values: torch.Tensor

    @property
    def num_heads(self) -> int:
        """Number of heads."""
        return self.values.shape[0]

    @property
    def kept_heads(self) -> tuple[int, ...]:
        """Numbers of all heads."""
        return tuple(range(self.num_heads))

    @property
    def num_queries(self) -> int:
        """Number of rows."""
        return self.values.shape[1]

    @property
    def num_keys(self) -> int:
        """Number of columns."""
        return self.values.shape[2]

    @property
    def causal(self) -> bool:
        """False: weights without a mask don't say what was allowed."""
        return False

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Weights of a head's block, float32, (rows, columns)."""
        block: NDArray[np.float32] = self.values[head, rows, columns].float().cpu().numpy().copy()
        return block

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        """All True, bool, (rows, columns): a weight of zero does not say that it had to be."""
        del head
        return _all_allowed(rows, columns)


def _all_allowed(rows: slice, columns: slice) -> NDArray[np.bool_]:
    return np.ones((rows.stop - rows.start, columns.stop - columns.start), np.bool_)
