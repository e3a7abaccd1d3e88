"""Encoding of queries and keys in a page, and measurement of the error that rounding them causes.

The page computes weights from the queries and keys. ``js/src/client/page/vectors.ts`` reads them.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import zlib
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import Bias, InsertedBias, InsertedMask, Mask
from attnviz.record.rows import sample_queries
from attnviz.record.stack import AttentionStack
from attnviz.utils.progress import Pace, part_of, report

__all__ = [
    "MAX_EXACT_BYTES",
    "MAX_VECTOR_BYTES",
    "encode_vectors",
    "size_of_vectors",
]

Encoding = Literal["float32", "float16", "bfloat16"]

#: If all vectors of a record have at most this many bytes in float32, they are not rounded.
MAX_EXACT_BYTES = 4_000_000
#: Maximum size in bytes of the vectors in a page. Larger vectors slow down the browser.
MAX_VECTOR_BYTES = 100_000_000

_MAX_WEIGHTS = 1 << 20
# Number of bytes that are compressed before the size limit is checked again.
_PIECE = 1 << 18
_MAX_HALF = float(torch.finfo(torch.float16).max)


def encode_vectors(
    stacks: Iterable[AttentionStack],
    *,
    exact: bool = False,
    max_queries: int | None = None,
    max_bytes: int | None = None,
) -> dict[str, Any]:
    """Encode the queries, keys, masks and biases of every layer.

    Vectors in half precision are not rounded. Other vectors are rounded to float16 if all vectors
    together take more than `MAX_EXACT_BYTES` in float32, unless a number exceeds the range of
    float16. The errors of logits and weights are measured. Raise ValueError if the vectors have
    more than `MAX_VECTOR_BYTES`.

    Parameters
    ----------
    stacks : iterable of AttentionStack
        Stacks to encode. Stacks without queries and keys are skipped.
    exact : bool, default False
        Whether vectors of any size are encoded without rounding.
    max_queries : int, optional
        Maximum number of queries per head with which errors are measured. If a text has more, they
        are sampled. By default errors are measured with all queries, which computes every weight.
    max_bytes : int, optional
        Maximum size of the encoded vectors in bytes. If they are larger, OverflowError is raised.

    Returns
    -------
    dict
        JSON values. ``arrays`` is a list of arrays, each deflated and in base64. ``layers`` has an
        entry for each layer, which refers to its arrays by index. Layers with equal arrays refer to
        the same array. In an entry, ``error`` is the largest absolute error of a weight, and
        ``logit_error`` of a logit. ``measured`` is the number of queries per head with which the
        errors were measured. It is omitted if errors were measured with all queries.
    """
    layers = _layers(stacks)
    unrounded = _unrounded_bytes(layers, exact=exact)
    size = sum(_size(attention, unrounded) for *_, attention in layers)
    if size > MAX_VECTOR_BYTES:
        raise ValueError(
            f"a page with the queries and keys of all layers ({size:,} bytes) would be too large "
            f"to open (at most {MAX_VECTOR_BYTES:,}). Choose layers with include_layers=[...], or "
            "use a shorter text."
        )
    arrays = _Arrays(max_bytes, size)
    embedded = []
    for stack_name, layer, attention in layers:
        entry = _embed_layer(attention, unrounded, arrays)
        embedded.append({"stack": stack_name, "layer": layer} | entry)
    for index, (*_, attention) in enumerate(layers):
        report("rounding errors", index, len(layers), "layer")
        with part_of("rounding errors", index, len(layers)):
            embedded[index] |= _measure_errors(
                attention, _round(attention, unrounded)[1], max_queries
            )
    return {"layers": embedded, "arrays": arrays.texts}


def size_of_vectors(stacks: Iterable[AttentionStack], *, exact: bool = False) -> int:
    """Return the size of the data of `encode_vectors` before compression, in bytes."""
    layers = _layers(stacks)
    unrounded = _unrounded_bytes(layers, exact=exact)
    return sum(_size(attention, unrounded) for *_, attention in layers)


_Layer = tuple[str, int, QueryKeyAttention]


def _layers(stacks: Iterable[AttentionStack]) -> list[_Layer]:
    return [
        (stack.name, number, vectors)
        for stack in stacks
        if stack.has_vectors
        for number in stack.layers
        if (vectors := stack.attention(number).vectors) is not None
    ]


def _unrounded_bytes(layers: Iterable[_Layer], *, exact: bool) -> int:
    """Return the size of all vectors in float32, in bytes.

    Vectors are rounded if this size exceeds `MAX_EXACT_BYTES`. If `exact` is True, return 0, so
    that they are not rounded.
    """
    if exact:
        return 0
    return sum(4 * (attention.queries.numel() + attention.keys.numel()) for *_, attention in layers)


class _Arrays:
    """List of encoded arrays without duplicates.

    If their total size exceeds `max_bytes`, OverflowError is raised. `size` is the expected number
    of bytes before compression, for the progress bar.
    """

    def __init__(self, max_bytes: int | None, size: int) -> None:
        self.texts: list[str] = []
        self._room = float("inf") if max_bytes is None else max_bytes * 3 // 4
        self._indices: dict[bytes, int] = {}
        self._size, self._done = size, 0

    def add(self, values: torch.Tensor) -> int:
        """Encode an array unless an equal array is already encoded. Return its index in `texts`."""
        values = values.detach().cpu().contiguous()
        if values.dtype == torch.bfloat16:
            # Use int16 with the same bits, because numpy has no bfloat16.
            values = values.view(torch.int16)
        array = values.numpy()
        data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        # Recognize equal arrays by their digests, which need less memory than the arrays.
        digest = hashlib.sha256(data).digest()
        if digest not in self._indices:
            deflated = self._deflated(data)
            self._indices[digest] = len(self.texts)
            self.texts.append(base64.b64encode(deflated).decode("ascii"))
        return self._indices[digest]

    def _deflated(self, data: bytes) -> bytes:
        packer = zlib.compressobj(6)
        parts: list[bytes] = []
        for start in range(0, len(data), _PIECE):
            self._take(parts, packer.compress(data[start : start + _PIECE]))
            self._done += min(_PIECE, len(data) - start)
            report("queries and keys", min(self._done, self._size), self._size, "byte")
        self._take(parts, packer.flush())
        return b"".join(parts)

    def _take(self, parts: list[bytes], part: bytes) -> None:
        parts.append(part)
        self._room -= len(part)
        if self._room < 0:
            raise OverflowError("queries and keys exceed max_bytes")


def _encoding(attention: QueryKeyAttention, exact_bytes: int) -> Encoding:
    kinds = {attention.queries.dtype, attention.keys.dtype}
    if kinds == {torch.bfloat16}:
        return "bfloat16"
    if kinds == {torch.float16}:
        return "float16"
    if exact_bytes <= MAX_EXACT_BYTES:
        return "float32"
    largest = max(float(side.abs().max()) for side in (attention.queries, attention.keys))
    return "float16" if largest <= _MAX_HALF else "float32"


def _size(attention: QueryKeyAttention, exact_bytes: int) -> int:
    item_size = 4 if _encoding(attention, exact_bytes) == "float32" else 2
    size = item_size * (attention.queries.numel() + attention.keys.numel())
    pairs = attention.num_queries, attention.num_keys
    if attention.mask is not None:
        size += attention.mask.bytes_without_windows(*pairs)
    if attention.bias is not None:
        size += attention.bias.bytes_without_windows(attention.num_heads, *pairs)
    return size


def _embed_layer(attention: QueryKeyAttention, exact_bytes: int, arrays: _Arrays) -> dict[str, Any]:
    encoding, embedded = _round(attention, exact_bytes)
    sinks = attention.sinks
    queries = arrays.add(embedded.queries)
    keys = arrays.add(embedded.keys)
    mask = _embed_mask(attention, arrays)
    bias = _embed_bias(attention, arrays)
    return {
        "num_heads": attention.num_heads,
        "num_key_heads": attention.keys.shape[0],
        "num_queries": attention.num_queries,
        "num_keys": attention.num_keys,
        "head_dim": attention.queries.shape[2],
        "encoding": encoding,
        "queries": queries,
        "keys": keys,
        "scale": float(attention.scale),
        "softcap": None if attention.softcap is None else float(attention.softcap),
        "sinks": None if sinks is None else sinks.float().cpu().tolist(),
        "mask": mask,
        "bias": bias,
    }


def _round(attention: QueryKeyAttention, exact_bytes: int) -> tuple[Encoding, QueryKeyAttention]:
    """Return the number format of a layer's vectors, and the layer with vectors in this format."""
    encoding = _encoding(attention, exact_bytes)
    kind = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    return encoding, dataclasses.replace(
        attention,
        queries=attention.queries.to(kind[encoding]),
        keys=attention.keys.to(kind[encoding]),
    )


