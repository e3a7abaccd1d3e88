"""Functions that rebuild pictures (RGB arrays) from a model's input, or name patches.

An image encoder divides an image into a grid of patches, which are its tokens. The input of a
language model may contain tokens that stand for patches, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from math import ceil, isqrt, prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from attnviz.extraction.families import (
    IMAGE_GRIDS,
    PATCH_ROW_SIZES,
    TOKENS_AFTER_PATCHES,
    TOKENS_BEFORE_PATCHES,
    config_values,
    families_in,
    family_of,
    frames_in_pixels,
    has_stages,
    patch_sizes,
)
from attnviz.extraction.hooks import Hooks
from attnviz.record.images import PatchGrid
from attnviz.record.tokens import Tokens
from attnviz.utils.cleanup import Cleanup


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


def with_times(tokens: Tokens, arguments: Mapping[str, Any]) -> Tokens:
    """Name the grids of the frames of films by their time, such as ``1.0s``.

    Qwen2.5-VL gets the seconds from one frame to the next. Return `tokens` itself if the model does
    not get them, or if the grids are not those of all frames.
    """
    steps, films = arguments.get("second_per_grid_ts"), arguments.get("video_grid_thw")
    if steps is None or films is None:
        return tokens
    times = [
        f"{frame * float(step):.1f}s"
        for step, (frames, _, _) in zip(steps, films.tolist(), strict=False)
        for frame in range(frames)
    ]
    if len(times) != len(tokens.grids):
        return tokens
    named = (replace(grid, name=time) for grid, time in zip(tokens.grids, times, strict=True))
    return replace(tokens, grids=tuple(named))


def given_grid(arguments: Mapping[str, Any], index: int, count: int) -> tuple[int, int] | None:
    """Return the rows and columns of an example's patches if the model gets them, or None.

    Gemma 4 gets them in an argument, and Pix2Struct before the pixels of each patch. The result is
    None if the patches with padding are not `count`, or are not row by row before the padding.
    """
    patches, positions = arguments.get("flattened_patches"), arguments.get("pixel_position_ids")
    if isinstance(patches, torch.Tensor):
        cells = patches[..., :2].long() - 1
    elif isinstance(positions, torch.Tensor):
        cells = positions.flip(-1)
    else:
        return None
    if cells.shape[1] != count:
        return None
    cells = cells[index][(cells[index] >= 0).all(dim=1)].cpu()
    rows, columns = (cells.amax(0) + 1).tolist() if len(cells) else (0, 0)
    expected = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
    return (rows, columns) if torch.equal(cells, expected.to(cells.dtype)) else None


def image_sizes_of(arguments: Mapping[str, Any]) -> list[tuple[int, int]] | None:
    """Return the height and width in pixels of each image, if images are padded to a common size.

    Padding is on the right and below (Pixtral). Return None if sizes are missing or do not fit the
    pixel values.
    """
    pixels, sizes = arguments.get("pixel_values"), arguments.get("image_sizes")
    if not isinstance(pixels, torch.Tensor) or not isinstance(sizes, torch.Tensor):
        return None
    if pixels.dim() != 4 or tuple(sizes.shape) != (len(pixels), 2):
        return None
    fit = bool((sizes.cpu() <= torch.tensor(pixels.shape[-2:])).all())
    return [(int(height), int(width)) for height, width in sizes.tolist()] if fit else None


def watch_convolutions(modules: Iterable[nn.Module], undo: Cleanup) -> list[tuple[int, int, int]]:
    """Return a list that gets the sizes of the results of convolutions until `undo` ends.

    A size is the number of images and the numbers of rows and columns. The patches of an image are
    often the rows and columns that a convolution returned.
    """
    sizes: list[tuple[int, int, int]] = []

    def receive(_module: nn.Module, _args: Any, output: torch.Tensor) -> None:
        if output.dim() == 4:
            sizes.append((len(output), output.shape[-2], output.shape[-1]))

    hooks = Hooks(undo)
    for module in modules:
        if isinstance(module, nn.Conv2d):
            hooks.add(module.register_forward_hook, receive)
    return sizes


_MAX_STAGES = 7
# Mllama completes the tokens of a tile to a multiple of this number. Its configuration has a
# largest number of tiles.
_MULTIPLE, _TILES = 8, "max_num_tiles"


def patch_tokens(
    model: nn.Module,
    name: str,
    image_sizes: Sequence[tuple[int, int]],
    count: int,
    *,
    images: Sequence[int | None],
    convolved: Sequence[tuple[int, int, int]] = (),
) -> Tokens | None:
    """Return the tokens of images in the encoder that contains the attention module `name`.

    `image_sizes` has the height and width in pixels of each image, as the model received it.
    `images` has the index of the picture of each image in the record, or None. Tokens are named as
    by `grid_tokens`. `convolved` is the result of `watch_convolutions`. Return None if no patch
    size of the model and no convolution gives exactly `count` tokens, or if the patches are in an
    order that only the model's code defines.
    """
    config: Any = model.config
    if any(family.custom_patch_order for family in families_in(config)):
        return None
    before, after = extra_tokens(model, name)
    sizes = patch_sizes(config) or _timm_patch_sizes(model)
    candidates = [
        [(height // size[0], width // size[1]) for height, width in image_sizes] for size in sizes
    ]
    if has_stages(config):
        stages = (stage_grids(image_size, sizes or [(1, 1)]) for image_size in image_sizes)
        candidates += map(list, zip(*stages, strict=True))
    candidates += [
        [(rows, columns)] * number
        for number, rows, columns in dict.fromkeys(convolved)
        if number == len(image_sizes)
    ]
    # Queries of objects may be before all other tokens (EoMT).
    objects = _labels("OBJECT", getattr(config, "num_queries", None) or 0)
    multiple = _MULTIPLE if config_values(config, _TILES) != {None} else 1
    for grids in candidates:
        # Some layers of an encoder may have no special tokens, so also try without them.
        for first, last in ((before, after), ((), ()), ((*objects, *before), after)):
            patches = sum(map(prod, grids))
            number = patches + len(first) + len(last)
            if patches and count in (number, number + -number % multiple):
                padding = ["[PAD]"] * (count - number)
                return grid_tokens(grids, before=first, after=(*last, *padding), images=images)
    return None


def _timm_patch_sizes(model: nn.Module) -> list[tuple[int, int]]:
    """Return the height and width in pixels of the patches in each patch embedding of timm."""
    return [
        (module.kernel_size[0], module.kernel_size[1])
        for name, module in model.named_modules()
        if name.endswith("patch_embed.proj") and isinstance(module, nn.Conv2d)
    ]


def extra_tokens(model: nn.Module, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of special tokens before and after the patches.

    The tokens are parameters of the innermost module that has such parameters and contains the
    attention module `name`.
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
    before, after = (
        tuple(
            label
            for parameter_name, mark in marks.items()
            for label in _labels(mark, counts.get(parameter_name, 0))
        )
        for marks in (TOKENS_BEFORE_PATCHES, TOKENS_AFTER_PATCHES)
    )
    return ((), before) if family.class_token_last else (before, after)


def _labels(mark: str, count: int) -> list[str]:
    if count == 1 and mark != "REG":
        return [f"[{mark}]"]
    return [f"[{mark}{number}]" for number in range(1, count + 1)]


def stage_grids(
    image_size: tuple[int, int], sizes: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield (rows, columns) of patches for each stage that a model may have.

    A stage is a group of layers with patches of the same size. `image_size` is the height and width
    of an image in pixels. `sizes` has possible (height, width) of a patch in the first stage, in
    pixels. In every later stage, height and width of a patch are twice as large as in the stage
    before it. Patches at the edges may be incomplete.
    """
    for height, width in sizes:
        for stage in range(_MAX_STAGES):
            yield (
                ceil(image_size[0] / (height * 2**stage)),
                ceil(image_size[1] / (width * 2**stage)),
            )


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
    for number, ((rows, columns), names) in enumerate(zip(grids, _cell_names(grids), strict=True)):
        image = None if images is None else images[number]
        if image is not None:
            patch_grids.append(PatchGrid(image, len(text), rows, columns))
        text += names
    num_patches = len(text) - len(before)
    special = [True] * len(before) + [False] * num_patches + [True] * len(after)
    return place_tokens([*text, *after], special=special, grids=patch_grids)


