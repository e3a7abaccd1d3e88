"""Functions that return the tokens of a sound, named by their start time, and a note on its end.

A model gets a sound as samples, or as feature vectors, one for about 10 ms. A query or key of the
model's sound encoder is a frame, which covers several samples or feature vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch

from attnviz.extraction.families import FRAME_MASKS, SOUND_TOKEN_IDS, conv_stride, feature_widths
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
    if isinstance(values, torch.Tensor) and (values.dim() == 2 or values.shape[1:-1] == (1,)):
        return _Sound((values.shape[-1],) * len(values), values.shape[-1], 1 / rate, rate)
    if not isinstance(features, torch.Tensor) or features.dim() != 3:
        return None
    layout = _layout_of(features, config, extractor, rate)
    if layout is None:
        return None
    longest = features.shape[layout.time_axis]
    lengths = (longest,) * len(features)
    for name in FRAME_MASKS:
        mask = arguments.get(name)
        if isinstance(mask, torch.Tensor) and mask.shape == (len(features), longest):
            lengths = tuple(int(length) for length in (mask != 0).sum(-1))
            break
    return _Sound(lengths, longest, layout.seconds, rate)


class _Layout(NamedTuple):
    """Layout of feature vectors (examples, bins, time) or (examples, time, bins).

    Bins are the entries of a feature vector. `seconds` is the duration of one vector.
    """

    time_axis: int
    num_bins: int
    seconds: float


# Layouts of the results of feature extractors, or None if an extractor cannot be observed.
_layouts: WeakKeyDictionary[Any, _Layout | None] = WeakKeyDictionary()


def _layout_of(features: torch.Tensor, config: Any, extractor: Any, rate: int) -> _Layout | None:
    """Return the layout of feature vectors, or None if their axis of time is not known."""
    if extractor is not None:
        if extractor not in _layouts:
            _layouts[extractor] = _observed_layout(extractor, rate)
        layout = _layouts[extractor]
        if layout is not None and features.shape[3 - layout.time_axis] == layout.num_bins:
            return layout
    bins = [axis for axis in (1, 2) if features.shape[axis] in feature_widths(config)]
    if len(bins) != 1:
        return None
    hop = getattr(extractor, "hop_length", None) or _HOP_LENGTH
    return _Layout(3 - bins[0], features.shape[bins[0]], hop / rate)


def _observed_layout(extractor: Any, rate: int) -> _Layout | None:
    """Return the layout of an extractor's results for one and for two seconds of silence.

    The axis of time is longer for two seconds. If the extractor pads all sounds to one length, the
    mask of its result has as many entries as this axis. Return None if neither shows the axis.
    """
    try:
        one, two = (
            extractor(
                np.zeros(seconds * rate, np.float32),
                sampling_rate=rate,
                return_tensors="pt",
                return_attention_mask=True,
            )
            for seconds in (1, 2)
        )
        shapes = [tuple(part["input_features"].shape) for part in (one, two)]
    # An extractor may take other arguments, or need a package that is not installed.
    except (AttributeError, ImportError, KeyError, RuntimeError, TypeError, ValueError):
        return None
    if any(len(shape) != 3 for shape in shapes):
        return None
    axes = [axis for axis in (1, 2) if shapes[0][axis] != shapes[1][axis]]
    vectors = [shape[axes[0]] for shape in shapes] if axes else []
    if not axes:
        name = next((name for name in FRAME_MASKS if name in one), None)
        if name is None:
            return None
        axes = [axis for axis in (1, 2) if shapes[0][axis] == one[name].shape[-1]]
        vectors = [int((part[name] != 0).sum()) for part in (one, two)]
    if len(axes) != 1 or vectors[1] <= vectors[0]:
        return None
    # A vector covers whole hops, and the number of vectors of a second is rounded.
    hop = (getattr(extractor, "hop_length", None) or rate // 100) / rate
    seconds = hop * max(1, round(1 / (vectors[1] - vectors[0]) / hop))
    return _Layout(axes[0], shapes[0][3 - axes[0]], seconds)


def _step(model: Any, lengths: Sequence[int], count: int) -> float:
    """Return how many samples or feature vectors lie between the starts of two frames.

    `count` is the number of frames. `lengths` has the length of the sound with padding, and that
    without padding if the encoder may drop it. A frame is one step of the encoder's convolutions.
    They may drop the end of the sound, or pad it, so a length divided by `count` is not exact. If
    neither length gives about `count` frames, other layers join frames, too. Then round the first
    length divided by `count`, if this gives about `count` frames.
    """
    strides = conv_stride(model), round(lengths[0] / count)
    fitting = (
        stride
        for stride in strides
        if stride and any(-2 < length / stride - count < 4 for length in lengths)
    )
    return next(fitting, lengths[0] / count)


def frame_tokens(
    arguments: Mapping[str, Any], model: Any, processor: Any, count: int
) -> Tokens | None:
    """Return tokens for the `count` frames of a sound, named by start time, such as ``0.04s``.

    `arguments` are the arguments of the model. The sound is ``input_values``, (examples, samples),
    or ``input_features``, (examples, bins, time) or (examples, time, bins). `processor` may define
    the sampling rate and the number of samples per feature vector. Return None if `arguments`
    contain no sound, or if its axis of time is not known.
    """
    sound = _sound_of(arguments, model.config, processor)
    if sound is None:
        return None
    lengths = {sound.longest, *sound.lengths} if len(sound.lengths) == 1 else {sound.longest}
    step = _step(model, sorted(lengths, reverse=True), count)
    return Tokens.of(_times(count, step * sound.seconds), words=range(count))


def _times(count: int, step: float) -> list[str]:
    digits = 2 if step >= 0.01 else 3
    return [f"{position * step:.{digits}f}s" for position in range(count)]


def with_sound_runs(
    tokens: Tokens, arguments: Mapping[str, Any], model: Any, processor: Any
) -> Tokens:
    """Rename tokens that stand for parts of a sound. A name is the start time: ``0.04s``.

    Consecutive renamed tokens are one sound. If there are several sounds, a name starts with the
    number of the sound, counted from 1: ``2: 0.04s``. If `arguments` do not contain as many sounds,
    times are not known. Then all tokens of the first sound are named ``sound 1``, and so on. Return
    `tokens` itself if no token stands for a part of a sound.
    """
    runs = runs_of(tokens, model.config, SOUND_TOKEN_IDS)
    if not runs:
        return tokens
    sound = _sound_of(arguments, model.config, processor)
    if sound is None or len(sound.lengths) != len(runs):
        return renamed(tokens, runs, "sound", None)
    frame, names = conv_stride(model), []
    for run, length in zip(runs, sound.lengths, strict=True):
        # A token of the text stands for whole frames of the encoder. The last may be incomplete.
        step = length / len(run)
        whole = frame * round(step / frame)
        fits = whole and abs(length / whole - len(run)) < 2
        names.append(_times(len(run), (whole if fits else step) * sound.seconds))
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
