"""What rows of weights are divided by, kept for later requests of the same rows."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import Rows
from attnviz.record.softmax import normalized, tiles
from attnviz.record.stack import AttentionStack
from attnviz.server.cache import ByteCache
from attnviz.server.codec import not_finite
from attnviz.utils.arguments import spans
from attnviz.utils.progress import STEP, Pace, Steps

__all__ = ["KEPT_BYTES", "HeadMean", "RowSums"]

# Four bytes a query: a head of 131,072 tokens takes half a megabyte.
KEPT_BYTES = 48_000_000
# Below so many keys a row is computed again as fast as it is looked up.
_LONG = 4096

# Of so many queries the sums are computed before another request has a turn,
_ROWS_A_STEP = 128
# and of fewer where they have more weights than these.
_WEIGHTS_A_STEP = 1 << 24
_CALL = 1 << 13


class RowSums:
    """Weights of parts of rows, without the rest of the row where it was seen before.

    A row's weights are divided by a sum over all its keys. Kept, it makes a small block of a long
    text as cheap as its own cells.

    Parameters
    ----------
    kept_bytes : int
        What is kept at most; of the heads that were not lately asked for the sums are forgotten.

    Examples
    --------
    >>> import attnviz as av
    >>> vectors = torch.zeros(1, 2, 4)
    >>> stack = av.AttentionRecord.from_qk([vectors], [vectors], ["a", "b"], causal=True).stack()
    >>> from attnviz.utils.progress import completed
    >>> steps = RowSums().block(stack, layer=0, head=0, rows=slice(1, 2), columns=slice(0, 1))
    >>> completed(steps)
    array([[0.5]], dtype=float32)
    """

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept: ByteCache[torch.Tensor] = ByteCache(kept_bytes, lambda sums: sums.nbytes)

    def block(
        self,
        stack: AttentionStack,
        *,
        layer: int,
        head: int,
        rows: slice,
        columns: slice,
        pace: Pace | None = None,
    ) -> Steps[NDArray[np.float32]]:
        """Weights of some queries and keys, in steps.

        Returns
        -------
        ndarray
            float32, (rows, columns).
        """
        block = np.zeros((rows.stop - rows.start, columns.stop - columns.start), np.float32)
        pace = pace or Pace("weights", len(block) * len(stack.key_tokens))
        for part in tiles(rows, len(stack.key_tokens)):
            here = slice(part.start - rows.start, part.stop - rows.start)
            block[here], computed = self._part(stack, layer, head, part, columns)
            yield from pace.did(computed)
        return block

    def _part(
        self, stack: AttentionStack, layer: int, head: int, rows: slice, columns: slice
    ) -> tuple[NDArray[np.float32], int]:
        """Weights of some queries and keys, and how many were computed for them."""
        count = rows.stop - rows.start
        known = None
        if len(stack.key_tokens) > max(_LONG, columns.stop - columns.start):
            known = self._vectors(stack, layer, head)
        if known is None:
            block = stack.weights(layer=layer, head=head, rows=rows, columns=columns)
            return block, count * len(stack.key_tokens)
        attention, place = known
        sums = self.of(stack, layer, head)
        with torch.no_grad():
            missing = torch.isnan(sums[rows]).nonzero().flatten() + rows.start
            if len(missing):
                sums[missing] = attention.log_normalizer(place, missing).cpu()
            logits = attention.logits(place, rows, columns)
            weights = normalized(logits, sums[rows].to(logits.device))
        return weights.cpu().numpy(), len(missing) * len(stack.key_tokens) + weights.numel()

    def whole_rows(
        self, stack: AttentionStack, *, layer: int, head: int, rows: slice
    ) -> torch.Tensor:
        """Weights of some queries and all keys; what they were divided by is kept.

        Returns
        -------
        Tensor
            float32, (rows, keys), on the device of the queries: as much memory as its entries take.
        """
        known = self._vectors(stack, layer, head)
        if known is None or len(stack.key_tokens) <= _LONG:
            return torch.from_numpy(stack.weights(layer=layer, head=head, rows=rows))
        attention, place = known
        sums = self.of(stack, layer, head)
        device, num_keys = attention.queries.device, attention.num_keys
        with torch.no_grad():
            weights = torch.zeros(rows.stop - rows.start, num_keys, device=device)
            for tile in tiles(rows, num_keys):
                part = weights[tile.start - rows.start : tile.stop - rows.start]
                reach = attention.reach(tile)
                if reach.start >= reach.stop:
                    sums[tile] = -torch.inf
                    continue
                logits = attention.logits(place, tile, reach)
                total = attention.log_normalizer_from(place, logits)
                part[:, reach] = normalized(logits, total)
                sums[tile] = total.cpu()
        return weights

    @staticmethod
    def _vectors(
        stack: AttentionStack, layer: int, head: int
    ) -> tuple[QueryKeyAttention, int] | None:
        head = stack.head_number(layer, head)
        attention = stack.attention(layer)
        return None if attention.vectors is None else (attention.vectors, attention.index(head))

    def of(self, stack: AttentionStack, layer: int, head: int) -> torch.Tensor:
        """The logarithms of the sums of a head, to be read and to be filled.

        Returns
        -------
        Tensor
            float32, (queries,), on the CPU wherever the record lies; NaN where nothing is known.
        """
        key = (stack.name, layer, head)
        sums = self._kept.get(key)
        if sums is None:
            self._kept[key] = sums = torch.full((len(stack.query_tokens),), torch.nan)
        return sums

    @property
    def num_bytes(self) -> int:
        """Bytes that are kept."""
        return self._kept.num_bytes


class HeadMean:
    """One head's weights, or the mean of several heads', from their queries and keys.

    Attributes
    ----------
    attention : QueryKeyAttention
        Queries and keys of the layer.

    Raises
    ------
    IndexError
        If the layer or a head does not exist.
    ValueError
        If its weights are given.
    """

    def __init__(
        self, stack: AttentionStack, layer: int, heads: Sequence[int], sums: RowSums
    ) -> None:
        for head in heads:
            if not stack.attention(layer).keeps(head):
                # For the words of an error.
                stack.head_number(layer, head)
        vectors = stack.attention(layer).vectors
        if vectors is None:
            raise ValueError(f"stack {stack.name!r}, layer {layer} has no queries and keys")
        self.attention: QueryKeyAttention = vectors
        self.words = f"stack {stack.name!r}, layer {layer}, mean of heads {spans(sorted(heads))}"
        self._places = {head: stack.attention(layer).index(head) for head in heads}
        self._sums = {head: partial(sums.of, stack, layer, head) for head in heads}

    @property
    def heads(self) -> tuple[int, ...]:
        """The model's numbers of the heads."""
        return tuple(self._places)

    def log_sum_exp(self, head: int, rows: Rows) -> Generator[None, None, torch.Tensor]:
        """A head's logarithms of sums; those that are not known are computed step by step.

        Returns
        -------
        Tensor
            float32, (rows,), where the queries lie.
        """
        numbers = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        # Gathered here: what is kept may be dropped while others have their turn.
        gathered = torch.empty(len(numbers))
        step = max(1, min(_ROWS_A_STEP, _WEIGHTS_A_STEP // self.attention.num_keys))
        for start in range(0, len(numbers), step):
            part = numbers[start : start + step]
            found = self._sums[head]()[part]
            if bool(torch.isnan(found).any()):
                asked: Rows = part
                if isinstance(rows, slice):
                    asked = slice(int(part[0]), int(part[-1]) + 1)
                found = self.attention.log_normalizer(self._places[head], asked).cpu()
                self.keep(head, part, found)
                yield
            gathered[start : start + len(part)] = found
        return gathered.to(self.attention.queries.device)

    def keep(self, head: int, rows: torch.Tensor, found: torch.Tensor) -> None:
        """Keep a head's logarithms of sums of some rows.

        Parameters
        ----------
        head : int
            The model's number of it.
        rows : Tensor
            int64, numbers of queries.
        found : Tensor
            float32, (rows,), on the CPU.
        """
        wrong = torch.nonzero(torch.isnan(found) | torch.isposinf(found)).flatten()
        if len(wrong):
            which = f"the first found is of head {head}, query {int(rows[wrong[0]])}"
            raise not_finite(self.words, which)
        self._sums[head]()[rows] = found

    def logits(self, rows: Rows, columns: slice) -> torch.Tensor:
        """Logits of the only head, as `QueryKeyAttention.logits` has them."""
        (place,) = self._places.values()
        return self.attention.logits(place, rows, columns)

    def log_normalizer_from(self, logits: torch.Tensor) -> torch.Tensor:
        """As `QueryKeyAttention.log_normalizer_from`, of the only head."""
        (place,) = self._places.values()
        return self.attention.log_normalizer_from(place, logits)

    def weights(
        self, rows: Rows, columns: slice, divided: list[torch.Tensor]
    ) -> Generator[None, None, torch.Tensor]:
        """Weights of a block, the mean over the heads, some heads at a time.

        Parameters
        ----------
        rows : slice or Tensor
            Queries.
        columns : slice
            Keys.
        divided : list of Tensor
            (rows,) each: the heads' logarithms of sums.

        Returns
        -------
        Tensor
            float32, (rows, columns).
        """
        total: torch.Tensor | None = None
        since = 0
        for place, sums in zip(self._places.values(), divided, strict=True):
            with torch.no_grad():
                weights = normalized(self.attention.logits(place, rows, columns), sums)
                total = weights if total is None else total.add_(weights)
            # A call has its price, however few weights it gives.
            since += weights.numel() + _CALL
            if since >= STEP:
                since = 0
                yield
        if total is None:
            raise ValueError("a mean of no heads was asked for")
        return total.div_(len(self._places)) if len(self._places) > 1 else total
