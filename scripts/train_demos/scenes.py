"""Pictures of two coloured shapes, with sentences such as "the red circle"."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from train_demos.shapes import IMAGE_SIZE, SHAPES, shape_masks

# Colours by name: red, green and blue, from 0 to 255.
COLORS = {
    "red": (230, 60, 50),
    "green": (60, 190, 80),
    "blue": (70, 110, 240),
    "yellow": (240, 210, 60),
    "white": (235, 235, 235),
}
SIDES = ("left", "right")
WORDS = ("the", *COLORS, *SHAPES)

_SMALLEST, _LARGEST = 5.0, 6.2
_GROUND = (10.0, 50.0)
_NOISE = 10.0
_COLOR_SPREAD = 12.0


@dataclass(frozen=True)
class Scene:
    """Picture of two shapes, with a prompt and an answer for each shape.

    Attributes
    ----------
    image : ndarray of uint8, (32, 32, 3)
        Red, green and blue.
    shapes, colors : tuple of str
        Names and colours of the two shapes. The two names differ, and so do the two colours.
    sides : tuple of str
        Half of the picture in which each shape lies: "left" or "right".
    masks : ndarray of bool, (2, 32, 32)
        Masks of the two shapes: True on the shape.
    """

    image: NDArray[np.uint8]
    shapes: tuple[str, str]
    colors: tuple[str, str]
    sides: tuple[str, str]
    masks: NDArray[np.bool_]

    def prompt(self, which: int) -> str:
        """Return the prompt for shape 0 or 1, which states its colour: "the red"."""
        return f"the {self.colors[which]}"

    def answer(self, which: int) -> str:
        """Return the correct continuation of the prompt: the name of this shape."""
        return self.shapes[which]


def draw_scene(generator: np.random.Generator) -> Scene:
    """Draw a picture with two different shapes, one in each half.

    Examples
    --------
    >>> scene = draw_scene(np.random.default_rng(0))
    >>> scene.image.shape, scene.masks.shape
    ((32, 32, 3), (2, 32, 32))
    >>> scene.answer(0) == scene.shapes[0]
    True
    """
    shapes = generator.choice(len(SHAPES), size=2, replace=False)
    colors = [list(COLORS)[number] for number in generator.choice(len(COLORS), 2, replace=False)]
    sides = [SIDES[number] for number in generator.permutation(2)]
    radius = generator.uniform(_SMALLEST, _LARGEST, size=2)
    half = IMAGE_SIZE / 2
    # Choose centres for which the shapes, including their corners, stay in their halves.
    reach = 1.25 * radius
    across = reach + generator.random(2) * (half - 2 * reach)
    across += half * np.array([side == "right" for side in sides])
    down = reach + generator.random(2) * (IMAGE_SIZE - 2 * reach)
    masks = shape_masks(np.stack([across, down]), radius)[shapes, np.arange(2)]

    image = np.broadcast_to(generator.uniform(*_GROUND, size=3), (IMAGE_SIZE, IMAGE_SIZE, 3))
    for mask, color in zip(masks, colors, strict=True):
        ink = np.array(COLORS[color]) + generator.normal(0, _COLOR_SPREAD, size=3)
        image = np.where(mask[..., None], ink, image)
    image = image + generator.normal(0, _NOISE, size=image.shape)
    return Scene(
        image.clip(0, 255).astype(np.uint8),
        (SHAPES[shapes[0]], SHAPES[shapes[1]]),
        (colors[0], colors[1]),
        (sides[0], sides[1]),
        masks,
    )
