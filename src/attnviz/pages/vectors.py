"""Encoding of queries and keys in a page, and errors of the weights that the page computes.

``js/src/client/page/vectors.ts`` reads them.
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
from attnviz.utils.progress import Pace, Progress, Steps, scale_progress

__all__ = [
    "MAX_EXACT_BYTES",
    "MAX_VECTOR_BYTES",
    "encode_vectors_in_steps",
    "size_of_vectors",
]

Encoding = Literal["float32", "float16", "bfloat16"]

#: Maximum size in bytes of float32 vectors that are embedded without rounding.
MAX_EXACT_BYTES = 4_000_000
#: Maximum size in bytes of embedded vectors: more slow down a browser tab.
MAX_VECTOR_BYTES = 100_000_000

_MAX_WEIGHTS = 1 << 20
# Bytes per compression step. The limit is checked after each step.
_PIECE = 1 << 18
_MAX_HALF = float(torch.finfo(torch.float16).max)


def encode_vectors_in_steps(
    stacks: Iterable[AttentionStack],
    *,
    exact: bool = False,
    max_queries: int | None = None,
    max_bytes: int | None = None,
) -> Steps[dict[str, Any]]:
    """Encode queries, keys and all other inputs of the logits of every layer, in steps.

    Vectors in half precision are embedded without rounding, and so are others if together they take
    at most `MAX_EXACT_BYTES`. Larger vectors are rounded to float16, and the errors of logits and
    weights are measured.

    Parameters
    ----------
    stacks : iterable of AttentionStack
        Stacks to embed. Stacks with only weights are skipped.
    exact : bool, default False
        Whether vectors of any size are embedded without rounding.
    max_queries : int, optional
        Number of queries per head on which errors are measured, sampled from the text. By default
        all queries, which computes every weight.
    max_bytes : int, optional
        Maximum size of the encoded vectors.

    Returns
    -------
    dict
        JSON values. ``arrays`` has base64 texts of deflated arrays. Layers that share an array
        share its text. An entry of ``layers`` has indices of its arrays, and the largest absolute
        errors of a weight and of a logit in ``error`` and ``logit_error``. ``measured`` is the
        number of queries per head on which they were measured. It is omitted for all queries.
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
        entry = yield from _embed_layer(attention, unrounded, arrays)
        embedded.append({"stack": stack_name, "layer": layer} | entry)
    for index, (*_, attention) in enumerate(layers):
        yield Progress("rounding errors", index, len(layers), "layer")
        steps = _measure_errors(attention, _round(attention, unrounded)[1], max_queries)
        embedded[index] |= yield from scale_progress(steps, "rounding errors", index, len(layers))
    return {"layers": embedded, "arrays": arrays.texts}


def size_of_vectors(stacks: Iterable[AttentionStack], *, exact: bool = False) -> int:
    """Return the number of bytes that `encode_vectors_in_steps` compresses."""
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
    """Return the size of all vectors in float32, or 0 if they must not be rounded (`exact`)."""
    if exact:
        return 0
    return sum(4 * (attention.queries.numel() + attention.keys.numel()) for *_, attention in layers)


class _Arrays:
    """Encoded arrays without duplicates, up to a size of `max_bytes`.

    `size` is the number of bytes of all arrays, for the progress.
    """

    def __init__(self, max_bytes: int | None, size: int) -> None:
        self.texts: list[str] = []
        self._room = float("inf") if max_bytes is None else max_bytes * 3 // 4
        self._indices: dict[bytes, int] = {}
        self._size, self._done = size, 0

    def add(self, values: torch.Tensor) -> Steps[int]:
        """Return the index of an array in `texts`. Encode the array if it is new."""
        values = values.detach().cpu().contiguous()
        if values.dtype == torch.bfloat16:
            # numpy has no bfloat16, and only the bits matter.
            values = values.view(torch.int16)
        array = values.numpy()
        data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        # Use digests as keys, which need less memory than the bytes.
        digest = hashlib.sha256(data).digest()
        if digest not in self._indices:
            deflated = yield from self._deflated(data)
            self._indices[digest] = len(self.texts)
            self.texts.append(base64.b64encode(deflated).decode("ascii"))
        return self._indices[digest]

    def _deflated(self, data: bytes) -> Steps[bytes]:
        packer = zlib.compressobj(6)
        parts: list[bytes] = []
        for start in range(0, len(data), _PIECE):
            self._take(parts, packer.compress(data[start : start + _PIECE]))
            self._done += min(_PIECE, len(data) - start)
            yield Progress("queries and keys", min(self._done, self._size), self._size, "byte")
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


