"""Functions that run a model to capture its attention.

Before the run, they check whether the copies of the attention fit in free memory or on the disk.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from attnviz.extraction.capture.collector import Collector, Observer
from attnviz.extraction.capture.layer_change import ForwardChange, ModuleRun
from attnviz.extraction.capture.memory import (
    LayerSize,
    check_disk,
    check_memory,
    layer_sizes,
)
from attnviz.extraction.capture.stacks import StackLayers, is_copied, stacks_of
from attnviz.extraction.families import is_compiled
from attnviz.extraction.hooks import evaluate
from attnviz.extraction.inputs.batch import Batch, TokenSequence, moved_to_model
from attnviz.extraction.loaded import Loaded
from attnviz.extraction.options import CaptureOptions
from attnviz.extraction.predictions import num_logits
from attnviz.extraction.tokens.packing import PackedImage, watch_packing
from attnviz.extraction.tokens.patches import watch_convolutions
from attnviz.record.storage.spool import Spool
from attnviz.utils.cleanup import Cleanup, SharedReplacement

#: Text of the note in the record of a model that was in training mode.
TRAINING_NOTE = (
    "The model was in training mode: attention is shown without dropout, as in evaluation mode."
)


@dataclass
class Forward:
    """Outputs of a model, the captured attention, and the notes for the reader of the record.

    `packed` has the images that the model packed (see `attnviz.extraction.tokens.packing`), and
    `convolved` is the result of `watch_convolutions`.
    """

    collector: Collector
    outputs: Any
    notes: list[str]
    packed: list[PackedImage]
    convolved: list[tuple[int, int, int]]

    @cached_property
    def stacks(self) -> dict[str, StackLayers]:
        """Stacks of captured layers, by the name of the stack."""
        return stacks_of(self.collector)


def run_forward(
    loaded: Loaded,
    batch: Batch,
    *,
    options: CaptureOptions,
    spools: Sequence[Spool] = (),
    changes: Sequence[ForwardChange] = (),
    skipped: Sequence[ModuleRun] = (),
    trace_all: bool | None = None,
    observe: Observer | None = None,
    logits: int | None = None,
) -> Forward:
    """Run a model and collect its attention.

    For each example, `spools` has a spool (a folder on disk), which is cleared before the copies
    are written. If `spools` is empty, copies stay in memory. `changes` and `skipped` are as for
    `Collector`. `observe` gets each attention call after the requested changes of its output.
    `logits` is the minimum number of final positions for which the model computes logits (None
    means 1).

    `trace_all` is whether all modules with softmax attention are traced, which means that their
    torch functions are observed. If it is True or False, the model runs once. Pass one of these
    values if an earlier forward of the same inputs has shown whether tracing is needed. If
    `trace_all` is None, modules that use transformers' attention dispatcher are not traced, and the
    model runs again in two cases:

    - An attention module was not captured, because it did not use the dispatcher (although its code
      can), or because it replaced another module during the forward. The next run traces all
      modules.
    - The number of a requested layer was predicted wrongly, so the layer was not copied. The next
      run copies all layers.

    Raise MemoryError or OSError before the model runs if the copies would exceed the free space.
    Raise RuntimeError if a change in `changes` was not applied.
    """
    may_repeat, trace_all = trace_all is None, bool(trace_all)
    copied = options
    arguments = arguments_of(loaded, batch, logits or 1)
    while True:
        collector = Collector(
            loaded,
            batch,
            copied,
            spools=spools,
            trace_all=trace_all,
            changes=changes,
            skipped=skipped,
        )
        for spool in spools:
            spool.clear()
        _check_free_space(collector, copied, spools[0].folder if spools else None)
        forward = _watched_forward(loaded.model, collector, arguments, observe)
        if may_repeat and not trace_all and collector.has_untraced_attention:
            trace_all = True
        elif may_repeat and copied is options and not is_copied(forward.stacks, options):
            copied = replace(options, layers=None)
        else:
            missed = {run for change in changes for run in change} - collector.changed
            if missed:
                raise RuntimeError(f"{min(missed)[0]} ran without its change")
            return forward
        # Free the copies of this forward before the next one makes its copies.
        del forward, collector


def _watched_forward(
    model: PreTrainedModel,
    collector: Collector,
    arguments: dict[str, Any],
    observe: Observer | None,
) -> Forward:
    notes = []
    with Cleanup() as undo, undo:
        modules = collector.scan.modules
        if evaluate(modules, undo):
            notes.append(TRAINING_NOTE)
        # Compiled code does not call transformers' attention dispatcher, so its attention could not
        # be captured.
        run_uncompiled(modules, undo)
        collector.watch(undo, observe)
        packed = watch_packing(modules, undo) if "image_sizes" in arguments else []
        convolved = watch_convolutions(modules, undo)
        outputs = model(**arguments)
        collector.finish()
    for name, is_compared in collector.check.foreign.items():
        compared = "compared" if is_compared else "which could not be compared"
        notes.append(
            f"The attention function {name} does not come with transformers: weights are those of "
            f"softmax(scale * q k^T + bias + mask), {compared} with its output."
        )
    precision = _precision_note(model, collector)
    notes += [precision] if precision else []
    return Forward(collector, outputs, notes, packed, convolved)


def _eval_frame() -> Any:
    """Import and return the torch module with the setting of the compiler (its "stance").

    The import takes seconds, so it is done only for compiled models.
    """
    return importlib.import_module("torch._dynamo.eval_frame")


# All threads share the stance, so the last capture that ends restores it.
_uncompiled = SharedReplacement[Any](
    lambda: _eval_frame()._stance,
    lambda stance: _eval_frame()._set_stance(stance),
    lambda _: _eval_frame().DynamoStance("force_eager"),
)


def run_uncompiled(modules: Sequence[nn.Module], undo: Cleanup) -> None:
    """If any of `modules` is compiled, run all code uncompiled until the block of `undo` ends."""
    if is_compiled(modules):
        _uncompiled.hold(undo)


def arguments_of(loaded: Loaded, batch: Batch, logits: int = 1) -> dict[str, Any]:
    """Return the arguments for the forward of a model, on the model's device.

    Unless the batch sets `use_cache` or may contain packed texts (several texts in one row), the
    forward has no cache. If the model can skip logits, it computes them only for the last
    positions: for at least `logits` positions, and for all positions that predict tokens of a
    produced text (a text that the model generated or was forced to produce).
    """
    model = loaded.model
    arguments = {name: moved_to_model(model, value) for name, value in batch.arguments.items()}
    # If positions are passed without a mask, and the cache is off, transformers interprets
    # positions that restart at 0 as several packed texts. So do not turn the cache off in this
    # case.
    packed = "position_ids" in arguments and "attention_mask" not in arguments
    if "use_cache" in loaded.accepted and not packed:
        arguments.setdefault("use_cache", False)
    if loaded.shortens_logits:
        # Pass a slice instead of a number. If Gemma 4 gets a number, it skips the other positions
        # not only for logits, but also in all layers that read the keys of earlier layers.
        arguments["logits_to_keep"] = slice(-max(logits, num_logits(batch)), None)
    return arguments


def check_capture(
    loaded: Loaded,
    batch: Batch,
    max_tokens: Callable[[int], int] | None,
    *,
    options: CaptureOptions,
    folder: Path | None = None,
) -> None:
    """Raise MemoryError or OSError if the captured attention would not fit into the free space.

    `batch` is one example. `folder` is the folder to which queries and keys are written, or None if
    they stay in memory. `max_tokens` is None if no text will be generated. Otherwise it is a
    function that takes the number of tokens before the generation, and returns the maximum number
    of tokens after it. In an encoder-decoder model, these are the tokens of the decoder. If the
    batch has none, the decoder starts with one token.
    """
    collector = Collector(loaded, batch, options)
    if max_tokens is not None:
        sequences = dict(collector.sequences)
        name = "decoder" if loaded.is_encoder_decoder else "input"
        before = sequences[name].length if name in sequences else 1
        # The decoder of an encoder-decoder model predicts the last token but does not read it, so
        # its attention has one token less.
        sequences[name] = TokenSequence(max_tokens(before) - loaded.is_encoder_decoder, [None])
        collector.sequences = sequences
    _check_free_space(collector, options, folder)


def layer_sizes_of(loaded: Loaded, batch: Batch) -> list[LayerSize]:
    """Return the size of the attention that a capture of `batch` would keep for each layer.

    The model does not run. The list has only the layers that attend to the tokens of a text.
    """
    return layer_sizes(Collector(loaded, batch, CaptureOptions()))


def _check_free_space(collector: Collector, options: CaptureOptions, folder: Path | None) -> None:
    sizes = layer_sizes(collector)
    if folder is not None:
        check_disk(sizes, options, folder)
    else:
        check_memory(sizes, options)


def _precision_note(model: PreTrainedModel, collector: Collector) -> str | None:
    """Return a note if the model computes in half precision or under autocast, else None."""
    dtypes = {run.dtype for run in collector.runs} & {torch.float16, torch.bfloat16}
    if dtypes:
        name = str(dtypes.pop()).removeprefix("torch.")
        return (
            f"The model's attention computes in {name}: weights are a float32 softmax of its "
            "queries and keys."
        )
    device = model.device.type
    if device != "meta" and torch.is_autocast_enabled(device):
        return (
            "The model ran under autocast, which rounds as it computes: weights are a float32 "
            "softmax of the queries and keys that its attention received."
        )
    return None
