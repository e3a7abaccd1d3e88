"""The pictures that a model saw, back from its pixel values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["pictures"]

_SCALED_NOTE = (
    "No image processor says how the picture's colours were made into pixel values: they are drawn "
    "from the darkest to the brightest."
)


def pictures(
    arguments: Mapping[str, Any], config: Any, processor: Any
) -> tuple[list[NDArray[np.uint8]], list[str]]:
    """Draw the pictures that a model was given.

    Parameters
    ----------
    arguments : mapping
        The model's keyword arguments: ``pixel_values`` as pictures (..., 3, height, width), or as
        patches with ``image_grid_thw``.
    config : PreTrainedConfig
        The model's.
    processor : object or None
        The image processor that made the pixel values; it says how colours were changed.

    Returns
    -------
    images : list of ndarray
        uint8, (height, width, 3), as the model saw them: resized and cropped.
    notes : list of str
        What a reader must know.
    """
    pixels = arguments.get("pixel_values")
    if not isinstance(pixels, torch.Tensor) or not pixels.is_floating_point():
        return [], []
    pixels = pixels.detach().float().cpu()
    grid = arguments.get("image_grid_thw")
    if pixels.dim() == 2 and isinstance(grid, torch.Tensor):
        found = _from_patches(pixels, grid.tolist(), getattr(config, "vision_config", config))
    elif pixels.dim() >= 4 and pixels.shape[-3] in (1, 3):
        found = list(pixels.flatten(0, -4).expand(-1, 3, -1, -1))
    else:
        found = []
    if not found:
        return [], []
    inside = getattr(processor, "image_processor", processor)
    mean, deviation = (getattr(inside, each, None) for each in ("image_mean", "image_std"))
    known = inside is not None and (mean is not None or not getattr(inside, "do_normalize", True))
    return [_colours(each, mean, deviation, known=known) for each in found], (
        [] if known else [_SCALED_NOTE]
    )


def _colours(pixels: torch.Tensor, mean: Any, deviation: Any, *, known: bool) -> NDArray[np.uint8]:
    """Colours of one picture, (3, height, width)."""
    if known:
        if mean is not None:
            pixels = pixels * _each_colour(deviation) + _each_colour(mean)
    else:
        lowest, highest = pixels.min(), pixels.max()
        pixels = (pixels - lowest) / (highest - lowest).clamp(min=1e-12)
    colours = (pixels.nan_to_num(0.0).clamp(0, 1) * 255).round().to(torch.uint8)
    image: NDArray[np.uint8] = colours.permute(1, 2, 0).contiguous().numpy()
    return image


def _each_colour(values: Any) -> torch.Tensor:
    return torch.as_tensor(values, dtype=torch.float32).reshape(-1, 1, 1)


def _from_patches(pixels: torch.Tensor, grid: list[list[int]], config: Any) -> list[torch.Tensor]:
    """Put patches that are kept in blocks (Qwen2-VL and its kin) into pictures again."""
    patch = getattr(config, "patch_size", None)
    block = int(getattr(config, "spatial_merge_size", 1) or 1)
    frames_each = int(getattr(config, "temporal_patch_size", 1) or 1)
    if not isinstance(patch, int) or pixels.shape[1] != 3 * frames_each * patch * patch:
        return []
    found, start = [], 0
    for frames, rows, columns in grid:
        if rows % block or columns % block:
            return []
        stop = start + frames * rows * columns
        patches = pixels[start:stop].reshape(
            frames, rows // block, columns // block, block, block, 3, frames_each, patch, patch
        )
        start = stop
        # Frames that share a patch are the same picture twice, or nearly so in a film.
        laid = patches[:, :, :, :, :, :, 0].permute(0, 5, 1, 3, 6, 2, 4, 7)
        found += list(laid.reshape(frames, 3, rows * patch, columns * patch))
    return found
