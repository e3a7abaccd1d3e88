"""Functions that rebuild pictures (RGB arrays) from a model's input, and name tokens of patches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil, isqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from attnviz.extraction.families import (
    IMAGE_GRIDS,
    IMAGE_TOKEN_IDS,
    TOKENS_AFTER_PATCHES,
    TOKENS_BEFORE_PATCHES,
    families_in,
    family_of,
    frames_in_pixels,
    has_stages,
    patch_sizes,
)
from attnviz.record.images import PatchGrid
from attnviz.record.tokens import Tokens

__all__ = [
    "grid_of",
    "grid_tokens",
    "image_positions",
    "joined_images",
    "patch_tokens",
    "pictures",
    "renamed",
    "runs_of",
    "with_image_runs",
]


def grid_of(arguments: Mapping[str, Any]) -> torch.Tensor | None:
    """Return the number of patches of each image or film along time, height and width.

    The result is int64, (images or films, 3). An image has one patch along time. Return None if no
    argument contains the numbers, or if the arguments contain both images and films.
    """
    grids = [
        arguments[name] for name in IMAGE_GRIDS if isinstance(arguments.get(name), torch.Tensor)
    ]
    if len(grids) != 1 or grids[0].dim() != 2:
        return None
    grid: torch.Tensor = grids[0].cpu()
    if grid.shape[1] == 2:
        grid = torch.cat([torch.ones_like(grid[:, :1]), grid], dim=1)
    return grid


_MAX_DOUBLINGS = 7


def patch_tokens(
    model: nn.Module,
    name: str,
    image_size: tuple[int, int],
    count: int,
    *,
    images: Sequence[int | None] = (None,),
) -> Tokens | None:
    """Return the tokens of images in the encoder that contains the attention module `name`.

    `image_size` is the height and width in pixels of each image, as the model received it. `images`
    and the names of the tokens are as in `grid_tokens`. Return None if no patch size of the model
    gives exactly `count` tokens, or if the patches have a custom order.
    """
    config: Any = model.config
    if any(family.custom_patch_order for family in families_in(config)):
        return None
    height, width = image_size
    before, after = _extra_tokens(model, name)
    sizes = patch_sizes(config) or _timm_patch_sizes(model)
    grids = [(height // size[0], width // size[1]) for size in sizes]
    if has_stages(config):
        grids += _coarser(image_size, sizes)
    for rows, columns in grids:
        # Special tokens may be added in some stages of the encoder only, so try without them, too.
        for first, last in ((before, after), ((), ())):
            patches = rows * columns * len(images)
            if patches and patches + len(first) + len(last) == count:
                shapes = [(rows, columns)] * len(images)
                return grid_tokens(shapes, before=first, after=last, images=images)
    return None


def _timm_patch_sizes(model: nn.Module) -> list[tuple[int, int]]:
    """Return the height and width in pixels of the patches in each patch embedding of timm."""
    return [
        (module.kernel_size[0], module.kernel_size[1])
        for name, module in model.named_modules()
        if name.endswith("patch_embed.proj") and isinstance(module, nn.Conv2d)
    ]


def _extra_tokens(model: nn.Module, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of special tokens before and after the patches.

    The tokens are parameters of a module that contains the attention module `name`.
    """
    counts: dict[str, int] = {}
    while name and not counts:
        name = name.rpartition(".")[0]
        tower = model.get_submodule(name)
        for path, parameter in tower.named_parameters():
            last = path.rpartition(".")[2]
            if last in TOKENS_BEFORE_PATCHES or last in TOKENS_AFTER_PATCHES:
                counts.setdefault(last, parameter.shape[-2] if parameter.dim() > 1 else 1)
        family = family_of(getattr(tower, "config", None))
    if not counts:
        return (), ()
    before = [
        label
        for parameter_name, mark in TOKENS_BEFORE_PATCHES.items()
        for label in _numbered(mark, counts.get(parameter_name))
    ]
    after = [
        label
        for parameter_name, mark in TOKENS_AFTER_PATCHES.items()
        for label in _numbered(mark, counts.get(parameter_name))
    ]
    if family.class_token_last:
        before, after = [], before
    return tuple(before), tuple(after)


def _numbered(mark: str, count: int | None) -> list[str]:
    if count == 1 and mark != "REG":
        return [f"[{mark}]"]
    return [f"[{mark}{number}]" for number in range(1, (count or 0) + 1)]