def _cell_names(grids: Sequence[tuple[int, int]]) -> list[list[str]]:
    """Return the names of the patches of each image, row by row (see `grid_tokens`)."""
    return numbered(
        [
            [f"{row},{column}" for row in range(rows) for column in range(columns)]
            for rows, columns in grids
        ]
    )


def numbered(names: list[list[str]]) -> list[list[str]]:
    """If there are several lists of names, put the number of the list before each name.

    The lists are counted from 1.

    Examples
    --------
    >>> numbered([["0,0"], ["0,0", "0,1"]])
    [['1: 0,0'], ['2: 0,0', '2: 0,1']]
    """
    if len(names) == 1:
        return names
    return [[f"{number}: {name}" for name in part] for number, part in enumerate(names, 1)]


def place_tokens(
    names: Sequence[str], *, special: Sequence[bool] | None = None, grids: Sequence[PatchGrid] = ()
) -> Tokens:
    """Return tokens that stand for places, such as patches. Their texts are the names as they are.

    Each token is a separate word, because views that merge the tokens of a word must not merge
    patches.
    """
    tokens = Tokens.of(names, special=special, words=range(len(names)), grids=grids)
    return replace(tokens, text=tuple(names))


def runs_of(tokens: Tokens, config: Any, names: Sequence[str]) -> list[list[int]]:
    """Return the runs of tokens that stand for parts of images or of sounds.

    A run is a list of consecutive positions. The ids of these tokens are the values of the
    attributes `names` of `config`. The result is empty if `tokens` have no ids.
    """
    identifiers = {getattr(config, name, None) for name in names} - {None}
    if not identifiers:
        # The configuration of the whole model may contain that of the model of images and texts.
        identifiers = config_values(config, *names) - {None}
    if identifiers.isdisjoint(tokens.ids or ()):
        return []
    are_parts = [identifier in identifiers for identifier in tokens.ids or ()]
    groups = groupby(range(len(are_parts)), key=are_parts.__getitem__)
    return [list(positions) for is_part, positions in groups if is_part]


