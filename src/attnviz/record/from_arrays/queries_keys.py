"""Conversion and checks of the arguments of `AttentionRecord.from_qk`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from attnviz.record.attention import QueryKeyAttention
from attnviz.record.from_arrays.arrays import (
    as_tensor,
    check_layer_numbers,
    layers_of,
    without_batch_axis,
)
from attnviz.record.from_arrays.masks import create_band, read_bias, read_mask
from attnviz.record.from_arrays.tokens import (
    as_tokens,
    tokens_from_positions,
)
from attnviz.record.masks import Bias, Mask
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import whole_number


def create_stack(
    name: str,
    layers: dict[int, QueryKeyAttention],
    tokens: Sequence[str] | Tokens | None,
    key_tokens: Sequence[str] | Tokens | None,
    sentence_b_start: int | None,
) -> AttentionStack:
    """Return a stack of `layers`.

    `tokens`, `key_tokens` and `sentence_b_start` are those of `AttentionRecord.from_qk`. Raise
    TypeError or ValueError if one of these arguments is invalid or does not fit the layers.
    """
    first = next(iter(layers.values()))
    num_queries, num_keys = first.num_queries, first.num_keys
    # Number of the first query if the queries have no tokens and are named by position. If the keys
    # have no tokens either, both are numbered alike: with fewer causal queries than keys, the last
    # query has the number of the last key.
    start = first.offset if key_tokens is None else 0
    positions = tokens_from_positions(num_queries, start)
    queries = as_tokens(positions if tokens is None else tokens, sentence_b_start)
    if key_tokens is not None:
        return AttentionStack(name, layers, queries, as_tokens(key_tokens))
    if num_keys == num_queries:
        return AttentionStack(name, layers, queries)
    if tokens is not None:
        raise TypeError(
            f"key_tokens is missing: there are {num_queries} queries and {num_keys} keys"
        )
    return AttentionStack(name, layers, queries, tokens_from_positions(num_keys))


def create_layers(
    queries: Any,
    keys: Any,
    *,
    layers: Sequence[int] | None,
    scale: float | Sequence[float] | None,
    causal: bool,
    window: int | Sequence[int | None] | None,
    mask: Any,
    bias: Any,
    softcap: float | Sequence[float | None] | None,
    sinks: Any,
) -> dict[int, QueryKeyAttention]:
    """Create the layers of `AttentionRecord.from_qk`, by layer number."""
    all_queries, all_keys = _vectors(queries, "queries"), _vectors(keys, "keys")
    count = len(all_queries)
    if len(all_keys) != count:
        raise ValueError(
            f"queries has {count} layers but keys has {len(all_keys)}; pass both for each layer"
        )
    if not isinstance(causal, bool):
        raise TypeError(
            f"causal must be True or False; got {type(causal).__name__}. Pass a mask as mask=."
        )
    if hasattr(sinks, "shape") and len(sinks.shape) == 2:
        sinks = list(sinks)
    scales, softcaps = _per_layer(scale, "scale", count), _per_layer(softcap, "softcap", count)
    all_sinks = _per_layer(sinks, "sinks", count)
    masks = _masks(all_queries, all_keys, causal=causal, window=window, mask=mask, bias=bias)
    attentions = {}
    for position, number in enumerate(check_layer_numbers(layers, count, "queries")):
        q, k = all_queries[position], all_keys[position]
        if q.device != k.device:
            raise ValueError(
                f"queries[{position}] is on {q.device}, but keys[{position}] on {k.device}. Move "
                f"both to one device, for example with .to({str(q.device)!r})."
            )
        layer_scale = _number(scales[position], "scale")
        layer_sinks = all_sinks[position]
        if layer_sinks is not None:
            layer_sinks = _finite(as_tensor(layer_sinks, "sinks"), "sinks")
        attentions[number] = QueryKeyAttention(
            q,
            k,
            1 / math.sqrt(q.shape[2]) if layer_scale is None else layer_scale,
            mask=masks[position][0],
            bias=masks[position][1],
            softcap=_number(softcaps[position], "softcap", above=0),
            sinks=layer_sinks,
        )
    return attentions


def _vectors(value: Any, argument: str) -> list[torch.Tensor]:
    """Return the queries or keys of each layer as tensors with three axes.

    Raise TypeError or ValueError if the dtype, the axes or a value is invalid.
    """
    heads = "key heads" if argument == "keys" else "heads"
    axes = (heads, argument, "head_dim")
    vectors = []
    for position, layer in enumerate(layers_of(value, argument, axes)):
        name = f"{argument}[{position}]"
        tensor = as_tensor(layer, name)
        if not hasattr(layer, "dtype"):
            # `layer` is a nested list. `as_tensor` returns float64 for Python floats.
            tensor = tensor.float()
        vectors.append(_finite(without_batch_axis(tensor, name, axes), name))
    return vectors


def _finite(tensor: torch.Tensor, name: str) -> torch.Tensor:
    finite = torch.isfinite(tensor)
    if not bool(finite.all()):
        index = tuple(torch.nonzero(~finite)[0].tolist())
        raise ValueError(f"{name} is {float(tensor[index])} at the position {index}")
    return tensor


def _masks(
    queries: list[torch.Tensor],
    keys: list[torch.Tensor],
    *,
    causal: bool,
    window: Any,
    mask: Any,
    bias: Any,
) -> list[tuple[Mask | None, Bias | None]]:
    """Return the mask and the bias of each layer, from these arguments of `from_qk`.

    Layers with the same shape, window, mask and bias share one `Mask` and one `Bias` object, which
    a file then contains only once.
    """
    count = len(queries)
    windows = _per_layer(window, "window", count)
    masks, biases = _per_layer(mask, "mask", count), _per_layer(bias, "bias", count)
    cache: dict[tuple[object, ...], tuple[Mask | None, Bias | None]] = {}
    parts = []
    for position, (q, k) in enumerate(zip(queries, keys, strict=True)):
        shape = (q.shape[0], q.shape[1], k.shape[1])
        key = (id(masks[position]), id(biases[position]), windows[position], shape)
        if key not in cache:
            hint = "a key is allowed if its distance from the query is less than window"
            size = windows[position]
            size = None if size is None else whole_number("window", size, 1, hint=hint)
            band = create_band(shape[1], shape[2], causal=causal, window=size)
            names = [
                f"{name}[{position}]" if isinstance(value, (list, tuple)) else name
                for name, value in (("mask", mask), ("bias", bias))
            ]
            allowed, added = read_mask(masks[position], names[0], shape, band)
            cache[key] = allowed, read_bias(biases[position], names[1], shape, added)
        parts.append(cache[key])
    return parts


def _per_layer(value: Any, argument: str, count: int) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        return [value] * count
    if len(value) != count:
        raise ValueError(
            f"{argument} is a list of {len(value)} for {count} layers. Pass one item per layer, or "
            "one value for all layers without a list."
        )
    return list(value)


def _number(value: Any, argument: str, above: float = -math.inf) -> float | None:
    if value is None:
        return None
    number = float(value)
    if not above < number < math.inf:
        limit = "" if above == -math.inf else f" above {above}"
        raise ValueError(f"{argument}={value!r} must be a finite number{limit}")
    return number
