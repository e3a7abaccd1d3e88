"""What rows of weights are divided by, kept for later requests of the same rows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import LayerAttention, QueryKeyAttention, ScaledAttention
from attnviz.record.difference import DifferenceAttention
from attnviz.record.masks import Rows
from attnviz.record.softmax import normalized, tiles
from attnviz.record.stack import AttentionStack
from attnviz.server.cache import ByteCache
from attnviz.server.codec import not_finite
from attnviz.utils.arguments import spans
from attnviz.utils.progress import STEP, Pace, Steps

__all__ = [
    "KEPT_BYTES",
    "HeadDifference",
    "HeadMean",
    "HeadScaled",
    "RowSums",
    "head_weights",
    "softmax_sides",
]

# Four bytes a query: a head of 131,072 tokens takes half a megabyte.
KEPT_BYTES = 48_000_000
# Below so many keys a row is computed again as fast as it is looked up.
_LONG = 4096

# Of so many queries the sums are computed before another request has a turn,
_ROWS_A_STEP = 128
# and of fewer where they have more weights than these.
_WEIGHTS_A_STEP = 1 << 24
_CALL = 1 << 13


def softmax_sides(attention: LayerAttention) -> tuple[LayerAttention, ...]:
    """The attentions whose queries and keys give a layer's weights; none where they are not known.

    Of a difference both sides, what is taken away first; of weights that are multiplied those
    weights; of any other attention itself.
    """
    sides: tuple[LayerAttention, ...] = (attention,)
    if isinstance(attention, DifferenceAttention):
        sides = attention.a, attention.b
    elif isinstance(attention, ScaledAttention):
        sides = (attention.base,)
    return sides if all(side.vectors is not None for side in sides) else ()


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
        attention, num_keys = stack.attention(layer), len(stack.key_tokens)
        head = stack.head_number(layer, head)
        sides = softmax_sides(attention)
        if not sides or num_keys <= max(_LONG, columns.stop - columns.start):
            block = stack.weights(layer=layer, head=head, rows=rows, columns=columns)
            return block, len(block) * num_keys
        found, computed = [], 0
        for number, side in enumerate(sides):
            known, place = _vectors(side, head)
            sums = self.of(stack, layer, head, number)
            with torch.no_grad():
                missing = torch.isnan(sums[rows]).nonzero().flatten() + rows.start
                if len(missing):
                    sums[missing] = known.log_normalizer(place, missing).cpu()
                logits = known.logits(place, rows, columns)
                found.append(normalized(logits, sums[rows].to(logits.device)))
            computed += len(missing) * num_keys + logits.numel()
        block = _together(found, attention, head, rows, columns).cpu().numpy()
        return block, computed

    def whole_rows(
        self, stack: AttentionStack, *, layer: int, head: int, rows: slice
    ) -> torch.Tensor:
        """Weights of some queries and all keys; what they were divided by is kept.

        Returns
        -------
        Tensor
            float32, (rows, keys), on the device of the queries: as much memory as its entries take.
        """
        attention = stack.attention(layer)
        head = stack.head_number(layer, head)
        sides = softmax_sides(attention)
        if not sides or len(stack.key_tokens) <= _LONG:
            return torch.from_numpy(stack.weights(layer=layer, head=head, rows=rows))
        found = [
            self._whole_rows(*_vectors(side, head), self.of(stack, layer, head, number), rows)
            for number, side in enumerate(sides)
        ]
        return _together(found, attention, head, rows, slice(0, attention.num_keys))

    @staticmethod
    def _whole_rows(
        attention: QueryKeyAttention, place: int, sums: torch.Tensor, rows: slice
    ) -> torch.Tensor:
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

    def of(self, stack: AttentionStack, layer: int, head: int, side: int = 0) -> torch.Tensor:
        """The logarithms of the sums of a head, to be read and to be filled.

        Of a difference those of one of its sides, by their places in `softmax_sides`.

        Returns
        -------
        Tensor
            float32, (queries,), on the CPU wherever the record lies; NaN where nothing is known.
        """
        key = (stack.name, layer, head, side)
        sums = self._kept.get(key)
        if sums is None:
            self._kept[key] = sums = torch.full((len(stack.query_tokens),), torch.nan)
        return sums

    @property
    def num_bytes(self) -> int:
        """Bytes that are kept."""
        return self._kept.num_bytes


def _vectors(attention: LayerAttention, head: int) -> tuple[QueryKeyAttention, int]:
    """A layer's queries and keys, and the place of a head among them."""
    vectors = attention.vectors
    if vectors is None:
        raise ValueError("only weights are known, and no queries and keys")
    return vectors, attention.index(head)


