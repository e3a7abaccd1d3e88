"""Weights from anywhere: find the layers in what was given, and refuse what is no attention.

A weight that is NaN is drawn by nobody; a batch, a missing layer or raw scores would be drawn as
something else. Each fault is named with its place and the way out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from attnviz.display import alphabet_of_entries, display_text
from attnviz.tokens import Tokens

__all__ = ["checked_layers", "refuse_unused", "tokens_of"]

_AXES = "(heads, queries, keys) or (1, heads, queries, keys)"
# Rows of half-precision weights miss 1 by a few units in the last place of each entry, and many
# come as float32, since numpy has no bfloat16: its 8 bits leave a row at most 0.004 away from 1.
_TOLERANCE = 5e-3


def _token_strings(tokens: Any, argument: str) -> list[str]:
    """Tokens of the one example, or an error where they are anything else.

    Parameters
    ----------
    tokens : sequence of str
        What was given.
    argument : str
        Its name, for the error.

    Returns
    -------
    list of str

    Raises
    ------
    TypeError
        If it is no sequence of strings.
    ValueError
        If it is the tokens of several examples.
    """
    one_string = isinstance(tokens, (str, bytes))
    if one_string or isinstance(tokens, Mapping) or not hasattr(tokens, "__getitem__"):
        what = f"one string ({tokens[:40]!r})" if one_string else type(tokens).__name__
        raise TypeError(
            f"{argument} must be a sequence of strings, one a token; got {what}. Split a text "
            "as its model did, for example with tokenizer.convert_ids_to_tokens(input_ids[0])"
        )
    strings = list(tokens)
    for position, token in enumerate(strings):
        if isinstance(token, Sequence) and len(token) and isinstance(token[0], str):
            if isinstance(token, str):
                continue
            raise ValueError(
                f"{argument} holds {len(strings)} list{'s' if len(strings) > 1 else ''} of "
                f"tokens; a record is one example: give {argument}[i] with the weights of "
                "example i"
            )
        if not isinstance(token, str):
            raise TypeError(
                f"{argument} must be strings; {argument}[{position}] is a {type(token).__name__}"
            )
    return strings


def tokens_of(
    tokens: Sequence[str] | Tokens, argument: str, sentence_b_start: int | None
) -> Tokens:
    """Display tokens from what was given for them.

    Parameters
    ----------
    tokens : sequence of str or Tokens
        Entries of a vocabulary are shown as the text that they stand for.
    argument : str
        Its name, for errors.
    sentence_b_start : int or None
        Where the second text of a pair begins.

    Returns
    -------
    Tokens

    Raises
    ------
    TypeError, ValueError
        As in `AttentionRecord.from_weights`.
    """
    if isinstance(tokens, Tokens):
        made = tokens
    else:
        entries = _token_strings(tokens, argument)
        made = Tokens.of(entries)
        shown = display_text(entries, alphabet=alphabet_of_entries(entries))
        made = replace(made, text=tuple(shown))
    if sentence_b_start is None:
        return made
    if not 0 < sentence_b_start < len(made):
        raise ValueError(
            f"sentence_b_start={sentence_b_start!r} must lie between 1 and {len(made) - 1}, "
            f"inside the {len(made)} tokens"
        )
    sequence = [int(position >= sentence_b_start) for position in range(len(made))]
    return replace(
        made,
        sequence=tuple(
            None if special else number
            for special, number in zip(made.special, sequence, strict=True)
        ),
    )


def refuse_unused(arguments: Mapping[str, Any], stacks: Sequence[str]) -> None:
    """Refuse arguments that say nothing about the stacks given.

    Parameters
    ----------
    arguments : mapping of str to object
        Those that must be None.
    stacks : sequence of str
        Names of the stacks that weights were given for.

    Raises
    ------
    TypeError
        If one is there.
    """
    unused = [name for name, value in arguments.items() if value is not None]
    if unused:
        raise TypeError(
            f"{', '.join(unused)} cannot be used for stack{'s' if len(stacks) > 1 else ''} "
            f"{', '.join(map(repr, stacks))}: attentions= takes tokens=, key_tokens= and "
            "sentence_b_start=, the three of an encoder-decoder model take encoder_tokens= and "
            "decoder_tokens="
        )


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
    if isinstance(attentions, (str, bytes, Mapping)) or not hasattr(attentions, "__len__"):
        raise TypeError(
            f"{argument} must be a sequence with one array a layer; got {type(attentions).__name__}"
        )
    if len(attentions) == 0:
        raise ValueError(f"{argument} is empty; give one array {_AXES} a layer")
    numbers = [int(number) for number in (range(len(attentions)) if layers is None else layers)]
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
        tensor = given if isinstance(given, torch.Tensor) else _array(given)
        if tensor.is_complex():
            raise TypeError("complex numbers")  # noqa: TRY301 - told like all others
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} is no array of numbers ({error})") from error
    # Plain Python numbers and integers (a hard 0/1 attention) become float32.
    return tensor.detach().cpu() if tensor.is_floating_point() else tensor.float()


def _array(given: Any) -> torch.Tensor:
    array = np.asarray(given)
    if array.dtype not in (np.float16, np.float64) and array.dtype.kind in "biuf":
        array = array.astype(np.float32, copy=False)
    # torch shares memory with native, writable arrays that run forwards only.
    array = np.require(array, array.dtype.newbyteorder("="), ["C", "W"])
    return torch.from_numpy(array)


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
    wrong = ((sums - 1).abs() > _TOLERANCE) & (sums != 0)
    if bool(wrong.any()):
        query = int(torch.nonzero(wrong)[0])
        raise ValueError(
            f"{name}: the weights of query {query} sum to {float(sums[query]):.4g}, not to 1; "
            "if that is meant, pass normalized=False"
        )
