"""Make the tensors that `overrides` describes by kind and shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_Maker = Callable[..., torch.Tensor]


def as_tensor(written: Any, random: torch.Generator) -> Any:
    """Make a tensor from a tuple such as ("normal", 1, 3). Return other values unchanged."""
    if not isinstance(written, tuple):
        return written
    kind, *shape = written
    makers: dict[str, _Maker] = {
        "exactly": torch.tensor,
        "false": lambda *s: torch.zeros(s, dtype=torch.bool),
        "ids": lambda *s: torch.randint(60, 200, s, generator=random),
        "normal": lambda *s: torch.randn(s, generator=random),
        "ones": lambda *s: torch.ones(s, dtype=torch.long),
        "positions": lambda *s: _patches_with_positions(*s, random=random),
        "small": lambda *s: torch.randint(0, 4, s, generator=random),
        "true": lambda *s: torch.ones(s, dtype=torch.bool),
        "zeros": torch.zeros,
    }
    return makers[kind](*shape)


def _patches_with_positions(
    batch: int, count: int, columns: int, width: int, *, random: torch.Generator
) -> torch.Tensor:
    """Make random patches for Pix2Struct, (batch, count, width).

    Entries 0 and 1 of a patch are its row and column, which are counted from 1.
    """
    patches = torch.randn(batch, count, width, generator=random)
    patches[..., 0] = torch.arange(count) // columns + 1
    patches[..., 1] = torch.arange(count) % columns + 1
    return patches
