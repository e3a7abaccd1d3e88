"""Extraction: a model and inputs become a record of its attention.

This is the only part that knows transformers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack, overload

import torch
from tqdm.auto import tqdm
from transformers import GenerationConfig

from attnviz.extraction.capture.forward import check_capture, run_forward
from attnviz.extraction.inputs.batch import Batch, split_examples
from attnviz.extraction.inputs.encode import Encoder, examples_of, values_per_example
from attnviz.extraction.inputs.generate import generate_text, read_generation_settings
from attnviz.extraction.inputs.truncate import read_truncation
from attnviz.extraction.models import Loaded, load, name_of
from attnviz.extraction.options import (
    CaptureOptions,
    ExtractOptions,
    Layers,
    read_capture_options,
)
from attnviz.extraction.records import records_of_forward
from attnviz.record.record import AttentionRecord
from attnviz.record.storage.spool import Spool, SpoolFolders
from attnviz.utils.cleanup import Cleanup

__all__ = ["extract"]


@overload
def extract(
    model: Any,
    inputs: str | tuple[str, str],
    *,
    target: str | None = None,
    **options: Unpack[ExtractOptions],
) -> AttentionRecord: ...


@overload
def extract(
    model: Any,
    inputs: list[str] | list[tuple[str, str]],
    *,
    target: Sequence[str] | None = None,
    **options: Unpack[ExtractOptions],
) -> list[AttentionRecord]: ...


# Whether anything else is one example or several shows only when it runs.
@overload
def extract(
    model: Any,
    inputs: Any,
    *,
    target: str | Sequence[str] | None = None,
    **options: Unpack[ExtractOptions],
) -> Any: ...


def extract(
    model: Any,
    inputs: Any,
    *,
    tokenizer: Any = None,
    processor: Any = None,
    target: str | Sequence[str] | None = None,
    generate: int | Mapping[str, Any] | GenerationConfig | None = None,
    decoder_input_ids: Any = None,
    truncation: bool | int = False,
    name: str | None = None,
    layers: Layers = None,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = "cpu",
    spool: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> AttentionRecord | list[AttentionRecord]:
    """Run a model once and record how it attends.

    The record keeps each layer's queries and keys, as the model's attention received them; weights
    are computed when asked for and equal the model's own. The model's configuration, mode and hooks
    are the same after as before, also when it raises.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        A transformers model, a hub id, a folder, or a pipeline.
    inputs : object
        A text, a pair of texts ``(first, second)``, a list of texts, a list of chat messages, a
        tokenizer's or processor's own output, a tensor of ids, or an image where the model takes
        one.
    tokenizer, processor : object, optional
        Found beside the model's weights by default; needed only where text or an image is given.
    target : str or list of str, optional
        Text that the model is made to produce: shifted into the decoder of an encoder-decoder
        model, appended to the prompt of a decoder-only one. A list for a list of texts. A class
        that labels a text (BART's for classification) gives the text itself to its decoder.
    generate : int, mapping or GenerationConfig, optional
        Let the model produce a text, and record that: how many tokens at most, each the likeliest;
        or keyword arguments of the model's own ``generate``, for example ``{"max_new_tokens": 40,
        "do_sample": True, "top_p": 0.9}``, which follows torch's seed. The text is generated as
        usual and then read in one forward, whose rows equal those of the single steps.
    decoder_input_ids : Tensor or sequence of int, optional
        Ids that the decoder of an encoder-decoder model is given, instead of `target`; with
        `generate`, those that it begins with.
    truncation : bool or int, default False
        Cut a text that is too long instead of refusing it: to as many tokens as the model takes, or
        to so many. What was cut is said in the record's notes. Room is left for what `target` or
        `generate` brings.
    name : str, optional
        Title of every picture; by default the last part of the model's hub id or folder.
    layers : int, iterable of int or "all", optional
        The layers to keep, by the model's own numbers; in each stack those that it has. Negative
        ones count from the end of each stack, as in Python: ``layers=-1`` keeps the last. All when
        left out. Nothing is copied of others.
    dtype : {"float16", "bfloat16", "float32", "float64"} or torch.dtype, optional
        As what queries and keys are kept (and weights, where these are not known); as the model's
        attention received them when left out. What rounding them does to the weights is measured,
        on a few queries of each head, and stated in the record's notes.
    device : str, device or None
        Where queries and keys are kept; None leaves each where the model computed it, which holds
        memory of that device for as long as the record lives.
    spool : path-like, optional
        A folder to which queries and keys are written while the model runs, a file a layer, where
        they would not fit into memory. It is made, and must not hold anything. The record is mapped
        from it and reads what is looked at; `attnviz.load` opens it again. Several examples get the
        folders ``0``, ``1``, ... inside it.
    progress : bool
        Whether a list of texts, and a text that is long in coming, show a progress bar.

    Returns
    -------
    AttentionRecord or list of AttentionRecord
        One record for one example; a list, one record an example, for a list of texts or an encoded
        batch over 1. Padding is removed. Where the model produced a text (`target`, `generate`) its
        query tokens say what was predicted where, in `Tokens.predictions`; a model without a
        language head predicts nothing, which a note says.

    Raises
    ------
    TypeError
        If an argument is of a kind that cannot be read.
    ValueError
        If an argument has nothing in it, doesn't fit the model (ids out of range, too many tokens,
        no target for a decoder, no such layer) or another argument, the device is not
        there, or the model has no attention.
    MemoryError
        If the queries and keys of that many tokens would exceed what is free where they are kept;
        says so before the model runs, and which arguments need less. Layers that run
        several times are counted once, and only attention over the tokens of a text.
    OSError
        If a hub id or folder cannot be read; or if `spool` holds something already, cannot be
        written or has not enough room, which is told before the model runs where it can be. What
        was written of a record is removed then.
    NotImplementedError
        If the model attends in a way that cannot be captured yet, or processes divide its heads,
        its layers or the tokens among them.

    Examples
    --------
    >>> record = extract(model, "The cat sat.", tokenizer=tokenizer)  # doctest: +SKIP
    >>> record.stacks["self"].weights(layer=3, head=5).shape  # doctest: +SKIP
    (6, 6)
    """
    loaded = load(model, tokenizer, processor)
    encoder = Encoder(loaded, truncation=read_truncation(truncation))
    examples, many = examples_of(inputs)
    options = read_capture_options(layers, dtype, device)
    if spool is not None and options.device != torch.device("cpu"):
        raise ValueError(
            f"device={device!r} and spool={spool!r} name two places for queries and keys; leave "
            "one of them out"
        )
    folders = None if spool is None else SpoolFolders(spool, several=many)
    if folders is not None and many:
        folders.check()
    title = name or name_of(loaded.model)
    settings = None if generate is None else read_generation_settings(generate, loaded.model)

    def record_one(example: Any, one_target: Any, ids: Any) -> list[AttentionRecord]:
        to_come = 0 if settings is None else settings.max_new_tokens or 1
        batch = encoder.encode(
            example, one_target, ids, generating=settings is not None, to_come=to_come
        )
        spool_folders = folders
        if spool is not None and not many:
            spool_folders = SpoolFolders(spool, several=batch.size > 1)
            spool_folders.check()
        batches = [batch]
        if settings is not None:
            batches = split_examples(batch)
            for each in batches:
                # An hour of generating must not end in too little memory.
                check_capture(
                    loaded,
                    each,
                    settings.max_tokens,
                    encoder_decoder=encoder.encoder_decoder,
                    options=options,
                    folder=None if spool is None else Path(spool),
                )
                generated = generate_text(loaded.model, each, settings, progress=progress)
                encoder.add_generated(each, generated, settings.method)
        return [
            record
            for each in batches
            for record in _record_batch(
                loaded, encoder, each, title=title, options=options, folders=spool_folders
            )
        ]

    if not many:
        records = record_one(examples[0], target, decoder_input_ids)
        return records[0] if len(records) == 1 else records
    targets = values_per_example("target", target, len(examples))
    decoder_ids = values_per_example("decoder_input_ids", decoder_input_ids, len(examples))
    records = []
    bar = tqdm(examples, desc="extract", unit="text", disable=not progress)
    # One forward each: no padding, and no more memory than the longest text needs.
    for example, one_target, ids in zip(bar, targets, decoder_ids, strict=True):
        records += record_one(example, one_target, ids)
    return records


def _record_batch(
    loaded: Loaded,
    encoder: Encoder,
    batch: Batch,
    *,
    title: str,
    options: CaptureOptions,
    folders: SpoolFolders | None,
) -> list[AttentionRecord]:
    """Run one forward and make a record of each of its examples, in memory or on disk."""
    if folders is None:
        return _capture_batch(loaded, encoder, batch, title=title, options=options)
    with Cleanup() as undo, undo:
        spools = folders.take(batch.size, undo)
        records = _capture_batch(
            loaded, encoder, batch, title=title, options=options, spools=spools
        )
        # Rows that turn out to be one example leave places free.
        return [spool.finish(record) for spool, record in zip(spools, records, strict=False)]


def _capture_batch(
    loaded: Loaded,
    encoder: Encoder,
    batch: Batch,
    *,
    title: str,
    options: CaptureOptions,
    spools: Sequence[Spool] = (),
) -> list[AttentionRecord]:
    forward = run_forward(
        loaded, batch, encoder_decoder=encoder.encoder_decoder, options=options, spools=spools
    )
    return records_of_forward(loaded, encoder, batch, forward, title=title, options=options)