def _embed_mask(attention: QueryKeyAttention, arrays: _Arrays) -> dict[str, Any] | None:
    if attention.mask is None:
        return None
    mask = attention.mask.without_windows(attention.num_queries, attention.num_keys)
    return _embed_part(mask, arrays)


def _embed_bias(attention: QueryKeyAttention, arrays: _Arrays) -> dict[str, Any] | None:
    if attention.bias is None:
        return None
    sizes = attention.num_heads, attention.num_queries, attention.num_keys
    return _embed_part(attention.bias.without_windows(*sizes), arrays)


def _embed_part(part: Mask | Bias, arrays: _Arrays) -> dict[str, Any]:
    if isinstance(part, InsertedMask | InsertedBias):
        queries = arrays.add(_unit_indices(part.query_units, part.num_query_units))
        keys = arrays.add(_unit_indices(part.key_units, part.num_key_units))
        base = None
        if part.base is not None:
            base = _embed_part(part.base, arrays)
        return {
            "kind": "inserted",
            "num_queries": len(part.query_units),
            "num_keys": len(part.key_units),
            "query_places": queries,
            "key_places": keys,
            "base": base,
        }
    numbers, tensors = part.to_parts()
    # Omit the numbers of queries and keys, because the entry of the layer already has them.
    part_data = {name: number for name, number in numbers.items() if not name.startswith("num_")}
    for name, tensor in tensors.items():
        part_data |= dict(zip(part.shared_axes, tensor.shape, strict=False))
        values = tensor.float() if tensor.is_floating_point() else tensor
        part_data[name] = arrays.add(values)
    return part_data


