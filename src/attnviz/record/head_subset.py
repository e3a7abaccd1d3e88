"""A layer's attention of which only some heads were kept, under the model's own numbers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import GivenWeights, LayerAttention, QueryKeyAttention

__all__ = ["KeptHeads", "vectors_of_head", "vectors_of_layer", "weights_of_layer"]


@dataclass(frozen=True)
class KeptHeads:
    """Some heads of a layer, under the model's own numbers.

    Attributes
    ----------
    base : QueryKeyAttention or GivenWeights
        The attention of the heads that were kept, and of no others.
    kept_heads : tuple of int
        The model's numbers of them, ascending, in the order of `base`.
    num_heads : int
        How many heads the model has there.
    num_key_heads : int or None
        How many key heads; None where only weights are known.

    Raises
    ------
    TypeError
        If `base` is something else.
    ValueError
        If the numbers are not those of `base`.

    Examples
    --------
    >>> import torch
    >>> one = GivenWeights(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]))
    >>> layer = KeptHeads(one, kept_heads=(5,), num_heads=12)
    >>> layer.weights(5, slice(1, 2), slice(0, 2))
    array([[0.25, 0.75]], dtype=float32)
    >>> layer.weights(0, slice(1, 2), slice(0, 2))
    Traceback (most recent call last):
    IndexError: head=0 was not kept, only 5
    """

    base: QueryKeyAttention | GivenWeights
    kept_heads: tuple[int, ...]
    num_heads: int
    num_key_heads: int | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that are not those of the heads."""
        if not isinstance(self.base, QueryKeyAttention | GivenWeights):
            raise TypeError(
                "base must be the attention of the tokens themselves, as queries and keys or as "
                f"weights; got {type(self.base).__name__}"
            )
        heads = self.kept_heads
        ascending = all(one < other for one, other in pairwise(heads))
        if len(heads) != self.base.num_heads or not heads or not ascending:
            raise ValueError(
                f"kept_heads={heads!r} must number the {self.base.num_heads} heads of base, "
                "ascending"
            )
        if heads[0] < 0 or heads[-1] >= self.num_heads:
            raise ValueError(
                f"kept_heads={heads!r} must lie between 0 and {self.num_heads - 1}, as there are "
                f"num_heads={self.num_heads}"
            )
        whole_groups = self.num_key_heads is None or (
            self.num_key_heads > 0 and self.num_heads % self.num_key_heads == 0
        )
        if not whole_groups or (self.num_key_heads is None) == isinstance(
            self.base, QueryKeyAttention
        ):
            raise ValueError(
                f"num_key_heads={self.num_key_heads!r} must divide num_heads={self.num_heads} "
                "where queries and keys are known, and be None where they are not"
            )

    @property
    def num_queries(self) -> int:
        """Number of rows."""
        return self.base.num_queries

    @property
    def num_keys(self) -> int:
        """Number of columns."""
        return self.base.num_keys

    @property
    def causal(self) -> bool:
        """Whether no query may look ahead, as far as the mask says."""
        return self.base.causal

    def place(self, head: int) -> int:
        """Where a head stands in `base`.

        Parameters
        ----------
        head : int
            The model's number of it.

        Returns
        -------
        int

        Raises
        ------
        IndexError
            If it was not kept.
        """
        if head not in self.kept_heads:
            raise IndexError(
                f"head={head!r} was not kept, only {', '.join(map(str, self.kept_heads))}"
            )
        return self.kept_heads.index(head)

    def weights(self, head: int, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Weights of a head's block, float32, (rows, columns)."""
        return self.base.weights(self.place(head), rows, columns)

    def allowed(self, head: int, rows: slice, columns: slice) -> NDArray[np.bool_]:
        """Whether the mask lets a head's queries attend to keys, bool, (rows, columns)."""
        return self.base.allowed(self.place(head), rows, columns)


def vectors_of_layer(attention: LayerAttention) -> QueryKeyAttention | None:
    """The queries and keys of a layer.

    Parameters
    ----------
    attention : LayerAttention
        Whatever is kept of it.

    Returns
    -------
    QueryKeyAttention or None
        Those of the heads that were kept; None where they are not known, and for words.
    """
    base = attention.base if isinstance(attention, KeptHeads) else attention
    return base if isinstance(base, QueryKeyAttention) else None


def weights_of_layer(attention: LayerAttention) -> torch.Tensor | None:
    """The weights of a layer, where they were given.

    Parameters
    ----------
    attention : LayerAttention
        Whatever is kept of it.

    Returns
    -------
    Tensor or None
        (heads, queries, keys), of the heads that were kept; None where weights are computed.
    """
    base = attention.base if isinstance(attention, KeptHeads) else attention
    return base.values if isinstance(base, GivenWeights) else None


def vectors_of_head(attention: LayerAttention, head: int) -> tuple[QueryKeyAttention, int] | None:
    """The queries and keys that a head's are among.

    Parameters
    ----------
    attention : LayerAttention
        Whatever is kept of its layer.
    head : int
        The model's number of it.

    Returns
    -------
    (QueryKeyAttention, int) or None
        And which head of them it is; None where they are not known, and for words.

    Raises
    ------
    IndexError
        If the head was not kept.
    """
    vectors = vectors_of_layer(attention)
    if vectors is None:
        return None
    return vectors, attention.place(head) if isinstance(attention, KeptHeads) else head
