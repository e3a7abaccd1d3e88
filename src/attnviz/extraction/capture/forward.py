"""One forward of a model, with everything that attends watched."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from attnviz.extraction.capabilities import accepted_arguments, shortens_logits
from attnviz.extraction.capture.change import ForwardChange
from attnviz.extraction.capture.check import CheckedCalls
from attnviz.extraction.capture.collector import Collector
from attnviz.extraction.capture.memory import (
    LayerSize,
    check_disk,
    check_memory,
    layer_sizes,
)
from attnviz.extraction.capture.stacks import StackLayers, is_copied, stacks_of
from attnviz.extraction.families import SOUNDS, config_values, family_of, is_compiled
from attnviz.extraction.inputs.batch import Batch, TokenSequence, moved_to_model
from attnviz.extraction.models import Loaded, evaluate
from attnviz.extraction.options import CaptureOptions
from attnviz.extraction.predictions import num_logits
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.storage.spool import Spool
from attnviz.utils.cleanup import Cleanup, SharedChange

__all__ = [
    "TRAINING_NOTE",
    "Forward",
    "arguments_of",
    "check_capture",
    "forward_notes",
    "hold_uncompiled",
    "layer_sizes_of",
    "run_forward",
]


#: What a reader must know of a model that was in training mode.
TRAINING_NOTE = (
    "The model was in training mode: attention is shown without dropout, as in evaluation mode."
)


@dataclass
class Forward:
    """What a model gave, the attention that was captured, and what a reader must know."""

    collector: Collector
    outputs: Any
    notes: list[str]

    @cached_property
    def stacks(self) -> dict[str, StackLayers]:
        """All that ran, under the model's numbers."""
        return stacks_of(self.collector)


@dataclass(frozen=True)
class _Watch:
    """How a forward is watched: what is copied, and whether modules that dispatch are traced.

    And what is changed in its attention, and which calls were checked before.
    """

    options: CaptureOptions
    trace_all: bool = False
    change: ForwardChange | None = None
    checked: CheckedCalls | None = None


@dataclass(frozen=True)
class _Rerun:
    """Why a model runs once more, and how it is watched then."""

    needed: Callable[[Forward, CaptureOptions], bool]
    change: Callable[[_Watch], _Watch]


# All reasons, asked in this order after each forward; each counts once at most.
_RERUNS = (
    # A module asks the dispatcher and computes some of its attention by itself, or the forward put
    # another module in its place: then all modules are traced.
    _Rerun(
        needed=lambda forward, _: forward.collector.overlooked,
        change=lambda watch: replace(watch, trace_all=True),
    ),
    # Layers have other numbers than were predicted: then all of them are copied.
    _Rerun(
        needed=lambda forward, options: not is_copied(forward.stacks, options),
        change=lambda watch: replace(watch, options=replace(watch.options, layers=None)),
    ),
)


def run_forward(
    loaded: Loaded,
    batch: Batch,
    *,
    encoder_decoder: bool,
    options: CaptureOptions,
    spools: Sequence[Spool] = (),
    change: ForwardChange | None = None,
    logits: int | None = None,
    checked: CheckedCalls | None = None,
) -> Forward:
    """Run a model and collect its attention; more than once only for one of `_RERUNS`.

    `spools` are where each example's queries and keys are written, if they are not to stay in
    memory; what was written before is removed. `change` is what is changed in the attention, and
    `logits` how many positions, from the last, need logits at least. `checked` are the calls of
    earlier forwards that were compared with the model's output: of calls like these one example is.
    Raises MemoryError or OSError, before anything has run, where what is to be kept would exceed
    what is free.
    """
    watch, reruns = _Watch(options, change=change, checked=checked), [*_RERUNS]
    while True:
        forward = _watched_forward(
            loaded,
            batch,
            watch,
            encoder_decoder=encoder_decoder,
            spools=spools,
            logits=logits or 1,
        )
        rerun = next((each for each in reruns if each.needed(forward, options)), None)
        if rerun is None:
            return forward
        reruns.remove(rerun)
        watch = rerun.change(watch)
        # Its copies must not lie beside the next ones.
        del forward


def _watched_forward(
    loaded: Loaded,
    batch: Batch,
    watch: _Watch,
    *,
    encoder_decoder: bool,
    spools: Sequence[Spool],
    logits: int,
) -> Forward:
    model = loaded.model
    arguments = arguments_of(model, batch, logits)
    for spool in spools:
        spool.clear()
    collector = _collector(loaded, batch, watch, encoder_decoder=encoder_decoder, spools=spools)
    folder = spools[0].folder if spools else None
    _check_free_space(collector, _sequences(loaded, batch), watch.options, folder)
    notes = []
    with Cleanup() as undo, undo:
        if evaluate(model, undo):
            notes.append(TRAINING_NOTE)
        hold_uncompiled(model, undo)
        collector.watch(undo)
        try:
            outputs = model(**arguments)
        except RuntimeError as error:
            _explain_mask(model, arguments, error)
            raise
    notes += _cache_notes(model, arguments) + _mask_notes(model, arguments)
    return Forward(collector, outputs, [*notes, *forward_notes(model, collector)])


