"""Tokens of time series, named by their channel and by steps or dates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from attnviz.extraction.families import SERIES
from attnviz.extraction.tokens.patches import place_tokens
from attnviz.record.images import PatchGrid, step_name
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import short_repr

# Ends of the texts of dates that are midnight.
_MIDNIGHT = ("T00:00:00.000000000", "T00:00:00", " 00:00:00")


def num_steps(arguments: Mapping[str, Any]) -> int | None:
    """Return the number of steps of the series in a model's arguments, or None without a series."""
    values = arguments.get(SERIES[0])
    if isinstance(values, list | tuple) and values and isinstance(values[0], torch.Tensor):
        # TimesFM takes a list of series.
        return max(len(series) for series in values)
    return values.shape[1] if isinstance(values, torch.Tensor) and values.dim() > 1 else None


def read_index(index: Any, arguments: Mapping[str, Any], config: Any) -> tuple[str, ...] | None:
    """Return the names of the steps of a series, such as dates, or None without `index`.

    `index` has an entry for each step, and may have more entries for the steps that the model
    predicts. Raise TypeError or ValueError if it does not fit the series in `arguments`.
    """
    if index is None:
        return None
    steps = num_steps(arguments)
    if steps is None:
        raise ValueError(
            f"index={short_repr(index)} names the steps of a time series, but inputs has no "
            "past_values. Remove index=."
        )
    if isinstance(index, str) or not hasattr(index, "__len__"):
        raise TypeError(f"index={short_repr(index)} must be a sequence with one entry per step")
    future = getattr(config, "prediction_length", None) or 0
    if len(index) not in (steps, steps + future):
        more = f", and predicts {future}" if future else ""
        raise ValueError(
            f"index has {len(index)} entries, but the series has {steps} steps{more}. Pass one "
            "entry per step."
        )
    names = [str(entry) for entry in index]
    end = next((end for end in _MIDNIGHT if all(name.endswith(end) for name in names)), "")
    return tuple(name.removesuffix(end) for name in names)


def series_tokens(
    arguments: Mapping[str, Any],
    config: Any,
    count: int,
    windows: Sequence[int],
    *,
    index: Sequence[str] | None = None,
    future: bool = False,
) -> Tokens | None:
    """Return `count` tokens of a time series, such as ``x1 0-15`` for a channel and its steps.

    `windows` has the number of tokens of each channel, if the model reads channels apart. `index`
    has names of steps. `future` is whether the tokens are the steps that the model predicts. Return
    None if `arguments` have no series, or if `count` does not fit.
    """
    steps = num_steps(arguments)
    if steps is None or len(set(windows)) > 1:
        return None
    num_channels = max(1, len(windows))
    has_class = bool(getattr(config, "use_cls_token", False)) and not future
    part = _part(config, steps, count // num_channels - has_class, future=future)
    if part is None or count % num_channels or part[3] < 1:
        return None
    origin, step, width, columns = part
    text: list[str] = []
    special: list[bool] = []
    grids = []
    for channel in range(num_channels):
        name = f"x{channel + 1}" if num_channels > 1 else ""
        text += ["[CLS]"] * has_class
        special += [True] * has_class
        # Patches before the series are padding.
        before = sum(origin + column * step + width <= 0 for column in range(columns))
        text += ["[PAD]"] * before
        grid = PatchGrid(
            None,
            len(text),
            1,
            columns - before,
            name=name,
            unit="step",
            origin=origin + before * step,
            step=step,
            width=width,
        )
        spans = [[max(0, round(place)) for place in grid.span(i)] for i in range(grid.columns)]
        names = [
            step_name(range(*span) if index is None else index[slice(*span)]) for span in spans
        ]
        grids.append(grid)
        text += [f"{name} {part}" if name else part for part in names]
        special += [True] * before + [False] * len(names)
    return place_tokens(text, special=special, grids=grids)


def _part(config: Any, steps: int, count: int, *, future: bool) -> tuple[int, int, int, int] | None:
    """Return the steps that the tokens of a channel cover, or None if `count` does not fit.

    The result is the first step of the first token, the distance to the next token and the length
    of a token, in steps, and `count`.
    """
    width = getattr(config, "patch_length", None)
    context = getattr(config, "context_length", None) or steps
    if future:
        # A model without patches predicts single steps.
        return (steps, 1, 1, count) if not width and count == config.prediction_length else None
    if width:
        stride = getattr(config, "patch_stride", None) or width
        # TimesFM fills the time before a short series with padding.
        longest = max(steps, context) if steps < stride * count else steps
        if count != (longest - width) // stride + 1:
            return None
        return steps - width - stride * (count - 1), stride, width, count
    # Every distilling layer of Informer keeps one of two tokens.
    halved = [-(-context // 2**level) for level in range(8)]
    if count not in halved or context > steps:
        return None
    step = 2 ** halved.index(count)
    return steps - context, step, step, count
