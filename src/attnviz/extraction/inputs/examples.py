"""Division of the argument `inputs` into examples: its entries, or `inputs` itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from attnviz.extraction.inputs.media import is_image, is_media_and_text, is_sound

#: Inputs of `attnviz.extract`, for errors.
KINDS = (
    "a string, a pair of strings (first, second), a list of strings, a list of chat messages, "
    "the output of a tokenizer or processor, or a tensor of ids. If the model takes them, "
    "pass an image, a sound as an array, or either with a string (image, text)"
)


def examples_of(inputs: Any) -> tuple[list[Any], bool]:
    """Return the examples in `inputs`, and whether `inputs` is a list of examples.

    A list of chat messages is one example, and so is a list of ids. Raise ValueError if `inputs` is
    an empty list, and TypeError if it is a list with entries of different or unknown kinds.
    """
    if not isinstance(inputs, list) or kind_of(inputs) in ("chat", "ids"):
        return [inputs], False
    if not inputs:
        raise ValueError(f"inputs: the list is empty. Pass {KINDS}.")
    if all(isinstance(entry, list) and _are_two_texts(entry) for entry in inputs):
        # Libraries also take pairs as lists.
        return list(map(tuple, inputs)), True
    kinds = {kind_of(entry) for entry in inputs}
    if len(kinds) > 1 or None in kinds:
        names = ", ".join(sorted({type(entry).__name__ for entry in inputs}))
        raise TypeError(f"inputs: a list of {names} cannot be read. Pass {KINDS}.")
    return list(inputs), True


def _are_two_texts(parts: Sequence[Any]) -> bool:
    return len(parts) == 2 and all(isinstance(part, str) for part in parts)


def _is_message(entry: object) -> bool:
    return isinstance(entry, Mapping) and "role" in entry


def kind_of(entry: object) -> str | None:
    """Return the kind of an example, such as "text" or "pair".

    Return None for any other object.
    """
    filled = isinstance(entry, list) and bool(entry)
    parts = entry if isinstance(entry, list | tuple) else ()
    is_kind = {
        "text": isinstance(entry, str),
        "image": is_image(entry),
        "media and text": is_media_and_text(entry),
        "sound": isinstance(entry, Mapping) and is_sound(entry),
        "message": _is_message(entry),
        "array": isinstance(entry, np.ndarray | torch.Tensor),
        "pair": isinstance(entry, tuple) and _are_two_texts(parts),
        "chat": filled and all(_is_message(part) for part in parts),
        "ids": filled and all(isinstance(part, int) for part in parts),
        "mapping": isinstance(entry, Mapping),
    }
    return next((name for name, holds in is_kind.items() if holds), None)


def examples_with_targets(
    inputs: Any, target: Any, decoder_input_ids: Any
) -> tuple[list[tuple[Any, Any, Any]], bool]:
    """Return a list of examples with their targets, and whether `inputs` is a list of examples.

    The entry of an example is a tuple (example, target, decoder input ids). The target is None if
    no `target` was passed, and so are the ids if no `decoder_input_ids` were passed. If `inputs` is
    a list of examples, raise ValueError if `target` or `decoder_input_ids` is a string, or does not
    have one entry per example.
    """
    examples, is_list = examples_of(inputs)
    if not is_list:
        return [(examples[0], target, decoder_input_ids)], False
    columns = [examples]
    for argument, values in (("target", target), ("decoder_input_ids", decoder_input_ids)):
        if isinstance(values, str) or (values is not None and len(values) != len(examples)):
            actual = "one string" if isinstance(values, str) else f"{len(values)} entries"
            raise ValueError(
                f"{argument} must be a list with one entry for each of the {len(examples)} "
                f"inputs; got {actual}"
            )
        columns.append([None] * len(examples) if values is None else list(values))
    return list(zip(*columns, strict=True)), True
