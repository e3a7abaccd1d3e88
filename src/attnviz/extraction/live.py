"""A generation whose text so far is extracted again from time to time, while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from transformers import GenerationConfig

from attnviz.extraction.capture.forward import check_capture, run_forward
from attnviz.extraction.inputs.batch import split_examples
from attnviz.extraction.inputs.encode import Encoder, examples_of
from attnviz.extraction.inputs.generate import Generated, generate_text, read_generation_settings
from attnviz.extraction.inputs.truncate import read_truncation
from attnviz.extraction.models import load, name_of
from attnviz.extraction.options import Layers, read_capture_options
from attnviz.extraction.records import records_of_forward
from attnviz.record.record import AttentionRecord

__all__ = ["extract_live"]

# The text so far is read again after so many seconds at the earliest, and where all reading, with
# the last one at the end, takes no more than this share of the time for generating.
_LEAST_PAUSE = 1.0
_SHARE = 0.4


def extract_live(
    model: Any,
    inputs: Any,
    *,
    generate: int | Mapping[str, Any] | GenerationConfig,
    show: Callable[[AttentionRecord, int | None], None],
    is_stopped: Callable[[], bool],
    tokenizer: Any = None,
    processor: Any = None,
    truncation: bool | int = False,
    name: str | None = None,
    layers: Layers = None,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = "cpu",
) -> AttentionRecord:
    """Let a model produce a text and record it, as `attnviz.extract` does, and show it on its way.

    `show` gets the record of the text so far, once a second at most, and how many tokens may come;
    None where only the whole length is bounded. Where the text is there soon, or reading it would
    take too long beside generating it, it gets none. The generation ends behind the token
    where `is_stopped`. A search with beams has no text before its end. The other arguments are
    those of `attnviz.extract`.
    """
    loaded = load(model, tokenizer, processor)
    settings = read_generation_settings(generate, loaded.model)
    encoder = Encoder(loaded, truncation=read_truncation(truncation))
    options = read_capture_options(layers, dtype, device)
    examples, several = examples_of(inputs)
    if several:
        raise ValueError(f"inputs holds {len(examples)} prompts, and live=True shows one: give one")
    most = settings.max_new_tokens
    batch = encoder.encode(examples[0], generating=True, to_come=most or 1)
    if batch.size != 1:
        raise ValueError(f"inputs holds {batch.size} prompts, and live=True shows one: give one")
    [batch] = split_examples(batch)
    encoder_decoder = encoder.encoder_decoder
    check_capture(
        loaded, batch, settings.max_tokens, encoder_decoder=encoder_decoder, options=options
    )
    title = name or name_of(loaded.model)

    def record_of(generated: Generated) -> AttentionRecord:
        read = replace(
            batch,
            arguments=dict(batch.arguments),
            sequences=dict(batch.sequences),
            tokens={name: list(each) for name, each in batch.tokens.items()},
            notes=list(batch.notes),
        )
        encoder.add_generated(read, generated, settings.method)
        forward = run_forward(loaded, read, encoder_decoder=encoder_decoder, options=options)
        [record] = records_of_forward(loaded, encoder, read, forward, title=title, options=options)
        return record

    latest: tuple[torch.Tensor, AttentionRecord] | None = None
    began = shown = time.monotonic()
    reading = one = 0.0

    def on_token(generated: Generated) -> bool:
        nonlocal latest, shown, reading, one
        now = time.monotonic()
        generating = now - began - reading
        # For the first token the model has read the prompt.
        one = one or generating
        if now - shown >= _LEAST_PAUSE and reading + 2 * one <= _SHARE * generating:
            latest = generated.ids, record_of(generated)
            show(latest[1], most)
            shown = time.monotonic()
            one = shown - now
            reading += one
        return is_stopped()

    generated = generate_text(loaded.model, batch, settings, progress=False, on_token=on_token)
    if latest is not None and torch.equal(latest[0], generated.ids):
        return latest[1]
    return record_of(generated)
