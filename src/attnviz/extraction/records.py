"""Conversion of the captured attention of a forward into records, one per example.

A record has one or more stacks. A stack is the attention of one kind in all layers, such as the
attention of a decoder. Captured attention is the queries and keys, or the weights, that were copied
while the model ran.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import nn
from transformers import PreTrainedModel

from attnviz.extraction.capture.collector import Run
from attnviz.extraction.capture.forward import Forward, run_forward
from attnviz.extraction.capture.missing_layers import notes_on_layers, notes_on_modules
from attnviz.extraction.capture.outputs import HeadOutputs
from attnviz.extraction.capture.rows import notes_on_padding, packing_notes
from attnviz.extraction.capture.stacks import StackLayers, rounding_notes, select_layers
from attnviz.extraction.families import families_in
from attnviz.extraction.hooks import attend_fully
from attnviz.extraction.inputs.batch import Batch
from attnviz.extraction.inputs.encode import Encoder
from attnviz.extraction.models import name_of
from attnviz.extraction.modules import TEXTS_OF_STACKS
from attnviz.extraction.options import CaptureOptions
from attnviz.extraction.predictions import add_predictions, predicted_classes
from attnviz.extraction.tokens.labels import RecordTokens
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import ChosenMask
from attnviz.record.notes import Note
from attnviz.record.ranks import BlockRanks
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.storage.spool import Spool
from attnviz.record.tokens import Candidate, quote
from attnviz.utils.arguments import format_named
from attnviz.utils.cleanup import Cleanup
from attnviz.utils.host import warn_caller

#: Beginning of the note on layers whose outputs of heads are unknown.
# Names of the numbers of a stack, by the kind of the stack or of its rule. Other linear layers have
# "linear weight", and other stacks "weight".
_MEASURES = {"Mamba-1": "share of output", "indexer": "rank"}


def record_batch(
    encoder: Encoder,
    batch: Batch,
    *,
    options: CaptureOptions,
    spools: Sequence[Spool] = (),
    outputs: HeadOutputs | None = None,
) -> list[AttentionRecord]:
    """Run one forward and return a record for each example of `batch`.

    For each example, `spools` has an object that writes the queries and keys to a folder. If
    `spools` is empty, queries and keys stay in memory. `outputs` reads the gates of heads and, if
    `options` request them, their outputs. Pass the same object for all batches of a model, so that
    its output projections are read only once. If `outputs` is None, a new object is used. The other
    arguments are as in `records_of_forward`.
    """
    loaded = encoder.loaded
    if outputs is None:
        outputs = HeadOutputs(loaded.model, vectors=options.outputs)
    ids = batch.arguments.get("input_ids", batch.arguments.get("inputs_embeds"))
    with Cleanup() as undo, undo:
        if ids is not None:
            attend_fully(loaded.model, ids.shape[1], undo)
        with Cleanup() as watching, watching:
            outputs.watch(watching)
            forward = run_forward(
                loaded, batch, options=options, spools=spools, observe=outputs.observe
            )
        return records_of_forward(encoder, batch, forward, options=options, outputs=outputs)


def records_of_forward(
    encoder: Encoder,
    batch: Batch,
    forward: Forward,
    *,
    options: CaptureOptions,
    outputs: HeadOutputs | None = None,
) -> list[AttentionRecord]:
    """Return a record for each example of a forward.

    If the model treated all rows of the batch as one example, the list has one record. The
    predictions of the model are added to the tokens of `batch`. In the records, patches of images
    are sorted row by row if their order is known. `outputs` is the object that observed the outputs
    and gates of heads during the forward, or None if the records have neither.
    """
    loaded = encoder.loaded
    _check_rows(loaded.model, batch, forward)
    collector, stacks = forward.collector, select_layers(forward.stacks, options)
    add_predictions(loaded, batch, forward.outputs)
    # The encoder and the decoder may have added the same note, so remove duplicates.
    notes = [
        *dict.fromkeys(batch.notes),
        *forward.notes,
        *rounding_notes(stacks, options),
    ]
    if loaded.virtual is not None:
        notes.append(loaded.virtual.note)
    missing = collector.missing
    unread = notes_on_modules((entry.name, entry.module) for entry in missing)
    if unread:
        notes += unread
        warn_caller(f"{name_of(loaded.model)}: {' '.join(unread)}")
    notes += notes_on_layers(loaded, forward.stacks, missing, collector.scan)
    if any(layers.in_call_order for layers in stacks.values()):
        notes.append("Layers are numbered in the order in which they ran.")
    if not all(run.has_all_logits for layers in stacks.values() for run in layers.runs):
        notes.append(
            "Query · key is only a part of the logits: this model adds products with "
            "positions, which the neuron view shows as bias."
        )
    first = [layer for layers in stacks.values() for layer in layers.examples[0].values()]
    if any(isinstance(layer, QueryKeyAttention) and layer.sinks is not None for layer in first):
        notes.append(
            "Each head has a learned sink, which takes a share of every row: weights sum to less "
            "than 1."
        )
    if any(layers.runs[0].summaries is not None for layers in stacks.values()):
        notes.append("Keys with names such as “tokens 4–11” are summaries of these tokens.")
    for name, layers in stacks.items():
        notes += _linear_notes(loaded.model, name, layers)
        notes += _choice_notes(name, layers)
    unread_indexers = map(loaded.model.get_submodule, collector.unread_indexers)
    notes += [
        Note(f"The scores with which {kind} chooses keys are not shown.", "not shown")
        for kind in dict.fromkeys(type(module).__name__ for module in unread_indexers)
    ]
    if outputs is not None:
        notes += _add_head_arrays(stacks, outputs, options)
    padding_notes: list[list[str]] = [[]] * batch.size
    if not collector.changed:
        padding_notes = notes_on_padding(loaded, batch, forward.outputs)
    if collector.max_examples == 1 < batch.size:
        notes.append(
            f"The {batch.size} rows of inputs are one example: tokens are shown by their position."
        )
        batch.size, batch.tokens, batch.example_notes = 1, {}, []
        padding_notes = [[]]
    tokens = RecordTokens(loaded, batch, stacks, forward.packed, forward.convolved)
    example_notes = batch.example_notes or [[]] * batch.size
    return [
        _record(
            index,
            stacks,
            tokens,
            [
                *example_notes[index],
                *_mask_notes(collector.lowered_queries.get(index, ())),
                *padding_notes[index],
                *packing_notes(batch, stacks, index),
                *notes,
            ],
            encoder.title,
            classes=predicted_classes(loaded.model, batch, forward.outputs, index),
        )
        for index in range(batch.size)
    ]


def _linear_notes(model: PreTrainedModel, name: str, layers: StackLayers) -> list[str]:
    """Return a note that says what the weights of linear layers mean, or no note."""
    if layers.rule is None:
        return []
    modules = [model.get_submodule(path) for path in layers.names]
    kinds = ", ".join(dict.fromkeys(type(module).__name__ for module in modules))
    meaning = (
        "the share of the query's output that comes from the key. Rows sum to 1"
        if layers.rule == "Mamba-1"
        else "the factor of the key's value in the query's output. Rows may have any sum"
    )
    convolution = (
        " A convolution has already mixed each token with the few tokens before it."
        if any(isinstance(part, nn.Conv1d) for module in modules for part in module.children())
        else ""
    )
    return [
        f"A number of stack {quote(name)} ({kinds}) is {meaning}. Numbers may be negative: do not "
        f"compare them with softmax weights.{convolution}"
    ]


def _mask_notes(queries: Collection[int]) -> list[str]:
    """Return a note if a mask lowers the logits of all keys of `queries`, else an empty list."""
    if not queries:
        return []
    return [
        f"The mask lowers the logits of all keys for {format_named('token', sorted(queries))}. The "
        "model gives these keys weights nevertheless. The record has weights of 0."
    ]


def _tie_notes(layers: StackLayers) -> list[str]:
    """Return a note if rounding may change the choice of an indexer, else an empty list."""
    close, compared = map(sum, zip(*(run.ties for run in layers.runs), strict=True))
    if not close:
        return []
    return [
        f"In {close:,} of {compared:,} compared choices of an indexer, the scores of the last "
        "chosen key and of the next one differ by no more than rounding. In a batch of another "
        "size, or on another device, the model can choose the other key."
    ]


def _choice_notes(name: str, layers: StackLayers) -> list[str]:
    """Return a note that keys are chosen before the softmax, or that a stack has ranks of keys.

    Return an empty list for other stacks.
    """
    first = layers.examples[0].values()
    if layers.stack == "indexer":
        is_of_blocks = any(isinstance(layer, BlockRanks) for layer in first)
        ranked = "summaries" if layers.runs[0].summaries is not None else "keys"
        ranked = "blocks of keys" if is_of_blocks else ranked
        always = " A block that is always chosen counts as one with the largest score."
        return [
            f"Numbers of stack {quote(name)} are ranks of {ranked} by their scores, from 1/n for "
            f"the worst of n to 1 for the best. Equal scores have the lowest of their ranks."
            f"{always * is_of_blocks}",
            *_tie_notes(layers),
        ]
    if any(
        isinstance(layer, QueryKeyAttention) and isinstance(layer.mask, ChosenMask)
        for layer in first
    ):
        return [
            f"Layers of stack {quote(name)} choose keys for each query before the softmax. Keys "
            "that were not chosen have no weight."
        ]
    return []


def _check_rows(model: PreTrainedModel, batch: Batch, forward: Forward) -> None:
    """Raise NotImplementedError if a layer has fewer queries than its text has tokens.

    In such a layer, some tokens have no row of weights. Models that pool tokens, and layers that
    attend to images or sounds, are not checked.
    """
    if any(family.pools_queries for family in families_in(model.config)):
        return
    # Float arguments, except masks and embeddings, are images, sounds or their features.
    has_media = any(
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and not name.endswith(("mask", "embeds"))
        for name, value in batch.arguments.items()
    )
    for run in forward.collector.runs:
        side, _ = TEXTS_OF_STACKS.get(run.stack, ("", ""))
        if not run.calls or side not in batch.tokens:
            continue
        num_queries, num_keys = run.shape
        length = len(batch.tokens[side][0])
        # If the inputs have images or sounds, and the number of keys is not the length of the text,
        # the layer attends to the images or sounds. Such a layer may have fewer queries.
        if num_queries < length and (num_keys == length or not has_media):
            raise NotImplementedError(
                f"model: {run.name} ({type(model.get_submodule(run.name)).__name__}) attends "
                f"with {num_queries} of the {length} tokens of the text, so rows of its "
                "attention are missing, and it cannot be shown. Show your own weights with "
                "AttentionRecord.from_weights."
            )


def _add_head_arrays(
    stacks: Mapping[str, StackLayers], outputs: HeadOutputs, options: CaptureOptions
) -> list[str]:
    """Store the gates of heads in `stacks` and, if `options` request them, the outputs.

    Return notes that name the layers whose outputs are not known.
    """
    notes: list[str] = []
    for name, layers in stacks.items():
        layers.gates = _by_example(layers, outputs.gates_of_run)
        if not options.outputs:
            continue
        layers.outputs = _by_example(layers, outputs.of_run)
        unknown = sorted(layers.examples[0].keys() - layers.outputs[0].keys())
        # The outputs of linear layers pass a norm or a gate, so they are never known. Indexers have
        # no outputs.
        if unknown and layers.rule is None and layers.stack != "indexer":
            note = (
                f"The outputs of heads are not shown for {format_named('layer', unknown)} of "
                f"stack {quote(name)}, because no linear output projection was found."
            )
            notes.append(Note(note, "no outputs"))
    return notes


def _by_example(
    layers: StackLayers, read: Callable[[Run], list[torch.Tensor] | None]
) -> list[dict[int, torch.Tensor]]:
    """Return, for each example, a dictionary from layer number to the tensor of the layer.

    `read` returns the tensors of a run, one per example, or None if they are not known. Layers
    whose tensors are not known are omitted.
    """
    tensors = {
        number: read(run) for number, run in zip(layers.examples[0], layers.runs, strict=True)
    }
    return [
        {number: of_layer[index] for number, of_layer in tensors.items() if of_layer}
        for index in range(len(layers.examples))
    ]


def _record(
    index: int,
    stacks: Mapping[str, StackLayers],
    tokens: RecordTokens,
    notes: Sequence[str],
    title: str,
    *,
    classes: Sequence[Candidate],
) -> AttentionRecord:
    stack_tokens, record_stacks = tokens.tokens(index), {}
    for name, (queries, keys) in stack_tokens.items():
        layers = stacks[name]
        is_softmax = layers.rule is None
        record_stacks[name] = AttentionStack(
            name=name,
            layers=layers.examples[index],
            query_tokens=queries,
            key_tokens=None if keys is queries else keys,
            outputs=layers.outputs[index] if layers.outputs else None,
            gates=layers.gates[index] if layers.gates else None,
            signed=not is_softmax,
            normalized=is_softmax and layers.stack != "indexer",
            measure=_MEASURES.get(
                layers.rule or layers.stack, "weight" if is_softmax else "linear weight"
            ),
        )
    has_grids = any(
        stack.query_tokens.pictured or stack.key_tokens.pictured for stack in record_stacks.values()
    )
    return AttentionRecord(
        record_stacks,
        model=title,
        notes=[
            *notes,
            *tokens.place_notes(stack_tokens),
            *(tokens.notes if has_grids else []),
        ],
        images=tokens.pictures(index) if has_grids else [],
        classes=classes,
    )
