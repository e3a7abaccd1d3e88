"""Tokens of an image: its patches, by their place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from torch import nn
from transformers import PreTrainedConfig

from attnviz.record.images import PatchGrid
from attnviz.record.tokens import Tokens

__all__ = ["frames_in_patch", "grid_tokens", "one_after_the_other", "patch_sizes", "patch_tokens"]

# What models call parameters that become tokens beside the patches, in the order of those tokens,
# and how such tokens are shown.
_BEFORE = {
    "cls_token": "CLS",
    "class_token": "CLS",
    "class_embedding": "CLS",
    "distillation_token": "DIST",
    "register_tokens": "REG",
}
_BEHIND = {"detection_tokens": "DET"}
# Llama 4 puts its class token behind the patches.
_CLASS_BEHIND = {"llama4", "llama4_vision_model"}
# Their order of patches is their own.
_OWN_ORDER = {"hiera", "vit_mae"}
# Configurations that say so have stages, from one to the next of which patches become coarser.
_STAGES = ("depths", "strides", "patch_sizes", "backbone_config", "backbone")
_COARSEST = 7


def patch_tokens(
    model: nn.Module,
    name: str,
    image_size: tuple[int, int],
    count: int,
    *,
    images: Sequence[int | None] = (None,),
) -> Tokens | None:
    """Name the tokens that a tower makes of an image.

    Parameters
    ----------
    model : Module
        The model; its configuration says how the image is cut, its parameters which tokens lie
        beside the patches.
    name : str
        Path of a module of the tower.
    image_size : tuple of int
        Height and width of the image that the model received, in pixels.
    count : int
        Number of tokens that attend.
    images : sequence of (int or None)
        Which of the record's images they are patches of, one after the other; one by default.

    Returns
    -------
    Tokens or None
        Class token and registers, as special tokens, and each patch as ``row,column``, counted from
        0 at the top left. None where these don't account for just so many tokens: what stands for a
        place in the image is never guessed.
    """
    config: Any = model.config
    if {getattr(each, "model_type", None) for each in _configs(config)} & _OWN_ORDER:
        return None
    height, width = image_size
    before, behind = _beside(model, name)
    grids = [(height // size[0], width // size[1]) for size in patch_sizes(config)]
    if _has_stages(config):
        grids += _coarser(image_size, patch_sizes(config))
    for rows, columns in grids:
        # Some stages of a tower have the tokens beside the patches, and some have not.
        for first, last in ((before, behind), ((), ())):
            patches = rows * columns * len(images)
            if patches and patches + len(first) + len(last) == count:
                shapes = [(rows, columns)] * len(images)
                return grid_tokens(shapes, before=first, behind=last, images=images)
    return None


def _beside(model: nn.Module, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tokens before and behind the patches, which the tower around a module has parameters for."""
    found: dict[str, int] = {}
    while name and not found:
        name = name.rpartition(".")[0]
        tower = model.get_submodule(name)
        for path, parameter in tower.named_parameters():
            last = path.rpartition(".")[2]
            if last in _BEFORE or last in _BEHIND:
                found.setdefault(last, parameter.shape[-2] if parameter.dim() > 1 else 1)
        kind = getattr(getattr(tower, "config", None), "model_type", None)
    if not found:
        return (), ()
    before = [shown for each, mark in _BEFORE.items() for shown in _numbered(mark, found.get(each))]
    behind = [shown for each, mark in _BEHIND.items() for shown in _numbered(mark, found.get(each))]
    if kind in _CLASS_BEHIND:
        before, behind = [], before
    return tuple(before), tuple(behind)


def _numbered(mark: str, count: int | None) -> list[str]:
    if count == 1 and mark != "REG":
        return [f"[{mark}]"]
    return [f"[{mark}{number}]" for number in range(1, (count or 0) + 1)]


def _configs(config: Any) -> Iterator[Any]:
    """A configuration and those inside of it."""
    yield config
    for each in vars(config).values():
        if isinstance(each, PreTrainedConfig):
            yield from _configs(each)


def _has_stages(config: Any) -> bool:
    return any(getattr(each, name, None) for each in _configs(config) for name in _STAGES)


def _coarser(
    image_size: tuple[int, int], sizes: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Grids of patches that become twice as long and as wide from stage to stage."""
    for height, width in sizes or [(1, 1)]:
        for doubled in range(_COARSEST):
            step = 2**doubled
            yield ceil(image_size[0] / (height * step)), ceil(image_size[1] / (width * step))


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
    for settings in _configs(config):
        size = getattr(settings, "patch_size", None)
        if isinstance(size, int):
            sizes.append((size, size))
        elif isinstance(size, list | tuple) and len(size) == 2:
            sizes.append((int(size[0]), int(size[1])))
        film = getattr(settings, "tubelet_size", None)
        if isinstance(film, list | tuple) and len(film) == 3:
            sizes.append((int(film[1]), int(film[2])))
    return list(dict.fromkeys(sizes))


def frames_in_patch(config: Any) -> int:
    """How many frames of a film a patch goes through.

    Parameters
    ----------
    config : PreTrainedConfig
        The model's.

    Returns
    -------
    int
    """
    for settings in _configs(config):
        size = getattr(settings, "tubelet_size", None)
        if size is not None:
            return int(size if isinstance(size, int) else size[0])
    return 1


def grid_tokens(
    grids: Sequence[tuple[int, int]],
    *,
    before: Sequence[str] = (),
    behind: Sequence[str] = (),
    images: Sequence[int | None] | None = None,
) -> Tokens:
    """Name the patches of images, one after the other.

    Parameters
    ----------
    grids : sequence of tuple of int
        Rows and columns of each image.
    before, behind : sequence of str
        How the tokens before and behind the patches are shown, which are special.
    images : sequence of (int or None), optional
        Which of the record's images each is; None where the picture isn't known.

    Returns
    -------
    Tokens
        Patches as ``row,column``, of several images as ``image: row,column`` counted from 1.

    Examples
    --------
    >>> tokens = grid_tokens([(1, 2)], before=["[CLS]"], behind=["[PAD]"], images=[0])
    >>> tokens.text, tokens.grids
    (('[CLS]', '0,0', '0,1', '[PAD]'), (PatchGrid(image=0, start=1, rows=1, columns=2),))
    """
    text = list(before)
    found = []
    for number, (rows, columns) in enumerate(grids):
        image = None if images is None else images[number]
        if image is not None:
            found.append(PatchGrid(image, len(text), rows, columns))
        prefix = f"{number + 1}: " if len(grids) > 1 else ""
        text += [f"{prefix}{row},{column}" for row in range(rows) for column in range(columns)]
    num_patches = len(text) - len(before)
    special = [True] * len(before) + [False] * num_patches + [True] * len(behind)
    text += behind
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
    >>> one_after_the_other([grid_tokens([(1, 1)], before=["[CLS]"])] * 2).text
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
