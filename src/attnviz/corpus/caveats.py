"""What the joint query-key embedding does not keep of a layer's attention, in a reader's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.record.attention import QueryKeyAttention

__all__ = ["Reservation", "reservations_of"]


@dataclass(frozen=True)
class Reservation:
    """Why the points of a layer's heads do not say all of its attention.

    Attributes
    ----------
    kind : {"moving", "bias"}
        ``"moving"`` holds only where keys are moved onto the queries, ``"bias"`` always.
    words : str
        A sentence for readers.
    """

    kind: Literal["moving", "bias"]
    words: str


def reservations_of(attention: QueryKeyAttention) -> list[Reservation]:
    """Say what the joint embedding does not keep of a layer's attention.

    Parameters
    ----------
    attention : QueryKeyAttention
        A layer's.

    Returns
    -------
    list of Reservation
        None for a plain softmax.

    Notes
    -----
    Moving keys by t adds ``q . t`` to all logits of a query, which softmax does not see. A soft cap
    and a sink do see it: the first bends the logits it is added to, the second is a logit that it
    is not added to. A position bias stays what it is, and is no part of any distance.

    Examples
    --------
    >>> import torch
    >>> vectors = torch.zeros(1, 2, 4)
    >>> reservations_of(QueryKeyAttention(vectors, vectors, 0.5))
    []
    """
    found = []
    if attention.softcap is not None:
        words = (
            f"This layer caps its logits softly at {attention.softcap:g}: moving the keys is not "
            "exact here, the moved points would give other weights."
        )
        found.append(Reservation("moving", words))
    if attention.sinks is not None:
        words = (
            "Each head of this layer has a sink, a learned logit that takes a share of every row: "
            "moving the keys is not exact here, it would change that share."
        )
        found.append(Reservation("moving", words))
    if attention.bias is not None:
        words = (
            "This layer adds a position bias to its logits: the weights follow query · key and the "
            "bias, distances follow query · key alone."
        )
        found.append(Reservation("bias", words))
    return found
