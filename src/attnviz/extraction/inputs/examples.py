"""What a caller may give as inputs, told apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

__all__ = [
    "KINDS",
    "examples_of",
    "is_image",
    "is_media_and_text",
    "is_message",
    "is_sound",
    "kind",
]

KINDS = (
    "a text, a pair of texts (first, second), a list of texts, a list of chat messages, a "
    "tokenizer's or processor's own output, a tensor of ids, or where the model takes them an "
    "image, a sound as an array, or either with a text (image, text)"
)


def examples_of(inputs: Any) -> tuple[list[Any], bool]:
    """Tell one example from a list of them.

    Parameters
    ----------
    inputs : object
        As the caller gave it.

    Returns
    -------
    examples : list
        What to run, one forward each.
    many : bool
        Whether the caller gave a list of examples.

    Raises
    ------
    ValueError
        If there is nothing in it.
    TypeError
        If it is a mixture or something unknown.
    """
    if inputs is None:
        raise ValueError(f"inputs: nothing was given; give {KINDS}")
    if isinstance(inputs, tuple):
        if kind(inputs) not in ("pair", "media and text"):
            names = ", ".join(type(part).__name__ for part in inputs[:3])
            raise TypeError(
                "inputs: a tuple is a pair of texts (first, second), or (image, text); got "
                f"{len(inputs)} entries ({names}). For several texts give a list; for several "
                "images with a text chat messages; for attentions use "
                "AttentionRecord.from_weights(attentions, tokens)"
            )
        return [inputs], False
    if not isinstance(inputs, list):
        return [inputs], False
    if not inputs:
        raise ValueError(f"inputs: the list is empty; give {KINDS}")
    if kind(inputs) == "chat":
        return [inputs], False
    if kind(inputs) == "ids":
        return [torch.tensor([inputs])], False
    kinds = {kind(entry) for entry in inputs}
    if len(kinds) > 1 or None in kinds:
        names = ", ".join(sorted({type(entry).__name__ for entry in inputs}))
        raise TypeError(f"inputs: a list of {names} cannot be read; give {KINDS}")
    return list(inputs), True


def is_message(entry: object) -> bool:
    """Whether it is a chat message."""
    return isinstance(entry, Mapping) and "role" in entry


def is_image(entry: object) -> bool:
    """Whether it is an image of PIL, which need not be installed."""
    return type(entry).__module__.partition(".")[0] == "PIL"


def is_media_and_text(entry: object) -> bool:
    """Whether it is a text with an image (of PIL, or an array) or a sound, in any order."""
    if not isinstance(entry, tuple) or len(entry) != 2:
        return False
    texts = [part for part in entry if isinstance(part, str)]
    media = [
        part
        for part in entry
        if is_image(part)
        or is_sound(part)
        or (isinstance(part, np.ndarray | torch.Tensor) and part.ndim in (2, 3))
    ]
    return len(texts) == len(media) == 1


def is_sound(entry: object) -> bool:
    """Whether it is a sound: an array of one axis that is no list of ids, or with its rate."""
    if isinstance(entry, Mapping):
        return "array" in entry
    if isinstance(entry, np.ndarray):
        return entry.ndim == 1 and entry.dtype.kind == "f"
    return isinstance(entry, torch.Tensor) and entry.dim() == 1 and entry.is_floating_point()


def kind(entry: object) -> str | None:
    """Name what an entry of a list is, so that mixtures are noticed; None for anything unknown."""
    filled = isinstance(entry, list) and bool(entry)
    parts = entry if isinstance(entry, list | tuple) else ()
    is_kind = {
        "text": isinstance(entry, str),
        "image": is_image(entry),
        "media and text": is_media_and_text(entry),
        "sound": isinstance(entry, Mapping) and is_sound(entry),
        "array": isinstance(entry, np.ndarray | torch.Tensor),
        "pair": isinstance(entry, tuple)
        and len(parts) == 2
        and all(isinstance(part, str) for part in parts),
        "chat": filled and all(is_message(part) for part in parts),
        "ids": filled and all(isinstance(part, int) for part in parts),
    }
    return next((name for name, holds in is_kind.items() if holds), None)