def _together(
    sides: Sequence[torch.Tensor],
    attention: LayerAttention,
    head: int,
    rows: slice,
    columns: slice,
) -> torch.Tensor:
    """A block of a layer, of the weights of its `softmax_sides`.

    A difference is 0 for queries that one side lacks.
    """
    if isinstance(attention, ScaledAttention):
        return attention.scaled(sides[0], head, rows, columns)
    if len(sides) == 1:
        return sides[0]
    a, b = sides
    there = torch.from_numpy(attention.attends(head, rows)).to(b.device)
    return (b - a.to(b.device)).masked_fill_(~there[:, None], 0.0)


class HeadMean:
    """One head's weights, or the mean of several heads', from their queries and keys.

    Attributes
    ----------
    attention : QueryKeyAttention
        Queries and keys of the layer.
    signed : bool
        False.

    Raises
    ------
    IndexError
        If the layer or a head does not exist.
    ValueError
        If its weights are given.
    """

    signed = False

    def __init__(
        self, stack: AttentionStack, layer: int, heads: Sequence[int], sums: RowSums, side: int = 0
    ) -> None:
        for head in heads:
            if not stack.attention(layer).keeps(head):
                # For the words of an error.
                stack.head_number(layer, head)
        sides = softmax_sides(stack.attention(layer))
        if not sides:
            raise ValueError(f"stack {stack.name!r}, layer {layer} has no queries and keys")
        self.attention, _ = _vectors(sides[side], heads[0])
        self.words = f"stack {stack.name!r}, layer {layer}, mean of heads {spans(sorted(heads))}"
        self._places = {head: sides[side].index(head) for head in heads}
        self._sums = {head: partial(sums.of, stack, layer, head, side) for head in heads}

    @property
    def heads(self) -> tuple[int, ...]:
        """The model's numbers of the heads."""
        return tuple(self._places)

    @property
    def num_matrices(self) -> int:
        """How many matrices are computed for the one that is shown."""
        return len(self._places)

    @property
    def num_keys(self) -> int:
        """Number of columns."""
        return self.attention.num_keys

    def reach(self, rows: Rows) -> slice:
        """Keys outside of which some queries (at least one) have no weight."""
        return self.attention.reach(rows)

    def divided(self, rows: Rows) -> Generator[None, None, list[torch.Tensor]]:
        """What some rows of each head are divided by, as `weights` takes it."""
        found: list[torch.Tensor] = []
        for head in self._places:
            found += [(yield from self.log_sum_exp(head, rows))]
        return found

    def attends(self, head: int, rows: Rows, divided: torch.Tensor) -> torch.Tensor:
        """Which queries may attend to any key, bool, (rows,), where `divided` lies."""
        if self.attention.sinks is None:
            return ~torch.isneginf(divided)
        # With a sink, rows are divided by something all the same.
        place = self._places[head]
        runs = [rows] if isinstance(rows, slice) else [slice(n, n + 1) for n in rows.tolist()]
        flags = np.concatenate([self.attention.attends(place, run) for run in runs])
        return torch.from_numpy(flags).to(divided.device)

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
        self,
        rows: Rows,
        columns: slice,
        divided: list[torch.Tensor],
        change: Callable[[int, torch.Tensor], torch.Tensor] | None = None,
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
        change : callable, optional
            Given a head's number and weights: what is to stand in their place.

        Returns
        -------
        Tensor
            float32, (rows, columns).
        """
        total: torch.Tensor | None = None
        since = 0
        for (head, place), sums in zip(self._places.items(), divided, strict=True):
            with torch.no_grad():
                weights = normalized(self.attention.logits(place, rows, columns), sums)
                if change is not None:
                    weights = change(head, weights)
                total = weights if total is None else total.add_(weights)
            # A call has its price, however few weights it gives.
            since += weights.numel() + _CALL
            if since >= STEP:
                since = 0
                yield
        if total is None:
            raise ValueError("a mean of no heads was asked for")
        return total.div_(len(self._places)) if len(self._places) > 1 else total


class HeadDifference:
    """The difference of two attentions in one head, or its mean over several heads.

    Attributes
    ----------
    a, b : HeadMean
        The two sides, of the same heads.
    signed : bool
        True.
    """

    signed = True

    def __init__(
        self, stack: AttentionStack, layer: int, heads: Sequence[int], sums: RowSums
    ) -> None:
        self.a, self.b = (HeadMean(stack, layer, heads, sums, side) for side in (0, 1))
        self._attention = stack.attention(layer)

    @property
    def heads(self) -> tuple[int, ...]:
        """The model's numbers of the heads."""
        return self.b.heads

    @property
    def num_matrices(self) -> int:
        """How many matrices are computed for the one that is shown."""
        return self.a.num_matrices + self.b.num_matrices

    @property
    def num_keys(self) -> int:
        """Number of columns."""
        return self.b.num_keys

    def reach(self, rows: Rows) -> slice:
        """Keys outside of which some queries (at least one) have no weight on either side."""
        return self._attention.reach(rows)

    def divided(self, rows: Rows) -> Generator[None, None, list[torch.Tensor]]:
        """What rows of each head are divided by, those of a and then those of b."""
        a = yield from self.a.divided(rows)
        b = yield from self.b.divided(rows)
        for number, head in enumerate(self.heads):
            one, other = (
                self.a.attends(head, rows, a[number]),
                self.b.attends(head, rows, b[number]),
            )
            # What is divided by nothing has no weight.
            nothing = ~(one & other.to(one.device))
            a[number] = a[number].masked_fill(nothing, -torch.inf)
            b[number] = b[number].masked_fill(nothing.to(b[number].device), -torch.inf)
        return [*a, *b]

    def weights(
        self, rows: Rows, columns: slice, divided: list[torch.Tensor]
    ) -> Generator[None, None, torch.Tensor]:
        """Differences of a block, the mean over the heads; see `HeadMean.weights`."""
        count = len(self.heads)
        a = yield from self.a.weights(rows, columns, divided[:count])
        b = yield from self.b.weights(rows, columns, divided[count:])
        return b.sub_(a.to(b.device))


