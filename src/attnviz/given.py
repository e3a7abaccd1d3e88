"""Weights from anywhere: find the layers in what was given, and refuse what is no attention.

A weight that is NaN is drawn by nobody; a batch, a missing layer or raw scores would be drawn as
something else. Each fault is named with its place and the way out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["checked_layers", "only_example"]

_AXES = "(heads, queries, keys) or (1, heads, queries, keys)"
# Rows of half-precision weights miss 1 by a few units in the last place of each entry.
_TOLERANCE = {torch.float16: 5e-3, torch.bfloat16: 4e-2}


def only_example(tokens: Any, argument: str) -> Sequence[str]:
    """Tokens of the one example, or an error where they are the tokens of several.

    Parameters
    ----------
    tokens : sequence of str
        What was given.
    argument : str
        Its name, for the error.

    Returns
    -------
    sequence of str
    """
    if not isinstance(tokens, str) and len(tokens) and not isinstance(tokens[0], str):
        inner = tokens[0]
        if isinstance(inner, Sequence) and inner and isinstance(inner[0], str):
            raise ValueError(
                f"{argument} holds {len(tokens)} lists of tokens; a record is one example: "
                f"give {argument}[i] with the weights of example i"
            )
    return tokens  # type: ignore[no-any-return]


def checked_layers(
    attentions: Any, argument: str, layers: Sequence[int] | None, *, normalized: bool
) -> dict[int, torch.Tensor]:
    """Split what was given into layers, and check every value.

    Parameters
    ----------
    attentions : sequence of arrays or array
        As in `AttentionRecord.from_weights`.
    argument : str
        Its name, for errors.
    layers : sequence of int or None
        Numbers of the layers.
    normalized : bool
        Whether rows must sum to 1 (or be all zero).

    Returns
    -------
    dict of int to Tensor
        Each (heads, queries, keys), detached, on the CPU.

    Raises
    ------
    TypeError, ValueError
        As in `AttentionRecord.from_weights`.
    """
    if isinstance(attentions, torch.Tensor) or hasattr(attentions, "__array__"):
        whole = _tensor(attentions, argument)
        if whole.dim() not in (4, 5):
            raise ValueError(
                f"{argument} is one array of shape {tuple(whole.shape)}; give (layers, heads, "
                "queries, keys) or (layers, 1, heads, queries, keys), or a list with one array "
                f"{_AXES} a layer"
            )
        attentions = list(whole)
    if isinstance(attentions, (str, bytes)) or not hasattr(attentions, "__len__"):
        raise TypeError(
            f"{argument} must be a sequence with one array a layer; got {type(attentions).__name__}"
        )
    if len(attentions) == 0:
        raise ValueError(f"{argument} is empty; give one array {_AXES} a layer")
    numbers = list(range(len(attentions)) if layers is None else layers)
    if len(numbers) != len(attentions) or len(set(numbers)) != len(numbers):
        raise ValueError(
            f"layers={numbers!r} must number each of the {len(attentions)} layers of {argument} "
            "once"
        )
    checked = {}
    for position, (number, given) in enumerate(zip(numbers, attentions, strict=True)):
        name = f"{argument}[{position}]"
        if given is None:
            raise ValueError(
                f"{name} is None: the model ran without returning weights. Load it with "
                'attn_implementation="eager", or let attnviz.extract(model, inputs) capture them'
            )
        checked[number] = _checked(_tensor(given, name), name, normalized=normalized)
    return checked


def _tensor(given: Any, name: str) -> torch.Tensor:
    try:
        tensor = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} is no array of numbers ({error})") from error
    # Plain Python numbers and integers (a hard 0/1 attention) become float32.
    return tensor.detach().cpu() if tensor.is_floating_point() else tensor.float()


def _checked(weights: torch.Tensor, name: str, *, normalized: bool) -> torch.Tensor:
    if weights.dim() == 4:
        if weights.shape[0] != 1:
            raise ValueError(
                f"{name} has shape {tuple(weights.shape)}, a batch of {weights.shape[0]} examples; "
                "a record is one example: give the weights of one, for example "
                "[layer[i : i + 1] for layer in attentions]"
            )
        weights = weights[0]
    if weights.dim() != 3:
        raise ValueError(f"{name} has shape {tuple(weights.shape)}; it must be {_AXES}")
    if 0 in weights.shape:
        raise ValueError(f"{name} has shape {tuple(weights.shape)}: it holds no weights")
    for head, values in enumerate(weights):
        _check_head(values, f"{name}, head {head}", normalized=normalized)
    return weights


def _check_head(values: torch.Tensor, name: str, *, normalized: bool) -> None:
    def place(flags: torch.Tensor) -> str:
        query, key = torch.nonzero(flags)[0].tolist()
        return f"query {query}, key {key}"

    if bool(torch.isnan(values).any()):
        raise ValueError(f"{name}: the weight at {place(torch.isnan(values))} is NaN")
    if bool(torch.isinf(values).any()):
        raise ValueError(f"{name}: the weight at {place(torch.isinf(values))} is infinite")
    if bool((values < 0).any()):
        raise ValueError(
            f"{name}: the weight at {place(values < 0)} is negative; these look like scores "
            "before the softmax, or signed attributions (take their absolute values with "
            "normalized=False)"
        )
    if not normalized:
        return
    sums = values.float().sum(dim=1)
    tolerance = _TOLERANCE.get(values.dtype, 1e-3)
    wrong = ((sums - 1).abs() > tolerance) & (sums != 0)
    if bool(wrong.any()):
        query = int(torch.nonzero(wrong)[0])
        raise ValueError(
            f"{name}: the weights of query {query} sum to {float(sums[query]):.4g}, not to 1; "
            "if that is meant, pass normalized=False"
        )
