"""Queries and keys in an exported page, and the error that rounding them causes.

Queries and keys together are called vectors. The page contains them in the form of a saved record
(`attnviz.record.storage.schema`): a header, which is JSON, and named arrays.
``js/src/client/page/vectors.ts`` computes logits and weights from them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from attnviz.pages import limits
from attnviz.pages.packing import packed
from attnviz.record.attention import LayerAttention, QueryKeyAttention
from attnviz.record.masks import (
    BandMask,
    Bias,
    ChosenMask,
    DenseBias,
    Mask,
    PackedMask,
    WindowBias,
)
from attnviz.record.record import AttentionRecord
from attnviz.record.rows import SAMPLED_QUERIES, sample_queries
from attnviz.record.softmax import count_rows, row_groups
from attnviz.record.stack import AttentionStack
from attnviz.record.storage.safetensors_file import DTYPE_NAMES, compact_json
from attnviz.record.storage.schema import record_to_arrays
from attnviz.utils.progress import Pace, part_of

#: If all vectors of a record together need at most this many bytes in float32, none of them is
#: rounded to float16.
MAX_EXACT_BYTES = 4_000_000
#: Maximum size in bytes of the vectors, masks and biases in a page, before compression. More data
#: would slow down the browser.
MAX_VECTOR_BYTES = 100_000_000

# Maximum number of weights of a head that `_measure_errors` computes at once, unless a single query
# has more.
_MAX_WEIGHTS = 1 << 20
# Largest number that float16 can represent.
_MAX_HALF = float(torch.finfo(torch.float16).max)

# A stack, the number of one of its layers, and the attention of this layer.
_Layer = tuple[AttentionStack, int, QueryKeyAttention]


def encode_vectors(record: AttentionRecord, *, exact: bool = False) -> dict[str, Any]:
    """Encode the queries, keys, masks and biases of every layer.

    The vectors of a layer keep their dtype if it is float16 or bfloat16. All other vectors are
    stored in float32 if all vectors of the record together need at most `MAX_EXACT_BYTES` in
    float32. If not, they are rounded to float16, except in layers with a number that exceeds the
    range of float16. The errors of weights and logits that rounding causes are measured. Raise
    ValueError if the arrays have more than `MAX_VECTOR_BYTES`.

    Parameters
    ----------
    record : AttentionRecord
        Record to encode. Stacks and layers without vectors are skipped.
    exact : bool, default False
        Whether vectors are never rounded from float32 to float16.

    Returns
    -------
    dict
        Entries of the page's JSON data. ``saved`` is the saved record: ``header`` is its header,
        deflated and in base64, and ``arrays`` has the ``dtype``, ``shape`` and ``data`` of each
        array. ``errors`` has an entry for each layer. In an entry, ``error`` is the largest
        absolute error of a weight, and ``logit_error`` that of a logit. ``measured`` is the number
        of sampled queries with which the errors were measured. It is omitted if they were measured
        with all queries (see `limits.MAX_MEASURED`), or if the vectors were not rounded.
    """
    layers = _layers(record)
    unrounded = _unrounded_bytes(layers, exact=exact)
    size = sum(_size(attention, unrounded) for *_, attention in layers)
    if size > MAX_VECTOR_BYTES:
        raise ValueError(
            f"a page with the queries and keys of all layers ({size:,} bytes) would be too large "
            f"to open (at most {MAX_VECTOR_BYTES:,}). Choose layers with include_layers=[...], or "
            "use a shorter text."
        )
    rounded = [_round(attention, unrounded) for *_, attention in layers]
    header, arrays = record_to_arrays(_record_for_page(record, layers, rounded))
    saved = _encode_saved(header, arrays)
    sampled = limits.count_weights(record) > limits.MAX_MEASURED
    errors = []
    for index, ((stack, layer, attention), other) in enumerate(zip(layers, rounded, strict=True)):
        with part_of("rounding errors", index, len(layers)):
            measured = _measure_errors(attention, other, SAMPLED_QUERIES if sampled else None)
        errors.append({"stack": stack.name, "layer": layer} | measured)
    return {"saved": saved, "errors": errors}


def encode_chosen(record: AttentionRecord) -> dict[str, Any]:
    """Encode which keys are masked, not chosen, or scored, in the layers that choose keys.

    Returns
    -------
    dict
        The entry ``chosen`` of the page's JSON data. Empty if no stack chooses keys. The entry has
        the form of a saved record whose queries and keys have no dimensions, so that only the masks
        of the layers remain. In addition, ``arrays`` has the lost weight of each head and query of
        a layer, float16, (heads, queries), as ``"self/3/lost"`` for layer 3 of the stack "self".
    """
    layers = [entry for entry in _layers(record) if entry[0].chooses_keys]
    if not layers:
        return {}
    masks = [
        dataclasses.replace(vectors, queries=vectors.queries[..., :0], keys=vectors.keys[..., :0])
        for *_, vectors in layers
    ]
    masks = [dataclasses.replace(mask, bias=None, sinks=None) for mask in masks]
    header, arrays = record_to_arrays(_record_for_page(record, layers, masks))
    arrays = {name: array for name, array in arrays.items() if not name.endswith("/gates")}
    for stack, layer, vectors in layers:
        everything = range(vectors.num_heads), slice(0, vectors.num_queries)
        arrays[f"{stack.name}/{layer}/lost"] = vectors.lost_weight(*everything).half()
    return {"chosen": _encode_saved(header, arrays)}


def size_of_vectors(record: AttentionRecord, *, exact: bool = False) -> int:
    """Return the size in bytes of the arrays of `encode_vectors` before compression.

    The arrays have the vectors, masks and biases.
    """
    layers = _layers(record)
    unrounded = _unrounded_bytes(layers, exact=exact)
    return sum(_size(attention, unrounded) for *_, attention in layers)


def _layers(record: AttentionRecord) -> list[_Layer]:
    return [
        (stack, number, vectors)
        for stack in record.stacks.values()
        for number in stack.layers
        if (vectors := stack.attention(number).vectors) is not None
    ]


def _unrounded_bytes(layers: list[_Layer], *, exact: bool) -> int:
    """Return the size in bytes of all vectors in float32, or 0 if `exact` is True.

    Vectors are rounded to float16 if this number exceeds `MAX_EXACT_BYTES`.
    """
    if exact:
        return 0
    return sum(4 * (attention.queries.numel() + attention.keys.numel()) for *_, attention in layers)


def _dtype(attention: QueryKeyAttention, unrounded: int) -> torch.dtype:
    """Return the dtype of a layer's vectors in a page (see `encode_vectors`).

    `unrounded` is the result of `_unrounded_bytes`.
    """
    dtypes = {attention.queries.dtype, attention.keys.dtype}
    if dtypes in ({torch.bfloat16}, {torch.float16}):
        return attention.queries.dtype
    if unrounded <= MAX_EXACT_BYTES:
        return torch.float32
    largest = max(float(side.abs().max()) for side in (attention.queries, attention.keys))
    return torch.float16 if largest <= _MAX_HALF else torch.float32


def _size(attention: QueryKeyAttention, unrounded: int) -> int:
    item_size = _dtype(attention, unrounded).itemsize
    size = item_size * (attention.queries.numel() + attention.keys.numel())
    num_pairs = attention.num_queries * attention.num_keys
    if attention.mask is not None and not isinstance(attention.mask, BandMask):
        size += attention.mask.num_heads * num_pairs // 8
    if isinstance(attention.bias, WindowBias):
        size += 4 * attention.num_heads * num_pairs
    elif attention.bias is not None:
        size += sum(4 * tensor.numel() for tensor in attention.bias.to_parts()[1].values())
    return size


def _round(attention: QueryKeyAttention, unrounded: int) -> QueryKeyAttention:
    dtype = _dtype(attention, unrounded)
    queries, keys = attention.queries.to(dtype), attention.keys.to(dtype)
    return dataclasses.replace(attention, queries=queries, keys=keys)


def _record_for_page(
    record: AttentionRecord, layers: list[_Layer], rounded: list[QueryKeyAttention]
) -> AttentionRecord:
    """Return a record of the rounded layers, with masks and biases that a page can store.

    A mask other than a `BandMask` becomes one bit for each query-key pair of each head, and so does
    each part of a `ChosenMask`. A `WindowBias` becomes one number for each query-key pair of each
    head. Layers that share a mask or bias also share it in the result.
    """
    masks: dict[int, Mask] = {}
    biases: dict[int, Bias] = {}
    of_stacks: dict[str, dict[int, LayerAttention]] = {}
    for (stack, number, _), attention in zip(layers, rounded, strict=True):
        pairs = attention.num_queries, attention.num_keys
        mask, bias = attention.mask, attention.bias
        if mask is not None and id(mask) not in masks:
            masks[id(mask)] = _mask_for_page(mask, pairs)
        if bias is not None and id(bias) not in biases:
            biases[id(bias)] = bias
            if isinstance(bias, WindowBias):
                all_pairs = slice(0, pairs[0]), slice(0, pairs[1])
                values = [bias.added(head, *all_pairs) for head in range(attention.num_heads)]
                biases[id(bias)] = DenseBias(torch.stack(values))
        of_stacks.setdefault(stack.name, {})[number] = dataclasses.replace(
            attention, mask=masks.get(id(mask)), bias=biases.get(id(bias))
        )
    stacks = {
        name: _with_layers(record.stack(name), of_stack) for name, of_stack in of_stacks.items()
    }
    return AttentionRecord(stacks, model=record.model, notes=record.notes, classes=record.classes)


def _mask_for_page(mask: Mask, pairs: tuple[int, int]) -> Mask:
    if isinstance(mask, ChosenMask):
        base = None if mask.base is None else _mask_for_page(mask.base, pairs)
        return ChosenMask(_mask_for_page(mask.chosen, pairs), base)
    if isinstance(mask, BandMask | PackedMask):
        return mask
    return PackedMask.pack(mask.all_allowed(*pairs))


def _with_layers(stack: AttentionStack, layers: Mapping[int, LayerAttention]) -> AttentionStack:
    """Return a copy of a stack with other layers, and with tokens without `Tokens.grids`.

    A grid describes which tokens are patches of an image in the record. The record that is saved in
    a page has no images.
    """
    queries, keys = (
        dataclasses.replace(tokens, grids=()) for tokens in (stack.query_tokens, stack.key_tokens)
    )
    one_text = stack.key_tokens is stack.query_tokens
    return stack.derive(layers, queries, None if one_text else keys, keep_gates=True)


def _encode_saved(header: Any, arrays: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Compress the header and arrays of a saved record, and encode them in base64."""
    encoded = {}
    for done, (name, array) in enumerate(arrays.items()):
        values = array.detach().cpu().contiguous()
        data = values.reshape(-1).view(torch.uint8).numpy().tobytes()
        with part_of("queries and keys", done, len(arrays), "array"):
            text = packed(data)
        encoded[name] = {
            "dtype": DTYPE_NAMES[values.dtype],
            "shape": list(values.shape),
            "data": text,
        }
    return {"header": packed(compact_json(header).encode()), "arrays": encoded}