def _coarser(
    image_size: tuple[int, int], sizes: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield the numbers of rows and columns of patches that stages of a model may have.

    `sizes` has possible (height, width) of a patch in the first stage. In every later stage,
    the height and the width are twice as large.
    """
    for height, width in sizes or [(1, 1)]:
        for doubled in range(_MAX_DOUBLINGS):
            step = 2**doubled
            yield ceil(image_size[0] / (height * step)), ceil(image_size[1] / (width * step))


def grid_tokens(
    grids: Sequence[tuple[int, int]],
    *,
    before: Sequence[str] = (),
    after: Sequence[str] = (),
    images: Sequence[int | None] | None = None,
) -> Tokens:
    """Return tokens for the patches of images, row by row, one image after the other.

    `grids` has the number of rows and columns of patches of each image. `before` and `after` are
    the names of special tokens before and after all patches. `images` has, for each image, the
    index of its picture in the record, or None if the record has no such picture. Only images with
    a picture get a `PatchGrid`. By default, no image has a picture. A patch is named
    ``row,column``, counted from 0. If there are several images, the name starts with the number of
    the image, counted from 1: ``1: row,column``.

    Examples
    --------
    >>> tokens = grid_tokens([(1, 2)], before=["[CLS]"], after=["[PAD]"], images=[0])
    >>> tokens.text, tokens.grids
    (('[CLS]', '0,0', '0,1', '[PAD]'), (PatchGrid(image=0, start=1, rows=1, columns=2),))
    """
    text = list(before)
    patch_grids = []
    for number, (rows, columns) in enumerate(grids):
        image = None if images is None else images[number]
        if image is not None:
            patch_grids.append(PatchGrid(image, len(text), rows, columns))
        prefix = f"{number + 1}: " if len(grids) > 1 else ""
        text += [f"{prefix}{row},{column}" for row in range(rows) for column in range(columns)]
    num_patches = len(text) - len(before)
    special = [True] * len(before) + [False] * num_patches + [True] * len(after)
    text += after
    count = len(text)
    return Tokens(
        text=tuple(text),
        special=tuple(special),
        sequence=tuple(None if flag else 0 for flag in special),
        # Each patch is a separate word, so that merging tokens into words does not merge patches.
        words=tuple(None if special[position] else position for position in range(count)),
        grids=tuple(patch_grids),
    )


def joined_images(parts: Sequence[Tokens]) -> Tokens:
    """Join the tokens of several images into one list.

    In the result, the name of each token starts with the number of its image, counted from 1.

    Examples
    --------
    >>> joined_images([grid_tokens([(1, 1)], before=["[CLS]"])] * 2).text
    ('1: [CLS]', '1: 0,0', '2: [CLS]', '2: 0,0')
    """
    text: list[str] = []
    grids = []
    for number, part in enumerate(parts):
        grids += [replace(grid, start=grid.start + len(text)) for grid in part.grids]
        text += [f"{number + 1}: {name}" for name in part.text]
    special = [flag for part in parts for flag in part.special]
    return Tokens(
        text=tuple(text),
        special=tuple(special),
        sequence=tuple(None if flag else 0 for flag in special),
        words=tuple(None if flag else position for position, flag in enumerate(special)),
        grids=tuple(grids),
    )


def image_positions(tokens: Tokens, config: Any) -> list[list[int]]:
    """Return the positions of the tokens of a text that stand for patches of images.

    Each list in the result has consecutive positions, usually those of one image.
    """
    return runs_of(tokens, config, IMAGE_TOKEN_IDS)


def runs_of(tokens: Tokens, config: Any, names: Sequence[str]) -> list[list[int]]:
    """Return the positions of tokens with certain ids, in runs of consecutive positions.

    The ids are the values of the attributes `names` of `config`.
    """
    identifiers = {getattr(config, name, None) for name in names} - {None}
    runs: list[list[int]] = []
    for position, identifier in enumerate(tokens.ids or ()):
        if identifier not in identifiers:
            continue
        if runs and runs[-1][-1] == position - 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    return runs


def with_image_runs(
    tokens: Tokens, runs: Sequence[list[int]], shapes: Sequence[tuple[int, int]] | None
) -> Tokens:
    """Rename the tokens of a text that stand for patches of images.

    `runs` is the result of `image_positions`. `shapes` has the number of rows and columns of
    patches of each image, or is None if unknown. A token stands for a block of n x n patches, with
    one n for all images. If an n gives the number of tokens, tokens are named as by `grid_tokens`,
    and each image whose tokens are consecutive gets a grid. If no n fits, or `shapes` is None, the
    tokens of the first run are named ``image 1``, and so on. Without runs, return `tokens` itself.

    Examples
    --------
    >>> tokens = Tokens.of(["a", "?", "?"], ids=[5, 9, 9])
    >>> with_image_runs(tokens, [[1, 2]], [(2, 4)]).text
    ('a', '0,0', '0,1')
    """
    if not runs:
        return tokens
    positions = [position for run in runs for position in run]
    coarser = None if not shapes else _merged_grids(shapes, len(positions))
    if coarser is None:
        return renamed(
            tokens, {position: f"image {n}" for n, run in enumerate(runs, 1) for position in run}
        )
    names: dict[int, str] = {}
    grids = []
    starts = [0, *accumulate(rows * columns for rows, columns in coarser)]
    for number, (start, (rows, columns)) in enumerate(zip(starts, coarser, strict=False)):
        image_run = positions[start : start + rows * columns]
        prefix = f"{number + 1}: " if len(coarser) > 1 else ""
        for offset, position in enumerate(image_run):
            row, column = divmod(offset, columns)
            names[position] = f"{prefix}{row},{column}"
        # Some models put another token after each row of patches. Then the tokens of the image are
        # not consecutive, and the image gets no grid.
        if image_run[-1] - image_run[0] == len(image_run) - 1:
            grids.append(PatchGrid(number, image_run[0], rows, columns))
    return replace(renamed(tokens, names), grids=tuple(grids))


def _merged_grids(shapes: Sequence[tuple[int, int]], count: int) -> list[tuple[int, int]] | None:
    """Return the rows and columns of tokens of each image, if a token is a block of n x n patches.

    `shapes` has the rows and columns of patches of each image. All images have the same n and
    together `count` tokens. Return None if no such n exists.
    """
    block = isqrt(sum(rows * columns for rows, columns in shapes) // count)
    if block < 1 or any(rows % block or columns % block for rows, columns in shapes):
        return None
    coarser = [(rows // block, columns // block) for rows, columns in shapes]
    return coarser if sum(rows * columns for rows, columns in coarser) == count else None


def renamed(tokens: Tokens, names: Mapping[int, str]) -> Tokens:
    """Return tokens with new names at some positions. `names` has the new names by position.

    Renamed tokens are not special. A renamed token outside of a text joins the text before it.
    """
    text, special, sequence = list(tokens.text), list(tokens.special), list(tokens.sequence)
    words = None if tokens.words is None else list(tokens.words)
    for position, name in names.items():
        text[position], special[position] = name, False
        sequence[position] = _sequence_near(tokens, position)
        if words is not None:
            # Each token is a separate word, so that it is not merged with others into a word.
            words[position] = len(tokens) + position
    return replace(
        tokens,
        text=tuple(text),
        special=tuple(special),
        sequence=tuple(sequence),
        words=None if words is None else tuple(words),
    )


def _sequence_near(tokens: Tokens, position: int) -> int:
    """Return the number of the text to which a token belongs.

    If the token belongs to no text, return the number of the nearest earlier token in a text, or 0.
    """
    before = (tokens.sequence[index] for index in range(position, -1, -1))
    return next((number for number in before if number is not None), 0)


_SCALED_NOTE = (
    "No image processor defines how colours became pixel values: pictures are drawn from the "
    "darkest to the brightest value."
)


def pictures(
    arguments: Mapping[str, Any], config: Any, processor: Any, *, block: int = 1
) -> tuple[list[NDArray[np.uint8]], list[str]]:
    """Return the pictures in a model's input, uint8 (height, width, 3), and notes for the reader.

    The pictures are resized and cropped as the model received them. The pixel values in `arguments`
    are pictures, (..., colours, height, width), or patches with an argument that has the number of
    rows and columns of patches. If `grid_of` finds these numbers, patches are in the order of
    blocks of `block` x `block` patches. The image processor in `processor` defines how colours were
    converted. Both lists are empty if the pictures cannot be rebuilt.
    """
    values = [arguments.get(name) for name in ("pixel_values", "pixel_values_videos")]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    # With both images and films, it is unclear whether a token belongs to an image or to a film.
    if len(tensors) != 1 or not tensors[0].is_floating_point():
        return [], []
    pixels = tensors[0].detach().float().cpu()
    grid, shapes = grid_of(arguments), arguments.get("spatial_shapes")
    if grid is not None:
        images = _from_patches(pixels.flatten(1), grid.tolist(), config, block)
    elif pixels.dim() == 3 and isinstance(shapes, torch.Tensor):
        images = _from_rows(pixels, shapes.tolist())
    elif pixels.dim() >= 4 and pixels.shape[-3] in (1, 3):
        images = list(pixels.flatten(0, -4).expand(-1, 3, -1, -1))
    else:
        images = []
    if not images:
        return [], []
    colours = _Colours.of(getattr(processor, "image_processor", processor))
    if colours is None:
        return [_scaled_image(image) for image in images], [_SCALED_NOTE]
    return [colours.to_colours(image) for image in images], []


@dataclass(frozen=True)
class _Colours:
    """Conversion of colours to pixel values: ``(colour * factor - offset - mean) / deviation``."""

    factor: float
    offset: float
    mean: torch.Tensor
    deviation: torch.Tensor

    @classmethod
    def of(cls, processor: Any) -> _Colours | None:
        """Return the conversion by an image processor, or None if it is unknown."""
        mean, deviation = (getattr(processor, name, None) for name in ("image_mean", "image_std"))
        if not getattr(processor, "do_normalize", False):
            mean, deviation = 0.0, 1.0
        if processor is None or mean is None or deviation is None:
            return None
        rescales = bool(getattr(processor, "do_rescale", False))
        shifts = any(getattr(processor, name, False) for name in ("offset", "rescale_offset"))
        return cls(
            float(processor.rescale_factor) if rescales else 1.0,
            1.0 if rescales and shifts else 0.0,
            torch.as_tensor(mean, dtype=torch.float32).reshape(-1, 1, 1),
            torch.as_tensor(deviation, dtype=torch.float32).reshape(-1, 1, 1),
        )

    def to_colours(self, pixels: torch.Tensor) -> NDArray[np.uint8]:
        """Convert pixel values, (3, height, width), into colours, uint8 (height, width, 3)."""
        colours = (pixels * self.deviation + self.mean + self.offset) / self.factor
        if self.factor == 1.0 and float(colours.max()) <= 1.0:
            # The processor did not rescale the picture, because its values were 0 to 1 already.
            colours = colours * 255
        return _as_uint8(colours)


def _scaled_image(pixels: torch.Tensor) -> NDArray[np.uint8]:
    lowest, highest = pixels.min(), pixels.max()
    return _as_uint8((pixels - lowest) / (highest - lowest).clamp(min=1e-12) * 255)


def _as_uint8(colours: torch.Tensor) -> NDArray[np.uint8]:
    rounded = colours.nan_to_num(0.0).clamp(0, 255).round().to(torch.uint8)
    image: NDArray[np.uint8] = rounded.permute(1, 2, 0).contiguous().numpy()
    return image


def _from_rows(pixels: torch.Tensor, shapes: list[list[int]]) -> list[torch.Tensor]:
    """Rebuild pictures from patches that are sorted row by row (SigLIP 2).

    `pixels` is (pictures, patches, values of a patch), and the values are (rows, columns, colours)
    of pixels. `shapes` has the number of rows and columns of patches in each picture. Return an
    empty list unless patches are squares with three colours.
    """
    side = isqrt(pixels.shape[2] // 3)
    if pixels.shape[2] != 3 * side * side:
        return []
    return [
        patches[: rows * columns]
        .reshape(rows, columns, side, side, 3)
        .permute(4, 0, 2, 1, 3)
        .reshape(3, rows * side, columns * side)
        for patches, (rows, columns) in zip(pixels, shapes, strict=True)
    ]


def _from_patches(
    pixels: torch.Tensor, grid: list[list[int]], config: Any, block: int
) -> list[torch.Tensor]:
    """Rebuild pictures from patches that are sorted by squares (Qwen2-VL and related models).

    A square has `block` rows and columns of patches. For each picture or film, `grid` has the
    number of patches along time, rows and columns. Return one picture for each patch along time, or
    an empty list if `grid` does not fit the patches.
    """
    frames_per_patch = frames_in_pixels(config)
    side = isqrt(pixels.shape[1] // (3 * frames_per_patch))
    count = sum(frames * rows * columns for frames, rows, columns in grid)
    if tuple(pixels.shape) != (count, 3 * frames_per_patch * side * side):
        return []
    if family_of(config).colours_last:
        pixels = pixels.unflatten(1, (side * side, -1)).transpose(1, 2).flatten(1)
    images, start = [], 0
    for frames, rows, columns in grid:
        if rows % block or columns % block:
            return []
        stop = start + frames * rows * columns
        patches = pixels[start:stop].reshape(
            frames, rows // block, columns // block, block, block, 3, frames_per_patch, side, side
        )
        start = stop
        # A patch may cover several frames: copies of a picture, or consecutive frames of a film.
        # Show the first of these frames.
        laid_out = patches[:, :, :, :, :, :, 0].permute(0, 5, 1, 3, 6, 2, 4, 7)
        images += list(laid_out.reshape(frames, 3, rows * side, columns * side))
    return images
