"""Tokens of a sound: its frames, by their time."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch

from attnviz.tokens import Tokens

__all__ = ["frame_tokens"]

# What speech models are made for, where no processor says otherwise: 16 kHz, 10 ms a feature.
_SAMPLING_RATE = 16_000
_HOP_LENGTH = 160


def frame_tokens(
    arguments: Mapping[str, Any], config: Any, processor: Any, count: int
) -> Tokens | None:
    """Name the frames of a sound by the time at which each begins.

    Parameters
    ----------
    arguments : mapping
        What the model was given: ``input_values`` (examples, samples), or ``input_features`` with
        its features (examples, bins, features) or (examples, features, bins).
    config : PreTrainedConfig
        The model's: how many samples it goes on from frame to frame.
    processor : object or None
        Says the sampling rate, and how many samples a feature is made of.
    count : int
        Number of frames that attend.

    Returns
    -------
    Tokens or None
        Times in seconds, such as ``0.04s``; None where no sound was given.

    Examples
    --------
    >>> frame_tokens({"input_values": torch.zeros(1, 1280)}, None, None, 4).text
    ('0.00s', '0.02s', '0.04s', '0.06s')
    """
    extractor = getattr(processor, "feature_extractor", processor)
    rate = getattr(extractor, "sampling_rate", None) or _SAMPLING_RATE
    values, features = arguments.get("input_values"), arguments.get("input_features")
    if isinstance(values, torch.Tensor) and values.dim() == 2:
        # Convolutions lose some samples at the ends: their strides say more than the length does.
        strides = getattr(config, "conv_stride", None)
        samples = prod(strides) if strides else values.shape[1] / count
    elif isinstance(features, torch.Tensor) and features.dim() == 3:
        hop = getattr(extractor, "hop_length", None) or _HOP_LENGTH
        # Bins are few: time is the longer axis.
        samples = hop * max(features.shape[1:]) / count
    else:
        return None
    step = samples / rate
    digits = 2 if step >= 0.01 else 3
    times = [f"{place * step:.{digits}f}s" for place in range(count)]
    return Tokens.of(times, words=range(count))
