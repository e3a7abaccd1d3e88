"""Reordering of captured attention, so that the patches of an image are sorted row by row.

An image encoder may process patches in another order: block by block, or window by window. A window
is a square of patches that attend only to each other. The layers of some encoders form stages, each
with larger and fewer patches than the stage before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import nn

from attnviz.extraction.capture.stacks import StackLayers
from attnviz.extraction.families import (
    IMAGE_MERGE_SIZES,
    MERGE_SIZE,
    families_in,
    merging_layer,
    patch_sizes,
    shifted_windows,
    tower_of,
    window_order,
)
from attnviz.extraction.modules import layer_numbers
from attnviz.extraction.tokens.patches import grid_of, stage_grids


@dataclass(frozen=True)
class ImageLayout:
    """Order of an image encoder's tokens: patches of images, row by row, then padding.

    Attributes
    ----------
    grids : list of tuple of int
        Number of rows and columns of patches of each image. A film counts as one image for each
        patch along time.
    block : int
        Size n if the model's input has the patches in blocks of n x n patches, else 1.
    """

    grids: list[tuple[int, int]]
    block: int = 1


def arrange_patches(
    model: nn.Module,
    layers: StackLayers,
    arguments: Mapping[str, Any],
    convolved: Sequence[tuple[int, int, int]] = (),
) -> ImageLayout | None:
    """Reorder attention so that image patches are sorted row by row. Return the new layout.

    `layers` are layers of an image encoder, and are changed in place. `arguments` are the arguments
    of the model, and `convolved` is the result of `watch_convolutions`. Return None, without a
    change, if no known layout fits.
    """
    grid = grid_of(arguments)
    if grid is not None:
        return _arrange_blocks(model, layers, grid, _given_block_size(arguments))
    pixels = arguments.get("pixel_values")
    if not isinstance(pixels, torch.Tensor):
        return None
    shapes = arguments.get("spatial_shapes")
    if isinstance(shapes, torch.Tensor) and pixels.dim() == 3:
        return _padded_layout(layers, shapes, pixels.shape[1])
    if pixels.dim() != 4 or any(map(attrgetter("custom_patch_order"), families_in(model.config))):
        return None
    sizes = patch_sizes(model.config)
    grids = [*stage_grids((pixels.shape[-2], pixels.shape[-1]), sizes)]
    grids += [(rows, columns) for number, rows, columns in convolved if number == len(pixels)]
    return _arrange_windows(model, layers, list(dict.fromkeys(grids)))


def _padded_layout(layers: StackLayers, shapes: torch.Tensor, length: int) -> ImageLayout | None:
    """Return the layout of one image with padding up to `length` patches (SigLIP 2).

    `shapes` has the numbers of rows and columns of patches of each image. Return None if there are
    several images, or if the number of queries or of keys is not `length`.
    """
    if len(shapes) != 1 or set(layers.shape()) != {length}:
        return None
    rows, columns = shapes[0].tolist()
    return ImageLayout([(rows, columns)])


def _reorder(layers: StackLayers, layer: int, order: torch.Tensor) -> None:
    if torch.equal(order, torch.arange(len(order))):
        return
    for example in layers.examples:
        example[layer] = example[layer].permute(order)
    for tensors in (*layers.outputs, *layers.gates):
        if layer in tensors:
            tensors[layer] = tensors[layer][:, order]


def _given_block_size(arguments: Mapping[str, Any]) -> int | None:
    """Return the size n of blocks of n x n patches, or None if `arguments` have no single size."""
    for name in IMAGE_MERGE_SIZES:
        sizes = arguments.get(name)
        if isinstance(sizes, torch.Tensor) and len(sizes.unique()) == 1:
            return int(sizes.flatten()[0])
    return None


def _arrange_blocks(
    model: nn.Module, layers: StackLayers, grid: torch.Tensor, size: int | None
) -> ImageLayout | None:
    """Change the order of patches from block by block to row by row (Qwen2-VL).

    The layers are changed in place, and the new layout is returned. A block has `size` x `size`
    patches. If `size` is None, it is read from the model. `grid` is the result of `grid_of`. Return
    None, without a change, if the number of queries or keys is not the number of patches in `grid`,
    or if an image cannot be divided into whole blocks.
    """
    images = [(height, width) for frames, height, width in grid.tolist() for _ in range(frames)]
    queries, keys = layers.shape()
    tower = tower_of(model, layers.names[0])
    if 0 <= merging_layer(model, layers.names[0]) < (layer_numbers(layers.names) or [0])[0]:
        images = [(height // 2, width // 2) for height, width in images]
    if queries != keys or queries != sum(height * width for height, width in images):
        return None
    if size is None:
        size = int(getattr(tower, MERGE_SIZE, 1))
    if any(height % size or width % size for height, width in images):
        return None
    in_blocks = torch.cat([_block_order(*image, size) for image in images])
    patches = torch.tensor([height * width for height, width in images])
    in_blocks += torch.repeat_interleave(patches.cumsum(0) - patches, patches)
    windows = window_order(tower, grid, size)
    if windows is not None:
        in_blocks = in_blocks.reshape(-1, size * size)[windows].flatten()
    order = in_blocks.argsort()
    for number in list(layers.examples[0]):
        _reorder(layers, number, order)
    return ImageLayout(images, block=size)


def _block_order(
    rows: int, columns: int, side: int, shift: tuple[int, int] = (0, 0)
) -> torch.Tensor:
    """Return the indices of a grid's tokens in the order of blocks: int64, (tokens,).

    An index counts the tokens of the grid row by row. A block has `side` x `side` tokens, and is
    shifted by `shift`, (rows, columns).
    """
    numbers = torch.arange(rows * columns).reshape(rows, columns)
    shifted = numbers.roll((-shift[0], -shift[1]), (0, 1))
    blocks = shifted.reshape(rows // side, side, columns // side, side)
    return blocks.transpose(1, 2).flatten()


def _arrange_windows(
    model: Any, layers: StackLayers, grids: Sequence[tuple[int, int]]
) -> ImageLayout | None:
    """Change the order of patches from window by window to row by row (Swin, SAM).

    The layers are changed in place, and the new layout is returned. `grids` has the rows and
    columns of patches that an image may have. Return None, without a change, if queries and keys
    differ in number, if no grid has this number of tokens, or if the windows of a layer are not
    known or no layer has any.
    """
    queries, keys = layers.shape()
    if queries != keys:
        return None
    orders, layout = {}, None
    for name, number, windows in zip(
        layers.names, list(layers.examples[0]), layers.windows, strict=True
    ):
        side = math.isqrt(windows[0] if windows else queries)
        size, shift = shifted_windows(model, name)
        # `side` is the size of square windows with this number of queries. Other windows are not
        # supported, so compare `side` with the size that the attention module states.
        has_windows = size in (side, (side, side), [side, side])
        stage = _stage_shape(grids, side if has_windows else 0, queries)
        if stage is None or (windows and not has_windows):
            return None
        layout = ImageLayout([stage[0]])
        if has_windows:
            orders[number] = _window_order(*stage, side, shift)
    for number, order in orders.items():
        _reorder(layers, number, order)
    return layout if orders else None


def _window_order(
    shape: tuple[int, int], padded: tuple[int, int], side: int, shift: tuple[int, int]
) -> torch.Tensor:
    """Return the positions of all tokens in an order window by window: int64, (tokens,).

    The tokens are patches and padding. The result has first the positions of the patches, row by
    row, and then those of the padding. `shape` is (rows, columns) of patches without padding, and
    `padded` is (rows, columns) with padding. A window has `side` x `side` tokens, and is shifted by
    `shift`, (rows, columns).
    """
    in_windows = _block_order(*padded, side, shift).argsort().reshape(padded)
    is_patch = torch.zeros(padded, dtype=torch.bool)
    is_patch[: shape[0], : shape[1]] = True
    return torch.cat([in_windows[is_patch], in_windows[~is_patch]])


def _stage_shape(
    grids: Sequence[tuple[int, int]], side: int, count: int
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return (rows, columns) of patches in the stage with `count` tokens, without and with padding.

    The padding completes windows of `side` x `side` patches, and is included in `count`. If `side`
    is 0, there are neither windows nor padding, and both pairs are equal. `grids` has the rows and
    columns of the stages. Return None if no stage has `count` tokens.
    """
    for shape in grids:
        padded = shape
        if side:
            padded = (-(-shape[0] // side) * side, -(-shape[1] // side) * side)
        if math.prod(padded) == count:
            return shape, padded
    return None
