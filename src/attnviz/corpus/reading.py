"""Reading of many texts with a model, which gives one record (the attention) for each text.

A window is a group of successive texts. Its texts are encoded (tokenized), divided into batches
(`attnviz.corpus.batches`) and read, before the next window is encoded. A batch has texts of similar
length from the whole window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Unpack

from attnviz.corpus.batches import (
    BatchReader,
    BatchSize,
    ReadText,
    TextInput,
    checked_batch_size,
)
from attnviz.corpus.texts import Texts
from attnviz.extraction.options import RecordOptions

# Approximate number of batches of a window. A larger window has more texts of similar length, so
# its batches have less padding. However, if records are yielded in the order of the texts, all
# records of a window can be in memory at the same time.
_BATCHES_PER_WINDOW = 32


def read_records(
    model: Any,
    texts: Texts,
    indices: Iterable[int],
    *,
    target: Sequence[str] | None = None,
    batch_size: BatchSize = "auto",
    ordered: bool = True,
    ahead: Callable[[int], bool] | None = None,
    done: Callable[[int], None] | None = None,
    outputs: bool = False,
    **options: Unpack[RecordOptions],
) -> Iterator[ReadText]:
    """Read texts with a model, several in one forward pass, and yield the record of each text.

    The first text that is neither empty nor too long is read before later texts are encoded.
    Therefore a wrong argument raises an error after one text, and not after a whole window.

    Parameters
    ----------
    model : object
        Model, as for `attnviz.extract`, or a result of `attnviz.extraction.models.load`.
    texts : Texts
        All texts of the corpus.
    indices : iterable of int
        Indices of the texts to read. An index is taken from the iterable when its text is encoded.
    target : sequence of str, optional
        Output that the model is made to produce for each of `texts`.
    batch_size : int or "auto"
        Maximum number of texts in a batch. "auto" chooses a number that is fast and fits into
        memory.
    ordered : bool
        Whether records are yielded in the order of `indices`, which delays some records. If False,
        the records of a batch are yielded directly after its forward pass.
    ahead : callable, optional
        Function that returns whether to add a further text to the current window (see the
        description of this module). If not, the window is read before further texts are encoded.
        The function is called after each text that was added to the window, with the number of
        input tokens of this text. It is not called for a text that is left out, or if the window
        ends after the text anyway. When it is called, all texts of earlier windows have been
        yielded.
    done : callable, optional
        Function that is called after the forward pass of each batch, before its records are
        yielded, with the number of input tokens of the batch, without padding. Inputs without token
        ids, such as images alone, and inputs with the option `generate` count as 0 tokens.
    outputs : bool
        Whether records have the outputs of heads (`AttentionStack.outputs`).
    **options
        Options of `attnviz.extract`, which apply to all texts.

    Yields
    ------
    ReadText
        Result for one of `indices`.

    Raises
    ------
    TypeError, ValueError, MemoryError, OSError, NotImplementedError
        If `attnviz.extract` raises this error for a text. The error names the text
        (``texts[1734]: ...``). The results of all earlier texts in `indices` are yielded first.
    ValueError
        If the weights of a text in a batch are wrong in a later check (`attnviz.corpus.batches`).
        This error is raised directly after the check, before the results of this batch are yielded.
    """
    reader = BatchReader(model, options, batch_size=checked_batch_size(batch_size), outputs=outputs)
    inputs = (
        reader.encode(index, texts[index], None if target is None else target[index])
        for index in indices
    )
    alone = True
    while window := _next_window(reader, inputs, ahead, alone=alone):
        for text in _results(reader, window, done, ordered=ordered):
            alone = alone and text.record is None
            yield text


def checked_target(target: Sequence[str] | None, texts: Texts) -> None:
    """Raise ValueError unless `target` is None or has one entry for each text."""
    if target is not None and (isinstance(target, str) or len(target) != len(texts)):
        description = "one string" if isinstance(target, str) else f"{len(target)} entries"
        raise ValueError(
            f"target must be a list with an entry for each of the {len(texts)} texts, not "
            f"{description}"
        )


def _next_window(
    reader: BatchReader,
    inputs: Iterator[TextInput],
    ahead: Callable[[int], bool] | None,
    *,
    alone: bool,
) -> list[TextInput]:
    """Return the inputs of the next window. The list is empty after the last text.

    `ahead` is that of `read_records`. If `alone`, the window has only one text.
    """
    window: list[TextInput] = []
    num_tokens = 0
    for text in inputs:
        window.append(text)
        num_tokens += text.length
        # End the window here if texts are read one by one (`can_batch` is False). Also end it after
        # a text with an unknown number of tokens, because the memory that its record needs is not
        # known. An empty or too long text already has a result and needs no record.
        has_length = reader.can_batch and (text.num_tokens or text.result)
        if text.error or alone or not has_length:
            break
        has_full_batch = math.isinf(reader.max_texts) or len(window) >= reader.max_texts
        if num_tokens >= reader.max_tokens * _BATCHES_PER_WINDOW and has_full_batch:
            break
        if len(window) >= reader.max_texts * _BATCHES_PER_WINDOW:
            break
        if ahead is not None and not text.result and not ahead(text.num_tokens):
            break
    return window


def _results(
    reader: BatchReader,
    window: Sequence[TextInput],
    done: Callable[[int], None] | None,
    *,
    ordered: bool,
) -> Iterator[ReadText]:
    """Read the texts of a window and yield their results, as in `read_records`.

    After each batch, call `done` with the batch's number of input tokens. If a text has an error,
    raise the error after the results of all earlier texts in `window` were yielded. If `ordered`,
    yield the results in the order of `window`. Otherwise, yield the results of a batch directly
    after its forward pass.
    """
    order = {text: number for number, text in enumerate(window)}
    first_failed = _first_failed(window)
    num_yielded = 0
    for batch in reader.batches(window[:first_failed]):
        if all(order[text] > first_failed for text in batch):
            continue
        count = sum(text.num_tokens for text in batch)
        reader.read(batch)
        if done is not None:
            done(count)
        # Reading the batch can have stored errors. Only results of texts before the first text with
        # an error are yielded.
        first_failed = _first_failed(window)
        if not ordered:
            yield from chain.from_iterable(text.take() for text in batch)
        while ordered and num_yielded < first_failed and window[num_yielded].result:
            yield from window[num_yielded].take()
            num_yielded += 1
    # Yield the remaining results: those of texts that are empty or too long, which are in no batch.
    yield from chain.from_iterable(text.take() for text in window[:first_failed])
    for text in window[first_failed:]:
        if text.error is not None:
            raise text.error


def _first_failed(window: Sequence[TextInput]) -> int:
    """Return the index in `window` of the first text with an error, or the length of `window`."""
    failed = (number for number, text in enumerate(window) if text.error)
    return next(failed, len(window))
