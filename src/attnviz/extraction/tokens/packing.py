"""Places of image tokens that a model packs: a small picture, joined tiles, and ends of rows.

LLaVA-NeXT and related models encode a small picture of the whole image, and tiles of a larger one.
They join the tiles, remove padding, and put a token after each row. Their method
`pack_image_features` does this with vectors of patches. Here, the method also gets the coordinates
of the patches, so that its result says where each token is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from attnviz.extraction.tokens.patches import NEWLINE, renamed
from attnviz.record.images import PatchGrid
from attnviz.record.tokens import Tokens
from attnviz.utils.cleanup import Cleanup

_METHOD = "pack_image_features"


@dataclass(frozen=True)
class PackedImage:
    """Tokens of one image.

    Attributes
    ----------
    num_tiles : int
        Number of pictures that the encoder gets: the small picture, and then the tiles.
    shape : tuple of int
        Rows and columns of tiles. (0, 0) without tiles.
    side : int
        Rows and columns of patches of a tile.
    places : Tensor
        Whether a token belongs to the joined tiles, and its row and column in the small picture or
        in the joined tiles, (tokens, 3). NaN for a token that ends a row.
    """

    num_tiles: int
    shape: tuple[int, int]
    side: int
    places: torch.Tensor

    def grids(self, image: int, joined: int, start: int) -> list[PatchGrid]:
        """Return the grids of the small picture and of the joined tiles.

        Their pictures have the indices `image` and `joined` in the record. `start` is the position
        of the image's first token.
        """
        grids = []
        for is_joined, number in ((False, image), (True, joined)):
            own, (rows, columns) = self._cells(is_joined=is_joined)
            if rows:
                gap = int(own[columns] - own[columns - 1]) - 1 if rows > 1 else 0
                name = "small" if self.num_tiles > 1 and not is_joined else ""
                first = start + int(own[0])
                grids.append(PatchGrid(number, first, rows, columns, gap=gap, name=name))
        return grids

    def _cells(self, *, is_joined: bool) -> tuple[torch.Tensor, tuple[int, int]]:
        """Return the tokens of the small picture or of the joined tiles, and (rows, columns)."""
        own = (self.places[:, 0] == is_joined).nonzero().flatten()
        if not len(own):
            return own, (0, 0)
        # Coordinates in a grid that the model has shrunk are rounded.
        columns = int(torch.isclose(self.places[own, 1], self.places[own[0], 1], atol=1e-3).sum())
        return own, (len(own) // columns, columns)

    def joined_picture(self, pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.uint8]:
        """Return the picture of the joined tiles without padding.

        `pictures` are the small picture and the tiles.
        """
        rows, columns = self.shape
        tiles = pictures[1:]
        picture = np.concatenate(
            [np.concatenate(tiles[row * columns : (row + 1) * columns], 1) for row in range(rows)]
        )
        own, shape = self._cells(is_joined=True)
        cells = self.places[own, 1:].unflatten(0, shape)
        for axis, along in enumerate((cells[:, 0, 0], cells[0, :, 1])):
            # The model may have shrunk the grid, so that a token covers more than one patch.
            half = float(along[1] - along[0]) / 2 if len(along) > 1 else 0.5
            ends = torch.stack([along[0] + 0.5 - half, along[-1] + 0.5 + half])
            pixels = picture.shape[axis] / (self.side * self.shape[axis])
            first, last = (ends * pixels).round().int().tolist()
            picture = picture.take(range(max(first, 0), last), axis)
        return np.ascontiguousarray(picture)


def watch_packing(modules: Iterable[nn.Module], undo: Cleanup) -> list[PackedImage]:
    """Return a list that gets the images that `modules` pack until `undo` ends."""
    images: list[PackedImage] = []
    for module in modules:
        if hasattr(module, _METHOD) and hasattr(module, "image_newline"):
            undo.add(partial(module.__dict__.pop, _METHOD, None))
            module.__dict__[_METHOD] = partial(_pack, module, getattr(module, _METHOD), images)
    return images


def _pack(
    module: Any,
    pack: Any,
    images: list[PackedImage],
    features: Any,
    sizes: Any,
    *args: Any,
    **options: Any,
) -> Any:
    result = pack(features, sizes, *args, **options)
    # Some models pack the features of several layers in the same way.
    images.clear()
    shape_of = getattr(sys.modules[type(module).__module__], "get_anyres_image_grid_shape", None)
    for part, size in zip(features, sizes, strict=True):
        count, length = part.shape[:2]
        side = isqrt(length)
        if shape_of is None or side * side != length:
            images.clear()
            break
        shape = (0, 0)
        if count > 1:
            tile = module.config.vision_config.image_size
            shape = tuple(shape_of(size, module.config.image_grid_pinpoints, tile))
        # Whether a patch belongs to a tile, its row and its column.
        coordinates = torch.zeros(count, side, side, 3)
        coordinates[..., 1] = torch.arange(side)[:, None]
        coordinates[..., 2] = torch.arange(side)
        for number in range(1, count):
            row, column = divmod(number - 1, shape[1])
            coordinates[number] += torch.tensor([1, row * side, column * side])
        options["image_newline"] = torch.full((3,), torch.nan)
        packed = pack([coordinates.flatten(1, 2)], size[None], *args, **options)
        # Some models also return the numbers of tokens.
        [of_tokens] = packed[0] if isinstance(packed, tuple) else packed
        images.append(PackedImage(count, shape, side, of_tokens))
    return result


def with_packed_images(
    tokens: Tokens, runs: Sequence[list[int]], images: Sequence[PackedImage]
) -> Tokens | None:
    """Rename the tokens of a text that stand for parts of packed images.

    `runs` has the positions of these tokens. Tokens of the small picture are named ``small 0,0``,
    those of the joined tiles ``0,0``, and ends of rows ``[newline]``. The pictures of joined tiles
    come after all others in the record. Return None if the tokens do not fit `images`.
    """
    positions = [position for run in runs for position in run]
    if not images or len(positions) != sum(len(image.places) for image in images):
        return None
    names = dict.fromkeys(positions, NEWLINE)
    grids: list[PatchGrid] = []
    first, joined, offset = 0, sum(image.num_tiles for image in images), 0
    for number, image in enumerate(images, 1):
        own = positions[offset : offset + len(image.places)]
        if own[-1] - own[0] >= len(own):
            return None
        prefix = f"{number}: " if len(images) > 1 else ""
        for grid in image.grids(first, joined, own[0]):
            names |= {
                position: prefix + name
                for position, name in zip(grid.positions, grid.names(), strict=True)
            }
            picture = "small picture" if grid.name else "image"
            name = f"{picture} {number}" if len(images) > 1 else f"the {picture}"
            grids.append(replace(grid, name=name))
        first, joined, offset = (
            first + image.num_tiles,
            joined + (image.num_tiles > 1),
            offset + len(own),
        )
    tokens = renamed(tokens, runs, "image", [[names[position] for position in positions]])
    return replace(tokens, grids=tuple(grids))
