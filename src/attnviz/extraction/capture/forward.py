"""One forward of a model, with everything that attends watched."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from attnviz.extraction.capture.collector import Collector
from attnviz.extraction.capture.memory import check_disk, check_memory, layer_sizes
from attnviz.extraction.families import SOUNDS, is_compiled
from attnviz.extraction.inputs.batch import Batch, TokenSequence, moved_to_model
from attnviz.extraction.models import Loaded, evaluating
from attnviz.extraction.options import CaptureOptions
from attnviz.extraction.predictions import num_logits
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.storage.spool import Spool

__all__ = ["check_generation", "half_precision_note", "run_forward"]


def check_generation(
    loaded: Loaded,
    batch: Batch,
    longest: Callable[[int], int],
    *,
    encoder_decoder: bool,
    options: CaptureOptions,
    folder: Path | None = None,
) -> None:
    """Refuse to let a model produce a text that there would be no room for.

    Parameters
    ----------
    loaded : Loaded
        The model.
    batch : Batch
        One example, which it is to go on with.
    longest : callable
        Gives, for as many tokens as there are, how many there may be in the end.
    encoder_decoder, options
        As for `run_forward`.
    folder : Path, optional
        Where queries and keys are written, if they are not to stay in memory.

    Raises
    ------
    MemoryError, OSError
        If the longest text that may come would exceed what is free.
    """
    sequences = dict(batch.sequences)
    name = "decoder" if encoder_decoder else "input"
    before = sequences[name].length if name in sequences else 1
    # What a decoder produces last is predicted and not read.
    sequences[name] = TokenSequence(longest(before) - encoder_decoder, [None])
    collector = _collector(
        loaded, batch, encoder_decoder=encoder_decoder, options=options, spools=(), trace_all=False
    )
    _check_free_space(collector, sequences, options, folder)


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


def _collector(
    loaded: Loaded,
    batch: Batch,
    *,
    encoder_decoder: bool,
    options: CaptureOptions,
    spools: Sequence[Spool],
    trace_all: bool,
) -> Collector:
    # Where there is a text beside the images, names tell what belongs to which.
    is_vision = "input_ids" not in batch.arguments and any(
        name.startswith("pixel_values") for name in batch.arguments
    )
    return Collector(
        loaded.model,
        batch.sequences,
        batch.size,
        encoder_decoder=encoder_decoder,
        vision=is_vision,
        options=options,
        spools=spools,
        beside_text="audio" if any(map(batch.arguments.__contains__, SOUNDS)) else "vision",
        trace_all=trace_all,
    )


def run_forward(
    loaded: Loaded,
    batch: Batch,
    *,
    encoder_decoder: bool,
    options: CaptureOptions,
    spools: Sequence[Spool] = (),
) -> tuple[Collector, Any, list[str]]:
    """Run a model once and collect its attention.

    A model that asks the dispatcher and then computes some of its attention by itself, or that puts
    other modules in the place of its own while it runs, is run once more, looking into all of them.

    Parameters
    ----------
    loaded : Loaded
        The model.
    batch : Batch
        What it is given.
    encoder_decoder : bool
        As for `Collector`.
    options : CaptureOptions
        What is kept of queries and keys, and how.
    spools : sequence of Spool
        For each example where they are written, if they are not to stay in memory; what was written
        before is removed.

    Returns
    -------
    collector : Collector
        With what was collected.
    outputs : object
        The model's own.
    notes : list of str
        What a reader must know.

    Raises
    ------
    MemoryError, OSError
        If what is to be kept would exceed what is free; nothing has run then. An OSError also where
        a spool cannot be written.
    """
    model = loaded.model
    arguments = {name: moved_to_model(model, value) for name, value in batch.arguments.items()}
    # No cache is filled, and logits are made only for tokens that predict a text.
    accepted = inspect.signature(model.forward).parameters
    # Without a cache transformers takes positions that begin again for texts packed into one.
    packed = "position_ids" in arguments and "attention_mask" not in arguments
    if "use_cache" in accepted and not packed:
        arguments.setdefault("use_cache", False)
    if "logits_to_keep" in accepted:
        arguments["logits_to_keep"] = num_logits(batch)
    notes: list[str] = []
    with ExitStack() as stack:
        if stack.enter_context(evaluating(model)):
            notes.append(
                "The model was in training mode: attention is shown without dropout, as in "
                "evaluation mode."
            )
        stack.enter_context(torch.no_grad())
        if is_compiled(model):
            # What was compiled asks nobody while it runs: the same modules run as they were.
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        for trace_all in (False, True):
            for spool in spools:
                spool.clear()
            collector = _collector(
                loaded,
                batch,
                encoder_decoder=encoder_decoder,
                options=options,
                spools=spools,
                trace_all=trace_all,
            )
            _check_free_space(
                collector, batch.sequences, options, spools[0].folder if spools else None
            )
            with collector.watching():
                outputs = model(**arguments)
            if not collector.overlooked:
                break
    halves = half_precision_note(
        [(run.dtype, run.calls[0][0]) for run in collector.runs if run.calls]
    )
    if halves is not None:
        notes.append(halves)
    elif model.device.type != "meta" and torch.is_autocast_enabled(model.device.type):
        notes.append(
            "The model ran under autocast, which rounds as it computes: weights are a float32 "
            "softmax of the queries and keys that its attention received."
        )
    return collector, outputs, notes


_NAMES = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
# So many queries of one head a layer are enough to tell how much rounding does.
_ROWS = 8


def half_precision_note(
    attentions: Sequence[tuple[torch.dtype | None, object]],
) -> str | None:
    """Say what a record's weights are where the model computes in half precision.

    Parameters
    ----------
    attentions : sequence of (dtype, object)
        For each of the model's layers in which precision its queries came, and what is kept.

    Returns
    -------
    str or None
        With the largest difference from weights in the model's own precision that is found in a
        sample, some queries of a head of each layer; None where none received half precision.
    """
    halves = {
        number: attention
        for number, (dtype, attention) in enumerate(attentions)
        if isinstance(attention, QueryKeyAttention) and dtype == attention.queries.dtype in _NAMES
    }
    if not halves:
        return None
    worst = max(_difference(each, number % each.num_heads) for number, each in halves.items())
    name = _NAMES[next(iter(halves.values())).queries.dtype]
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
