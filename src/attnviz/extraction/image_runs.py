"""Runs of a text's tokens that stand for images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from math import isqrt
from typing import Any

import torch

from attnviz.images import PatchGrid
from attnviz.tokens import Tokens

__all__ = ["with_image_runs"]

_ID_NAMES = ("image_token_id", "image_token_index", "video_token_id", "video_token_index")


def with_image_runs(
    tokens: Tokens, config: Any, arguments: Mapping[str, Any], num_images: int
) -> Tokens:
    """Name the tokens of a text that stand for patches of images.

    Parameters
    ----------
    tokens : Tokens
        With ids.
    config : PreTrainedConfig
        The model's; its `image_token_id` says which tokens they are.
    arguments : mapping
        What the model was given: ``image_grid_thw`` says how images are cut, where they differ.
    num_images : int
        How many pictures are known.

    Returns
    -------
    Tokens
        Each as ``row,column``, with its grid, where the runs are as many as the pictures and a run
        has just as many tokens as its grid; otherwise as ``image 1``. The same object where no
        token stands for an image.
    """
    names = {getattr(config, name, None) for name in _ID_NAMES} - {None}
    ids = tokens.ids
    if ids is None or not names & set(ids):
        return tokens
    runs = [
        list(run)
        for is_image, run in groupby(range(len(ids)), key=lambda place: ids[place] in names)
        if is_image
    ]
    shapes = _shapes(config, arguments, [len(run) for run in runs])
    if len(shapes) > len(runs):
        # Frames of a film, or images that follow each other without a token between them.
        runs = _cut(runs, shapes)
    text, special = list(tokens.text), list(tokens.special)
    sequence = list(tokens.sequence)
    words = None if tokens.words is None else list(tokens.words)
    grids = []
    for number, run in enumerate(runs):
        shape = shapes[number] if len(shapes) == len(runs) else None
        for offset, place in enumerate(run):
            special[place] = False
            sequence[place] = _sequence_near(tokens, place)
            if shape is None:
                text[place] = f"image {number + 1}"
            else:
                row, column = divmod(offset, shape[1])
                text[place] = (
                    f"{row},{column}" if len(runs) == 1 else f"{number + 1}: {row},{column}"
                )
            if words is not None:
                # A word of its own, so that it stays where words are merged.
                words[place] = len(tokens) + place
        if shape is not None and len(runs) == num_images:
            grids.append(PatchGrid(number, run[0], *shape))
    return replace(
        tokens,
        text=tuple(text),
        special=tuple(special),
        sequence=tuple(sequence),
        words=None if words is None else tuple(words),
        grids=tuple(grids),
    )


def _sequence_near(tokens: Tokens, place: int) -> int:
    """The text that a place belongs to: that of the nearest token before it which has one."""
    before = (tokens.sequence[each] for each in range(place, -1, -1))
    return next((number for number in before if number is not None), 0)


def _shapes(
    config: Any, arguments: Mapping[str, Any], lengths: list[int]
) -> list[tuple[int, int] | None]:
    """Rows and columns of each image's tokens, None where they are no full rectangle."""
    grid = arguments.get("image_grid_thw")
    vision = getattr(config, "vision_config", config)
    if isinstance(grid, torch.Tensor):
        block = int(getattr(vision, "spatial_merge_size", 1) or 1)
        return [
            (height // block, width // block)
            for frames, height, width in grid.tolist()
            for _ in range(frames)
        ]
    squares = [isqrt(length) for length in lengths]
    return [
        (side, side) if side > 1 and side * side == length else None
        for side, length in zip(squares, lengths, strict=True)
    ]


def _cut(runs: list[list[int]], shapes: list[tuple[int, int] | None]) -> list[list[int]]:
    """Cut runs that hold several images; the runs themselves where they don't add up."""
    places = [place for run in runs for place in run]
    lengths = [0 if shape is None else shape[0] * shape[1] for shape in shapes]
    if sum(lengths) != len(places) or 0 in lengths:
        return runs
    cut, start = [], 0
    for length in lengths:
        cut.append(places[start : start + length])
        start += length
    if any(run[-1] - run[0] != len(run) - 1 for run in cut):
        return runs
    return cut
