"""The weights of a head, or the mean of several heads', of any block of a long text."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial

import torch

from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import Rows
from attnviz.record.softmax import normalized
from attnviz.record.stack import AttentionStack
from attnviz.server.codec import not_finite
from attnviz.server.row_sums import RowSums

__all__ = ["HeadMean"]

# Of so many queries the sums are computed before somebody else has a turn.
_ROWS_A_STEP = 128


class HeadMean:
    """One head's weights, or the mean of several heads', from their queries and keys.

    Parameters
    ----------
    stack : AttentionStack
        The stack.
    layer : int
        The model's number of the layer.
    heads : sequence of int
        Its heads.
    sums : RowSums
        Where sums over rows are kept.

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
            # Weights of nothing, for the words of an error where the head does not exist.
            stack.weights(layer=layer, head=head, rows=slice(0, 0))
        vectors = stack.attention(layer).vectors
        if vectors is None:
            raise ValueError(f"stack {stack.name!r}, layer {layer} has no queries and keys")
        self.attention: QueryKeyAttention = vectors
        self.name = (stack.name, layer, tuple(heads))
        self.words = (
            f"stack {stack.name!r}, layer {layer}, mean of heads {', '.join(map(str, heads))}"
        )
        self._places = {head: stack.attention(layer).index(head) for head in heads}
        self._sums = {head: partial(sums.of, stack, layer, head) for head in heads}

    @property
    def heads(self) -> tuple[int, ...]:
        """The model's numbers of the heads."""
        return tuple(self._places)

    def log_sum_exp(self, head: int, rows: Rows) -> Generator[None, None, torch.Tensor]:
        """A head's logarithms of sums; those that are not known are computed step by step.

        Parameters
        ----------
        head : int
            The model's number of it.
        rows : slice or Tensor
            Queries.

        Returns
        -------
        Tensor
            float32, (rows,), where the queries lie.

        Raises
        ------
        ValueError
            If one is NaN or infinite: a weight would be.
        """
        numbers = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        # Gathered here: what is kept may be dropped while others have their turn.
        gathered = torch.empty(len(numbers))
        for start in range(0, len(numbers), _ROWS_A_STEP):
            part = numbers[start : start + _ROWS_A_STEP]
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

        Raises
        ------
        ValueError
            If one is NaN or infinite: a weight would be.
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

    def weights(self, rows: Rows, columns: slice, divided: list[torch.Tensor]) -> torch.Tensor:
        """Weights of a block, the mean over the heads.

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
        weights = (
            normalized(self.attention.logits(place, rows, columns), sums)
            for place, sums in zip(self._places.values(), divided, strict=True)
        )
        total = next(weights)
        for each in weights:
            total += each
        return total.div_(len(self._places)) if len(self._places) > 1 else total
