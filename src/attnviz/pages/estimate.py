"""About how large all weights of a record are in a page, from a few parts of them."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.pages.limits import count_weights
from attnviz.pages.whole import STRATEGIES, deflated
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import sampled_queries
from attnviz.server.codec import encode

__all__ = ["WholeSize", "size_of_whole"]

_PARTS = 32
_PART = 1 << 17
# What zlib looks back on. A part is deflated as if its own end went before it: rows that repeat
# those before them take as little as they do in the whole.
_WINDOW = 1 << 15
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class WholeSize:
    """What all weights take.

    Attributes
    ----------
    size : float
        Deflated bytes, about.
    strategy : int
        zlib's that made the fewest.
    """

    size: float
    strategy: int


def size_of_whole(record: AttentionRecord) -> WholeSize:
    """Deflate neighbouring rows from all over a record's heads.

    Parameters
    ----------
    record : AttentionRecord
        The record.

    Returns
    -------
    WholeSize
        Off by a few percent where heads are much alike. Within a head the parts lie at multiples of
        the golden ratio, and the heads that are looked at are spread evenly over all.

    Notes
    -----
    Four million weights are computed at most.
    """
    heads = [
        (stack, layer, head)
        for stack in record.stacks.values()
        for layer in stack.layers
        for head in stack.kept_heads(layer)
    ]
    chosen = sampled_queries(len(heads), _PARTS)
    each = -(-_PARTS // len(chosen))
    sizes = dict.fromkeys(STRATEGIES, 0.0)
    for place, number in enumerate(chosen):
        stack, layer, head = heads[number]
        rows, columns = len(stack.query_tokens), len(stack.key_tokens)
        length = min(rows, max(1, _PART // columns))
        parts = min(each, -(-rows // length))
        for part in range(parts):
            within = (0.5 + (place * each + part) * _GOLDEN) % 1.0
            first = int((part + within) / parts * (rows - length + 1))
            tile = slice(first, first + length)
            weights = stack.weights(layer=layer, head=head, rows=tile)
            codes = encode(weights[None], "uint8", stack.maximum).data
            before = codes[-_WINDOW:] if len(codes) >= 2 * _WINDOW else b""
            share = rows * columns / (parts * len(codes))
            for strategy in STRATEGIES:
                sizes[strategy] += share * len(deflated(codes, strategy, before))
    total = sum(len(s.query_tokens) * len(s.key_tokens) for s, _, _ in (heads[n] for n in chosen))
    strategy = min(sizes, key=lambda one: sizes[one])
    return WholeSize(sizes[strategy] * count_weights(record) / total, strategy)
