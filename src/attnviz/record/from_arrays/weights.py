"""Conversion and checks of the weights that a caller passes.

Views cannot draw NaN and infinity, which therefore raise an error. Negative values raise an error
unless `signed` is True, and rows that do not sum to 1 or 0 unless `normalized` is False. They can
be a sign that logits were passed instead of weights, and views would then be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from attnviz.record.attention import StoredWeights
from attnviz.record.from_arrays.arrays import (
    as_tensor,
    check_layer_numbers,
    layers_of,
    without_batch_axis,
)
from attnviz.record.from_arrays.tokens import as_tokens
from attnviz.record.stack import AttentionStack, resolve_normalized

#: Hint for the error message if a model's output contains no weights.
NO_WEIGHTS_HINT = (
    "the model returned no weights, as only eager attention returns them (not sdpa, flash, flex). "
    "Pass the model itself, attnviz.show_head_view(model, text) or attnviz.extract(model, text): "
    "its weights are captured while it runs. Otherwise load it with "
    'attn_implementation="eager" and call it with output_attentions=True'
)

_AXES = ("heads", "queries", "keys")
# Largest accepted difference between the sum of a row and 1. Rounding the weights to bfloat16, with
# its 8 significant bits, changes the sum by at most 0.004. The tolerance is the same for float32,
# because weights in bfloat16 are often converted to float32 for numpy.
_TOLERANCE = 5e-3
# By name of the stack, the arguments of `AttentionRecord.from_weights` with its weights, with the
# tokens of its queries, and with the tokens of its keys (None if keys are always the same tokens as
# queries).
_STACKS = {
    "self": ("attentions", "tokens", "key_tokens"),
    "encoder": ("encoder_attentions", "encoder_tokens", None),
    "decoder": ("decoder_attentions", "decoder_tokens", None),
    "cross": ("cross_attentions", "decoder_tokens", "encoder_tokens"),
}
_WITH_ATTENTIONS = {"attentions", "tokens", "key_tokens", "sentence_b_start", "stack"}


def create_stacks(
    weights: Mapping[str, Any],
    tokens: Mapping[str, Any],
    *,
    sentence_b_start: int | None,
    layers: Sequence[int] | None,
    normalized: bool | None,
    signed: bool,
    measure: str,
    stack: str = "self",
) -> dict[str, AttentionStack]:
    """Return the stacks of `AttentionRecord.from_weights` by name.

    `weights` has its arguments ``attentions``, ``encoder_attentions``, ... by name, and `tokens`
    has ``tokens``, ``key_tokens``, ``encoder_tokens``, ... The other arguments and the errors are
    as in `AttentionRecord.from_weights`.
    """
    names = [name for name, (argument, *_) in _STACKS.items() if weights[argument] is not None]
    if not names:
        raise TypeError(
            "attentions is missing; pass a model's outputs.attentions, or "
            "encoder_attentions=, decoder_attentions= or cross_attentions=. If that is None, "
            + NO_WEIGHTS_HINT
        )
    others = {"sentence_b_start": sentence_b_start, "stack": None if stack == "self" else stack}
    given = [name for name, value in {**weights, **tokens, **others}.items() if value is not None]
    unused = [name for name in given if (name in _WITH_ATTENTIONS) != ("self" in names)]
    if unused:
        raise TypeError(
            f"{', '.join(unused)} cannot be used for stack {', '.join(map(repr, names))}: "
            "attentions= takes tokens=, key_tokens=, sentence_b_start= and stack=, and the three "
            "of an encoder-decoder model take encoder_tokens= and decoder_tokens="
        )
    normalized = resolve_normalized(normalized=normalized, signed=signed)
    stacks: dict[str, AttentionStack] = {}
    for name in names:
        argument, row_argument, column_argument = _STACKS[name]
        for required in (row_argument, column_argument if name == "cross" else None):
            if required is not None and tokens[required] is None:
                raise TypeError(f"{required} is missing: the tokens of stack {name!r}")
        values = _checked_layers(
            weights[argument], argument, layers, normalized=normalized, signed=signed
        )
        queries = as_tokens(tokens[row_argument], sentence_b_start)
        keys = None
        if column_argument is not None and tokens[column_argument] is not None:
            keys = as_tokens(tokens[column_argument])
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
    return stacks


def _checked_layers(
    attentions: Any,
    argument: str,
    layers: Sequence[int] | None,
    *,
    normalized: bool,
    signed: bool,
) -> dict[int, torch.Tensor]:
    """Return the weights of each layer by number, (heads, queries, keys), on the CPU.

    `argument` is the name of `attentions` in messages. Raise TypeError or ValueError if an axis, a
    value or, if `normalized` is True, the sum of a row is invalid.
    """
    split = layers_of(attentions, argument, _AXES, f": {NO_WEIGHTS_HINT}")
    numbers = check_layer_numbers(layers, len(split), argument)
    checked = {}
    for position, (number, layer) in enumerate(zip(numbers, split, strict=True)):
        name = f"{argument}[{position}]"
        weights = without_batch_axis(as_tensor(layer, name).cpu(), name, _AXES)
        _check_values(weights, name, signed=signed)
        if normalized:
            _check_sums(weights, name)
        checked[number] = weights
    return checked


def _check_values(weights: torch.Tensor, name: str, *, signed: bool) -> None:
    """Raise ValueError if a value is not finite in float32, or negative unless `signed`."""
    # If any value is NaN, both extremes are NaN.
    minimum, maximum = (float(end.float()) for end in torch.aminmax(weights))
    if not (math.isfinite(minimum) and math.isfinite(maximum)):
        wrong, what = ~torch.isfinite(weights.float()), "NaN or infinite in float32"
    elif minimum < 0 and not signed:
        wrong = weights < 0
        what = (
            "negative, as scores before the softmax can be. Pass signed=True for differences, "
            "effects and attributions"
        )
    else:
        return
    head, query, key = torch.nonzero(wrong)[0].tolist()
    raise ValueError(f"{name}: the weight of head {head}, query {query}, key {key} is {what}")


def _check_sums(weights: torch.Tensor, name: str) -> None:
    """Raise ValueError if a row sums to neither 1, up to `_TOLERANCE`, nor 0."""
    sums = weights.sum(dim=2, dtype=torch.float32)
    wrong = ((sums - 1).abs() > _TOLERANCE) & (sums != 0)
    if bool(wrong.any()):
        head, query = torch.nonzero(wrong)[0].tolist()
        raise ValueError(
            f"{name}: the weights of head {head}, query {query} sum to "
            f"{float(sums[head, query]):.4g}, not to 1. The axes must be (heads, queries, keys). "
            "If other sums are intended, pass normalized=False"
        )
