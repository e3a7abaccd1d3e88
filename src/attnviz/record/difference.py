"""The difference of two attentions, `a` and `b`, with the same rows and columns.

    difference[i, j] = b[i, j] - a[i, j]

Differences are computed on demand. Differences of softmax weights are between -1 and 1, and each
row of them sums to 0, unless a sink takes a share of a row. A head of `b` is compared with the head
of `a` that has the same number. A query may have no allowed key in `a`, or none in `b`, for example
if it is a token that only one of two compared texts has. All differences of its row are then 0, and
no key of the row is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from attnviz.record.attention import Columns, Heads, LayerAttention, Normalizers
from attnviz.record.linear import StateAttention
from attnviz.record.masks import Rows
from attnviz.record.stack import AttentionStack


def difference_stack(before: AttentionStack, after: AttentionStack, name: str) -> AttentionStack:
    """Return a stack with the differences ``after - before``, for the layers of `before`.

    Both stacks have the same tokens.
    """
    layers = {
        number: DifferenceAttention(before.attention(number), after.attention(number))
        for number in before.layers
    }
    return after.derive(layers, name=name, normalized=False, signed=True, measure="difference")


@dataclass(frozen=True)
class DifferenceAttention(LayerAttention):
    """Attention `b` minus attention `a` of a layer, computed from these two attentions.

    >>> from attnviz.record.attention import StoredWeights
    >>> a = StoredWeights(torch.tensor([[[1.0, 0.0], [0.25, 0.75]]]))
    >>> b = StoredWeights(torch.tensor([[[1.0, 0.0], [0.75, 0.25]]]))
    >>> DifferenceAttention(a, b).block([0], slice(1, 2))
    tensor([[[ 0.5000, -0.5000]]])
    """

    a: LayerAttention
    b: LayerAttention

    def __post_init__(self) -> None:
        """Raise ValueError if `a` and `b` have different numbers of rows or columns."""
        shapes = [(attention.num_queries, attention.num_keys) for attention in (self.a, self.b)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"a has {shapes[0][0]} queries and {shapes[0][1]} keys, b {shapes[1][0]} and "
                f"{shapes[1][1]}; both must have the same rows and columns"
            )

    @property
    def num_heads(self) -> int:
        """Number of heads that both `a` and `b` have."""
        return min(self.a.num_heads, self.b.num_heads)

    @property
    def num_queries(self) -> int:
        return self.a.num_queries

    @property
    def num_keys(self) -> int:
        return self.a.num_keys

    @property
    def causal(self) -> bool:
        """Whether both `a` and `b` are causal."""
        return self.a.causal and self.b.causal

    @property
    def merged(self) -> bool:
        """Whether a row or column of `a` or `b` combines several tokens."""
        return self.a.merged or self.b.merged

    @property
    def bounds_sums(self) -> bool:
        return self.a.bounds_sums and self.b.bounds_sums

    @property
    def bound(self) -> float | None:
        """Upper bound of the absolute differences, or None if `a` or `b` has no known bound."""
        bound_a, bound_b = self.a.bound, self.b.bound
        if bound_a is None or bound_b is None:
            return None
        # If two numbers are not negative, the absolute value of their difference is at most the
        # larger number. If numbers of `a` or `b` may be negative, the absolute value is at most the
        # sum of the bounds.
        kinds = (DifferenceAttention, StateAttention)
        signed = isinstance(self.a.original, kinds) or isinstance(self.b.original, kinds)
        return bound_a + bound_b if signed else max(bound_a, bound_b)

    @property
    def num_softmaxes(self) -> int:
        return self.a.num_softmaxes + self.b.num_softmaxes

    def normalizers(self, heads: Heads, rows: Rows) -> torch.Tensor:
        """Return the softmax normalizers of `a`, followed along the first axis by those of `b`."""
        normalizers_b = self.b.normalizers(heads, rows)
        normalizers_a = self.a.normalizers(heads, rows).to(normalizers_b.device)
        return torch.cat([normalizers_a, normalizers_b])

    def block(
        self, heads: Heads, rows: Rows, columns: Columns = None, normalizers: Normalizers = None
    ) -> torch.Tensor:
        count = self.a.num_softmaxes
        known = (None, None) if normalizers is None else (normalizers[:count], normalizers[count:])
        weights_b = self.b.block(heads, rows, columns, known[1])
        difference = weights_b - self.a.block(heads, rows, columns, known[0]).to(weights_b.device)
        is_undefined = ~self.has_allowed_key(heads, rows).to(difference.device)
        return difference.masked_fill_(is_undefined[..., None], 0.0)

    def allowed(self, heads: Heads, rows: Rows, columns: Columns = None) -> torch.Tensor:
        """Return whether `a` or `b` allows each pair.

        All pairs of a query are False if the query has no allowed key in `a`, or none in `b`.
        """
        either = self.a.allowed(heads, rows, columns) | self.b.allowed(heads, rows, columns)
        return either & self.has_allowed_key(heads, rows)[..., None]

    def key_range(self, rows: Rows) -> slice:
        """Return a range of keys outside which the differences of `rows` are 0."""
        range_a, range_b = self.a.key_range(rows), self.b.key_range(rows)
        if range_a.start == range_a.stop or range_b.start == range_b.stop:
            # In `a` or in `b`, no query of `rows` has an allowed key, so all differences are 0.
            return slice(0, 0)
        return slice(min(range_a.start, range_b.start), max(range_a.stop, range_b.stop))

    def has_allowed_key(self, heads: Heads, rows: Rows) -> torch.Tensor:
        """Return whether each query has an allowed key in `a` and one in `b`."""
        return self.a.has_allowed_key(heads, rows) & self.b.has_allowed_key(heads, rows)
