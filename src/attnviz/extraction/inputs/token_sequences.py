"""One list of tokens of a batch: its tensor, its padding, and what is left without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from attnviz.extraction.inputs.batch import Answer
from attnviz.record.tokens import Tokens

__all__ = ["answer_of", "kept_places", "picked", "sequence_of", "tensor_of"]


def tensor_of(name: str, value: Any) -> torch.Tensor:
    """Make a tensor of what a tokenizer or processor returned.

    Parameters
    ----------
    name : str
        Under which name.
    value : object
        A tensor, or anything that numpy can read.

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If its rows have different lengths.
    """
    if isinstance(value, torch.Tensor):
        return value
    if not isinstance(value, np.ndarray | list | tuple | int | float):
        raise TypeError(
            f"inputs: {name} must be a tensor, an array or numbers; got {type(value).__name__}"
        )
    try:
        return torch.as_tensor(np.asarray(value))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"inputs: {name} cannot be made a tensor ({type(value).__name__} of rows of different "
            "lengths?); call the tokenizer with return_tensors='pt', padding=True"
        ) from error


def answer_of(labels: torch.Tensor, kept: torch.Tensor) -> Answer | None:
    """Tell what a decoder is made to produce: each label by the token that is fed in its place.

    Parameters
    ----------
    labels : Tensor
        int64, (labels,).
    kept : Tensor
        bool, (labels,): which are no padding.

    Returns
    -------
    Answer or None
        None where there is no label.
    """
    ids = tuple(labels[kept.to(labels.device)].tolist())
    return Answer("decoder", 0, ids) if ids else None


def kept_places(
    ids: torch.Tensor, mask: torch.Tensor | None, argument: str
) -> list[torch.Tensor | None]:
    """Find the places that are no padding.

    Parameters
    ----------
    ids : Tensor
        (examples, tokens).
    mask : Tensor or None
        0 for padding, as large; of another number of axes it says nothing about padding.
    argument : str
        The mask's name, for errors.

    Returns
    -------
    list of (Tensor or None)
        One an example: places, int64; None keeps all.

    Raises
    ------
    ValueError
        If the mask doesn't fit, or leaves nothing of an example.
    """
    if mask is None or mask.dim() != 2:
        return [None] * ids.shape[0]
    if mask.shape != ids.shape:
        raise ValueError(
            f"{argument} must be as large as the ids, {tuple(ids.shape)}; got {tuple(mask.shape)}"
        )
    kept: list[torch.Tensor | None] = []
    for index, row in enumerate(mask.cpu() != 0):
        if not bool(row.any()):
            raise ValueError(
                f"{argument}: example {index} is all padding; leave it out of the batch"
            )
        kept.append(None if bool(row.all()) else torch.nonzero(row).flatten())
    return kept


def sequence_of(arguments: Mapping[str, torch.Tensor], index: int) -> list[int | None] | None:
    """Read which text of a pair each token of an example belongs to; None where nothing says it.

    Parameters
    ----------
    arguments : mapping
        The model's keyword arguments.
    index : int
        Which example.

    Returns
    -------
    list of int, or None
    """
    types = arguments.get("token_type_ids")
    return None if types is None else [int(number) for number in types[index]]


def picked(tokens: Tokens, places: torch.Tensor) -> Tokens:
    """Keep some of the tokens.

    Parameters
    ----------
    tokens : Tokens
        Without grids and predictions.
    places : Tensor
        int64, ascending.

    Returns
    -------
    Tokens
    """
    chosen = places.tolist()
    return Tokens(
        text=tuple(tokens.text[place] for place in chosen),
        special=tuple(tokens.special[place] for place in chosen),
        sequence=tuple(tokens.sequence[place] for place in chosen),
        ids=None if tokens.ids is None else tuple(tokens.ids[place] for place in chosen),
        words=None if tokens.words is None else tuple(tokens.words[place] for place in chosen),
    )
