"""Functions that return the tokens of a sound, named by their start time, and a note on its end.

A model gets a sound as samples, or as feature vectors, one for about 10 ms. A query or key of the
model's sound encoder is a frame, which covers several samples or feature vectors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch

from attnviz.extraction.families import FRAME_MASKS, SOUND_TOKEN_IDS, conv_strides, feature_widths
from attnviz.extraction.tokens.patches import numbered, place_tokens, renamed, runs_of
from attnviz.record.images import PatchGrid
from attnviz.record.notes import Note
from attnviz.record.tokens import Tokens

# Sampling rate (samples per second), and number of samples from one feature vector to the next
# (10 ms). These values are common in speech models. They are used if the processor defines none,
# and `time_notes` says so.
_SAMPLING_RATE = 16_000
_HOP_LENGTH = 160
_TIME = re.compile(r"(\d+: |\d+,)?\d+\.\d+s")


@dataclass(frozen=True)
class Sound:
    """Lengths of the sounds in a model's arguments.

    A length is a number of feature vectors if the model gets these, else a number of samples.
    `lengths` has the length of each sound, without padding if the padding is known. `longest` is
    the length that all sounds have with padding. `seconds` is the duration of one feature vector or
    sample. `assumed` says what `seconds` assumes. It is empty if the processor defines `seconds`.
    """

    lengths: tuple[int, ...]
    longest: int
    seconds: float
    assumed: str


def sound_of(arguments: Mapping[str, Any], config: Any, processor: Any) -> Sound | None:
    """Return the lengths of the sounds in a model's arguments, or None without a known sound.

    A sound is ``input_values``, (examples, samples), or ``input_features``, (examples, bins, time)
    or (examples, time, bins). `processor` may define the sampling rate and the number of samples
    per feature vector. Return None if `arguments` contain no sound, or if its axis of time is not
    known.
    """
    extractor = getattr(processor, "feature_extractor", processor)
    defined = getattr(extractor, "sampling_rate", None)
    rate = defined or _SAMPLING_RATE
    values, features = arguments.get("input_values"), arguments.get("input_features")
    if isinstance(values, torch.Tensor) and values.dim() == 3 and values.shape[1] > 1:
        # AST gets feature vectors under the name of samples.
        values, features = None, values
    if isinstance(values, torch.Tensor) and (values.dim() == 2 or values.shape[1:-1] == (1,)):
        assumed = "" if defined else f"{rate:,} samples per second"
        return Sound((values.shape[-1],) * len(values), values.shape[-1], 1 / rate, assumed)
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
    return Sound(lengths, longest, layout.seconds, layout.assumed)


class _Layout(NamedTuple):
    """Layout of feature vectors (examples, bins, time) or (examples, time, bins).

    Bins are the entries of a feature vector. `seconds` is the duration of one vector, and `assumed`
    says what it assumes (see `Sound`).
    """

    time_axis: int
    num_bins: int
    seconds: float
    assumed: str = ""


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
    hop = getattr(extractor, "hop_length", None)
    seconds = (hop or _HOP_LENGTH) / rate
    assumed = "" if hop else f"{seconds * 1000:g} ms per feature vector"
    return _Layout(3 - bins[0], features.shape[bins[0]], seconds, assumed)


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


def _step(model: Any, lengths: Sequence[int], count: int) -> int | None:
    """Return how many samples or feature vectors lie between the starts of two frames.

    `count` is the number of frames. `lengths` has the length of the sound with padding, and that
    without padding if the encoder may drop it. A frame is one step of the encoder's first
    convolutions, or several steps of all of them if other layers join frames. Convolutions may drop
    the end of the sound, or pad it, so a length divided by `count` is not exact. Return None if no
    length gives about `count` frames.
    """
    strides = conv_strides(model)
    joined = strides[-1] * round(lengths[0] / count / strides[-1])
    for steps in (strides, [joined] if joined else []):
        surplus = [(length / step - count, step) for step in steps for length in lengths]
        fitting = [(abs(more), step) for more, step in surplus if -2 < more < 4]
        if fitting:
            return min(fitting)[1]
    return None


def frame_tokens(
    sound: Sound | None,
    model: Any,
    count: int,
    end: float | None = None,
    *,
    bands: int = 1,
    before: Sequence[str] = (),
    window: int = 1,
) -> Tokens | None:
    """Return tokens for the `count` frames of a sound, named by start time, such as ``0.04s``.

    `before` has the names of special tokens before the frames. With several `bands` of frequencies,
    each band has all frames, and a name starts with the number of the band: ``3,0.04s``. A model
    with windows of `window` frames may complete the last window with padding.

    Frames from the time `end` on, in seconds, are named as silence, ``silence 2.00s``, and belong
    to no text (`Tokens.sequence`). None means that the sound has no known end. Return None if there
    is no sound, or if no step of frames fits its length.
    """
    if sound is None:
        return None
    lengths = {sound.longest, *sound.lengths} if len(sound.lengths) == 1 else {sound.longest}
    columns = (count - len(before)) // bands
    if window > 1:
        fitting = (math.ceil(sound.longest / stride) for stride in conv_strides(model))
        columns = max((n for n in fitting if 0 <= count - n < window), default=count)
    step = _step(model, sorted(lengths, reverse=True), columns)
    if step is None:
        return None
    duration = step * sound.seconds
    num_heard = columns
    if end is not None and bands == 1:
        num_heard = max(1, min(columns, math.ceil(end / duration)))
    grids = [PatchGrid(None, len(before), bands, num_heard, unit="s", step=duration)]
    if num_heard < columns:
        grids.append(
            PatchGrid(
                None,
                num_heard,
                1,
                columns - num_heard,
                name="silence",
                unit="s",
                origin=num_heard * duration,
                step=duration,
            )
        )
    names = [*before, *(name for grid in grids for name in grid.names())]
    names += ["[PAD]"] * (count - len(names))
    own = grids[0].positions
    tokens = place_tokens(names, special=[name[0] == "[" for name in names], grids=grids)
    return replace(tokens, sequence=tuple(0 if i in own else None for i in range(count)))


def with_sound_runs(tokens: Tokens, sound: Sound | None, model: Any) -> Tokens:
    """Rename tokens that stand for parts of a sound. A name is the start time: ``0.04s``.

    Consecutive renamed tokens are one sound. If there are several sounds, a name starts with the
    number of the sound, counted from 1: ``2: 0.04s``. If `sound` has another number of sounds,
    or if a sound is not a whole number of frames per token, times are not known. Then all tokens of
    the first sound are named ``sound 1``, and so on. Return `tokens` itself if no token stands for
    a part of a sound.
    """
    runs = runs_of(tokens, model.config, SOUND_TOKEN_IDS)
    if not runs:
        return tokens
    if sound is None or len(sound.lengths) != len(runs):
        return renamed(tokens, runs, "sound", None)
    frame = conv_strides(model)[-1]
    grids = []
    for run, length in zip(runs, sound.lengths, strict=True):
        # A token of the text stands for whole frames of the encoder. The last may be incomplete.
        step = frame * round(length / len(run) / frame)
        if not step or abs(length / step - len(run)) >= 2:
            return renamed(tokens, runs, "sound", None)
        grids.append(PatchGrid(None, run[0], 1, len(run), unit="s", step=step * sound.seconds))
    names = numbered([list(grid.names()) for grid in grids])
    if len(grids) > 1:
        grids = [replace(grid, name=f"sound {i}") for i, grid in enumerate(grids, 1)]
    ordered = sorted((*tokens.grids, *grids), key=attrgetter("start"))
    return replace(renamed(tokens, runs, "sound", names), grids=tuple(ordered))


def time_notes(names: Iterable[str], sound: Sound | None, processor: Any) -> list[str]:
    """Return a list with a note on what the times among `names` assume, or an empty list."""
    if sound is None or not sound.assumed or not any(map(_TIME.fullmatch, names)):
        return []
    reason = "no processor was passed" if processor is None else "the processor does not define it"
    return [f"Seconds assume {sound.assumed}, because {reason}."]


def silence_from(
    samples: int, arguments: Mapping[str, Any], config: Any, processor: Any
) -> float | None:
    """Return the time in seconds at which a sound ends and silence follows, or None.

    The result is None if the input of the model is at most 0.1 seconds longer than the sound.
    `samples` is as in `length_notes`.
    """
    sound = sound_of(arguments, config, processor)
    end = samples / _rate_of(processor)
    return end if sound is not None and sound.longest * sound.seconds > end + 0.1 else None


def length_notes(
    samples: int, arguments: Mapping[str, Any], config: Any, processor: Any, *, alone: bool
) -> list[str]:
    """Return a list with a note on when the sound ends, or an empty list if no note is needed.

    A note is needed if the processor drops the end of the sound, or if the input of the model has
    no text (`alone`) and is more than 0.1 seconds longer than the sound. `samples` is the number of
    samples of the sound at the processor's sampling rate.
    """
    sound = sound_of(arguments, config, processor)
    extractor = getattr(processor, "feature_extractor", processor)
    rate = _rate_of(processor)
    end = samples / rate
    read = None if sound is None else sound.longest * sound.seconds
    if alone and silence_from(samples, arguments, config, processor) is not None:
        return [f"The sound ends at {end:.2f}s. The rest of the model's input is silence."]
    # Limits of the processors of Whisper, in samples, and of AST, in feature vectors of 10 ms.
    kept = (getattr(extractor, "n_samples", None) or 0) / rate
    kept = kept or (getattr(extractor, "max_length", None) or 0) / 100
    if kept and end > kept + 0.1 and (read is None or read < end - 0.1):
        note = f"The sound lasts {end:.2f}s. The processor keeps the first {kept:.2f}s of it."
        return [Note(note, "part of a text")]
    return []


def _rate_of(processor: Any) -> int:
    extractor = getattr(processor, "feature_extractor", processor)
    rate: int = getattr(extractor, "sampling_rate", None) or _SAMPLING_RATE
    return rate
