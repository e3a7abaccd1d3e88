"""What one forward takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from attnviz.tokens import Tokens

__all__ = ["Batch", "Side"]


@dataclass(frozen=True)
class Side:
    """One list of tokens of a batch: the model's input, or what a decoder is given.

    Attributes
    ----------
    length : int
        Number of positions, padding included.
    kept : list of (Tensor or None)
        For each example the positions that are no padding, int64; None keeps all.
    """

    length: int
    kept: list[torch.Tensor | None]


@dataclass
class Batch:
    """What one forward takes.

    Attributes
    ----------
    arguments : dict
        The model's keyword arguments.
    size : int
        Number of examples.
    sides : dict of str to Side
        Lists of tokens with their padding: ``"input"`` and ``"decoder"``.
    tokens : dict of str to list of Tokens
        The same without padding, one entry an example.
    notes : list of str
        What a reader must know.
    """

    arguments: dict[str, Any]
    size: int
    sides: dict[str, Side] = field(default_factory=dict)
    tokens: dict[str, list[Tokens]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
