"""Copies of what a model's attention received: the heads that are kept, as what and where.

What a model hands over may be a view of something larger, or a cache that it writes to later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

import numpy as np
import torch

from attnviz.extraction.options import CaptureOptions, narrows
from attnviz.record.attention import GivenWeights, QueryKeyAttention
from attnviz.record.masks import Bias, Mask
from attnviz.record.storage.safetensors_file import Blocks
from attnviz.record.storage.spool import Spool

__all__ = ["SAMPLED_QUERIES", "Copier", "sampled_rows"]

_Part = TypeVar("_Part", Mask | None, Bias | None)
# A tensor, the heads of it that are kept (None is all), and what makes a copy of some.
_Source = tuple[torch.Tensor, tuple[int, ...] | None, Callable[[torch.Tensor], torch.Tensor]]
_Copies = dict[str, torch.Tensor]

#: Queries of each head on which rounding is measured.
SAMPLED_QUERIES = 4


class Copier:
    """Copies attention, and measures what rounding does to its weights.

    `spools` are where each example's copies are written, if they are not to stay in memory.
    """

    def __init__(self, options: CaptureOptions, spools: Sequence[Spool] = ()) -> None:
        self._options = options
        self._spools = spools
        # The originals too: their ids must stay theirs.
        self._parts: dict[tuple[int, tuple[int, ...]], tuple[object, object]] = {}

    def copy(
        self,
        attention: QueryKeyAttention | GivenWeights,
        heads: Sequence[int],
        written: tuple[int, str] | None = None,
    ) -> QueryKeyAttention | GivenWeights:
        """Copy some heads of an attention (ascending), and the key heads that they read.

        Masks and biases that several layers share are shared by their copies. `written` is the
        example's number and the module's path, where a copy is all that will be kept: it may be
        written to the example's spool then. Raises ValueError if numbers are too large for the
        dtype, and OSError if the spool cannot be written.
        """
        indices = None if len(heads) == attention.num_heads else tuple(heads)
        if isinstance(attention, GivenWeights):
            made = self._copied({"weights": (attention.values, indices, self._weights)}, written)
            return GivenWeights(made["weights"])
        needed, key_heads = attention.key_heads_of(heads)
        all_keys = len(needed) == attention.keys.shape[0]
        sinks = attention.sinks
        if sinks is not None:
            sinks = sinks if indices is None else sinks[list(indices)]
            sinks = sinks.to(self._options.device or sinks.device, copy=True)
        made = self._copied(
            {
                "queries": (attention.queries, indices, partial(self._vectors, what="queries")),
                "keys": (
                    attention.keys,
                    None if all_keys else tuple(needed),
                    partial(self._vectors, what="keys"),
                ),
            },
            written,
        )
        return replace(
            attention,
            queries=made["queries"],
            keys=made["keys"],
            mask=self._part(attention.mask, indices),
            bias=self._part(attention.bias, indices),
            sinks=sinks,
            key_heads=key_heads,
        )

    def error(
        self, attention: QueryKeyAttention | GivenWeights, heads: Sequence[int]
    ) -> list[float]:
        """Measure how far each head's weights lie from the model's own because copies are rounded.

        The largest difference over a few queries and all keys; of weights that are kept as such the
        largest of all, and of the sums of rows. Empty where nothing is rounded.
        """
        dtype = self._options.dtype
        if isinstance(attention, GivenWeights):
            if dtype is None or not narrows(attention.values.dtype, dtype):
                return []
            return [_weight_error(attention.values[head], dtype) for head in heads]
        if dtype is None or not narrows(attention.queries.dtype, dtype):
            return []
        return [_vector_error(attention, head, dtype) for head in heads]

    def _copied(self, parts: Mapping[str, _Source], written: tuple[int, str] | None) -> _Copies:
        if written is None or not self._spools:
            return {
                what: _apart(convert(_of_heads(tensor, indices)), tensor)
                for what, (tensor, indices, convert) in parts.items()
            }
        example, name = written
        blocks = {}
        for what, (tensor, indices, convert) in parts.items():
            chosen = range(len(tensor)) if indices is None else indices
            blocks[what] = Blocks(
                self._options.dtype or tensor.dtype,
                (len(chosen), *tensor.shape[1:]),
                # One head in memory at a time.
                map(partial(_converted, tensor, convert), chosen),
            )
        return self._spools[example].write(name, blocks)

    def _vectors(self, tensor: torch.Tensor, what: str) -> torch.Tensor:
        copied = self._moved(tensor)
        largest = torch.finfo(copied.dtype).max
        if torch.finfo(tensor.dtype).max > largest and bool(torch.isinf(copied).any()):
            raise ValueError(
                f"dtype={str(copied.dtype).removeprefix('torch.')!r} holds numbers up to "
                f"{largest:,.0f}, and {what} of this model are larger; 'bfloat16' holds them in "
                "as many bytes"
            )
        return copied

    def _weights(self, values: torch.Tensor) -> torch.Tensor:
        copied = self._moved(values)
        if narrows(values.dtype, self._options.dtype):
            return _without_new_zeros(copied, values)
        return copied

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        device = self._options.device or tensor.device
        dtype = self._options.dtype or tensor.dtype
        return tensor.detach().to(device, dtype).contiguous()

    def _part(self, part: _Part, indices: tuple[int, ...] | None) -> _Part:
        """Heads of a mask or bias, the same object for the same heads."""
        if part is None or indices is None:
            return part
        key = (id(part), indices)
        if key not in self._parts:
            self._parts[key] = (part, part.select_heads(indices))
        return cast("_Part", self._parts[key][1])


def _of_heads(tensor: torch.Tensor, indices: tuple[int, ...] | None) -> torch.Tensor:
    """The heads that are wanted, and no others, cross over to another device."""
    return tensor if indices is None else tensor.detach()[list(indices)]


def _apart(made: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """A copy, where nothing has made one yet."""
    same = made.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
    return made.clone(memory_format=torch.contiguous_format) if same else made


def _converted(
    tensor: torch.Tensor, convert: Callable[[torch.Tensor], torch.Tensor], head: int
) -> torch.Tensor:
    return convert(tensor.detach()[head])


def sampled_rows(num_queries: int) -> list[int]:
    """Queries on which weights are tried, at most `SAMPLED_QUERIES`: the last ones see most."""
    return sorted(
        {num_queries * part // SAMPLED_QUERIES - 1 for part in range(1, SAMPLED_QUERIES + 1)} - {-1}
    )


def _vector_error(attention: QueryKeyAttention, head: int, dtype: torch.dtype) -> float:
    """Largest difference of a head's weights; computed where the model computes."""
    exact = attention.select_heads([head])
    # Made float32 once, not again for each row.
    exact = replace(exact, keys=exact.keys.float())
    rounded = replace(exact, queries=exact.queries.to(dtype), keys=exact.keys.to(dtype).float())
    columns = slice(0, attention.num_keys)
    worst = 0.0
    for row in sampled_rows(attention.num_queries):
        one, other = (each.weights(0, slice(row, row + 1), columns) for each in (exact, rounded))
        worst = max(worst, float(np.abs(one - other).max()))
    return worst


def _weight_error(values: torch.Tensor, dtype: torch.dtype) -> float:
    rounded = _without_new_zeros(values.to(dtype), values).float()
    sums = (rounded.sum(dim=-1) - values.sum(dim=-1)).abs().max()
    return max(float((rounded - values).abs().max()), float(sums))


def _without_new_zeros(rounded: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Give what became too small for a dtype its smallest number: a 0 says that nothing was there.

    Sparse attention is recognised by its zeros.
    """
    vanished = (rounded == 0) & (exact != 0).to(rounded.device)
    if not bool(vanished.any()):
        return rounded
    limits = torch.finfo(rounded.dtype)
    return rounded.masked_fill(vanished, limits.smallest_normal * limits.eps)
