"""Probe of the places that a record names: rows and columns of an image, seconds of a sound.

The probe changes a part of an image or of a sound, and compares two records. The token whose query
(or key) in the first layer of its stack moves most stands for this part, so its name must be that
of the part. A token that moves if the whole image or sound changes is called a token of the media.

The places of a record are "whole" if all tokens of the media have a place, and "in part" or "none"
if those of some or of all stacks have no place. Then a note of the record must say so. They are
"wrong" if a name is not that of the changed part, or if this note is missing.
"""

from __future__ import annotations

import copy
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from torch import nn
from torch.nn.utils import parametrize
from transformers import PreTrainedModel
from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

import attnviz
from attnviz import AttentionRecord
from attnviz.record.tokens import Tokens
from model_types.build import tiny_model
from model_types.inputs import Inputs, fitted, placeholder
from model_types.reference import draw_the_same, run
from model_types.shrink import merged

_PATCH = re.compile(r"(?:(\d+): )?(small )?(\d+),(\d+)")
_BAND = re.compile(r"(\d+),(\d+\.\d+)s")
_STEPS = re.compile(r"(?:x(\d+) )?(\d+)(?:-(\d+))?")
_TIME = re.compile(r"(?:(\d+): |\d+,)?(\d+\.\d+)s")
# Part of the notes on tokens without a place.
_NO_PLACE = re.compile(r"have no (rows and columns|times|steps)")
_PIXELS = ("pixel_values", "pixel_values_videos", "flattened_patches")
_SOUNDS = ("input_features", "input_values", "audio_values")
_SERIES = ("past_values",)
# Arguments that say where the patches of a flattened image are. Such an image is made by the image
# processor of the model, because the order of the patches is that of the processor.
_LAYOUTS = (
    "image_grid_thw",
    "grid_thw",
    "image_grid_hw",
    "spatial_shapes",
    "target_sizes",
    "pixel_position_ids",
    "image_position_ids",
    "flattened_patches",
)
_SECONDS = 0.03
# Numbers of random changes of a part. More are tried only if another token moves most.
_DRAWS = (2, 16)
# A name is wrong if its token moves by less than this share of the largest movement.
_CLEAR = 0.7


_ATTENTION = re.compile(
    r"(attention|attn|DeltaNet|Mamba)(?!.*(proj|linear|conv|norm|mask|embed|position|pool))",
    re.IGNORECASE,
)


