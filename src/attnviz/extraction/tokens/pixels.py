"""The pictures that a model saw, back from its pixel values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.extraction.tokens.arrange import grid_of

__all__ = ["pictures"]

_SCALED_NOTE = (
    "No image processor says how the picture's colours were made into pixel values: they are drawn "
    "from the darkest to the brightest."
)
# Their patches are kept pixel by pixel, others colour by colour.
_COLOURS_LAST = {"cosmos3_edge", "cosmos3_edge_vision"}


def pictures(
    arguments: Mapping[str, Any], config: Any, processor: Any, *, block: int = 1
) -> tuple[list[NDArray[np.uint8]], list[str]]:
    """Draw the pictures that a model was given.

    Parameters
    ----------
    arguments : mapping
        The model's keyword arguments: ``pixel_values`` as pictures (..., 3, height, width), or as
        patches with ``image_grid_thw`` or ``spatial_shapes``.
    config : PreTrainedConfig
        The model's.
    processor : object or None
        The image processor that made the pixel values; it says how colours were changed.
    block : int
        Rows and columns of patches that follow each other, where patches were given.

    Returns
    -------
    images : list of ndarray
        uint8, (height, width, 3), as the model saw them: resized and cropped.
    notes : list of str
        What a reader must know.
    """
    given = [arguments.get(name) for name in ("pixel_values", "pixel_values_videos")]
    tensors = [each for each in given if isinstance(each, torch.Tensor)]
    # Of images and films at once it isn't known which tokens are whose.
    if len(tensors) != 1 or not tensors[0].is_floating_point():
        return [], []
    pixels = tensors[0].detach().float().cpu()
    grid, shapes = grid_of(arguments), arguments.get("spatial_shapes")
    if grid is not None:
        found = _from_patches(pixels.flatten(1), grid.tolist(), config, block)
    elif pixels.dim() == 3 and isinstance(shapes, torch.Tensor):
        found = _from_rows(pixels, shapes.tolist())
    elif pixels.dim() >= 4 and pixels.shape[-3] in (1, 3):
        found = list(pixels.flatten(0, -4).expand(-1, 3, -1, -1))
    else:
        found = []
    if not found:
        return [], []
    colours = _Colours.of(getattr(processor, "image_processor", processor))
    if colours is None:
        return [_scaled(each) for each in found], [_SCALED_NOTE]
    return [colours.back(each) for each in found], []


@dataclass(frozen=True)
class _Colours:
    """How pixel values were made of colours: ``(colour * factor - offset - mean) / deviation``."""

    factor: float
    offset: float
    mean: torch.Tensor
    deviation: torch.Tensor

    @classmethod
    def of(cls, processor: Any) -> _Colours | None:
        """Read it from an image processor; None where it doesn't say."""
        mean, deviation = (getattr(processor, each, None) for each in ("image_mean", "image_std"))
        if not getattr(processor, "do_normalize", False):
            mean, deviation = 0.0, 1.0
        if processor is None or mean is None or deviation is None:
            return None
        rescales = bool(getattr(processor, "do_rescale", False))
        shifts = any(getattr(processor, each, False) for each in ("offset", "rescale_offset"))
        return cls(
            float(processor.rescale_factor) if rescales else 1.0,
            1.0 if rescales and shifts else 0.0,
            torch.as_tensor(mean, dtype=torch.float32).reshape(-1, 1, 1),
            torch.as_tensor(deviation, dtype=torch.float32).reshape(-1, 1, 1),
        )

    def back(self, pixels: torch.Tensor) -> NDArray[np.uint8]:
        """Colours of one picture, (3, height, width)."""
        colours = (pixels * self.deviation + self.mean + self.offset) / self.factor
        if self.factor == 1.0 and float(colours.max()) <= 1.0:
            # Not rescaled because it came between 0 and 1 already.
            colours = colours * 255
        return _image(colours)


def _scaled(pixels: torch.Tensor) -> NDArray[np.uint8]:
    lowest, highest = pixels.min(), pixels.max()
    return _image((pixels - lowest) / (highest - lowest).clamp(min=1e-12) * 255)


def _image(colours: torch.Tensor) -> NDArray[np.uint8]:
    rounded = colours.nan_to_num(0.0).clamp(0, 255).round().to(torch.uint8)
    image: NDArray[np.uint8] = rounded.permute(1, 2, 0).contiguous().numpy()
    return image


def _from_rows(pixels: torch.Tensor, shapes: list[list[int]]) -> list[torch.Tensor]:
    """Put patches that are kept row by row, colours last (SigLIP 2), into pictures again."""
    side = isqrt(pixels.shape[2] // 3)
    if pixels.shape[2] != 3 * side * side:
        return []
    return [
        each[: rows * columns]
        .reshape(rows, columns, side, side, 3)
        .permute(4, 0, 2, 1, 3)
        .reshape(3, rows * side, columns * side)
        for each, (rows, columns) in zip(pixels, shapes, strict=True)
    ]


def _from_patches(
    pixels: torch.Tensor, grid: list[list[int]], config: Any, block: int
) -> list[torch.Tensor]:
    """Put patches that are kept in blocks (Qwen2-VL and its kin) into pictures again."""
    settings = getattr(config, "vision_config", config)
    frames_each = int(getattr(settings, "temporal_patch_size", 1) or 1)
    side = isqrt(pixels.shape[1] // (3 * frames_each))
    count = sum(frames * rows * columns for frames, rows, columns in grid)
    if tuple(pixels.shape) != (count, 3 * frames_each * side * side):
        return []
    if getattr(config, "model_type", None) in _COLOURS_LAST:
        pixels = pixels.unflatten(1, (side * side, -1)).transpose(1, 2).flatten(1)
    found, start = [], 0
    for frames, rows, columns in grid:
        if rows % block or columns % block:
            return []
        stop = start + frames * rows * columns
        patches = pixels[start:stop].reshape(
            frames, rows // block, columns // block, block, block, 3, frames_each, side, side
        )
        start = stop
        # Frames that share a patch are the same picture twice, or nearly so in a film.
        laid = patches[:, :, :, :, :, :, 0].permute(0, 5, 1, 3, 6, 2, 4, 7)
        found += list(laid.reshape(frames, 3, rows * side, columns * side))
    return found
