"""Functions that return the tokens of a sound, named by their start time, and a note on its end.

A model gets a sound as samples, or as feature vectors, one for about 10 ms. A query or key of the
model's sound encoder is a frame, which covers several samples or feature vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from attnviz.extraction.families import (
    FRAME_MASKS,
    SOUND_TOKEN_IDS,
    feature_widths,
    samples_per_frame,
)
from attnviz.extraction.tokens.patches import numbered, renamed, runs_of
from attnviz.record.tokens import Tokens

# Sampling rate (samples per second), and number of samples from one feature vector to the next
# (10 ms). These values are common in speech models. They are used if the processor defines none.
_SAMPLING_RATE = 16_000
_HOP_LENGTH = 160


@dataclass(frozen=True)
class _Sound:
    """Lengths of the sounds in a model's arguments.

    A length is a number of feature vectors if the model gets these, else a number of samples.
    `lengths` has the length of each sound, without padding if the padding is known. `longest` is
    the length that all sounds have with padding. `seconds` is the duration of one feature vector or
    sample, and `rate` the number of samples per second.
    """

    lengths: tuple[int, ...]
    longest: int
    seconds: float
    rate: int


def _sound_of(arguments: Mapping[str, Any], config: Any, processor: Any) -> _Sound | None:
    extractor = getattr(processor, "feature_extractor", processor)
    rate = getattr(extractor, "sampling_rate", None) or _SAMPLING_RATE
    values, features = arguments.get("input_values"), arguments.get("input_features")
    if isinstance(values, torch.Tensor) and values.dim() == 2:
        return _Sound((values.shape[1],) * len(values), values.shape[1], 1 / rate, rate)
    if not isinstance(features, torch.Tensor) or features.dim() != 3:
        return None
    hop = getattr(extractor, "hop_length", None) or _HOP_LENGTH
    # Some feature extractors concatenate `stride` neighbouring feature vectors.
    hop *= getattr(extractor, "stride", None) or 1
    longest = features.shape[_time_axis(features, config, extractor)]
    lengths = (longest,) * len(features)
    for name in FRAME_MASKS:
        mask = arguments.get(name)
        if isinstance(mask, torch.Tensor) and mask.shape == (len(features), longest):
            lengths = tuple(int(length) for length in (mask != 0).sum(-1))
            break
    return _Sound(lengths, longest, hop / rate, rate)


def _time_axis(features: torch.Tensor, config: Any, extractor: Any) -> int:
    """Return the axis of time: 2 for (examples, bins, time), 1 for (examples, time, bins).

    Bins are the entries of a feature vector.
    """
    widths = feature_widths(config, extractor)
    fitting = [axis for axis in (1, 2) if features.shape[axis] in widths]
    if len(fitting) == 1:
        return 3 - fitting[0]
    # If both axes or neither may be the axis of bins, assume that the longer axis is the time.
    return 1 if features.shape[1] > features.shape[2] else 2


def frame_tokens(
    arguments: Mapping[str, Any], config: Any, processor: Any, count: int
) -> Tokens | None:
    """Return tokens for the `count` frames of a sound, named by start time, such as ``0.04s``.

    `arguments` are the arguments of the model. The sound is ``input_values``, (examples, samples),
    or ``input_features``, (examples, bins, time) or (examples, time, bins). `processor` may define
    the sampling rate and the number of samples per feature vector. Return None if `arguments`
    contain no sound.

    Examples
    --------
    >>> frame_tokens({"input_values": torch.zeros(1, 1280)}, None, None, 4).text
    ('0.00s', '0.02s', '0.04s', '0.06s')
    """
    sound = _sound_of(arguments, config, processor)
    if sound is None:
        return None
    # Convolutions drop the last samples of a sound, so `longest / count` is too large. The strides
    # of the convolutions give the exact number of samples per frame.
    step = sound.longest / count
    if "input_values" in arguments:
        step = samples_per_frame(config) or step
    return Tokens.of(_times(count, step * sound.seconds), words=range(count))


def _times(count: int, step: float) -> list[str]:
    digits = 2 if step >= 0.01 else 3
    return [f"{position * step:.{digits}f}s" for position in range(count)]


def with_sound_runs(
    tokens: Tokens, arguments: Mapping[str, Any], config: Any, processor: Any
) -> Tokens:
    """Rename tokens that stand for parts of a sound. A name is the start time: ``0.04s``.

    Consecutive renamed tokens are one sound. If there are several sounds, a name starts with the
    number of the sound, counted from 1: ``2: 0.04s``. If `arguments` do not contain as many sounds,
    times are not known. Then all tokens of the first sound are named ``sound 1``, and so on. Return
    `tokens` itself if no token stands for a part of a sound.
    """
    runs = runs_of(tokens, config, SOUND_TOKEN_IDS)
    if not runs:
        return tokens
    sound = _sound_of(arguments, config, processor)
    if sound is None or len(sound.lengths) != len(runs):
        return renamed(tokens, runs, "sound", None)
    names = [
        _times(len(run), length * sound.seconds / len(run))
        for run, length in zip(runs, sound.lengths, strict=True)
    ]
    return renamed(tokens, runs, "sound", numbered(names))


def length_notes(
    samples: int, arguments: Mapping[str, Any], config: Any, processor: Any
) -> list[str]:
    """Return a list with a note on when the sound ends, or an empty list if no note is needed.

    A note is needed if the model's input is more than 0.1 seconds longer than the sound, or if the
    processor drops the end of the sound. `samples` is the number of samples of the sound at the
    processor's sampling rate. It is 0 if it is not known. Then the list is empty.
    """
    sound = _sound_of(arguments, config, processor)
    extractor = getattr(processor, "feature_extractor", processor)
    rate = getattr(extractor, "sampling_rate", None) or _SAMPLING_RATE
    end = samples / rate
    read = None if sound is None else sound.longest * sound.seconds
    if samples and read is not None and read > end + 0.1:
        return [f"The sound ends at {end:.2f}s. The rest of the model's input is silence."]
    # Limits of the processors of Whisper, in samples, and of AST, in feature vectors of 10 ms.
    kept = (getattr(extractor, "n_samples", None) or 0) / rate
    kept = kept or (getattr(extractor, "max_length", None) or 0) / 100
    if kept and end > kept + 0.1 and (read is None or read < end - 0.1):
        return [f"The sound lasts {end:.2f}s. The processor keeps the first {kept:.2f}s of it."]
    return []