def _unit_indices(units: torch.Tensor, count: int) -> torch.Tensor:
    """Return the index in `units` of each number below `count`, or -1 for missing numbers."""
    indices = torch.full((count,), -1, dtype=torch.int32)
    indices[units] = torch.arange(len(units), dtype=torch.int32)
    return indices


def _are_equal(attention: QueryKeyAttention, embedded: QueryKeyAttention) -> bool:
    return torch.equal(attention.queries.float(), embedded.queries.float()) and torch.equal(
        attention.keys.float(), embedded.keys.float()
    )


def _measure_errors(
    attention: QueryKeyAttention, embedded: QueryKeyAttention, max_queries: int | None
) -> dict[str, Any]:
    """Measure the largest absolute error of a weight, and of a logit.

    The errors are differences between results of the exact vectors, in `attention`, and results of
    the vectors in the page, in `embedded`.
    """
    if _are_equal(attention, embedded):
        return {"error": 0.0, "logit_error": 0.0}
    count = attention.num_queries
    measured = count if max_queries is None else min(count, max_queries)
    weight_error = logit_error = 0.0
    # Each query-key pair has four numbers: a logit and a weight, from exact and from rounded
    # vectors.
    pace = Pace("rounding errors", 4 * attention.num_heads * measured * attention.num_keys)
    for part in _parts(sample_queries(count, measured), attention.num_keys):
        for head in range(attention.num_heads):
            rows = torch.from_numpy(part)
            logits = [side.logits([head], rows) for side in (attention, embedded)]
            # For a pair that the mask forbids, both logits are minus infinity, so the difference is
            # NaN.
            difference = torch.nan_to_num(logits[1] - logits[0], 0.0)
            logit_error = max(logit_error, float(difference.abs().max()))
            exact, rounded = (
                side.block([head], rows)[0].cpu().numpy() for side in (attention, embedded)
            )
            weight_error = max(weight_error, float(np.abs(rounded - exact).max()))
            if attention.sinks is not None:
                # The weights of a row and the weight of its sink add up to 1. Therefore the error
                # of the sink's weight follows from the sum of the weights.
                sink_error = rounded.sum(axis=1, dtype=np.float64) - exact.sum(
                    axis=1, dtype=np.float64
                )
                weight_error = max(weight_error, float(np.abs(sink_error).max()))
            pace.advance(4 * len(part) * attention.num_keys)
    sampling = {} if measured == count else {"measured": measured}
    return {"error": weight_error, "logit_error": logit_error} | sampling


def _parts(queries: NDArray[np.int64], num_keys: int) -> list[NDArray[np.int64]]:
    """Split queries into blocks with at most about `_MAX_WEIGHTS` weights per head."""
    rows = max(1, _MAX_WEIGHTS // num_keys)
    return [queries[start : start + rows] for start in range(0, len(queries), rows)]