def forward_notes(model: PreTrainedModel, collector: Collector) -> list[str]:
    """What a reader must know of the attention that was captured, and of its precision."""
    notes = [_foreign_note(*each) for each in collector.check.foreign.items()]
    precision = _precision_note(model, collector)
    return [*notes, precision] if precision else notes


def hold_uncompiled(model: PreTrainedModel, undo: Cleanup) -> None:
    """Have a compiled model's modules run uncompiled until the block of `undo` ends.

    Compiled code does not ask the dispatcher.
    """
    if is_compiled(model):
        _uncompiled.hold(undo)


class _Stance:
    """How torch runs what was compiled, and how it did before."""

    def __init__(self) -> None:
        self._before: Any = None

    def force_eager(self) -> None:
        found = _eval_frame()._stance
        if found.stance != "force_eager":
            self._before = found
            torch.compiler.set_stance("force_eager")

    def restore(self) -> None:
        if self._before is not None:
            _eval_frame()._set_stance(self._before)
            self._before = None


def _eval_frame() -> Any:
    """The module of torch that holds the stance; it takes seconds to import."""
    return importlib.import_module("torch._dynamo.eval_frame")


_stance = _Stance()
# The stance is one for all threads.
_uncompiled = SharedChange(_stance.force_eager, _stance.restore)


def _foreign_note(name: str, rows: tuple[int, int] | None) -> str:
    """Say which function attended that transformers does not ship, and what was compared."""
    if rows is None:
        compared = "which could not be compared with what it gave"
    else:
        some, num_queries = rows
        part = f"all {some:,}" if some == num_queries else f"{some:,} of {num_queries:,}"
        compared = f"compared with its output in {part} queries of each head"
    return (
        f"The attention function {name} does not come with transformers: weights are those of "
        f"softmax(scale * q k^T + bias + mask), {compared}."
    )


def arguments_of(model: PreTrainedModel, batch: Batch, logits: int = 1) -> dict[str, Any]:
    """What the model is called with: no cache, and logits only where they predict a text.

    `logits` is how many positions, from the last, need them at least.
    """
    arguments = {name: moved_to_model(model, value) for name, value in batch.arguments.items()}
    accepted = accepted_arguments(model)
    # Without a cache transformers takes positions that begin again for texts packed into one.
    packed = "position_ids" in arguments and "attention_mask" not in arguments
    if "use_cache" in accepted and not packed:
        arguments.setdefault("use_cache", False)
    if shortens_logits(model):
        # A slice, not a number: given a number, Gemma 4 also leaves out the other positions in all
        # layers that read the keys of earlier layers.
        arguments["logits_to_keep"] = slice(-max(logits, num_logits(batch)), None)
    return arguments


def _collector(
    loaded: Loaded,
    batch: Batch,
    watch: _Watch,
    *,
    encoder_decoder: bool,
    spools: Sequence[Spool] = (),
) -> Collector:
    # Where there is a text beside the images, names tell what belongs to which.
    is_vision = "input_ids" not in batch.arguments and any(
        name.startswith("pixel_values") for name in batch.arguments
    )
    return Collector(
        loaded.model,
        _sequences(loaded, batch),
        batch.size,
        encoder_decoder=encoder_decoder,
        vision=is_vision,
        options=watch.options,
        spools=spools,
        beside_text="audio" if any(map(batch.arguments.__contains__, SOUNDS)) else "vision",
        trace_all=watch.trace_all,
        change=watch.change,
        checked=watch.checked,
    )


def _sequences(loaded: Loaded, batch: Batch) -> Mapping[str, TokenSequence]:
    """Lists of tokens as attention has them: an adapter may put virtual ones in front."""
    virtual = loaded.virtual
    return batch.sequences if virtual is None else virtual.sequences(batch.sequences)


def check_capture(
    loaded: Loaded,
    batch: Batch,
    longest: Callable[[int], int] | None,
    *,
    encoder_decoder: bool,
    options: CaptureOptions,
    folder: Path | None = None,
) -> None:
    """Raise MemoryError or OSError if what is captured would not fit.

    `batch` is one example, and `folder` is where queries and keys are written, if they are not to
    stay in memory. Of a text that is to be generated `longest` gives for a number of tokens how
    many there may be in the end.
    """
    sequences = dict(_sequences(loaded, batch))
    if longest is not None:
        name = "decoder" if encoder_decoder else "input"
        before = sequences[name].length if name in sequences else 1
        # The last token of a decoder is predicted and not read.
        sequences[name] = TokenSequence(longest(before) - encoder_decoder, [None])
    collector = _collector(loaded, batch, _Watch(options), encoder_decoder=encoder_decoder)
    _check_free_space(collector, sequences, options, folder)


def layer_sizes_of(loaded: Loaded, batch: Batch, *, encoder_decoder: bool) -> list[LayerSize]:
    """How large the attention of each layer will be, of those that attend over a text's tokens."""
    watch = _Watch(CaptureOptions())
    collector = _collector(loaded, batch, watch, encoder_decoder=encoder_decoder)
    return layer_sizes(collector.model, collector.stacks, _sequences(loaded, batch))


