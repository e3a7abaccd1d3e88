"""Conversion and checks of the arguments of `AttentionRecord.from_qk`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from attnviz.record.attention import QueryKeyAttention
from attnviz.record.from_arrays.arrays import (
    as_tensor,
    check_layer_numbers,
    describe_axes,
    remove_batch_axis,
    split_layers,
)
from attnviz.record.from_arrays.masks import create_band, read_bias, read_mask
from attnviz.record.from_arrays.tokens import (
    ProjectedKeys,
    as_key_tokens,
    as_tokens,
    tokens_from_positions,
)
from attnviz.record.masks import Bias, Mask
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import short_repr

_AXES = {"queries": ("heads", "queries", "head_dim"), "keys": ("key heads", "keys", "head_dim")}
_DTYPES = ("float32", "float16", "bfloat16")


def create_stack(
    name: str,
    layers: dict[int, QueryKeyAttention],
    tokens: Sequence[str] | Tokens | None,
    key_tokens: Sequence[str] | Tokens | ProjectedKeys | None,
    sentence_b_start: int | None,
) -> tuple[AttentionStack, list[str]]:
    """Return a stack of the layers with these tokens, and notes that views show.

    All layers have the same number of queries and the same number of keys. `tokens`, `key_tokens`
    and `sentence_b_start` are those of `AttentionRecord.from_qk`. Raise TypeError or ValueError if
    one of these arguments is invalid.
    """
    first = next(iter(layers.values()))
    num_queries, num_keys = first.num_queries, first.num_keys
    unlabelled = tokens is None and key_tokens is None
    # If tokens are unknown, each query is named by its position among the keys. In causal attention
    # and with windows, the last query is at the position of the last key.
    start = first.offset if unlabelled else 0
    labels = tokens_from_positions(num_queries, start) if tokens is None else tokens
    queries = as_tokens(labels, "tokens", sentence_b_start)
    if len(queries) != num_queries:
        hint = ""
        if first.num_heads == len(queries):
            hint = "; the axes seem to be (queries, heads, head_dim): pass layer.swapaxes(-3, -2)"
        shape = describe_axes(first.queries.shape, _AXES["queries"])
        raise ValueError(f"tokens has {len(queries)} tokens, but queries[0] has {shape}{hint}")
    if num_keys == num_queries and key_tokens is None:
        return AttentionStack(name, layers, queries), []
    if key_tokens is None:
        if tokens is not None:
            raise TypeError(
                f"key_tokens is missing: there are {num_queries} queries and {num_keys} keys"
            )
        return AttentionStack(name, layers, queries, tokens_from_positions(num_keys)), []
    keys, notes = as_key_tokens(key_tokens, "key_tokens", queries, num_keys)
    if len(keys) != num_keys:
        shape = describe_axes(first.keys.shape, _AXES["keys"])
        raise ValueError(f"key_tokens has {len(keys)} tokens, but keys[0] has {shape}")
    return AttentionStack(name, layers, queries, keys), notes


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
    scales = [_number(value, "scale") for value in _per_layer(_as_list(scale), "scale", count)]
    softcaps = [
        _number(value, "softcap") for value in _per_layer(_as_list(softcap), "softcap", count)
    ]
    if any(value is not None and value <= 0 for value in softcaps):
        raise ValueError(f"softcap={softcap!r} must be above 0")
    all_sinks = _per_layer(_split_layers(sinks), "sinks", count)
    masks = _masks(all_queries, all_keys, causal=causal, window=window, mask=mask, bias=bias)
    attentions = {}
    for position, number in enumerate(check_layer_numbers(layers, count, "queries")):
        q, k, layer_scale = all_queries[position], all_keys[position], scales[position]
        attentions[number] = QueryKeyAttention(
            q,
            k,
            1 / math.sqrt(q.shape[2]) if layer_scale is None else layer_scale,
            mask=masks[position][0],
            bias=masks[position][1],
            softcap=softcaps[position],
            sinks=_sinks(all_sinks[position], _name("sinks", sinks, position), q.shape[0]),
        )
    return attentions


def _vectors(value: Any, argument: str) -> list[torch.Tensor]:
    """Return the queries or keys of each layer as tensors with three axes.

    Raise TypeError or ValueError if the dtype, the axes or a value is invalid.
    """
    axes = _AXES[argument]
    explain = partial(_explain, argument)
    _check_dtype(value, argument, argument)
    vectors = []
    for position, layer in enumerate(split_layers(value, argument, axes, explain)):
        name = f"{argument}[{position}]"
        _check_dtype(layer, name, argument)
        tensor = as_tensor(layer, name)
        if not hasattr(layer, "dtype"):
            # Convert to float32, because `as_tensor` converts a list of Python floats to float64.
            tensor = tensor.float()
        vectors.append(_finite(remove_batch_axis(tensor, name, axes, explain), name, axes))
    return vectors


def _check_dtype(value: Any, name: str, argument: str) -> None:
    dtype = getattr(value, "dtype", None)
    dtype_name = str(getattr(dtype, "name", dtype)).removeprefix("torch.")
    if dtype is not None and dtype_name not in _DTYPES:
        raise TypeError(
            f"{name} is {dtype_name}. Pass {', '.join(_DTYPES)}, "
            f'for example {argument}.float() for a tensor or {argument}.astype("float32") for an '
            "array."
        )


def _explain(argument: str, shape: tuple[int, ...]) -> str:
    axes = _AXES[argument]

    if len(shape) == 2:
        return (
            f". Two axes are either one head, {describe_axes(shape, axes[1:])}: pass "
            "layer[None]; or all heads side by side: pass layer.reshape(tokens, heads, "
            "head_dim).swapaxes(0, 1)"
        )
    if len(shape) == 3:
        return f". Three axes are one layer, {describe_axes(shape, axes)}: pass {argument}[None]"
    return ""


def _finite(tensor: torch.Tensor, name: str, axes: Sequence[str]) -> torch.Tensor:
    finite = torch.isfinite(tensor)
    if bool(finite.all()):
        return tensor
    index = torch.nonzero(~finite)[0].tolist()
    what = "NaN" if bool(torch.isnan(tensor[tuple(index)])) else "infinite"
    singular = [axis.replace("ies", "y").removesuffix("s") for axis in axes]
    raise ValueError(f"{name} is {what} at {describe_axes(index, singular)}")


def _check_pair(position: int, q: torch.Tensor, k: torch.Tensor) -> None:
    """Raise ValueError if the queries and keys of a layer do not fit together.

    They must have the same head_dim and the same device, and the number of heads must be a multiple
    of the number of key heads.
    """
    shapes = (
        f"queries[{position}] has {describe_axes(q.shape, _AXES['queries'])}, keys[{position}] has "
        f"{describe_axes(k.shape, _AXES['keys'])}"
    )
    if q.shape[2] != k.shape[2]:
        raise ValueError(f"{shapes}: head_dim must be the same")
    if q.shape[0] % k.shape[0]:
        raise ValueError(
            f"{shapes}: heads must be a multiple of key heads, each of which serves a group of them"
        )
    if q.device != k.device:
        raise ValueError(f"{shapes}, on {q.device} and {k.device}: both must be on the same device")


def _masks(
    queries: list[torch.Tensor],
    keys: list[torch.Tensor],
    *,
    causal: bool,
    window: Any,
    mask: Any,
    bias: Any,
) -> list[tuple[Mask | None, Bias | None]]:
    """Return the mask and bias of each layer. Layers with equal arguments share these objects."""
    count = len(queries)
    windows = [_window(value) for value in _per_layer(_as_list(window), "window", count)]
    masks, biases = _per_layer(mask, "mask", count), _per_layer(bias, "bias", count)
    cache: dict[tuple[object, ...], tuple[Mask | None, Bias | None]] = {}
    parts = []
    for position, (q, k) in enumerate(zip(queries, keys, strict=True)):
        _check_pair(position, q, k)
        shape = (q.shape[0], q.shape[1], k.shape[1])
        if shape[1:] != (queries[0].shape[1], keys[0].shape[1]):
            raise ValueError(
                f"layer {position} has queries {shape[1]} and keys {shape[2]}, but layer 0 "
                f"queries {queries[0].shape[1]} and keys {keys[0].shape[1]}: all layers "
                "of a record must attend over the same tokens"
            )
        layer_mask, layer_bias, layer_window = masks[position], biases[position], windows[position]
        key = (id(layer_mask), id(layer_bias), layer_window, shape)
        if key not in cache:
            band = create_band(shape[1], shape[2], causal=causal, window=layer_window)
            allowed, added = read_mask(layer_mask, _name("mask", mask, position), shape, band)
            cache[key] = allowed, read_bias(layer_bias, _name("bias", bias, position), shape, added)
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


def _as_list(numbers: Any) -> Any:
    """Convert a one-dimensional array to a list. Return other values unchanged."""
    if hasattr(numbers, "tolist") and len(getattr(numbers, "shape", ())) == 1:
        return numbers.tolist()
    return numbers


def _name(argument: str, value: Any, position: int) -> str:
    return f"{argument}[{position}]" if isinstance(value, (list, tuple)) else argument


def _number(value: Any, argument: str) -> float | None:
    if value is None:
        return None
    try:
        number = float("" if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise TypeError(
            f"{argument}={short_repr(value)} must be a number, or a list with one per layer"
        ) from None
    if not math.isfinite(number):
        raise ValueError(f"{argument}={value!r} must be a finite number")
    return number


def _window(value: Any) -> int | None:
    if value is None:
        return None
    message = (
        f"window={short_repr(value)} must be a whole number of at least 1. Keys are allowed if "
        "their distance from the query is less than window."
    )
    try:
        number = 0 if isinstance(value, bool | str) else int(value)
        if number < 1 or number != value:
            raise ValueError(message)  # noqa: TRY301 - converted below
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise ValueError(message) from None
    # Limit the window to a size that a band mask accepts, and that exceeds any text.
    return min(number, 1 << 52)


def _split_layers(sinks: Any) -> Any:
    """Split `sinks` into a list of layers if it is an array (layers, heads)."""
    if sinks is None or isinstance(sinks, (list, tuple)):
        return sinks
    tensor = as_tensor(sinks, "sinks")
    return list(tensor) if tensor.dim() == 2 else tensor


def _sinks(value: Any, name: str, heads: int) -> torch.Tensor | None:
    if value is None:
        return None
    sinks = as_tensor(value, name)
    if tuple(sinks.shape) != (heads,):
        raise ValueError(
            f"{name} has shape {tuple(sinks.shape)}; it must be (heads,) with heads {heads}, one "
            "logit per head, or a list of these, one per layer"
        )
    return _finite(sinks, name, ("heads",))