def _measure_errors(
    attention: QueryKeyAttention, embedded: QueryKeyAttention, max_queries: int | None
) -> dict[str, Any]:
    """Return the largest absolute errors of a weight and of a logit in a page.

    The errors are the differences between `attention`, which has the original vectors, and
    `embedded`, which has the vectors in the page. `max_queries` is the maximum number of queries
    for which they are measured, or None for all queries.
    """
    exact_dtypes = attention.queries.dtype, attention.keys.dtype
    if exact_dtypes == (embedded.queries.dtype, embedded.keys.dtype):
        return {"error": 0.0, "logit_error": 0.0}
    count = attention.num_queries
    measured = count if max_queries is None else min(count, max_queries)
    weight_error = logit_error = 0.0
    # The progress counts four numbers for each query-key pair: a logit and a weight, from exact and
    # from rounded vectors.
    pace = Pace("rounding errors", 4 * attention.num_heads * measured * attention.num_keys)
    queries = torch.from_numpy(sample_queries(count, measured))
    for _, rows in row_groups(queries, max(1, _MAX_WEIGHTS // attention.num_keys)):
        for head in range(attention.num_heads):
            logits = [side.logits([head], rows) for side in (attention, embedded)]
            # If the mask forbids a pair, both of its logits are minus infinity, and their
            # difference is NaN. Replace it with 0.
            difference = torch.nan_to_num(logits[1] - logits[0], 0.0)
            logit_error = max(logit_error, float(difference.abs().max()))
            exact, rounded = (
                side.block([head], rows)[0].cpu().numpy() for side in (attention, embedded)
            )
            weight_error = max(weight_error, float(np.abs(rounded - exact).max()))
            if attention.sinks is not None:
                # The weights of a row and the weight of its sink add up to 1. Therefore the error
                # of the sink's weight follows from the sum of the weights.
                sink_error = (rounded - exact).sum(axis=1, dtype=np.float64)
                weight_error = max(weight_error, float(np.abs(sink_error).max()))
            pace.advance(4 * count_rows(rows) * attention.num_keys)
    sampling = {} if measured == count else {"measured": measured}
    return {"error": weight_error, "logit_error": logit_error} | sampling
