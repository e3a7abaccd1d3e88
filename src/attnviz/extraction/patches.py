"""Tokens of an image: its patches, by their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from attnviz.images import PatchGrid
from attnviz.tokens import Tokens

__all__ = ["grid_tokens", "one_after_the_other", "patch_sizes", "patch_tokens"]

# A class token, a distillation token and some registers; more before the patches is something else.
_MOST_BEFORE = 16


def patch_tokens(
    config: Any, image_size: tuple[int, int], count: int, *, image: int | None = None
) -> Tokens:
    """Name the tokens that a vision model makes of an image.

    Parameters
    ----------
    config : PreTrainedConfig
        The model's; its `patch_size` says how the image is cut.
    image_size : tuple of int
        Height and width of the image that the model received, in pixels.
    count : int
        Number of tokens that attend.
    image : int, optional
        Which of the record's images they are patches of.

    Returns
    -------
    Tokens
        ``[CLS]`` and registers first, as special tokens, then each patch as ``row,column``, counted
        from 0 at the top left. A model that makes its patches coarser from stage to stage is
        recognised by the number of tokens. Where patches don't account for the tokens they are
        ``[0]``, ``[1]``.

    Examples
    --------
    >>> class Config:
    ...     patch_size = 8
    >>> patch_tokens(Config, (16, 16), 5).text
    ('[CLS]', '0,0', '0,1', '1,0', '1,1')
    """
    height, width = image_size
    for size in patch_sizes(config):
        grid = (height // size[0], width // size[1])
        before = count - grid[0] * grid[1]
        if min(grid) and 0 <= before <= _MOST_BEFORE:
            return grid_tokens([grid], before=before, images=[image])
    # Stages of a pyramid have no class token: the finest cut that gives just so many.
    for pixels in range(1, max(height, width) + 1):
        grid = (ceil(height / pixels), ceil(width / pixels))
        if grid[0] * grid[1] == count and min(grid) > 1:
            return grid_tokens([grid], images=[image])
    return Tokens.of([f"[{place}]" for place in range(count)], words=range(count))


def patch_sizes(config: Any) -> list[tuple[int, int]]:
    """Heights and widths of a patch in pixels that a configuration and its parts name.

    Parameters
    ----------
    config : PreTrainedConfig
        The model's.

    Returns
    -------
    list of tuple of int
    """
    sizes = []
    for settings in (
        config,
        getattr(config, "vision_config", None),
        getattr(config, "encoder", None),
        getattr(config, "backbone_config", None),
    ):
        size = getattr(settings, "patch_size", None)
        if isinstance(size, int):
            sizes.append((size, size))
        elif isinstance(size, list | tuple) and len(size) == 2:
            sizes.append((int(size[0]), int(size[1])))
    return sizes


def grid_tokens(
    grids: Sequence[tuple[int, int]],
    *,
    before: int = 0,
    after: int = 0,
    images: Sequence[int | None] | None = None,
) -> Tokens:
    """Name the patches of images, one after the other.

    Parameters
    ----------
    grids : sequence of tuple of int
        Rows and columns of each image.
    before : int
        Number of tokens before the patches: a class token, then registers.
    after : int
        Number of tokens behind them that only fill up windows.
    images : sequence of (int or None), optional
        Which of the record's images each is; None where the picture isn't known.

    Returns
    -------
    Tokens
        Patches as ``row,column``, of several images as ``image: row,column`` counted from 1.

    Examples
    --------
    >>> tokens = grid_tokens([(1, 2)], before=1, after=1, images=[0])
    >>> tokens.text, tokens.grids
    (('[CLS]', '0,0', '0,1', '[PAD]'), (PatchGrid(image=0, start=1, rows=1, columns=2),))
    """
    text = ["[CLS]", *(f"[REG{number}]" for number in range(1, before))][:before]
    found = []
    for number, (rows, columns) in enumerate(grids):
        image = None if images is None else images[number]
        if image is not None:
            found.append(PatchGrid(image, len(text), rows, columns))
        prefix = f"{number + 1}: " if len(grids) > 1 else ""
        text += [f"{prefix}{row},{column}" for row in range(rows) for column in range(columns)]
    special = [True] * before + [False] * (len(text) - before) + [True] * after
    text += ["[PAD]"] * after
    count = len(text)
    return Tokens(
        text=tuple(text),
        special=tuple(special),
        sequence=tuple(None if flag else 0 for flag in special),
        # A patch is a part of no larger thing: it stays as it is where words are merged.
        words=tuple(None if special[place] else place for place in range(count)),
        grids=tuple(found),
    )


def one_after_the_other(parts: Sequence[Tokens]) -> Tokens:
    """Tokens of several images, one after the other.

    Parameters
    ----------
    parts : sequence of Tokens
        Those of each image.

    Returns
    -------
    Tokens
        Each with its image's number before it, counted from 1.

    Examples
    --------
    >>> one_after_the_other([grid_tokens([(1, 1)], before=1)] * 2).text
    ('1: [CLS]', '1: 0,0', '2: [CLS]', '2: 0,0')
    """
    text: list[str] = []
    grids = []
    for number, part in enumerate(parts):
        grids += [replace(grid, start=grid.start + len(text)) for grid in part.grids]
        text += [f"{number + 1}: {each}" for each in part.text]
    special = [flag for part in parts for flag in part.special]
    return Tokens(
        text=tuple(text),
        special=tuple(special),
        sequence=tuple(None if flag else 0 for flag in special),
        words=tuple(None if flag else place for place, flag in enumerate(special)),
        grids=tuple(grids),
    )
