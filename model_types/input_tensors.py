"""Make the tensors that `overrides` describes by kind and shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_Maker = Callable[..., torch.Tensor]


def as_tensor(written: Any, random: torch.Generator) -> Any:
    """Make the tensor that a tuple such as ("normal", 1, 3) describes.

    Return values that are not tuples unchanged.
    """
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
    """Make random image patches for Pix2Struct, (batch, count, width).

    The image has `columns` columns of patches. Entries 0 and 1 of a patch are the numbers of its
    row and column in the image, from 1.
    """
    patches = torch.randn(batch, count, width, generator=random)
    patches[..., 0] = torch.arange(count) // columns + 1
    patches[..., 1] = torch.arange(count) % columns + 1
    return patches
