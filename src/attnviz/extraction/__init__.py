"""Extraction of attention: a model and its inputs become a record.

Besides this package, only `attnviz.demos` and the callback for the Trainer import transformers.
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


# For other types, only a run shows whether they are one example or several.
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
    """Run a model once and return a record of its attention.

    The record keeps each layer's queries and keys, as the model's attention received them. Weights
    are computed on request and equal the model's own. The model's configuration, mode and hooks
    are the same before and after the call, even if it raises an error.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        A transformers model, a hub id, a folder, or a pipeline.
    inputs : object
        A string, a pair of strings ``(first, second)``, a list of strings, a list of chat
        messages, the output of a tokenizer or processor, a tensor of ids, or an image if the model
        takes images.
    tokenizer, processor : object, optional
        Required only for text or images. Default: those saved with the model's weights.
    target : str or list of str, optional
        Text that the model is forced to produce. It is shifted into the decoder of an
        encoder-decoder model, or appended to the prompt of a decoder-only model. Pass a list for a
        list of texts. A class that labels a text (BART's for classification) passes the text itself
        to its decoder.
    generate : int, mapping or GenerationConfig, optional
        Let the model generate a text, and record its attention. An int is the maximum number of
        tokens, chosen greedily. A mapping has keyword arguments of the model's ``generate``, for
        example ``{"max_new_tokens": 40, "do_sample": True, "top_p": 0.9}``, and uses torch's seed.
        The text is generated as usual and then read in one forward, whose rows equal those of the
        steps.
    decoder_input_ids : Tensor or sequence of int, optional
        Ids for the decoder of an encoder-decoder model, instead of `target`. With `generate`, the
        ids that the decoder starts with.
    truncation : bool or int, default False
        Truncate a text that is too long instead of raising an error: to the number of tokens that
        the model takes (True), or to this number. The text leaves room for the tokens of `target`
        or `generate`. A note in the record states the truncation.
    name : str, optional
        Title of every picture. Default: the last part of the model's hub id or folder.
    layers : int, iterable of int or "all", optional
        Layers to keep, by the model's own numbers. Each stack keeps those that it has. Negative
        numbers count from the end of each stack, as in Python: ``layers=-1`` keeps the last layer.
        Other layers are not copied. Default: all layers.
    dtype : {"float16", "bfloat16", "float32", "float64"} or torch.dtype, optional
        Dtype of the kept queries and keys (or weights, if queries and keys are not known). The
        effect of rounding on the weights is measured on a few queries of each head and stated in a
        note of the record. Default: the dtype that the model's attention received.
    device : str, device or None
        Device of the kept queries and keys. None keeps them where the model computed them, which
        takes memory of that device as long as the record exists.
    spool : path-like, optional
        Folder to which queries and keys are written while the model runs, one file per layer, if
        they would not fit into memory. It is created and must be empty. The record maps the files
        and reads only what is used. `attnviz.load` opens the folder again. Several examples use
        the folders ``0``, ``1``, ... inside of it.
    progress : bool
        Whether to show a progress bar for a list of texts and for long generations.

    Returns
    -------
    AttentionRecord or list of AttentionRecord
        One record for one example. A list with one record per example for a list of texts or an
        encoded batch of at least two. Padding is removed. If the model produced a text (`target`,
        `generate`), `Tokens.predictions` of the query tokens has its predictions. For a model
        without a language head there are none, and a note says so.

    Raises
    ------
    TypeError
        If an argument has a type that cannot be read.
    ValueError
        If an argument is empty, does not fit the model (ids out of range, too many tokens, no
        target for a decoder, no such layer) or contradicts another argument, the device is not
        available, or the model has no attention.
    MemoryError
        If the queries and keys would exceed the free memory of their device. It is raised before
        the model runs and names the arguments that reduce the memory. Layers that run several
        times are counted once, and only attention over the tokens of a text is counted.
    OSError
        If a hub id or folder cannot be read, or if `spool` is not empty, cannot be written or has
        too little space, which is checked before the model runs if possible. An incomplete record
        is removed.
    NotImplementedError
        If the model's attention cannot be captured yet, or if its heads, layers or tokens are
        split across processes.

    Examples
    --------
    >>> record = extract(model, "The cat sat.", tokenizer=tokenizer)  # doctest: +SKIP
    >>> record.stacks["self"].weights(layer=3, head=5).shape  # doctest: +SKIP
    (6, 6)
    """
    loaded = load(model, tokenizer, processor)
    encoder = Encoder(loaded, truncation=read_truncation(truncation))
    examples, is_list = examples_of(inputs)
    options = read_capture_options(layers, dtype, device)
    if spool is not None and options.device != torch.device("cpu"):
        raise ValueError(
            f"device={device!r} and spool={spool!r} are two locations for queries and keys. "
            "Pass only one of them."
        )
    folders = None if spool is None else SpoolFolders(spool, several=is_list)
    if folders is not None and is_list:
        folders.check()
    title = name or name_of(loaded.model)
    settings = None if generate is None else read_generation_settings(generate, loaded.model)

    def record_one(example: Any, one_target: Any, ids: Any) -> list[AttentionRecord]:
        num_new_tokens = 0 if settings is None else settings.max_new_tokens or 1
        batch = encoder.encode(
            example, one_target, ids, generating=settings is not None, num_new_tokens=num_new_tokens
        )
        spool_folders = folders
        if spool is not None and not is_list:
            spool_folders = SpoolFolders(spool, several=batch.size > 1)
            spool_folders.check()
        batches = [batch]
        if settings is not None:
            batches = split_examples(batch)
            for single in batches:
                # Check before a long generation that its record will fit into memory.
                check_capture(
                    loaded,
                    single,
                    settings.max_tokens,
                    encoder_decoder=encoder.encoder_decoder,
                    options=options,
                    folder=None if spool is None else Path(spool),
                )
                generated = generate_text(loaded.model, single, settings, progress=progress)
                encoder.add_generated(single, generated, settings.method)
        return [
            record
            for single in batches
            for record in _record_batch(
                loaded, encoder, single, title=title, options=options, folders=spool_folders
            )
        ]

    if not is_list:
        records = record_one(examples[0], target, decoder_input_ids)
        return records[0] if len(records) == 1 else records
    targets = values_per_example("target", target, len(examples))
    decoder_ids = values_per_example("decoder_input_ids", decoder_input_ids, len(examples))
    records = []
    bar = tqdm(examples, desc="extract", unit="text", disable=not progress)
    # Run each text alone: no padding, and no more memory than for the longest text.
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
    """Run one forward and return a record of each example, in memory or on disk."""
    if folders is None:
        return _capture_batch(loaded, encoder, batch, title=title, options=options)
    with Cleanup() as undo, undo:
        spools = folders.take(batch.size, undo)
        records = _capture_batch(
            loaded, encoder, batch, title=title, options=options, spools=spools
        )
        # There are fewer records than spools if the rows are one example.
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
