"""Extraction of attention: `extract` runs a model and returns a record of its attention.

A record (`AttentionRecord`) has the tokens, and the queries and keys or the weights of each layer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack, overload

import torch
from transformers import GenerationConfig

from attnviz.extraction.capture.forward import check_capture
from attnviz.extraction.diffusion import record_pipeline
from attnviz.extraction.inputs.batch import Batch, split_examples
from attnviz.extraction.inputs.encode import Encoder
from attnviz.extraction.inputs.examples import examples_of, examples_with_targets
from attnviz.extraction.inputs.generate import generate_text, read_generation_settings
from attnviz.extraction.models import is_pipeline, load
from attnviz.extraction.options import (
    CaptureOptions,
    ExtractOptions,
    Layers,
    Steps,
    read_capture_options,
)
from attnviz.extraction.records import record_batch
from attnviz.extraction.tokens.series import read_index
from attnviz.record.record import AttentionRecord
from attnviz.record.record import load as load_record
from attnviz.record.storage.spool import SpoolFolders
from attnviz.utils.arguments import given_arguments, refuse_arguments
from attnviz.utils.cleanup import Cleanup
from attnviz.utils.progress import part_of, report, with_progress

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


# A type checker cannot know whether inputs of other types, such as an encoded batch, are one
# example or several. The result is one record or a list of records, so its type is Any.
@overload
def extract(
    model: Any,
    inputs: Any,
    *,
    target: str | Sequence[str] | None = None,
    **options: Unpack[ExtractOptions],
) -> Any: ...


@with_progress
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
    part: int | None = None,
    passages: Any = None,
    steps: Steps = None,
    name: str | None = None,
    layers: Layers = None,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = "cpu",
    outputs: bool = False,
    index: Any = None,
    spool: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> AttentionRecord | list[AttentionRecord]:
    """Run a model and return a record of its attention.

    The record keeps the queries and keys of each layer, as the model's attention received them.
    Weights are computed on request and equal the model's own. If the queries and keys of a layer
    are not known, the record keeps the weights. The call does not change the model's configuration,
    mode or hooks, even if it raises an error.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike, Pipeline or object
        A transformers model, a hub id, a folder, a pipeline, a model of timm, or an object that
        contains one transformers model. A pipeline of diffusers makes its picture, and the record
        has the attention of its transformer or U-Net. Another pipeline and an object of
        sentence-transformers prepare the inputs themselves, with their own settings: the record has
        the input that the model gets in ``pipe(inputs)``, ``SentenceTransformer.encode`` or
        ``CrossEncoder.predict``. Pass a method to record another call, such as
        ``encoder.encode_query``. It selects a model if the object contains several.
    inputs : object
        A string, a pair of strings ``(first, second)``, a list of strings, a list of chat
        messages, the output of a tokenizer or processor, or ids (a tensor, an array or a list).
        Some models also take an image, a sound (an array), or a pair ``(image, text)`` or
        ``(sound, text)``. A mapping has arguments of a pipeline's call by name, such as
        ``{"prompt": "a cat", "num_inference_steps": 20}``. A list of images, sounds or pairs is
        several examples, as a list of strings is.
    tokenizer, processor : object, optional
        Tokenizer and processor of the model, or a hub id or folder of each. Only texts, images and
        sounds need them. The default is the tokenizer or processor inside of `model` (such as a
        pipeline), or else the one that was saved with the model's weights. If the encoder and the
        decoder of a model have different tokenizers, pass ``tokenizer=(source, target)``.
    target : str or list of str, optional
        Text that the model is forced to produce. An encoder-decoder model gets it as the input of
        its decoder, shifted by one token. A decoder-only model gets it after the prompt. If
        `inputs` is a list of texts, pass a list of targets. An encoder-decoder model that
        classifies texts needs no target, because its decoder gets the input text.
    generate : int, mapping or GenerationConfig, optional
        Let the model generate a text, and record the attention over the prompt and this text. An
        int is the maximum number of new tokens, which are chosen greedily. A mapping has keyword
        arguments of the model's ``generate``, for example
        ``{"max_new_tokens": 40, "do_sample": True, "top_p": 0.9}``. A GenerationConfig is passed to
        ``generate`` as it is. Sampling uses torch's seed. The text is generated as usual. Then the
        model reads the text in one forward, which gives the same weights as the steps of the
        generation.
    decoder_input_ids : Tensor or sequence of int, optional
        Ids of the decoder's input tokens in an encoder-decoder model. Do not pass both these ids
        and `target`. With `generate`, the decoder starts with these ids.
    truncation : bool or int, default False
        Truncate a text that is too long instead of raising an error. True truncates so that the
        text and the tokens of `target` or `generate` fit the model. An int is the maximum number of
        tokens of the text in `inputs`. A note in the record states the truncation.
    steps : int, iterable of int, "all" or "mean", optional
        Denoising steps to keep, if `model` is a pipeline of diffusers. Negative numbers count from
        the end. The default is four steps, evenly spread. Each step takes as much memory as the
        queries and keys of all layers. With ``"mean"``, the record has the mean weights of all
        steps between patches and words, which take as much memory for any number of steps.
    part : int, optional
        Number of the call to record, from 0, if `model` is a pipeline that calls its model several
        times for one input: for windows of a long text, chunks of a sound, or candidate labels. The
        default is the first call. A note in the record states the number of calls.
    passages : mapping of str to (int, int) or str, sequence of (str or None), or str, optional
        Named runs of tokens of the input, such as ``{"doc 3": (120, 410), "question": "Who ...?"}``
        or ``"paragraphs"``, as in `AttentionRecord.with_passages`. By default, these are the turns
        of a chat, the texts of a pair or of a packed row (``position_ids`` that restart), and
        images. The text of `target` or `generate` is the passage ``"the answer"``. If `inputs` is a
        list, a list has the passages of each example.
    name : str, optional
        Title of the records. The default is derived from the model's hub id or folder, or from the
        name of its class if the model has neither.
    layers : int, iterable of int or "all", optional
        Layers to keep, by the model's own numbers. If there are several stacks (such as encoder and
        decoder), each stack keeps its layers with these numbers. Negative numbers count from the
        end of each stack: ``layers=-1`` keeps the last layer. Other layers are not copied. The
        default is all layers.
    dtype : {"float16", "bfloat16", "float32", "float64"} or torch.dtype, optional
        Dtype of the kept queries and keys, or of the weights if queries and keys are not known. If
        this dtype rounds these numbers, a note of the record says so. The default is the dtype of
        the model's attention.
    device : str, device or None, default "cpu"
        Device of the kept queries and keys. None keeps them on the device where the model computed
        them. The queries and keys take memory of the device as long as the record exists.
    outputs : bool, default False
        Whether to keep the outputs of heads, too (`AttentionStack.outputs`). The output of a head
        is what the head adds to the residual stream. Measures such as ``"output norm"`` need the
        outputs. The outputs take as much memory as the queries in float32.
    index : sequence, optional
        Names of the steps of a time series, such as dates: one per step in ``past_values``. The
        steps that the model predicts may follow. By default, steps are numbered from 0.
    spool : path-like, optional
        Folder to which queries and keys are written while the model runs, one file per layer. Pass
        a folder if queries and keys would not fit into memory. The folder is created if it does not
        exist, and must be empty. The record maps the files into memory and reads only the parts
        that are used. `attnviz.load` opens the folder again. Several examples are written to the
        folders ``0``, ``1``, ... inside of it.
    progress : bool, default True
        Whether to show a progress bar if the call takes longer than a second.

    Returns
    -------
    AttentionRecord or list of AttentionRecord
        One record for one example. For a list of examples, or an encoded batch of at least two
        examples, a list with one record per example. The records do not contain padding. If the
        model produced a text (`target` or `generate`), `Tokens.predictions` of the query tokens has
        the predictions of the model. A record of a model without a language head has no
        predictions, and a note says so.

    Raises
    ------
    TypeError
        If an argument has an invalid type.
    ValueError
        If an argument is empty, does not fit the model (ids out of range, too many tokens, no
        target for a decoder, unknown layer) or contradicts another argument, if the device is not
        available, or if the model has no attention.
    MemoryError
        If the queries and keys would exceed the free memory of their device. The error is raised
        before the model runs. The message names arguments that reduce the memory. The check counts
        only attention over the tokens of a text. A layer that runs several times is counted as if
        it ran once.
    IndexError
        If the pipeline does not run one of `steps`.
    OSError
        If a hub id or folder cannot be read, or if `spool` is not empty, cannot be written or has
        too little space. If possible, the space is checked before the model runs. An incomplete
        record is removed.
    NotImplementedError
        If the attention of the model or its adapter cannot be captured yet, or if heads, layers or
        tokens are split across processes.

    Examples
    --------
    >>> record = extract(model, "The cat sat.", tokenizer=tokenizer)  # doctest: +SKIP
    >>> record.stacks["self"].weights(layer=3, head=5).shape  # doctest: +SKIP
    (6, 6)
    """
    # Only the first statement sees the arguments alone.
    given = locals()
    if is_pipeline(model):
        given = given_arguments(extract, given)
        used = {"steps", "name", "layers", "dtype", "device", "progress"}
        unused = sorted(given.keys() - used)
        refuse_arguments(unused, f"{type(model).__name__} is run with its own arguments only")
        examples, is_list = examples_of(inputs)
        options = read_capture_options(layers, dtype, device)
        made = [record_pipeline(model, example, steps, options, name) for example in examples]
        return made if is_list else made[0]
    if steps is not None:
        raise TypeError("steps= selects steps of a pipeline of diffusers. Remove it.")
    loaded = load(model, tokenizer, processor)
    examples, is_list = examples_with_targets(inputs, target, decoder_input_ids)
    encoder = Encoder(
        loaded,
        {"truncation": truncation, "part": part, "passages": passages, "name": name},
        several=is_list,
    )
    options = replace(read_capture_options(layers, dtype, device), outputs=bool(outputs))
    if spool is not None and options.device != torch.device("cpu"):
        raise ValueError(
            f"device={device!r} and spool={spool!r} are two locations for queries and keys. "
            "Pass only one of them."
        )
    if spool is not None and outputs:
        raise ValueError("outputs=True keeps outputs in memory. Do not pass spool.")
    folders = None if spool is None else SpoolFolders(spool, several=is_list)
    if folders is not None:
        folders.check()
    settings = None if generate is None else read_generation_settings(generate, loaded.model)

    def record_one(number: int, example: tuple[Any, Any, Any]) -> list[AttentionRecord]:
        batch = encoder.encode(*example, settings, number=number)
        batch.index = read_index(index, batch.arguments, loaded.model.config)
        if folders is not None:
            folders.several = is_list or batch.size > 1
        batches = [batch]
        if settings is not None:
            batches = split_examples(batch)
            for single in batches:
                of_single = settings.for_batch(single)
                # Check before the generation, which may take long, whether the queries and keys
                # will fit into memory or on disk.
                check_capture(
                    loaded,
                    single,
                    of_single.max_tokens,
                    options=options,
                    folder=None if spool is None else Path(spool),
                )
                generated = generate_text(loaded, single, of_single)
                encoder.add_generated(single, generated, of_single.method)
            # The tokens are complete, and the model reads the whole text again.
            report("attention", 0, 1, "text")
        return [
            record
            for single in batches
            for record in _record_batch(encoder, single, options, folders)
        ]

    records = []
    # Run one example at a time. A batch of all examples would need padding and more memory.
    for number, example in enumerate(examples):
        with part_of("texts", number, len(examples), "text"):
            records += record_one(number, example)
    return records[0] if len(records) == 1 and not is_list else records


def _record_batch(
    encoder: Encoder, batch: Batch, options: CaptureOptions, folders: SpoolFolders | None
) -> list[AttentionRecord]:
    """Run one forward and return a record of each example.

    Queries and keys are written to `folders`, one folder per example, or stay in memory if
    `folders` is None.
    """
    if folders is None:
        return record_batch(encoder, batch, options=options)
    with Cleanup() as undo, undo:
        spools = folders.take(batch.size, undo)
        records = record_batch(encoder, batch, options=options, spools=spools)
        # Each spool writes one record to a folder. Some models treat all rows of a batch as one
        # example. Then there is only one record, and the other spools stay unused.
        used = spools[: len(records)]
        for spool, record in zip(used, records, strict=True):
            spool.finish(record)
        return [load_record(spool.folder) for spool in used]
