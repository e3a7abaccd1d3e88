"""Attention of pipelines of diffusers, observed while a pipeline makes a picture or a film.

The pipeline's own call runs with the arguments of the caller. Its denoiser (a transformer or U-Net)
runs once or twice per step: with classifier-free guidance also without the prompt, in the same
batch or in another forward. The row or forward with the prompt is recognised by the vectors that
`encode_prompt` returned. At the chosen steps, the attention of this row is read.

A stack has the attention of one kind and number of patches, because a U-Net attends at several
resolutions. Its layers are the modules that attend in this way, in the order in which they run:

- "cross": patches attend to words.
- "joint": words and patches are one sequence.
- "self": patches attend to patches.

diffusers is never imported here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from attnviz.extraction.capture.calls import read_attention, with_four_axes
from attnviz.extraction.capture.check import SelfCheck
from attnviz.extraction.capture.copies import Copier
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.forward import run_uncompiled
from attnviz.extraction.capture.masks import MaskReader, Positions
from attnviz.extraction.capture.memory import free_memory, in_words
from attnviz.extraction.capture.trace import FunctionWatch
from attnviz.extraction.hooks import Hooks, named_arguments, replace_method
from attnviz.extraction.models import name_of
from attnviz.extraction.modules import modules_of
from attnviz.extraction.options import CaptureOptions, Steps
from attnviz.extraction.tokens.patches import grid_tokens
from attnviz.extraction.tokens.reading import Reading, watch_tokenizers
from attnviz.extraction.tokens.text import read_tokens
from attnviz.record.attention import StoredAttention, StoredWeights
from attnviz.record.from_arrays.tokens import tokens_from_positions
from attnviz.record.notes import Note
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens, joined_tokens, quote, selected_tokens
from attnviz.utils.arguments import existing_numbers, format_named, format_numbers
from attnviz.utils.cleanup import Cleanup

# Number of steps that are kept by default.
_NUM_STEPS = 4
# Components of a pipeline that may be its denoiser. Wan 2.2 has two transformers.
_DENOISERS = ("unet", "transformer", "transformer_2")
# Denoisers in which words and patches are one sequence, and whether the words come first.
_WORDS_FIRST = {
    "CogVideoXTransformer3DModel": True,
    "FluxTransformer2DModel": True,
    "HunyuanVideoTransformer3DModel": False,
    "QwenImageTransformer2DModel": True,
    "SD3Transformer2DModel": False,
}
# Denoisers whose pipelines drop the vectors of an instruction before the prompt.
_INSTRUCTED = ("HunyuanVideoTransformer3DModel", "QwenImageTransformer2DModel")
# Key of the mean in a dictionary from step to attention.
_MEAN = -1


def record_pipeline(
    pipe: Any, example: Any, steps: Steps, options: CaptureOptions, name: str | None
) -> AttentionRecord:
    """Call a pipeline, and return a record of the attention in its denoiser.

    `example` is the prompt, or the arguments of the call by name. `steps` and `name` are as in
    `attnviz.extract`. Raise NotImplementedError if no attention can be read.
    """
    arguments = dict(example) if isinstance(example, Mapping) else {"prompt": example}
    form = arguments.get("output_type", "pil")
    if form not in ("pil", "np"):
        raise ValueError(f"inputs: output_type={form!r} is no picture. Pass 'pil' or 'np'.")
    watch = _PipelineWatch(pipe, steps, options)
    with Cleanup() as undo, undo:
        watch.begin(undo)
        output = pipe(**arguments)
    return watch.record(_pictures(output), name)


class _Prompt(NamedTuple):
    """Vectors of a prompt, (tokens, width), and what tokenizers read to make them."""

    vectors: torch.Tensor
    readings: list[Reading]


class _Kind(NamedTuple):
    """Kind of attention, and its number of patches. They identify a stack."""

    name: str
    num_patches: int


class _PipelineWatch:
    """Observer of one call of a pipeline."""

    def __init__(self, pipe: Any, steps: Steps, options: CaptureOptions) -> None:
        self._pipe, self._steps, self._options = pipe, steps, options
        self._means = isinstance(steps, str) and steps == "mean"
        self._check, self._masks = SelfCheck(), MaskReader()
        self._copier = Copier(options, [], self._check.postponed)
        # Prompts by the shape of their vectors, and those that the denoiser gets, in order.
        self._prompts: dict[tuple[int, ...], _Prompt] = {}
        self._used: list[_Prompt] = []
        self._kept: tuple[int, ...] = ()
        self._read: set[int] = set()
        # The running attention modules, each with an object that identifies the run, and its path.
        self._running: list[tuple[nn.Module, object, str]] = []
        self._called: set[object] = set()
        # The denoiser whose forward is read, the row with the prompt, and the examples of the
        # batch, which have no padding: padding of the prompt are tokens of the denoiser.
        self._denoiser: Any = None
        self._row, self._examples = 0, [Positions(None, None)]
        self._num_steps = self._step = self._num_words = self._num_patches = 0
        self._num_frames = 1
        # For each stack, the attention of each module by step.
        self._stacks: dict[_Kind, dict[str, dict[int, StoredAttention]]] = {}
        self._guided = False
        self._unread: dict[str, None] = {}

    def begin(self, undo: Cleanup) -> None:
        """Observe the pipeline until the ``with`` block of `undo` ends."""
        parts = [getattr(self._pipe, name, None) for name in _DENOISERS]
        denoisers = [getattr(part, "_orig_mod", part) for part in parts if part is not None]
        if not denoisers or not hasattr(self._pipe, "encode_prompt"):
            name = type(self._pipe).__name__
            raise NotImplementedError(
                f"model: {name} has no encode_prompt, unet or transformer. Pass another pipeline."
            )
        replace_method(self._pipe, "encode_prompt", self._encode, undo)
        replace_method(self._pipe.scheduler, "step", self._end_step, undo)
        hooks = Hooks(undo)
        for denoiser in denoisers:
            run_uncompiled(modules_of(denoiser), undo)
            replace_method(denoiser, "forward", partial(self._denoise, denoiser), undo)
            for path, module in denoiser.named_modules():
                if hasattr(module, "processor"):
                    begin = partial(self._begin_module, path)
                    hooks.add(module.register_forward_pre_hook, begin)
                    hooks.add(module.register_forward_hook, self._end_module, always_call=True)

    def _encode(self, encode: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with Cleanup() as undo, undo:
            readings = watch_tokenizers(undo)
            result = encode(*args, **kwargs)
        vectors = result[0] if isinstance(result, tuple) else result
        # All classes return the vectors of the prompt first. A later call may be for the negative
        # prompt, or for another text encoder with vectors of another shape.
        if isinstance(vectors, torch.Tensor) and vectors.dim() == 3:
            self._prompts.setdefault(tuple(vectors.shape[1:]), _Prompt(vectors[0], readings))
        return result

    def _end_step(self, step: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._step += 1
        return step(*args, **kwargs)

    def _denoise(self, denoiser: Any, forward: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._kept:
            # With a picture as input, some pipelines leave out the first steps of the scheduler.
            first = getattr(self._pipe.scheduler, "begin_index", None) or 0
            self._num_steps = len(self._pipe.scheduler.timesteps) - first
            self._kept = _chosen_steps(self._steps, self._num_steps)
        if self._step not in self._kept:
            return forward(*args, **kwargs)
        arguments = named_arguments(forward, args, kwargs)
        latents = next(iter(arguments.values()))
        row, prompts = self._find_prompt(arguments)
        self._guided |= row is None or len(latents) > 1
        if row is None or self._step in self._read:
            return forward(*args, **kwargs)
        self._read.add(self._step)
        self._row, self._used = row, prompts
        self._examples = [Positions(None, None)] * len(latents)
        self._num_words = sum(len(prompt.vectors) for prompt in prompts)
        self._num_patches, self._num_frames = _num_patches(denoiser, latents)
        self._denoiser = denoiser
        with Cleanup() as undo, undo:
            current = lambda: self._running[-1][:2] if self._running else None  # noqa: E731
            FunctionWatch(current, self._receive).watch(undo)
            result = forward(*args, **kwargs)
        self._denoiser = None
        self._check.finish()
        if len(self._read) == 1:
            self._select_layers()
        return result

    def _find_prompt(self, arguments: Mapping[str, Any]) -> tuple[int | None, list[_Prompt]]:
        """Return the row of the batch that has the prompt, or None, and the prompts in order."""
        row, prompts = None, []
        for value in arguments.values():
            shape = tuple(value.shape[1:]) if isinstance(value, torch.Tensor) else ()
            if (prompt := self._prompts.get(shape)) is not None:
                rows = (value == prompt.vectors.to(value)).flatten(1).all(dim=1).nonzero()
                if len(rows):
                    row = int(rows[0])
                    prompts.append(prompt)
        return row, prompts

    def _begin_module(self, path: str, module: nn.Module, _args: Any) -> None:
        self._running.append((module, object(), path))

    def _end_module(self, module: nn.Module, *_hooked: Any) -> None:
        _, run, _ = self._running.pop()
        if self._denoiser is not None and run not in self._called:
            self._leave_out(module)
        self._called.discard(run)

    def _leave_out(self, module: Any) -> None:
        self._unread[f"{type(module).__name__} with {type(module.processor).__name__}"] = None

    def _receive(self, call: AttentionCall) -> None:
        module, run, path = self._running[-1]
        self._called.add(run)
        call = with_four_axes(call, len(self._examples))
        kind = self._kind_of(call)
        if kind is None:
            return self._leave_out(module)
        layer = self._stacks.setdefault(kind, {}).setdefault(path, {})
        # The number of layers is known after the first step.
        is_left_out = len(self._read) > 1 and path not in self._paths(kind)
        if is_left_out or self._step in layer or (self._means and kind.name == "self"):
            return None
        attentions = read_attention(call, self._examples, self._masks, self._check, name=path)
        attention = attentions[self._row]
        if not self._means:
            layer[self._step] = self._copier.copy(attention)
            return None
        # The mean of weights is not the weight of mean queries and keys.
        rows = slice(0, kind.num_patches)
        columns = slice(call.num_keys - self._num_words, call.num_keys)
        if self._words_first:
            rows = slice(call.num_queries - kind.num_patches, call.num_queries)
            columns = slice(0, self._num_words)
        weights = attention.block(range(attention.num_heads), rows, columns) / self._num_steps
        weights = weights.to(self._options.device or weights.device)
        before = layer.get(_MEAN)
        layer[_MEAN] = StoredWeights(weights + (before.parts["weights"] if before else 0))
        return None

    @property
    def _kind(self) -> str:
        return type(getattr(self._pipe, "transformer", None)).__name__

    @property
    def _words_first(self) -> bool | None:
        """Whether words come before patches in one sequence, or None if there is no such."""
        return _WORDS_FIRST.get(self._kind)

    def _paths(self, kind: _Kind) -> list[str]:
        """Return the modules of a stack whose layers are kept."""
        layers = self._stacks[kind]
        options = self._options.of_stack(range(len(layers)))
        return [path for number, path in enumerate(layers) if options.keeps(number)]

    def _kind_of(self, call: AttentionCall) -> _Kind | None:
        """Return the kind of attention of a call, or None if it is not known."""
        queries, keys, words = call.num_queries, call.num_keys, self._num_words
        # Some processors compute a few heads or rows of a batch at a time.
        heads = getattr(call.module, "heads", call.num_heads)
        if call.num_examples != len(self._examples) or call.num_heads != heads:
            return None
        if queries == keys == words + self._num_patches and self._words_first is not None:
            return _Kind("joint", self._num_patches)
        # A U-Net has fewer patches in its middle.
        fewer = queries < self._num_patches and not hasattr(self._denoiser.config, "patch_size")
        if (fewer or queries == self._num_patches) and keys in (queries, words):
            return _Kind("self" if keys == queries else "cross", queries)
        return None

    def _select_layers(self) -> None:
        """Drop layers that are not kept, and check the memory that the other steps will need."""
        parts: list[torch.Tensor] = []
        for kind, layers in self._stacks.items():
            for path in layers.keys() - set(self._paths(kind)):
                layers[path].clear()
            kept = [attention for layer in layers.values() for attention in layer.values()]
            parts += [part for attention in kept for part in attention.parts.values()]
        num_free = free_memory(parts[0].device) if parts and not self._means else None
        needed = sum(part.nbytes for part in parts) * (len(self._kept) - 1)
        if num_free is not None and needed > num_free:
            raise MemoryError(
                f"steps: {len(self._kept)} steps take {in_words(needed)} more, and "
                f"{in_words(num_free)} are free. Pass fewer steps= or layers=, dtype='bfloat16', "
                "or steps='mean'."
            )

    def record(self, pictures: Sequence[NDArray[np.uint8]], title: str | None) -> AttentionRecord:
        """Return the record of the call, which has ended with `pictures`."""
        kept = f"The record has {format_named('step', self._kept)}"
        kept = "Weights between patches and words are means" if self._means else kept
        notes = [f"{kept} of {self._num_steps} steps (0 to {self._num_steps - 1})."]
        words = [
            _tokens_of(prompt, notes, drops=self._kind in _INSTRUCTED) for prompt in self._used
        ]
        frames = np.linspace(0, len(pictures) - 1, self._num_frames).round().astype(int)
        images = [pictures[frame] for frame in frames]
        stacks: dict[str, AttentionStack] = {}
        # Attention to words comes first, at the resolution with the most layers.
        order = [(kind.name == "self", -len(layers), kind) for kind, layers in self._stacks.items()]
        for _, _, kind in sorted(order):
            patches, size = self._patches(kind.num_patches, images)
            name = f"{'cross' if self._means else kind.name} {size}"
            new = self._stacks_of(kind, name, [reduce(joined_tokens, words), patches])
            stacks |= {stack.name: stack for stack in new}
            groups = groupby(enumerate(self._stacks[kind]), lambda item: item[1].partition(".")[0])
            parts = [(part, [number for number, _ in group]) for part, group in groups]
            listed = "; ".join(f"{part} ({format_numbers(numbers)})" for part, numbers in parts)
            if new:
                notes.append(f"Layers of {quote(name)}, as they run: {listed}.")
        unread, title = "; ".join(self._unread), title or name_of(self._pipe)
        if not stacks:
            raise NotImplementedError(
                f"model: {title} has no attention that can be read ({unread or 'no such layers'}). "
                "Pass a pipeline of Flux, Stable Diffusion, PixArt, HunyuanDiT, Wan, Qwen-Image, "
                "CogVideoX or HunyuanVideo with its default attention processors."
            )
        if unread:
            notes.append(Note(f"Attention that is not shown: {unread}.", "not shown"))
        if self._guided:
            notes.append(Note("The run without the prompt (guidance) is not shown.", "not shown"))
        return AttentionRecord(stacks, model=title, notes=notes, images=images)

    def _stacks_of(self, kind: _Kind, name: str, tokens: list[Tokens]) -> list[AttentionStack]:
        """Return a stack of means, or a stack of each kept step, the last first.

        If there are several steps, their numbers are added to `name`. `tokens` are words, patches.
        """
        words, patches = tokens
        queries, keys = patches, words if kind.name == "cross" or self._means else None
        if keys is None and kind.name == "joint":
            queries = joined_tokens(*(tokens if self._words_first else tokens[::-1]))
        stacks, is_whole = [], kind.name != "joint" or not self._means
        for step in [_MEAN] if self._means else sorted(self._read, reverse=True):
            layers = enumerate(self._stacks[kind].values())
            of_step = {number: layer[step] for number, layer in layers if step in layer}
            title = name if self._means or len(self._kept) == 1 else f"{name} step {step}"
            if of_step:
                stacks.append(AttentionStack(title, of_step, queries, keys, normalized=is_whole))
        return stacks

    def _patches(self, count: int, images: Sequence[NDArray[np.uint8]]) -> tuple[Tokens, str]:
        """Return the tokens of patches, and their numbers of frames, rows and columns as a text."""
        height, width = images[0].shape[:2]
        per_frame, rest = divmod(count, self._num_frames)
        rows = max(1, round(math.sqrt(per_frame * height / width)))
        if rest or per_frame % rows:
            return tokens_from_positions(count), str(count)
        grid = (rows, per_frame // rows)
        tokens = grid_tokens([grid] * len(images), images=range(len(images)))
        frames = (self._num_frames,) if self._num_frames > 1 else ()
        return tokens, "x".join(map(str, (*frames, *grid)))


def _chosen_steps(steps: Steps, total: int) -> tuple[int, ...]:
    if steps is None:
        steps = np.linspace(0, total - 1, min(_NUM_STEPS, total)).round().astype(int).tolist()
    if isinstance(steps, str):
        if steps not in ("all", "mean"):
            raise ValueError(f"steps={steps!r} must be numbers of steps, 'all' or 'mean'")
        steps = range(total)
    return tuple(sorted(set(existing_numbers("steps", steps, range(total), "the steps are"))))


def _num_patches(denoiser: Any, latents: torch.Tensor) -> tuple[int, int]:
    """Return the number of patches of `latents`, and the number of frames among them."""
    if latents.dim() == 3:
        return latents.shape[1], 1
    size = getattr(denoiser.config, "patch_size", None) or 1
    frames = getattr(denoiser.config, "patch_size_t", None) or 1
    # Latents of a film are (batch, channels, frames, height, width). CogVideoX has frames first.
    if latents.dim() == 5 and latents.shape[2] == denoiser.config.in_channels != latents.shape[1]:
        latents = latents.transpose(1, 2)
    sizes = size if isinstance(size, list | tuple) else (frames, size, size)[5 - latents.dim() :]
    counts = [side // part for side, part in zip(latents.shape[2:], sizes, strict=True)]
    return math.prod(counts), counts[0] if len(counts) == 3 else 1


def _tokens_of(prompt: _Prompt, notes: list[str], *, drops: bool) -> Tokens:
    """Return the tokens of a prompt, named by position if they are not known, and add notes.

    Several tokenizers may have read the prompt, for one vector of all texts (FLUX), for vectors of
    the same tokens (Stable Diffusion XL), or for vectors of CLIP and then of T5 (Stable
    Diffusion 3). The first padded reading of a tokenizer is that of the prompt. A later one is that
    of the negative prompt. `drops` is whether the pipeline drops the first vectors.
    """
    length = len(prompt.vectors)
    firsts: dict[int, Reading] = {}
    for reading in prompt.readings:
        if reading.options.get("padding") in ("max_length", True):
            firsts.setdefault(id(reading.tokenizer), reading)
    known = list(firsts.values())
    for used in (known[:1] if drops else known[-1:], known[::2] if len(known) == 3 else []):
        surplus = sum(len(reading.ids) for reading in used) - length
        if used and (surplus == 0 or (drops and surplus > 0)):
            break
    else:
        notes.append("The tokens of the prompt are not known.")
        return tokens_from_positions(length)
    parts = []
    for reading in used:
        tokens, _ = read_tokens(reading.ids, readings=[reading])
        mask = getattr(reading.encoding, "attention_mask", None) or [1] * len(tokens)
        names = zip(tokens.text, mask, strict=True)
        text = tuple(name if is_read else "[PAD]" for name, is_read in names)
        special = tuple(map(max, tokens.special, [not is_read for is_read in mask]))
        parts.append(replace(tokens, text=text, special=special))
        same = [one for one in prompt.readings if one.tokenizer is reading.tokenizer]
        longest = max(len(one.ids) for one in same if one.texts == reading.texts)
        if longest > len(tokens):
            note = f"The prompt was truncated to the first {len(tokens)} of its {longest} tokens."
            notes.append(Note(note, "part of a text"))
    tokens = reduce(joined_tokens, parts)
    return selected_tokens(tokens, range(surplus, len(tokens))) if surplus else tokens


def _pictures(output: Any) -> list[NDArray[np.uint8]]:
    """Return the picture, or all frames of the film, that a pipeline returned first."""
    first = output[0][0]
    is_film = isinstance(first, list) or getattr(first, "ndim", 3) == 4
    arrays = [np.asarray(frame) for frame in (first if is_film else [first])]
    scale = 1 if arrays[0].dtype == np.uint8 else 255
    return [np.rint(array * scale).clip(0, 255).astype(np.uint8) for array in arrays]
