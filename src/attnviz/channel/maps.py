"""Small maps of whole heads, in which a bright cell does not vanish."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.channel.codec import Encoded, encode, pool_max
from attnviz.channel.limits import MAX_REPLY_BYTES
from attnviz.sampled import affords_maps, sampled_queries, weights_of_rows
from attnviz.stack import AttentionStack

__all__ = ["encoded_maps"]


def encoded_maps(
    stack: AttentionStack,
    layer: int,
    size: int,
    *,
    heads: Sequence[int] | None = None,
    rows: slice | None = None,
    columns: slice | None = None,
) -> tuple[Encoded, int | None]:
    """Heads' maps, pooled by the maximum.

    Of a part whose every weight would keep somebody waiting (see `affords_maps`) each row of a map
    is one query, taken from its share of the text.

    Parameters
    ----------
    stack : AttentionStack
        The stack.
    layer : int
        The model's number of the layer.
    size : int
        Largest number of rows and columns of a map, at least 1.
    heads : sequence of int, optional
        Heads wanted; all that were kept when left out.
    rows, columns : slice, optional
        Queries and keys wanted, start and stop given; all when left out.

    Returns
    -------
    maps : Encoded
        ``"uint8-sqrt"``, (heads, rows, columns).
    sampled : int or None
        How many queries stand for all; None where all were gone through.

    Raises
    ------
    ValueError
        If no head is wanted, `size` is not positive or the maps are too large for a reply.
    """
    if size < 1:
        raise ValueError(f"size={size} must be at least 1")
    if heads is None:
        heads = stack.kept_heads(layer)
    if not heads:
        raise ValueError("heads is empty; ask for the maps of at least one")
    rows = rows or slice(0, len(stack.query_tokens))
    columns = columns or slice(0, len(stack.key_tokens))
    cells = len(heads)
    for side in (rows, columns):
        cells *= min(side.stop - side.start, size)
    if cells > MAX_REPLY_BYTES:
        # Before minutes of computing.
        raise ValueError(f"maps of size {size} are {cells} bytes; ask for smaller ones")
    pairs = (rows.stop - rows.start) * (columns.stop - columns.start)
    queries = None
    if not affords_maps([stack.attention(layer)], pairs):
        queries = rows.start + sampled_queries(rows.stop - rows.start, size)
    maps = [
        pool_max(_weights(stack, layer, head, rows, columns, queries)[None], size) for head in heads
    ]
    of = f"stack {stack.name!r}, layer {layer}"
    encoded = encode(np.concatenate(maps), "uint8", stack.maximum, of=of)
    return encoded, None if queries is None else len(queries)


def _weights(
    stack: AttentionStack,
    layer: int,
    head: int,
    rows: slice,
    columns: slice,
    queries: NDArray[np.int64] | None,
) -> NDArray[np.float32]:
    if queries is None:
        return stack.weights(layer=layer, head=head, rows=rows, columns=columns)
    return weights_of_rows(stack.attention(layer), head, queries)[0][:, columns]
