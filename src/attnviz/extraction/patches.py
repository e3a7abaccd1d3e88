"""Tokens of an image: its patches, by their place."""

from __future__ import annotations

from typing import Any

from attnviz.tokens import Tokens

__all__ = ["patch_tokens"]


def patch_tokens(config: Any, image_size: tuple[int, int], count: int) -> Tokens:
    """Name the tokens that a vision model makes of an image.

    Parameters
    ----------
    config : PreTrainedConfig
        The model's; its `patch_size` says how the image is cut.
    image_size : tuple of int
        Height and width of the image that the model received, in pixels.
    count : int
        Number of tokens that attend.

    Returns
    -------
    Tokens
        ``[CLS]`` and registers first, as special tokens, then each patch as ``row,column``, counted
        from 0 at the top left. Where patches don't account for the tokens they are
        ``[0]``, ``[1]``.

    Examples
    --------
    >>> class Config:
    ...     patch_size = 8
    >>> patch_tokens(Config, (16, 16), 5).text
    ('[CLS]', '0,0', '0,1', '1,0', '1,1')
    """
    for settings in (
        config,
        getattr(config, "vision_config", None),
        getattr(config, "encoder", None),
    ):
        size = getattr(settings, "patch_size", None)
        if size is None:
            continue
        height, width = size if isinstance(size, list | tuple) else (size, size)
        rows, columns = image_size[0] // height, image_size[1] // width
        before = count - rows * columns
        # A class token, a distillation token and up to eight registers; more is something else.
        if rows * columns and 0 <= before <= 16:
            first = ["[CLS]", *(f"[REG{number}]" for number in range(1, before))][:before]
            places = [f"{row},{column}" for row in range(rows) for column in range(columns)]
            special = [True] * before + [False] * len(places)
            # A patch is a part of no larger thing: it stays as it is where words are merged.
            return Tokens.of(first + places, special=special, words=range(count))
    return Tokens.of([f"[{place}]" for place in range(count)], words=range(count))