def _check_free_space(
    collector: Collector,
    sequences: Mapping[str, TokenSequence],
    options: CaptureOptions,
    folder: Path | None,
) -> None:
    sizes = layer_sizes(collector.model, collector.stacks, sequences)
    if folder is not None:
        check_disk(sizes, options, folder)
    else:
        check_memory(sizes, options)


def _explain_mask(model: PreTrainedModel, arguments: Mapping[str, Any], error: Exception) -> None:
    """Raise ValueError where a mask of four axes was given that the model cannot mean as a mask."""
    mask = arguments.get("attention_mask")
    implementation = getattr(model.config, "_attn_implementation", None)
    if not isinstance(mask, torch.Tensor) or mask.dim() != 4 or mask.is_floating_point():
        return
    if mask.dtype == torch.bool and implementation != "eager":
        return
    raise ValueError(
        f"inputs: attention_mask has four axes and is {str(mask.dtype).removeprefix('torch.')}, "
        f"which attn_implementation={implementation!r} does not read as a mask: it adds what it is "
        "given. Give floats, 0 where a query may attend and torch.finfo(torch.float32).min where "
        "it may not, or bool with attn_implementation='sdpa'"
    ) from error


def _cache_notes(model: PreTrainedModel, arguments: Mapping[str, Any]) -> list[str]:
    """Which forward is shown, where a model masks in another way with a cache than without."""
    if not family_of(model.config).unmasked_with_cache:
        return []
    if arguments.get("use_cache"):
        return [
            "Shown is a forward with a cache, in which this model masks nothing in its decoder: "
            "queries attend to later tokens too."
        ]
    return [
        "Shown is the forward without a cache, in which no query of the decoder attends to later "
        "tokens. Called with a cache, as by default, this model masks nothing there."
    ]


def _mask_notes(model: PreTrainedModel, arguments: Mapping[str, Any]) -> list[str]:
    """Return what a reader must know if the mask depends on the implementation of attention."""
    looks_both_ways = family_of(model.config).prompt_looks_both_ways or True in config_values(
        model.config, "use_bidirectional_attention"
    )
    name = "token_type_ids"
    if not looks_both_ways or name in arguments or name not in accepted_arguments(model):
        return []
    implementation = getattr(model.config, "_attn_implementation", None)
    return [
        f"No {name} were given. Without them this model has other masks with eager attention than "
        f"with sdpa: shown are those of {implementation}."
    ]


def _precision_note(model: PreTrainedModel, collector: Collector) -> str | None:
    """Where the model computes in half precision or under autocast, and what that means."""
    note = _half_precision_note(
        [(run.dtype, run.calls[0][0]) for run in collector.runs if run.calls]
    )
    device = model.device.type
    if note is None and device != "meta" and torch.is_autocast_enabled(device):
        note = (
            "The model ran under autocast, which rounds as it computes: weights are a float32 "
            "softmax of the queries and keys that its attention received."
        )
    return note


_NAMES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
# So many queries of one head a layer are enough to tell how much rounding does.
_ROWS = 8


def _half_precision_note(
    attentions: Sequence[tuple[torch.dtype | None, object]],
) -> str | None:
    """Say what a record's weights are where the model computes in half precision.

    `attentions` are, for each layer, in which dtype its queries came, and what is kept. The note
    gives the largest difference from weights in the model's own precision in a sample: some queries
    of a head of each layer. None where no layer received half precision.
    """
    rounded = {
        number: attention
        for number, (dtype, attention) in enumerate(attentions)
        if isinstance(attention, QueryKeyAttention) and dtype == attention.queries.dtype in _NAMES
    }
    if not rounded:
        return None
    worst = max(_difference(each, number % each.num_heads) for number, each in rounded.items())
    name = _NAMES[next(iter(rounded.values())).queries.dtype]
    return (
        f"The model's attention computes in {name}: weights are a float32 softmax of its queries "
        f"and keys. In a sample, {_ROWS} queries of a head a layer, those rounded as in eager "
        f"attention differ by up to {worst:.2g}; others may by more."
    )


def _difference(attention: QueryKeyAttention, head: int) -> float:
    """Largest difference of a weight when each step is rounded to the dtype of the queries."""
    rows = slice(max(0, attention.num_queries - _ROWS), attention.num_queries)
    queries, keys = attention.queries[head, rows], attention.keys[attention.key_head(head)]
    dtype = queries.dtype
    exact = (queries.float() @ keys.float().T) * attention.scale
    rounded = (queries @ keys.T * attention.scale).to(dtype).float()
    logits = attention.logits(head, rows)
    if attention.softcap is None:
        logits = (logits + (rounded - exact).to(logits.device)).to(dtype).float()
    own = torch.softmax(logits, dim=1).to(dtype).float()
    found = torch.softmax(attention.logits(head, rows), dim=1)
    return float((own - found).nan_to_num(0.0).abs().max())