def _embed_layer(
    attention: QueryKeyAttention, exact_bytes: int, arrays: _Arrays
) -> Steps[dict[str, Any]]:
    encoding, embedded = _round(attention, exact_bytes)
    sinks = attention.sinks
    queries = yield from arrays.add(embedded.queries)
    keys = yield from arrays.add(embedded.keys)
    mask = yield from _embed_mask(attention, arrays)
    bias = yield from _embed_bias(attention, arrays)
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
    """Return the encoding of a layer, and the layer rounded to it."""
    encoding = _encoding(attention, exact_bytes)
    kind = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    return encoding, dataclasses.replace(
        attention,
        queries=attention.queries.to(kind[encoding]),
        keys=attention.keys.to(kind[encoding]),
    )


def _embed_mask(attention: QueryKeyAttention, arrays: _Arrays) -> Steps[dict[str, Any] | None]:
    if attention.mask is None:
        return None
    mask = attention.mask.without_windows(attention.num_queries, attention.num_keys)
    return (yield from _embed_part(mask, arrays))


def _embed_bias(attention: QueryKeyAttention, arrays: _Arrays) -> Steps[dict[str, Any] | None]:
    if attention.bias is None:
        return None
    sizes = attention.num_heads, attention.num_queries, attention.num_keys
    return (yield from _embed_part(attention.bias.without_windows(*sizes), arrays))


def _embed_part(part: Mask | Bias, arrays: _Arrays) -> Steps[dict[str, Any]]:
    if isinstance(part, InsertedMask | InsertedBias):
        queries = yield from arrays.add(_unit_indices(part.query_units, part.num_query_units))
        keys = yield from arrays.add(_unit_indices(part.key_units, part.num_key_units))
        base = None
        if part.base is not None:
            base = yield from _embed_part(part.base, arrays)
        return {
            "kind": "inserted",
            "num_queries": len(part.query_units),
            "num_keys": len(part.key_units),
            "query_places": queries,
            "key_places": keys,
            "base": base,
        }
    numbers, tensors = part.to_parts()
    # The entry of the layer has the numbers of queries and keys.
    part_data = {name: number for name, number in numbers.items() if not name.startswith("num_")}
    for name, tensor in tensors.items():
        part_data |= dict(zip(part.shared_axes, tensor.shape, strict=False))
        values = tensor.float() if tensor.is_floating_point() else tensor
        part_data[name] = yield from arrays.add(values)
    return part_data


def _unit_indices(units: torch.Tensor, count: int) -> torch.Tensor:
    """Return the index in `units` of each of `count` units, or -1 if it is not in `units`."""
    indices = torch.full((count,), -1, dtype=torch.int32)
    indices[units] = torch.arange(len(units), dtype=torch.int32)
    return indices


def _are_equal(attention: QueryKeyAttention, embedded: QueryKeyAttention) -> bool:
    return torch.equal(attention.queries.float(), embedded.queries.float()) and torch.equal(
        attention.keys.float(), embedded.keys.float()
    )


def _measure_errors(
    attention: QueryKeyAttention, embedded: QueryKeyAttention, max_queries: int | None
) -> Steps[dict[str, Any]]:
    """Measure the largest absolute errors of a weight and of a logit, in steps."""
    if _are_equal(attention, embedded):
        return {"error": 0.0, "logit_error": 0.0}
    count = attention.num_queries
    measured = count if max_queries is None else min(count, max_queries)
    weight_error = logit_error = 0.0
    # Each pair has a logit and a weight, for both attentions.
    pace = Pace("rounding errors", 4 * attention.num_heads * measured * attention.num_keys)
    for part in _parts(sample_queries(count, measured), attention.num_keys):
        for head in range(attention.num_heads):
            logits = [side.logits(head, torch.from_numpy(part)) for side in (attention, embedded)]
            # Both are minus infinity if a key is not allowed, and their difference is NaN.
            difference = torch.nan_to_num(logits[1] - logits[0], 0.0)
            logit_error = max(logit_error, float(difference.abs().max()))
            exact, rounded = (side.weights_of_rows(head, part)[0] for side in (attention, embedded))
            weight_error = max(weight_error, float(np.abs(rounded - exact).max()))
            if attention.sinks is not None:
                # The error of the sink's weight is the sum of the other errors.
                sink_error = rounded.sum(axis=1, dtype=np.float64) - exact.sum(
                    axis=1, dtype=np.float64
                )
                weight_error = max(weight_error, float(np.abs(sink_error).max()))
            yield from pace.advance(4 * len(part) * attention.num_keys)
    sampling = {} if measured == count else {"measured": measured}
    return {"error": weight_error, "logit_error": logit_error} | sampling


def _parts(queries: NDArray[np.int64], num_keys: int) -> list[NDArray[np.int64]]:
    """Split queries into parts whose weights are in memory together."""
    rows = max(1, _MAX_WEIGHTS // num_keys)
    return [queries[start : start + rows] for start in range(0, len(queries), rows)]
