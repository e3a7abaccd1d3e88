"""Conversion and checks of the weights that a caller passes.

Views cannot draw NaN. A batch of several examples, a missing layer or scores before the softmax
would give a wrong view. All of these inputs raise an error, whose message contains the name of the
argument and usually a suggested fix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from attnviz.record.attention import StoredWeights
from attnviz.record.from_arrays.arrays import (
    as_tensor,
    check_layer_numbers,
    describe_axes,
    remove_batch_axis,
    split_layers,
)
from attnviz.record.from_arrays.tokens import as_key_tokens, as_tokens
from attnviz.record.stack import AttentionStack, resolve_normalized
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import short_repr

#: Hint for the error message if a model's output contains no weights.
NO_WEIGHTS_HINT = (
    "the model returned no weights, as only eager attention returns them (not sdpa, flash, flex). "
    "Pass the model itself, attnviz.show_head_view(model, text) or attnviz.extract(model, text): "
    "its weights are captured while it runs. Otherwise load it with "
    'attn_implementation="eager" and call it with output_attentions=True'
)

_AXES = ("heads", "queries", "keys")
# Largest accepted difference between the sum of a row and 1. Each weight of a row is rounded. For
# bfloat16 with its 8 significant bits, the sum changes by at most 0.004. The tolerance is the same
# for float32, because weights in bfloat16 are often converted to float32 for numpy.
_TOLERANCE = 5e-3
# Largest number of float32. Weights in float64 are later converted to float32.
_MAX_FLOAT32 = torch.finfo(torch.float32).max
# Names of the arguments of each stack: the weights, the tokens of the queries, and the tokens of
# the keys (empty if these are the tokens of the queries).
_STACKS = {
    "self": ("attentions", "tokens", "key_tokens"),
    "encoder": ("encoder_attentions", "encoder_tokens", ""),
    "decoder": ("decoder_attentions", "decoder_tokens", ""),
    "cross": ("cross_attentions", "decoder_tokens", "encoder_tokens"),
}


def _refuse_unused(arguments: Mapping[str, Any], stacks: Sequence[str]) -> None:
    """Raise TypeError if a caller passed one of `arguments`, which do not apply to `stacks`."""
    unused = [name for name, value in arguments.items() if value is not None]
    if unused:
        raise TypeError(
            f"{', '.join(unused)} cannot be used for stack{'s' if len(stacks) > 1 else ''} "
            f"{', '.join(map(repr, stacks))}: attentions= takes tokens=, key_tokens= and "
            "sentence_b_start=, the three of an encoder-decoder model take encoder_tokens= and "
            "decoder_tokens="
        )


def create_stacks(
    weights: Mapping[str, Any],
    tokens: Mapping[str, Any],
    *,
    sentence_b_start: int | None,
    layers: Sequence[int] | None,
    normalized: bool | None,
    signed: bool,
    measure: str,
    stack: object = "self",
) -> tuple[dict[str, AttentionStack], list[str]]:
    """Create the stacks of `AttentionRecord.from_weights`. Return notes for views, too.

    `weights` and `tokens` are the arguments of `AttentionRecord.from_weights` with weights and with
    tokens, by name. `AttentionRecord.from_weights` documents the other arguments and the errors.
    """
    names = [name for name, (argument, *_) in _STACKS.items() if weights[argument] is not None]
    if not names:
        raise TypeError(
            "attentions is missing; pass a model's outputs.attentions, or "
            "encoder_attentions=, decoder_attentions= or cross_attentions=. If that is None, "
            + NO_WEIGHTS_HINT
        )
    if "self" in names and len(names) > 1:
        raise TypeError(
            "attentions= is for one kind of attention; for an encoder-decoder model pass only "
            "encoder_attentions=, decoder_attentions= and cross_attentions="
        )
    for_self = {name: tokens[name] for name in ("tokens", "key_tokens")}
    for_self |= {"sentence_b_start": sentence_b_start}
    for_others = {name: tokens[name] for name in ("encoder_tokens", "decoder_tokens")}
    _refuse_unused(for_others if "self" in names else for_self, names)
    if not isinstance(stack, str) or not stack.strip():
        raise TypeError(f'stack={short_repr(stack)} must be a name, such as "self"')
    if stack != "self" and "self" not in names:
        raise TypeError(
            f"stack={stack!r} is the name of the stack of attentions=. Stacks of an "
            "encoder-decoder model have fixed names."
        )
    if not isinstance(signed, bool | np.bool_):
        raise TypeError(f"signed={short_repr(signed)} must be True or False")
    normalized = resolve_normalized(normalized=normalized, signed=signed)
    stacks: dict[str, AttentionStack] = {}
    notes: list[str] = []
    for name in names:
        argument, row_argument, column_argument = _STACKS[name]
        rows = tokens[row_argument]
        columns = tokens[column_argument] if column_argument else None
        if rows is None:
            raise TypeError(
                f"{row_argument} is missing: the tokens of stack {name!r}, one per query"
            )
        if name == "cross" and columns is None:
            raise TypeError(f"{column_argument} is missing: the keys of the cross attention")
        values = check_layers(
            weights[argument], argument, layers, normalized=normalized, signed=signed
        )
        queries = as_tokens(rows, row_argument, sentence_b_start if name == "self" else None)
        keys = None
        if columns is not None:
            num_keys = next(iter(values.values())).shape[2]
            keys, key_notes = as_key_tokens(columns, column_argument, queries, num_keys)
            notes += key_notes
        for position, tensor in enumerate(values.values()):
            _refuse_other_order(tensor, f"{argument}[{position}]", queries, keys)
        stack_name = stack if name == "self" else name
        stacks[stack_name] = AttentionStack(
            stack_name,
            {number: StoredWeights(tensor) for number, tensor in values.items()},
            queries,
            keys,
            normalized=normalized,
            signed=signed,
            measure=measure,
        )
    return stacks, notes


def check_layers(
    attentions: Any,
    argument: str,
    layers: Sequence[int] | None,
    *,
    normalized: bool,
    signed: bool = False,
) -> dict[int, torch.Tensor]:
    """Split `attentions` into layers and check every value.

    The result has one tensor per layer number, (heads, queries, keys), on the CPU. Raise
    TypeError or ValueError if an axis or a value is invalid, as in `AttentionRecord.from_weights`.
    """
    if isinstance(attentions, list | tuple) and not attentions:
        raise ValueError(
            f"{argument} is empty, instead of one array (heads, queries, keys) per layer: "
            f"{NO_WEIGHTS_HINT}"
        )
    split = split_layers(attentions, argument, _AXES, partial(_explain_whole, argument))
    checked = {}
    for position, (number, layer) in enumerate(
        zip(check_layer_numbers(layers, len(split), argument), split, strict=True)
    ):
        name = f"{argument}[{position}]"
        if layer is None:
            raise ValueError(f"{name} is None: {NO_WEIGHTS_HINT}")
        tensor = as_tensor(layer, name).cpu()
        weights = remove_batch_axis(tensor, name, _AXES, partial(_explain_layer, argument))
        if not _fits(weights, signed=signed):
            for head, values in enumerate(weights):
                _check_head(values, f"{name}, head {head}", signed=signed)
        if normalized:
            _check_sums(weights, name)
        checked[number] = weights
    return checked


def _explain_whole(argument: str, shape: tuple[int, ...]) -> str:
    if len(shape) == 2:
        return (
            f". Two axes are those of one head, {describe_axes(shape, _AXES[1:])}: pass "
            f"{argument}[None, None]"
        )
    if len(shape) == 3:
        return (
            f". Three axes are either one layer, {describe_axes(shape, _AXES)}: pass "
            f"{argument}[None]; or one head per layer, "
            f"{describe_axes(shape, ('layers', *_AXES[1:]))}: pass {argument}[:, None]"
        )
    return ""


def _explain_layer(argument: str, shape: tuple[int, ...]) -> str:
    if len(shape) == 2:
        return (
            f". Two axes are those of one head, {describe_axes(shape, _AXES[1:])}. If each "
            f"layer has one, pass [layer[None] for layer in {argument}]. If they are the "
            f"heads of one layer, pass [numpy.stack({argument})]"
        )
    if len(shape) == 5:
        return (
            f". Five axes are those of several layers, as generate() returns them for each "
            f"step: pass the layers of one step, {argument}[step]"
        )
    return ""


def _refuse_other_order(
    tensor: torch.Tensor, name: str, queries: Tokens, keys: Tokens | None
) -> None:
    """Raise ValueError if the shape fits the numbers of tokens only after two axes are swapped."""
    shape = tuple(tensor.shape)
    expected = len(queries), len(queries if keys is None else keys)
    if shape[1:] == expected:
        return
    for first, second in ((-3, -2), (-2, -1), (-3, -1)):
        if tensor.swapaxes(first, second).shape[1:] == expected:
            raise ValueError(
                f"{name} has shape {shape}, read as {describe_axes(shape, _AXES)}, but there are "
                f"{expected[0]} query tokens and {expected[1]} key tokens: axes {first} and "
                f"{second} seem to be swapped: pass layer.swapaxes({first}, {second})"
            )


def _fits(weights: torch.Tensor, *, signed: bool) -> bool:
    """Whether all values are finite in float32, and not negative unless `signed`."""
    # If any value is NaN, both extremes are NaN and the comparison is False.
    minimum, maximum = (float(end) for end in torch.aminmax(weights))
    return max(-minimum, maximum) <= _MAX_FLOAT32 and (signed or minimum >= 0)


def _check_head(values: torch.Tensor, name: str, *, signed: bool) -> None:
    def position(flags: torch.Tensor) -> str:
        query, key = torch.nonzero(flags)[0].tolist()
        return f"query {query}, key {key}"

    if bool(torch.isnan(values).any()):
        raise ValueError(f"{name}: the weight at {position(torch.isnan(values))} is NaN")
    if bool(torch.isinf(values).any()):
        raise ValueError(f"{name}: the weight at {position(torch.isinf(values))} is infinite")
    if values.dtype == torch.float64 and bool((values.abs() > _MAX_FLOAT32).any()):
        raise ValueError(
            f"{name}: the weight at {position(values.abs() > _MAX_FLOAT32)} is larger than "
            f"{_MAX_FLOAT32:.2g}, the largest number of float32. Divide all weights by a constant."
        )
    if not signed and bool((values < 0).any()):
        raise ValueError(
            f"{name}: the weight at {position(values < 0)} is negative, as scores before the "
            "softmax can be. Pass signed=True for differences, effects and attributions."
        )


def _check_sums(weights: torch.Tensor, name: str) -> None:
    """Raise ValueError if a row sums to neither 1 nor 0.

    If the weights sum to 1 along another axis, the message suggests that this axis is the keys.
    """

    def wrong_along(axis: int) -> torch.Tensor:
        sums = weights.sum(dim=axis, dtype=torch.float32)
        return ((sums - 1).abs() > _TOLERANCE) & (sums != 0)

    if not bool(wrong_along(2).any()):
        return
    for head, values in enumerate(weights):
        sums = values.float().sum(dim=1)
        wrong = ((sums - 1).abs() > _TOLERANCE) & (sums != 0)
        if not bool(wrong.any()):
            continue
        query = int(torch.nonzero(wrong)[0])
        keys_axis = next((axis for axis in (-2, -3) if not bool(wrong_along(axis).any())), None)
        hint = "if this is intended, pass normalized=False"
        if keys_axis is not None:
            hint = (
                f"axis {keys_axis} does, and seems to be the keys: axes must be "
                f"(heads, queries, keys), so pass layer.swapaxes({keys_axis}, -1); {hint}"
            )
        raise ValueError(
            f"{name}, head {head}: the weights of query {query} sum to {float(sums[query]):.4g}, "
            f"not to 1; {hint}"
        )