#: Name of a token that a model adds at the end of a row of patches, or before or after an image.
NEWLINE = "[newline]"
#: Name of a token for the whole image, before its patches.
WHOLE = "[image]"


def with_image_runs(
    tokens: Tokens,
    runs: Sequence[list[int]],
    shapes: Sequence[tuple[int, int]] | None,
    *,
    has_newlines: bool = False,
) -> Tokens:
    """Rename the tokens of a text that stand for patches of images.

    `runs` has the positions of these tokens (see `runs_of`). `shapes` has the number of rows and
    columns of patches of each image, or is None if unknown. A token is assumed to stand for a block
    of n x n patches, with the same n in all images. `has_newlines` is whether the model adds a
    token after each row of an image, and maybe before and after the image (HunYuan). If an n gives
    the number of tokens in `runs`, tokens are named by row and column as in `grid_tokens`, and each
    image whose rows are at equal distances gets a `PatchGrid`. If no n fits, or if `shapes` is
    None, all tokens of the first run are named ``image 1``, all tokens of the second run
    ``image 2``, and so on. If `runs` is empty, return `tokens` itself.

    Examples
    --------
    >>> tokens = Tokens.of(["a", "?", "?"], ids=[5, 9, 9])
    >>> with_image_runs(tokens, [[1, 2]], [(2, 4)]).text
    ('a', '0,0', '0,1')
    """
    if not runs:
        return tokens
    positions = [position for run in runs for position in run]
    coarser, added, first, last = _merged_grids(
        shapes or [], len(positions), has_newlines=has_newlines
    )
    if not coarser:
        return renamed(tokens, runs, "image", None)
    names = dict.fromkeys(positions, NEWLINE if has_newlines else WHOLE)
    grids = []
    start = 0
    for number, ((rows, columns), cells) in enumerate(
        zip(coarser, _cell_names(coarser), strict=True)
    ):
        stride = columns + added
        own = [
            positions[start + first + row * stride + column]
            for row in range(rows)
            for column in range(columns)
        ]
        start += first + rows * stride + last
        names |= dict(zip(own, cells, strict=True))
        # Some models put another token of the text after each row of patches.
        gap = own[columns] - own[columns - 1] - 1 if rows > 1 else 0
        grid = PatchGrid(number, own[0], rows, columns, gap=gap)
        if grid.positions == tuple(own):
            grids.append(grid)
    return replace(renamed(tokens, runs, "image", [list(names.values())]), grids=tuple(grids))