class HeadScaled:
    """Weights that are multiplied, of one head, or their mean over several heads.

    Attributes
    ----------
    base : HeadMean
        The weights, of the same heads.
    signed : bool
        Whether what they are multiplied by may be negative.
    """

    def __init__(
        self,
        attention: ScaledAttention,
        stack: AttentionStack,
        layer: int,
        heads: Sequence[int],
        sums: RowSums,
    ) -> None:
        self.base = HeadMean(stack, layer, heads, sums)
        self.signed = stack.signed
        self._attention = attention

    @property
    def heads(self) -> tuple[int, ...]:
        """The model's numbers of the heads."""
        return self.base.heads

    @property
    def num_matrices(self) -> int:
        """How many matrices are computed for the one that is shown."""
        return self.base.num_matrices

    @property
    def num_keys(self) -> int:
        """Number of columns."""
        return self.base.num_keys

    def reach(self, rows: Rows) -> slice:
        """Keys outside of which some queries (at least one) have no weight."""
        return self.base.reach(rows)

    def divided(self, rows: Rows) -> Generator[None, None, list[torch.Tensor]]:
        """What some rows of each head's weights are divided by."""
        return (yield from self.base.divided(rows))

    def weights(
        self, rows: Rows, columns: slice, divided: list[torch.Tensor]
    ) -> Generator[None, None, torch.Tensor]:
        """Numbers of a block, the mean over the heads; see `HeadMean.weights`."""

        def scaled(head: int, weights: torch.Tensor) -> torch.Tensor:
            return self._attention.scaled(weights, head, rows, columns)

        return (yield from self.base.weights(rows, columns, divided, scaled))


def head_weights(
    stack: AttentionStack, layer: int, heads: Sequence[int], sums: RowSums
) -> HeadMean | HeadDifference | HeadScaled:
    """One head's weights or differences, or their mean over several heads, from queries and keys.

    IndexError if the layer or a head does not exist, ValueError if its weights are given.
    """
    attention = stack.attention(layer)
    if isinstance(attention, DifferenceAttention):
        return HeadDifference(stack, layer, heads, sums)
    if isinstance(attention, ScaledAttention):
        return HeadScaled(attention, stack, layer, heads, sums)
    return HeadMean(stack, layer, heads, sums)