def _weakened(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return output * 0.001
    if isinstance(output, tuple) and output and isinstance(output[0], torch.Tensor):
        return (output[0] * 0.001, *output[1:])
    return output


def _make_local(module: nn.Conv1d | nn.Conv2d, *, causal: bool) -> None:
    """Make a kernel small outside the part that no neighbour of a patch or frame reads, too."""
    weight = module.weight.data
    norm = weight.norm()
    for axis, (kernel, stride) in enumerate(zip(module.kernel_size, module.stride, strict=True)):
        padding = module.padding if isinstance(module.padding, str) else module.padding[axis]
        before: float = (kernel - stride) / 2 if isinstance(padding, str) else padding
        if causal or "Causal" in type(module).__name__ or (kernel > 1 and padding == kernel - 1):
            before = kernel - stride
        taps = torch.arange(kernel)
        factors = torch.where((taps >= before) & (taps < before + stride), 1.0, 0.02)
        weight *= factors.view([-1 if other == axis + 2 else 1 for other in range(weight.dim())])
    weight *= norm / weight.norm()


def _make_codes_local(encoder: Any, quantizer: nn.Module) -> None:
    """Let the quantizer of an image encoder read the mean colours of each patch.

    Codes of a random encoder change with all patches, or with none.
    """
    images: list[torch.Tensor] = []

    def keep(_: nn.Module, args: tuple[Any, ...]) -> None:
        images[:] = args[:1]

    def mean_colours(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        vectors = args[0]
        colours = nn.functional.adaptive_avg_pool2d(images[0], vectors.shape[-2:])
        random = torch.Generator().manual_seed(0)
        mix = torch.randn(vectors.shape[1], colours.shape[1], generator=random)
        return (torch.einsum("vc,bchw->bvhw", mix, colours), *args[1:])

    encoder.register_forward_pre_hook(keep)
    quantizer.register_forward_pre_hook(mean_colours)


def _mixing_little(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of the model in which a patch or frame has little effect on others.

    The outputs of attention are small, and so are the parts of kernels that read the neighbours of
    a patch. With random kernels, a convolution whose kernel is larger than its stride may read a
    neighbour more than the patch itself. Convolutions that encode positions mix over 100 frames of
    a sound, so they return zeros.
    """
    alone = copy.deepcopy(model)
    # Some modules pad the sound before a convolution.
    causal = [
        getattr(module, "conv", None)
        for module in alone.modules()
        if getattr(module, "causal", False)
    ]
    for module in alone.modules():
        for child in module.children():
            if re.search("Vector.*Quantizer", type(child).__name__) and hasattr(module, "encoder"):
                _make_codes_local(module.encoder, child)
        parts = [part for part in module.modules() if _ATTENTION.search(type(part).__name__)]
        if parts == [module]:
            module.register_forward_hook(lambda _, __, output: _weakened(output))
        if isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
            # Large scores would make nearly all weights 0. Then their changes are not seen.
            queries = module.in_proj_weight.data[: module.embed_dim]
            queries /= queries.norm()
        if "PositionalConv" in type(module).__name__:
            module.register_forward_hook(lambda _, __, output: output * 0)
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            # Tiny weights would hide the image.
            module.weight.data.fill_(1.0)
        elif isinstance(module, nn.Conv1d | nn.Conv2d) and not parametrize.is_parametrized(module):
            _make_local(module, causal=any(module is other for other in causal))
    return alone


@dataclass
class _Trial:
    """Inputs of a model with images or a sound, and a function that changes a part of them.

    Attributes
    ----------
    label : str
        Description of the images or of the sound.
    inputs : dict
        Arguments of the model.
    changed : callable
        Function that returns the arguments with a changed part. Its arguments are the share of the
        images, and the shares of the height and of the width (or of the seconds) that the part
        covers, each as a pair (start, end) from 0 to 1, and the seed of the change.
    seconds : float or None
        Duration of the sound. None for images and series.
    steps : int or None
        Number of steps of the time series. None for images and sounds.
    processor : object or None
        Processor that made the inputs.
    local : bool
        Whether a part can be changed, and not only all.
    sides : str
        Pattern of the names of the sides that are probed. Images of packed tokens are numbered in
        these, and tiles in the vision encoder.
    """

    label: str
    inputs: Inputs
    changed: Callable[..., Inputs]
    seconds: float | None = None
    steps: int | None = None
    processor: Any = None
    local: bool = True
    sides: str = ""


# Share of a height, a width or a duration: where it starts and ends, from 0 to 1.
_Share = tuple[float, float]
_ALL: _Share = (0.0, 1.0)


def places_of(
    model_type: str,
    model: PreTrainedModel,
    inputs: Mapping[str, Any],
    override: Mapping[str, Any],
) -> tuple[str, str]:
    """Return the result of the probe for a model and inputs that it accepts, and the reason.

    `override` is that of the case (see `model_types.cases.override_of`). The result is "" if the
    inputs have no image, sound or time series.
    """
    if not _takes_media(inputs):
        return "", ""
    if any(name in inputs for name in _SOUNDS):
        model = _with_longer_window(model_type, model, override)
    # For each side of a stack, the labels of the trials by result.
    findings: dict[str, dict[str, list[str]]] = {}
    model = _mixing_little(model)
    for trial in _trials(model, dict(inputs)):
        try:
            results = _probe(model, trial, first=not findings)
        except _NotRunError:
            continue
        for side, finding in results.items():
            findings.setdefault(side, {}).setdefault(finding, []).append(trial.label)
    wrong = [
        f"{side}: {finding} ({', '.join(labels)})"
        for side, of_side in findings.items()
        for finding, labels in of_side.items()
        if finding not in ("whole", "none")
    ]
    if wrong:
        return "wrong", "; ".join(wrong)
    if not findings:
        return "", ""
    without = [
        f"{side} ({', '.join(of_side['none'])})" if "whole" in of_side else side
        for side, of_side in findings.items()
        if "none" in of_side
    ]
    if not without:
        return "whole", ""
    has_places = any("whole" in of_side for of_side in findings.values())
    return "in part" if has_places else "none", ", ".join(without)


class _NotRunError(Exception):
    """Error for inputs with which the model or the extraction fails."""


def _takes_media(inputs: Mapping[str, Any]) -> bool:
    return any(name in inputs for name in (*_PIXELS, *_SOUNDS, *_SERIES))


def _probe(model: PreTrainedModel, trial: _Trial, *, first: bool) -> dict[str, str]:
    """Return, for each side of a stack with tokens of the media, the result of the probe.

    A side is the queries of a stack, or its keys if they are other tokens. The result is "whole",
    "none", or a sentence that says which name is wrong or that no note says why a place is missing.
    """
    moves = _Moves(model, trial)
    noted = any(_NO_PLACE.search(note) for note in moves.record.notes)
    results = {}
    for side, tokens in _sides(moves.record).items():
        if not re.match(trial.sides, side):
            continue
        special = torch.tensor(tokens.special)
        of_media = (moves.of(side) > moves.smallest(side)) & ~special
        is_tower = side.startswith(("vision", "audio"))
        marks = None if is_tower else _placeholders(model, trial.inputs, len(tokens))
        if len(tokens) in _object_counts(model.config):
            continue
        # Models of several codebooks (CSM) have several ids per token.
        if marks is not None and marks.shape == of_media.shape:
            of_media &= marks
        if int(of_media.sum()) < 2:
            continue
        parts = _parts(tokens, trial)
        unnamed = of_media & torch.tensor([part is None for part in parts])
        if bool((unnamed == of_media).all()):
            results[side] = "none" if noted else "no place, no note"
        elif bool(unnamed.any()):
            results[side] = f"{int(unnamed.sum())} tokens without a place"
        elif not trial.local:
            results[side] = "named, but not probed"
        else:
            # Between its stages, this model has attention without a path around it.
            mixed = model.config.model_type == "levit" and "stage 1" not in side
            sample = [] if mixed else _sample(parts, first=first)
            wrong = (_wrong(moves, side, token, parts, of_media) for token in sample)
            results[side] = next(filter(None, wrong), "") or _end(tokens, trial) or "whole"
            moves.draws = _DRAWS[0]
    return results


def _wrong(
    moves: _Moves,
    side: str,
    token: int,
    parts: list[Any],
    of_media: torch.Tensor,
) -> str:
    """Change the place of a token. Return "" if this token moves most, else what moves."""
    # An image may have tokens of a small picture, too. Compare those of one picture.
    names = _sides(moves.record)[side].text
    is_small = torch.tensor(["small" in name for name in names])
    others = ~of_media | (is_small != is_small[token])
    measured = moves.of(side, parts[token]).masked_fill(others, 0.0)
    if not bool((measured > 0).any()):
        return ""
    # Tokens differ in how much they move if all changes, so also try to divide by this.
    ratios = measured / moves.of(side).clamp(min=moves.smallest(side))
    mosts = [
        int(sizes.argmax())
        for sizes in (measured, ratios)
        if sizes[token] < _CLEAR * sizes.max()
        and not _agrees(parts, token, int(sizes.argmax()), moves.trial)
    ]
    if len(mosts) < 2:
        return ""
    if moves.draws < _DRAWS[1]:
        moves.draws = _DRAWS[1]
        return _wrong(moves, side, token, parts, of_media)
    return f"{names[mosts[0]]} moves and not {names[token]}"


class _Moves:
    """Distances by which tokens move if a part of the media of a trial changes."""

    def __init__(self, model: PreTrainedModel, trial: _Trial) -> None:
        self.trial = trial
        self._model = model
        self.record = _record(model, trial.inputs, trial.processor)
        self._before = _vectors(self.record)
        self._after: dict[Any, list[dict[str, torch.Tensor]]] = {}
        self.draws = _DRAWS[0]

    def of(self, side: str, part: tuple[_Share, _Share, _Share] | None = None) -> torch.Tensor:
        """Return how much each token of a side of a stack moves if `part`, or all, changes."""
        part = part or (_ALL, _ALL, _ALL)
        after = self._after.setdefault(part, [])
        for seed in range(len(after), self.draws):
            changed = self.trial.changed(*part, seed=seed)
            after.append(_vectors(_record(self._model, changed, self.trial.processor)))
        before = self._before[side]
        moves = torch.zeros(len(before), dtype=before.dtype)
        for vectors in after[: self.draws]:
            if side in vectors and vectors[side].shape == before.shape:
                moves += (vectors[side] - before).norm(dim=1)
        return moves

    def smallest(self, side: str) -> float:
        """Return a number below which movement is only rounding."""
        return 1e-6 * float(self._before[side].norm(dim=1).max())


def _object_counts(config: Any) -> set[int]:
    """Return the possible numbers of queries of objects, which are not parts of an image."""
    names = ("num_queries", "num_object_queries")
    return {value for name in names if isinstance(value := getattr(config, name, None), int)}


def _placeholders(model: PreTrainedModel, inputs: Inputs, count: int) -> torch.Tensor | None:
    """Return which of `count` tokens stand for a part of an image or sound, if they are a text.

    The tokens of the decoder, which may be the same text again, may be before those of the text.
    """
    ids = inputs.get("input_ids")
    numbers = [placeholder(model.config, kind) for kind in ("image", "audio", "video")]
    if ids is None:
        return None
    before = count - ids.shape[1]
    decoder = ids if inputs.get("decoder_input_ids") is None else inputs["decoder_input_ids"]
    if before not in (0, decoder.shape[1]):
        return None
    known = torch.tensor([number for number in numbers if number is not None], dtype=ids.dtype)
    return torch.cat([torch.zeros(before, dtype=torch.bool), torch.isin(ids[0], known)])


def _agrees(parts: list[Any], token: int, most: int, trial: _Trial) -> bool:
    if parts[most] is None:
        return False
    if trial.seconds is None:
        return bool(parts[most] == parts[token])
    # A frame also contains samples after the start of the next frame.
    start, end = parts[token][2]
    step = 1.01 * _step(parts)
    return bool(start - step - 0.005 <= parts[most][2][0] <= end + step)


def _step(parts: list[Any]) -> float:
    starts = [place[2][0] for place in parts if place is not None]
    return starts[1] - starts[0] if len(starts) > 1 else 1.0


def _end(tokens: Tokens, trial: _Trial) -> str:
    """Return "" if the last time of a sound is in its last frames, else a sentence."""
    times = [float(match[2]) for name in tokens.text if (match := _TIME.fullmatch(name))]
    if trial.seconds is None or len(times) < 2:
        return ""
    step = times[1] - times[0]
    # Some extractors pad all sounds to a window.
    rate = getattr(trial.processor, "sampling_rate", 1)
    window = getattr(trial.processor, "n_samples", 0) / rate
    window = window or (getattr(trial.processor, "max_length", 0) or 0) / 100
    ends = (trial.seconds, window, getattr(trial.processor, "default_audio_length", 0))
    if any(end - 3 * step - 0.1 <= times[-1] <= end + step for end in ends):
        return ""
    return f"the last time is {times[-1]} of {trial.seconds:.2f} s"


def _sample(parts: list[Any], *, first: bool) -> list[int]:
    """Return the tokens whose places are probed: the first and last of several rows or times."""
    named = [token for token, place in enumerate(parts) if place is not None]
    if len(named) < 4:
        return named
    picks = (0.0, 0.3, 1.0) if first else (0.66, 1.0)
    return sorted({named[round(pick * (len(named) - 1))] for pick in picks})


def _parts(tokens: Tokens, trial: _Trial) -> list[Any]:
    """Return, for each token, the part of the media that its name states, or None.

    The part has the form of the arguments of `_Trial.changed`.
    """
    if trial.seconds is not None:
        matches = [_TIME.fullmatch(name) for name in tokens.text]
        times = [float(match[2]) for match in matches if match]
        step = times[1] - times[0] if len(times) > 1 else 0.0
        length = max(_SECONDS, step) / trial.seconds
        return [
            None
            if match is None
            else (
                _ALL,
                _ALL,
                (float(match[2]) / trial.seconds, float(match[2]) / trial.seconds + length),
            )
            for match in matches
        ]
    if trial.steps is not None:
        steps = [_STEPS.fullmatch(name) for name in tokens.text]
        count = max((int(match[1] or 1) for match in steps if match), default=1)
        return [
            None
            if match is None
            else (
                ((int(match[1] or 1) - 1) / count, int(match[1] or 1) / count),
                _ALL,
                (int(match[2]) / trial.steps, (int(match[3] or match[2]) + 1) / trial.steps),
            )
            for match in steps
        ]
    # In a spectrogram, a column is a time.
    times = sorted({float(match[2]) for name in tokens.text if (match := _BAND.fullmatch(name))})
    names = [
        f"{match[1]},{times.index(float(match[2]))}" if (match := _BAND.fullmatch(name)) else name
        for name in tokens.text
    ]
    cells = [
        None
        if match is None
        else ((int(match[1] or 1) - 1, match[2]), int(match[3]), int(match[4]))
        for match in map(_PATCH.fullmatch, names)
    ]
    # The small picture and the joined tiles of an image are both the whole image.
    sizes: dict[tuple[int, str | None], tuple[int, int]] = {}
    for image, row, column in filter(None, cells):
        rows, columns = sizes.get(image, (0, 0))
        sizes[image] = (max(rows, row + 1), max(columns, column + 1))
    count = max((image for image, _ in sizes), default=0) + 1
    return [
        None
        if cell is None
        else (
            (cell[0][0] / count, (cell[0][0] + 1) / count),
            (cell[1] / sizes[cell[0]][0], (cell[1] + 1) / sizes[cell[0]][0]),
            (cell[2] / sizes[cell[0]][1], (cell[2] + 1) / sizes[cell[0]][1]),
        )
        for cell in cells
    ]


def _sides(record: AttentionRecord) -> dict[str, Tokens]:
    sides = {}
    for name, stack in record.stacks.items():
        if name.startswith("decoder") and not stack.query_tokens.ids:
            # Queries of objects, which some models choose from the image.
            continue
        if name.startswith("indexer"):
            # The tokens of an indexer are those of the stack for which it chooses keys.
            continue
        sides[name] = stack.query_tokens
        if stack.key_tokens is not stack.query_tokens:
            if not hasattr(stack.attention(stack.layers[0]), "queries"):
                # Rows of weights change with the keys, too, so queries are not known.
                del sides[name]
            sides[f"{name} keys"] = stack.key_tokens
    return sides


def _vectors(record: AttentionRecord) -> dict[str, torch.Tensor]:
    """Return the vectors of the queries (and keys) of each stack in its first layer.

    A vector has the numbers of all heads. If a layer has only weights, the vector of a query is the
    row of its scores, and that of a key the column of its scores. A token that is both has both, as
    the score of its key also moves the rows of other tokens. Scores are logarithms of weights
    minus their median in a row, because a weight also changes with the scores of all other keys.
    """
    vectors = {}
    for name, stack in record.stacks.items():
        attention = stack.attention(stack.layers[0])
        queries, keys = (getattr(attention, side, None) for side in ("queries", "keys"))
        if queries is None or keys is None:
            weights = torch.as_tensor(np.array(stack.weights(layer=stack.layers[0])))
            scores = weights.double().clamp(min=1e-12).log()
            queries = scores - scores.median(dim=-1, keepdim=True).values
            keys = queries.transpose(1, 2)
            if stack.key_tokens is stack.query_tokens:
                queries = torch.cat([queries, keys], dim=2)
        vectors[name] = queries.transpose(0, 1).flatten(1).double()
        vectors[f"{name} keys"] = keys.transpose(0, 1).flatten(1).double()
    return vectors


def _record(model: PreTrainedModel, inputs: Inputs, processor: Any) -> AttentionRecord:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        draw_the_same(model)
        try:
            record = attnviz.extract(model, dict(inputs), processor=processor, progress=False)
        except Exception as error:
            raise _NotRunError from error
    last: AttentionRecord = record[-1] if isinstance(record, list) else record
    return last


def _trials(model: PreTrainedModel, inputs: Inputs) -> Iterator[_Trial]:
    yielded = False
    for trial in _known_trials(model, inputs):
        yielded = True
        yield trial
    if not yielded:
        yield from _of_whole(model, inputs)


def _of_whole(model: PreTrainedModel, inputs: Inputs) -> Iterator[_Trial]:
    """Yield a trial in which only all of the media can be changed."""
    names = [name for name in (*_PIXELS, *_SOUNDS, *_SERIES) if name in inputs]

    def changed(*_: Any, seed: int) -> Inputs:
        random = torch.Generator().manual_seed(seed)
        return inputs | {name: torch.randn(inputs[name].shape, generator=random) for name in names}

    if _accepted(model, lambda: dict(inputs)) is not None:
        yield _Trial("as a whole", inputs, changed, local=False)


def _known_trials(model: PreTrainedModel, inputs: Inputs) -> Iterator[_Trial]:
    pixels = next((name for name in _PIXELS if name in inputs), None)
    sound = next((name for name in _SOUNDS if name in inputs), None)
    if pixels is not None and any(name in inputs for name in _LAYOUTS):
        yield from _of_image_processor(model, inputs)
    elif pixels is not None and inputs[pixels].dim() >= 4:
        yield from _of_pixels(model, inputs, pixels)
        if "image_sizes" in inputs and hasattr(model.config, "image_grid_pinpoints"):
            yield from (
                replace(trial, sides="(?!vision|pooling)")
                for trial in _of_image_processor(model, inputs)
            )
    if sound is not None:
        trials = list(_of_sound(model, inputs))
        yield from trials or _of_features(model, inputs, sound)
        if sound == "input_values" and inputs[sound].dim() == 3 and inputs[sound].shape[1] > 1:
            yield from _of_spectrogram(model, inputs)
    if any(name in inputs for name in _SERIES):
        yield from _of_series(model, inputs)


def _of_series(model: PreTrainedModel, inputs: Inputs) -> Iterator[_Trial]:
    """Yield a trial with a time series.

    The values of a step are changed, in one channel or in all. A token of a model with lags reads
    values of earlier steps, but the time features of the step, so these are changed.
    """
    values, times = inputs["past_values"], inputs.get("past_time_features")
    future = inputs.get("future_time_features")
    joined = values if times is None or future is None else torch.cat([times, future], dim=1)
    steps = joined.shape[1]

    def changed(channels: _Share, _: _Share, part: _Share, seed: int) -> Inputs:
        noise = torch.randn(joined.shape, generator=torch.Generator().manual_seed(seed))
        other = joined.clone()
        index: tuple[Any, ...] = (slice(None), _part(part, steps))
        if times is None and other.dim() == 3:
            index += (_part(channels, other.shape[2]),)
        other[index] += 0.3 * noise[index]
        if times is None or future is None:
            return {**inputs, "past_values": other}
        past, later = other.split([times.shape[1], future.shape[1]], dim=1)
        return {**inputs, "past_time_features": past, "future_time_features": later}

    if _accepted(model, lambda: dict(inputs)) is not None:
        yield _Trial(f"{steps} steps", inputs, changed, steps=steps)


def _part(share: _Share, size: int) -> slice:
    start = round(share[0] * size)
    return slice(start, max(round(share[1] * size), start + 1))


def _accepted(model: PreTrainedModel, make: Callable[[], Inputs]) -> Inputs | None:
    """Return the inputs that `make` returns, if the model takes them.

    The number of placeholders is corrected if needed. Return None if the model or `make` fails.
    """
    try:
        return fitted(model, make(), lambda candidate: run(model, candidate))
    except Exception:  # noqa: BLE001
        return None


def _of_pixels(model: PreTrainedModel, inputs: Inputs, name: str) -> Iterator[_Trial]:
    """Yield trials with pixel values (..., colours, height, width) of several shapes."""
    *others, height, width = inputs[name].shape
    random = torch.Generator().manual_seed(3)
    twice = [2, *others[1:]] if "input_ids" in inputs and len(others) == 2 else None
    shapes: list[tuple[str, list[int]]] = [
        (f"{height} x {width}", [*others, height, width]),
        (f"{height} x {2 * width}", [*others, height, 2 * width]),
        (f"{2 * height} x {width}", [*others, 2 * height, width]),
    ]
    if twice:
        shapes.append(("two images", [*twice, height, width]))
    for label, shape in shapes:
        pixels = torch.randn(shape, generator=random)
        more: Inputs = {name: pixels}
        if "image_sizes" in inputs and pixels.dim() == 4:
            more["image_sizes"] = torch.tensor([list(pixels.shape[-2:])] * len(pixels))
        accepted = _accepted(model, lambda: inputs | more)  # noqa: B023
        if accepted is None:
            continue
        packs = "image_sizes" in inputs and pixels.dim() == 5
        yield _Trial(
            label, accepted, _changer(accepted, name), sides="vision|pooling" if packs else ""
        )


def _changer(inputs: Inputs, name: str) -> Any:
    pixels = inputs[name]

    def changed(images: Any, rows: Any, columns: Any, seed: int) -> Inputs:
        noise = torch.randn(pixels.shape, generator=torch.Generator().manual_seed(seed))
        other = pixels.clone()
        flat, new = other.flatten(0, -4), noise.flatten(0, -4)
        part = (
            _part(images, len(flat)),
            _part(rows, flat.shape[-2]),
            _part(columns, flat.shape[-1]),
        )
        index = (part[0], slice(None), *part[1:])
        flat[index] += 0.3 * (new[index] + 1)
        return {**inputs, name: flat.reshape(pixels.shape)}

    return changed


def _image_processors(model: PreTrainedModel, inputs: Inputs) -> Iterator[Any]:
    """Yield image processors for small images: that of the model, then a usual one."""
    kind = model.config.model_type
    stem = kind.removesuffix("_model").removesuffix("_encoder").removesuffix("_vision")
    usual = "Siglip2ImageProcessorPil" if "spatial_shapes" in inputs else "Qwen2VLImageProcessorPil"
    own = IMAGE_PROCESSOR_MAPPING_NAMES.get(kind) or IMAGE_PROCESSOR_MAPPING_NAMES.get(stem) or {}
    # Earlier versions have a tuple of the slow and the fast class.
    names = (own.get("pil"), own.get("torchvision")) if isinstance(own, dict) else own
    for name in (*names, usual):
        maker = getattr(transformers, name or "", None)
        if maker is not None:
            settings = _processor_settings(model.config, maker, inputs)
            # Some processors must resize. They keep the size of images of whole blocks of patches.
            for more in ({}, {"do_resize": True}):
                with suppress(Exception):
                    yield maker(**settings | more)


def _vision_config(config: Any) -> Any:
    whole = getattr(config, "vlm_config", config)
    return getattr(whole, "vision_config", whole)


def _processor_settings(config: Any, maker: Any, inputs: Inputs) -> dict[str, Any]:
    vision = _vision_config(config)

    def setting(*names: str) -> Any:
        return next((v for n in names if (v := getattr(vision, n, None)) is not None), None)

    patch = setting("patch_size") or 8
    merge = setting("spatial_merge_size", "merge_size") or int(inputs.get("merge_sizes", [1])[0])
    pixels = inputs.get("pixel_values", inputs.get("hidden_states"))
    frames = None
    if pixels is not None and isinstance(patch, int) and pixels.dim() <= 3:
        frames = pixels.shape[-1] // (3 * patch * patch) or None
    tile = getattr(vision, "image_size", None)
    pinpoints = getattr(config, "image_grid_pinpoints", None)
    tiles = (
        {}
        if pinpoints is None
        else {
            "image_grid_pinpoints": pinpoints,
            "size": {"height": tile, "width": tile},
            "crop_size": {"height": tile, "width": tile},
            "do_resize": True,
        }
    )
    settings = {
        "patch_size": patch,
        "merge_size": merge,
        "temporal_patch_size": frames,
        "do_resize": False,
        "min_pixels": 16,
        "max_pixels": 10**6,
        "max_num_patches": 64,
        "max_patches": 64,
        "slice_mode": False,
        "small_image_upsize": "never",
        **tiles,
    }
    return {
        name: value
        for name, value in settings.items()
        if value is not None and hasattr(maker, name)
    }


def _of_image_processor(model: PreTrainedModel, inputs: Inputs) -> Iterator[_Trial]:
    """Yield trials whose images are encoded by the model's image processor."""
    vision = _vision_config(model.config)
    patch = getattr(vision, "patch_size", None) or 8
    side = 4 * (patch if isinstance(patch, int) else patch[-1])
    random = np.random.default_rng(3)
    for shape in ([(1, 1)], [(1, 2)], [(2, 1)], [(1, 1), (1, 2)]):
        images = [
            random.integers(0, 256, (side * rows, side * columns, 3), dtype=np.uint8)
            for rows, columns in shape
        ]
        trials = (
            _image_trial(model, inputs, processor, images)
            for processor in _image_processors(model, inputs)
        )
        trial = next(filter(None, trials), None)
        if trial is not None:
            yield trial


_Images = list[npt.NDArray[np.uint8]]


def _image_trial(
    model: PreTrainedModel, inputs: Inputs, processor: Any, images: _Images
) -> _Trial | None:
    names = set(inspect.signature(model.forward).parameters)

    def encoded(images: _Images) -> Inputs:
        out = processor(images=images, return_tensors="pt")
        arguments = {name: value for name, value in out.items() if name in names}
        if "grid_thw" in names and "image_grid_thw" in out and "grid_thw" not in out:
            arguments["grid_thw"] = out["image_grid_thw"]
        if "pixel_position_ids" in names and "image_position_ids" in out:
            arguments["pixel_position_ids"] = out["image_position_ids"]
        if "hidden_states" in inputs and "pixel_values" not in names:
            arguments["hidden_states"] = out["pixel_values"]
        if (
            "pixel_values" in inputs
            and inputs["pixel_values"].dim() == out["pixel_values"].dim() + 1
        ):
            # Some models get the patches with an axis of examples.
            arguments["pixel_values"] = out["pixel_values"][None]
        return arguments

    accepted = _accepted(model, lambda: inputs | encoded(images))
    if accepted is None:
        return None

    def changed(which: _Share, rows: _Share, columns: _Share, seed: int) -> Inputs:
        others = [image.copy() for image in images]
        for number in range(round(which[0] * len(images)), round(which[1] * len(images))):
            shape = others[number].shape
            region = (_part(rows, shape[0]), _part(columns, shape[1]))
            noise = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
            others[number][region] = noise[region] // 2 + 127
        return {**accepted, **encoded(others)}

    label = " and ".join(f"{image.shape[0]} x {image.shape[1]}" for image in images)
    return _Trial(label, accepted, changed, processor=processor)


_MASKS = {"input_features_mask", "feature_attention_mask"}
# Feature extractors of model types for which transformers names another one, or none.
_EXTRACTORS = {
    "wav2vec2-bert": "SeamlessM4TFeatureExtractor",
    "canary": "ParakeetFeatureExtractor",
}


def _with_longer_window(
    model_type: str, model: PreTrainedModel, override: Mapping[str, Any]
) -> PreTrainedModel:
    """Return a model that reads 4 seconds of a sound, if its window is shorter, or else `model`."""
    key = "max_source_positions"
    changes: dict[str, Any] = {}
    for part in ("audio_config", "encoder_config", "speech_config", "encoder"):
        if isinstance(getattr(getattr(model.config, part, None), key, None), int):
            changes = {part: {key: 200}}
    if not changes and isinstance(getattr(model.config, key, None), int):
        changes = {key: 200}
    if not changes:
        return model
    try:
        return tiny_model(model_type, override["class"], merged(override["config"], changes))
    # Some classes do not accept the setting.
    except Exception:  # noqa: BLE001
        return model


def _extractor(model: PreTrainedModel) -> Any:
    kind = model.config.model_type
    stems = [kind]
    while "_" in stems[-1]:
        stems.append(stems[-1].rpartition("_")[0])
    for stem in stems:
        name = _EXTRACTORS.get(stem) or FEATURE_EXTRACTOR_MAPPING_NAMES.get(stem)
        if name:
            break
    else:
        name = "Wav2Vec2FeatureExtractor"
    maker = getattr(transformers, name)
    config = next(
        (
            part
            for key in ("audio_config", "encoder_config", "speech_config", "encoder")
            if hasattr(part := getattr(model.config, key, None), "model_type")
        ),
        model.config,
    )
    bins = next(
        (
            value
            for key in (
                "num_mel_bins",
                "feature_size",
                "n_mels",
                "input_feat_per_channel",
                "input_dim",
            )
            if isinstance(value := getattr(config, key, None), int)
        ),
        None,
    )
    names = inspect.signature(maker.__init__).parameters
    settings: dict[str, Any] = {}
    if "Wav2Vec2" not in name and bins:
        for key in ("num_mel_bins", "feature_size"):
            if key in names and getattr(maker(), key, None) != 1:
                settings[key] = bins
    positions = getattr(config, "max_source_positions", None)
    if "chunk_length" in names and isinstance(positions, int):
        settings["chunk_length"] = max(1, positions * 2 // 100)
    return maker(**settings)


def _of_sound(model: PreTrainedModel, inputs: Inputs) -> Iterator[_Trial]:
    """Yield trials with a sound that is encoded by the model's feature extractor."""
    try:
        extractor = _extractor(model)
    except Exception:  # noqa: BLE001
        return
    for seconds in (1.9, 0.47):
        trial = _sound_trial(model, inputs, extractor, seconds)
        if trial is not None:
            yield trial


def _of_features(model: PreTrainedModel, inputs: Inputs, name: str) -> Iterator[_Trial]:
    """Yield a trial with feature vectors (examples, time, bins) of 10 ms, or without any bins."""
    features = inputs[name]
    if features.dim() != 3 or _accepted(model, lambda: dict(inputs)) is None:
        return

    def changed(_: _Share, __: _Share, part: _Share, seed: int) -> Inputs:
        other = features.clone()
        noise = torch.randn(features.shape, generator=torch.Generator().manual_seed(seed))
        frames = _part(part, features.shape[1])
        other[:, frames] += 0.3 * (noise[:, frames] + 1)
        return {**inputs, name: other}

    seconds = features.shape[1] * 0.01
    yield _Trial(f"{features.shape[1]} feature vectors", inputs, changed, seconds=seconds)


def _of_spectrogram(model: PreTrainedModel, inputs: Inputs) -> Iterator[_Trial]:
    """Yield a trial whose rows are bands of frequencies, and whose columns are times (AST)."""
    turned = {"pixels": inputs["input_values"].transpose(1, 2)[:, None]}
    change = _changer(turned, "pixels")

    def changed(*parts: Any, seed: int) -> Inputs:
        other: torch.Tensor = change(*parts, seed=seed)["pixels"][:, 0].transpose(1, 2)
        return {**inputs, "input_values": other}

    yield _Trial("bands", inputs, changed)


def _sound_trial(
    model: PreTrainedModel, inputs: Inputs, extractor: Any, seconds: float
) -> _Trial | None:
    rate = extractor.sampling_rate
    names = set(inspect.signature(model.forward).parameters)
    random = np.random.default_rng(3)
    samples = (0.3 * random.standard_normal(int(seconds * rate))).astype(np.float32)

    def encoded(samples: npt.NDArray[np.float32]) -> Inputs:
        options = {"return_attention_mask": True} if names & _MASKS else {}
        out = dict(extractor(samples, sampling_rate=rate, return_tensors="pt", **options))
        mask = out.get("attention_mask")
        for name in _MASKS:
            if name in names and name not in out and mask is not None:
                out[name] = mask
        if "input_ids" in inputs:
            out.pop("attention_mask", None)
        return {name: value for name, value in out.items() if name in names}

    left_out = _MASKS if "input_ids" in inputs else _MASKS | {"attention_mask"}
    others = {name: value for name, value in inputs.items() if name not in left_out}
    accepted = _accepted(model, lambda: others | encoded(samples))
    if accepted is None:
        return None

    def changed(_: _Share, __: _Share, part: _Share, seed: int) -> Inputs:
        other = samples.copy()
        region = slice(int(part[0] * len(samples)), int(part[1] * len(samples)))
        noise = np.random.default_rng(seed).standard_normal(len(samples)).astype(np.float32)
        # A louder part would change how some extractors scale all other parts.
        other[region] = 0.05 * noise[region]
        return {**accepted, **encoded(other)}

    duration = len(samples) / rate
    return _Trial(f"{seconds} s", accepted, changed, seconds=duration, processor=extractor)