def _merged_grids(
    shapes: Sequence[tuple[int, int]], count: int, *, has_newlines: bool
) -> tuple[list[tuple[int, int]], int, int, int]:
    """Return the rows and columns of tokens of each image, and the numbers of added tokens.

    A token stands for n x n patches, with the same n in all images. `shapes` has the numbers of
    rows and columns of patches of each image, and `count` is the number of tokens of all images
    together. The other results are the numbers of tokens after each row, before an image and after
    it. If no n fits these numbers, the list is empty.
    """
    for block in range(1, min((min(shape) for shape in shapes), default=0) + 1):
        coarser = [(rows // block, columns // block) for rows, columns in shapes]
        if any(rows % block or columns % block for rows, columns in shapes):
            continue
        for added, first, last in (
            ((1, 0, 0), (1, 1, 1)) if has_newlines else ((0, 0, 0), (0, 1, 0))
        ):
            if sum(first + rows * (columns + added) + last for rows, columns in coarser) == count:
                return coarser, added, first, last
    return [], 0, 0, 0


def renamed(
    tokens: Tokens, runs: Sequence[list[int]], kind: str, names: list[list[str]] | None
) -> Tokens:
    """Rename the tokens of a text that stand for parts of images or sounds.

    `runs` has the positions of these tokens (see `runs_of`). `names` has the names of the parts of
    each image or sound, one for each position. If `names` is None, all tokens of a run are named by
    `kind` and the number of the run, such as ``image 1``. A renamed token is not special, except
    ends of rows, and is a separate word if `tokens` have words. If a renamed token belongs to
    neither text of a pair (its entry in `Tokens.sequence` is None), it is assigned to the text of
    the tokens before it, or to the first text if no such token belongs to a text.
    """
    if names is None:
        names = [[f"{kind} {number}"] * len(run) for number, run in enumerate(runs, 1)]
    named = dict(zip(chain(*runs), chain(*names), strict=True))
    sequence = []
    last = 0
    for position, number in enumerate(tokens.sequence):
        last = last if number is None else number
        sequence.append(last if position in named else number)
    words = tokens.words
    if words is not None:
        # All other words have numbers below len(tokens), so those of renamed tokens are unique.
        words = tuple(
            len(tokens) + position if position in named else word
            for position, word in enumerate(words)
        )
    return replace(
        tokens,
        text=tuple(named.get(position, name) for position, name in enumerate(tokens.text)),
        special=tuple(
            named[position] in (NEWLINE, WHOLE) if position in named else flag
            for position, flag in enumerate(tokens.special)
        ),
        sequence=tuple(sequence),
        words=words,
    )


_SCALED_NOTE = (
    "No image processor defines how colours became pixel values: pictures are drawn from the "
    "darkest to the brightest value."
)


def pictures(
    arguments: Mapping[str, Any],
    config: Any,
    processor: Any,
    *,
    options: Mapping[str, Any] | None = None,
    block: int = 1,
) -> tuple[list[NDArray[np.uint8]], list[str]]:
    """Return the pictures in a model's input, uint8 (height, width, 3), and notes for the reader.

    The pictures are resized and cropped as the model received them. The pixel values in `arguments`
    are pictures, (..., colours, height, width), or patches. Models with patches (Qwen2-VL) state
    the numbers of rows and columns (see `grid_of`), and get blocks of `block` x `block` patches, or
    one row of patches side by side (MiniCPM-V).
    SigLIP 2 states these numbers in ``spatial_shapes``, and gets patches row by row.

    If the image processor in `processor` does not define how colours were converted to pixel
    values, a note says so. `options` are the keyword arguments with which it was called. Both lists
    are empty if the pictures cannot be rebuilt.
    """
    values = [arguments.get(name) for name in ("pixel_values", "pixel_values_videos")]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    # If the input has both images and films, it is unclear to which of them a token belongs.
    if len(tensors) != 1 or not tensors[0].is_floating_point():
        return [], []
    pixels = tensors[0].detach().float().cpu()
    grid, shapes = grid_of(arguments), arguments.get("spatial_shapes")
    if grid is not None:
        if PATCH_ROW_SIZES in arguments:
            side = pixels.shape[-2]
            pixels = pixels.unflatten(-1, (-1, side)).movedim(-2, 1)
        images = _from_patches(
            pixels.reshape(int(grid.prod(dim=1).sum()), -1),
            grid.tolist(),
            frames=frames_in_pixels(config),
            block=block,
            colours_last=family_of(config).colours_last,
        )
    elif pixels.dim() == 3 and isinstance(shapes, torch.Tensor):
        # SigLIP 2: patches are row by row, followed by padding, which is dropped.
        images = _from_patches(
            torch.cat([row[: shape.prod()] for row, shape in zip(pixels, shapes, strict=True)]),
            [[1, *shape] for shape in shapes.tolist()],
            frames=1,
            block=1,
            colours_last=True,
        )
    elif pixels.dim() >= 4 and pixels.shape[-3] in (1, 3):
        images = list(pixels.flatten(0, -4).expand(-1, 3, -1, -1))
    else:
        images = []
    if not images:
        return [], []
    processor = getattr(processor, "image_processor", processor)
    to_colours = _conversion_to_colours(processor, options or {})
    colours = [(to_colours or _scaled)(image) for image in images]
    return list(map(_as_uint8, colours)), [_SCALED_NOTE] if to_colours is None else []


def _conversion_to_colours(
    processor: Any, options: Mapping[str, Any]
) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """Return the conversion of pixel values, (3, height, width), to colours from 0 to 255.

    The conversion inverts that of an image processor, which computes
    ``(colour * factor - offset - mean) / deviation``. The keyword arguments `options` of its call
    replace its own settings. Return None without a processor, or if it normalizes without stating
    mean and deviation.
    """
    # The processor of a text with images takes the arguments for images also in one dictionary.
    options = {**options, **(options.get("images_kwargs") or {})}

    def setting(name: str) -> Any:
        return options.get(name, getattr(processor, name, None))

    mean, deviation = setting("image_mean"), setting("image_std")
    if not setting("do_normalize"):
        mean, deviation = 0.0, 1.0
    if processor is None or mean is None or deviation is None:
        return None
    rescales = bool(setting("do_rescale"))
    shifts = setting("offset") or setting("rescale_offset")
    factor = float(setting("rescale_factor")) if rescales else 1.0
    offset = 1.0 if rescales and shifts else 0.0
    means = torch.as_tensor(mean, dtype=torch.float32).reshape(-1, 1, 1)
    deviations = torch.as_tensor(deviation, dtype=torch.float32).reshape(-1, 1, 1)

    def to_colours(pixels: torch.Tensor) -> torch.Tensor:
        colours = (pixels * deviations + means + offset) / factor
        if factor == 1.0 and float(colours.max()) <= 1.0:
            # The processor did not rescale the colours, and none is larger than 1. So assume that
            # it got a picture with values from 0 to 1.
            colours = colours * 255
        return colours

    return to_colours


def _scaled(pixels: torch.Tensor) -> torch.Tensor:
    lowest, highest = pixels.min(), pixels.max()
    return (pixels - lowest) / (highest - lowest).clamp(min=1e-12) * 255


def _as_uint8(colours: torch.Tensor) -> NDArray[np.uint8]:
    rounded = colours.nan_to_num(0.0).clamp(0, 255).round().to(torch.uint8)
    image: NDArray[np.uint8] = rounded.permute(1, 2, 0).contiguous().numpy()
    return image


def _from_patches(
    pixels: torch.Tensor, grid: list[list[int]], *, frames: int, block: int, colours_last: bool
) -> list[torch.Tensor]:
    """Rebuild pictures, (3, height, width), from the pixel values of patches, (patches, values).

    For each image or film, `grid` has the numbers of patches along time, height and width. Patches
    are in the order of blocks of `block` x `block` patches (Qwen2-VL), and row by row in a block. A
    patch is a square of pixels with three colours. It covers `frames` frames of a film, or `frames`
    copies of an image. `colours_last` is whether the colours are the last axis of the values of a
    patch. Return one picture for each patch along time, or an empty list if `grid` does not fit.
    """
    side = isqrt(pixels.shape[1] // (3 * frames))
    sizes = [prod(shape) for shape in grid]
    if tuple(pixels.shape) != (sum(sizes), 3 * frames * side * side):
        return []
    if any(rows % block or columns % block for _, rows, columns in grid):
        return []
    if colours_last:
        pixels = pixels.unflatten(1, (side * side, -1)).transpose(1, 2).flatten(1)
    images = []
    for part, (length, rows, columns) in zip(pixels.split(sizes), grid, strict=True):
        patches = part.reshape(
            length, rows // block, columns // block, block, block, 3, frames, side, side
        )
        # A picture shows only the first frame of each patch: index 0 on the axis of size `frames`.
        laid_out = patches[:, :, :, :, :, :, 0].permute(0, 5, 1, 3, 6, 2, 4, 7)
        images += list(laid_out.reshape(length, 3, rows * side, columns * side))
    return images
