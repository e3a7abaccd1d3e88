"""Generation of a text that shows the attention of the text so far while the model generates."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Unpack

import torch

from attnviz.extraction.capture.forward import check_capture
from attnviz.extraction.inputs.batch import split_examples
from attnviz.extraction.inputs.encode import Encoder
from attnviz.extraction.inputs.examples import examples_of
from attnviz.extraction.inputs.generate import Generated, generate_text, read_generation_settings
from attnviz.extraction.models import load
from attnviz.extraction.options import RecordOptions, check_options, read_capture_options
from attnviz.extraction.records import record_batch
from attnviz.record.record import AttentionRecord

# Maximum ratio of the time of all extractions before the end to the time of the generation.
_MAX_SHARE = 0.2
# Minimum number of seconds from the end of an extraction to the start of the next. A reader could
# not follow more pictures.
_MIN_PAUSE = 1.0


def extract_live(
    model: Any,
    inputs: Any,
    *,
    show: Callable[[AttentionRecord, int | None], None],
    is_stopped: Callable[[], bool],
    **options: Unpack[RecordOptions],
) -> AttentionRecord:
    """Generate and record a text as `attnviz.extract` does, and show records of the text so far.

    The function `show` is called with a record of the text so far, and the maximum number of new
    tokens (None if only the total length is limited). The extractions of these records take at
    most about a fifth of the time that the model needs to generate the text, on any machine. At
    most one record is extracted per second. The function `is_stopped` is called after each token.
    If it returns True, the generation ends. With beam search, neither function is called, because
    the text is known only at the end.

    `options` are arguments of `attnviz.extract`, one of which is `generate`. Return the record of
    the complete text. Raise ValueError if `inputs` has several prompts.
    """
    check_options(options)
    loaded = load(model, options.get("tokenizer"), options.get("processor"))
    settings = read_generation_settings(options["generate"], loaded.model)
    encoder, capture = Encoder(loaded, options), read_capture_options(**options)
    examples, several = examples_of(inputs)
    batch = encoder.encode(examples[0], settings=settings)
    if several or batch.size != 1:
        raise ValueError("inputs has several prompts, and live=True shows one. Pass one prompt.")
    [batch] = split_examples(batch)
    settings = settings.for_batch(batch)
    check_capture(loaded, batch, settings.max_tokens, options=capture)

    def record_of(generated: Generated) -> AttentionRecord:
        # Copy the batch, which `add_generated` changes. The next call needs the prompt alone.
        [batch_so_far] = split_examples(batch)
        encoder.add_generated(batch_so_far, generated, settings.method)
        [record] = record_batch(encoder, batch_so_far, options=capture)
        return record

    latest: tuple[torch.Tensor, AttentionRecord] | None = None
    started = ended = time.monotonic()
    # Time of all extractions so far, and the expected time of the next. It is that of the previous
    # one. The first is expected to take as long as the first token, which needs a forward of the
    # prompt.
    spent = 0.0
    expected: float | None = None

    def on_token(generated: Generated) -> bool:
        nonlocal latest, ended, spent, expected
        now = time.monotonic()
        if expected is None:
            expected = now - started
        is_affordable = spent + expected <= _MAX_SHARE * (now - started - spent)
        if is_affordable and now - ended >= _MIN_PAUSE:
            latest = generated.ids, record_of(generated)
            show(latest[1], settings.max_new_tokens)
            ended = time.monotonic()
            expected = ended - now
            spent += expected
        return is_stopped()

    generated = generate_text(loaded, batch, settings, on_token=on_token)
    if latest is not None and torch.equal(latest[0], generated.ids):
        return latest[1]
    return record_of(generated)
