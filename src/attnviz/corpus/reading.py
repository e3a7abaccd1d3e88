"""Reading of many texts with a model, which gives one record (the attention) for each text.

Several texts are read in one forward pass, as a batch. A window is a group of successive texts. Its
texts are encoded (tokenized), divided into batches and read, before the next window is encoded. A
batch has texts of similar length from the whole window, so that it needs little padding. Padding
follows the tokens of a text and is removed from its record.

In some models the texts of a batch influence each other. To detect this, some batches are checked:
the text with the most padding is also read alone, and its weights are compared with those in the
batch. If they differ in the first check, all texts of this batch and all later texts are read one
by one. If they differ in a later check, an error is raised, because records of earlier batches may
be wrong. Batches with and without padding have separate checks, so there is a first check for each
of the two kinds.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Literal, Unpack

import numpy as np
import torch

from attnviz.corpus.columns import is_missing
from attnviz.corpus.texts import Texts
from attnviz.extraction import extract
from attnviz.extraction.capture.memory import forward_memory, free_memory
from attnviz.extraction.capture.outputs import HeadOutputs
from attnviz.extraction.families import max_batched_length
from attnviz.extraction.inputs.batch import Batch, joined_examples, kind_of_example
from attnviz.extraction.inputs.encode import Encoder
from attnviz.extraction.inputs.examples import examples_of
from attnviz.extraction.loaded import TooManyTokensError
from attnviz.extraction.models import load
from attnviz.extraction.options import RecordOptions, read_capture_options
from attnviz.extraction.records import record_batch
from attnviz.record.record import AttentionRecord
from attnviz.utils.arguments import whole_number

BatchSize = int | Literal["auto"]

# Names of arguments of `read_records` that apply to all texts. If an error message begins with one
# of these names, the index of a text is not added to it. If targets were passed, `target` is an
# exception, because each text has its own target.
_SHARED_ARGUMENTS = {*RecordOptions.__annotations__, "model", "progress", "target"}
# Maximum number of tokens of a batch on a CPU, including padding, if batch_size is "auto". Larger
# batches are not faster, because they exceed the processor's caches.
_MAX_TOKENS_CPU = 1_024
# Maximum number of tokens of a batch on a GPU, including padding, if batch_size is "auto".
_MAX_TOKENS_GPU = 16_384
# Maximum share of padding among the tokens of a batch, if batch_size is "auto".
_MAX_PADDING = 0.2
# Up to this number of tokens, a batch can have any share of padding. The forward pass of such a
# batch takes about the same time for any number of tokens.
_MAX_TOKENS_ANY_PADDING = 128
# Approximate number of batches of a window. A larger window has more texts of similar length, so
# its batches have less padding. However, if records are yielded in the order of the texts, all
# records of a window can be in memory at the same time.
_BATCHES_PER_WINDOW = 32
# Maximum share of the free memory that a forward pass of several texts may need, if batch_size is
# "auto".
_MAX_SHARE_OF_MEMORY = 0.25
# Maximum allowed absolute difference between the weights of a text that is read in a batch and
# those of the same text that is read alone.
_TOLERANCE = 1e-4
# Maximum allowed absolute difference, instead of `_TOLERANCE`, if the model or the records have
# half precision (float16 or bfloat16).
_TOLERANCE_HALF = 2e-2
# Maximum number of queries of each head whose weights are compared in a check of a batch: the last
# queries of the text.
_NUM_COMPARED_QUERIES = 16


@dataclass(frozen=True)
class ReadText:
    """Record of a text, or the reason why the text was left out.

    Attributes
    ----------
    index : int
        Index of the text.
    record : AttentionRecord or None
        Record of the text, or None if the text was left out.
    skip_reason : {"", "empty", "too long"}
        Reason why the text was left out: it is empty, or too long for the model. The string is ""
        if the text has a record.
    reason : str
        Error message for a text that is too long, otherwise "".
    """

    index: int
    record: AttentionRecord | None
    skip_reason: Literal["", "empty", "too long"] = ""
    reason: str = ""


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
        (``texts[1734]: ...``), unless it is about an argument for all texts. The results of all
        earlier texts in `indices` are yielded first.
    ValueError
        If the weights of a text in a batch are wrong in a later check (see the description of this
        module). This error is raised directly after the check, before the results of this batch are
        yielded.
    """
    reader = _Reader(
        model,
        texts,
        target,
        options,
        batch_size=checked_batch_size(batch_size),
        outputs=outputs,
    )
    indices = iter(indices)
    alone = True
    while window := reader.window(indices, ahead, alone=alone):
        for text in reader.read(window, done, ordered=ordered):
            alone = alone and text.record is None
            yield text


def checked_batch_size(batch_size: Any) -> BatchSize:
    """Return `batch_size`.

    Raise TypeError or ValueError unless it is ``"auto"`` or a whole number of at least 1.
    """
    if isinstance(batch_size, str) and batch_size == "auto":
        return "auto"
    hint = 'the maximum number of texts in a batch, such as 16, or "auto"'
    return whole_number("batch_size", batch_size, 1, hint=hint)


def checked_target(target: Sequence[str] | None, texts: Texts) -> None:
    """Raise ValueError unless `target` is None or has one entry for each text."""
    if target is not None and (isinstance(target, str) or len(target) != len(texts)):
        description = "one string" if isinstance(target, str) else f"{len(target)} entries"
        raise ValueError(
            f"target must be a list with an entry for each of the {len(texts)} texts, not "
            f"{description}"
        )


@dataclass(eq=False)
class _Entry:
    """Text of a window, with its encoded input, and its result or error.

    Attributes
    ----------
    index : int
        Index of the text in the corpus.
    text : object
        The text.
    target : str or None
        Output that the model is made to produce.
    batch : Batch or None
        Encoded input of this text alone. None if the text is empty, too long or could not be
        encoded, and after the text was read alone or its result was yielded. Also None with the
        option `generate`, because `extract` then encodes the text.
    kind : tuple of str or None
        Names and dtypes of the model's arguments for the text. Texts of the same kind can be read
        in one forward pass. None if the text must be read alone.
    result : ReadText or None
        Result of the text. None until it is read, and again after `take` has yielded it. An empty
        or too long text gets its result when the window is encoded.
    error : Exception or None
        Error that occurred when the text was encoded or read.
    """

    index: int
    text: Any = None
    target: str | None = None
    batch: Batch | None = None
    kind: tuple[str, ...] | None = None
    result: ReadText | None = None
    error: Exception | None = None

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the input (without a target), or 0 if it is not known.

        It is known if `batch` has token ids of the input. An image without text, for example, has
        none.
        """
        sequences = {} if self.batch is None else self.batch.sequences
        return sequences["input"].length if "input" in sequences else 0

    @cached_property
    def length(self) -> int:
        """Number of tokens of the longest sequence of the text, or 0 if the number is not known.

        In a model with encoder and decoder, a text has two sequences: input and target.
        """
        sequences = () if self.batch is None else self.batch.sequences.values()
        return max((sequence.length for sequence in sequences), default=0)

    def take(self) -> Iterator[ReadText]:
        """Yield `result` unless it is None. Remove it and `batch` to release memory."""
        if self.result is not None:
            result, self.result, self.batch = self.result, None, None
            yield result


class _Reader:
    def __init__(
        self,
        model: Any,
        texts: Texts,
        target: Sequence[str] | None,
        options: RecordOptions,
        *,
        batch_size: BatchSize,
        outputs: bool,
    ) -> None:
        loaded = load(model, options.get("tokenizer"), options.get("processor"))
        self._loaded, self._model = loaded, loaded.model
        self._texts, self._target = texts, target
        self._options: dict[str, Any] = dict(options)
        capture = read_capture_options(**options)
        self._capture = replace(capture, outputs=outputs)
        self._outputs = HeadOutputs(self._model, vectors=outputs)
        self._encoder = Encoder(loaded, options, several=True)
        on_cpu = self._model.device.type in ("cpu", "meta")
        self._max_tokens = _MAX_TOKENS_CPU if on_cpu else _MAX_TOKENS_GPU
        self._max_texts = math.inf if batch_size == "auto" else batch_size
        self._auto = batch_size == "auto"
        self._can_batch = batch_size != 1 and options.get("generate") is None
        self._max_length = max_batched_length(self._model.config)
        # Number of forward passes of several texts so far. The key is whether the batch has
        # padding.
        self._forwards = Counter[bool]()

    @cached_property
    def _padding(self) -> int:
        """Token id for padding: that of the model's configuration if it is valid, or else 0."""
        config = self._model.config.get_text_config()
        padding = getattr(config, "pad_token_id", None)
        if isinstance(padding, int) and 0 <= padding < getattr(config, "vocab_size", 0):
            return padding
        return 0

    def window(
        self, indices: Iterator[int], ahead: Callable[[int], bool] | None, *, alone: bool
    ) -> list[_Entry]:
        """Encode and return the texts of the next window. The list is empty after the last text.

        The texts are the next ones in `indices`. `ahead` is that of `read_records`. If `alone`, the
        window has only one text.
        """
        window: list[_Entry] = []
        num_tokens = 0
        max_window_tokens = self._max_tokens * _BATCHES_PER_WINDOW
        for index in indices:
            entry = self._make_entry(index)
            window.append(entry)
            num_tokens += entry.length
            # End the window here if texts are read one by one (`_can_batch` is False). Also end it
            # after a text with an unknown number of tokens, because the memory that its record
            # needs is not known. An empty or too long text already has a result and needs no
            # record.
            has_length = self._can_batch and (entry.num_tokens or entry.result)
            if entry.error or alone or not has_length:
                break
            has_full_batch = math.isinf(self._max_texts) or len(window) >= self._max_texts
            if num_tokens >= max_window_tokens and has_full_batch:
                break
            if len(window) >= self._max_texts * _BATCHES_PER_WINDOW:
                break
            if ahead is not None and not entry.result and not ahead(entry.num_tokens):
                break
        return window

    def _make_entry(self, index: int) -> _Entry:
        entry = _Entry(index, self._texts[index])
        if _is_empty(entry.text):
            entry.result = ReadText(index, None, "empty")
            return entry
        entry.target = None if self._target is None else self._target[index]
        if self._options.get("generate") is not None:
            return entry
        with self._errors_of(entry):
            examples, are_several = examples_of(entry.text)
            if are_several:
                raise TypeError(_several_examples(index, len(examples)))
            entry.batch = self._encoder.encode(examples[0], entry.target)
            if entry.length <= self._max_length:
                entry.kind = kind_of_example(entry.batch, self._encoder.loaded.accepted)
        return entry

    @contextmanager
    def _errors_of(self, entry: _Entry) -> Iterator[None]:
        """Catch an error in the `with` block and store it in `entry`.

        The method `read` raises the error later, after the results of all earlier texts were
        yielded. A TooManyTokensError is never raised: its message is stored in the result of the
        text, as the reason why the text is left out.
        """
        try:
            yield
        except TooManyTokensError as error:
            reason = f"texts[{entry.index}]: {error}"
            entry.result = ReadText(entry.index, None, "too long", reason)
        except Exception as error:  # noqa: BLE001 - raised later
            entry.error = self._with_text_number(entry.index, error)

    def read(
        self, window: Sequence[_Entry], done: Callable[[int], None] | None, *, ordered: bool
    ) -> Iterator[ReadText]:
        """Read the texts of a window and yield their results, as in `read_records`.

        After each batch, call `done` with the batch's number of input tokens. If a text has an
        error, raise the error after the results of all earlier texts in `window` were yielded. If
        `ordered`, yield the results in the order of `window`. Otherwise, yield the results of a
        batch directly after its forward pass.
        """
        order = {entry: number for number, entry in enumerate(window)}
        first_failed = _first_failed(window)
        num_yielded = 0
        for batch in self._batches(window[:first_failed]):
            if all(order[entry] > first_failed for entry in batch):
                continue
            count = sum(entry.num_tokens for entry in batch)
            self._read(batch)
            if done is not None:
                done(count)
            # Reading the batch can have stored errors. Only results of texts before the first text
            # with an error are yielded.
            first_failed = _first_failed(window)
            if not ordered:
                yield from chain.from_iterable(entry.take() for entry in batch)
            while ordered and num_yielded < first_failed and window[num_yielded].result:
                yield from window[num_yielded].take()
                num_yielded += 1
        # Yield the remaining results: those of texts that are empty or too long, which are in no
        # batch.
        yield from chain.from_iterable(entry.take() for entry in window[:first_failed])
        for entry in window:
            if entry.error is not None:
                raise entry.error

    def _batches(self, window: Sequence[_Entry]) -> Iterator[list[_Entry]]:
        """Divide the texts that have no result yet into batches.

        All texts of a batch have the same `_Entry.kind`. Texts of a kind are sorted by length, the
        longest first, which keeps padding small. A text whose kind is None forms a batch alone.
        """
        kinds: dict[tuple[str, ...] | None, list[_Entry]] = {}
        for entry in window:
            if entry.result is None:
                kinds.setdefault(entry.kind if self._can_batch else None, []).append(entry)
        free = free_memory(self._model.device)
        room = math.inf if free is None else _MAX_SHARE_OF_MEMORY * free
        for kind, entries in kinds.items():
            if kind is None:
                yield from ([entry] for entry in entries)
                continue
            batch: list[_Entry] = []
            num_tokens = 0
            for entry in sorted(entries, key=lambda item: -item.length):
                num_tokens += entry.length
                if batch and not self._fits(len(batch) + 1, batch[0].length, num_tokens, room):
                    yield batch
                    batch, num_tokens = [], entry.length
                batch.append(entry)
            yield batch

    def _fits(self, count: int, longest: int, num_tokens: int, room: float) -> bool:
        """Whether a batch may have `count` texts.

        `longest` is the number of tokens of the longest of these texts. `num_tokens` is the total
        number of their tokens, without padding. If batch_size is a number, it is the only limit.
        If it is "auto", three things are limited: the number of tokens with padding, the share of
        padding, and the memory of the forward pass (to `room` bytes).
        """
        if count > self._max_texts:
            return False
        if not self._auto:
            return True
        padded = count * longest
        if padded > self._max_tokens:
            return False
        if padded > _MAX_TOKENS_ANY_PADDING and padded - num_tokens > _MAX_PADDING * padded:
            return False
        return forward_memory(self._loaded, count, longest) <= room

    def _read(self, batch: Sequence[_Entry]) -> None:
        """Read a batch, and store the record or error of each text in its entry.

        Read all texts in one forward pass if possible. If memory is not sufficient, divide the
        batch into halves and read each half. Read each text alone in two cases:

        - The first check shows wrong weights (`_read_together` returns False).
        - Another error occurs that one of the texts can cause, such as ValueError.

        If a later check shows wrong weights, the _DifferentError is not caught.
        """
        if len(batch) == 1 or not self._can_batch:
            for entry in batch:
                self._read_alone(entry)
            return
        differs = False
        try:
            if self._read_together(batch):
                return
            differs = True
        except _DifferentError:
            raise
        except (MemoryError, torch.OutOfMemoryError):
            middle = len(batch) // 2
            self._read(batch[:middle])
            self._read(batch[middle:])
            return
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
            # Either one of the texts causes the error, or the model cannot read these texts
            # together. Read each text alone to find out.
            pass
        for entry in batch:
            self._read_alone(entry)
        # Reading the batch together failed. If the weights were wrong, or each text could be read
        # alone, the cause is not one of the texts: the model cannot read several texts together. In
        # this case, read all further texts alone.
        self._can_batch = not differs and any(entry.error for entry in batch)

    def _read_together(self, batch: Sequence[_Entry]) -> bool:
        """Read a batch in one forward pass and store the records in its entries.

        Some batches are checked (see the description of this module). Return False if the first
        check shows wrong weights. Raise _DifferentError if a later check does, because weights of
        earlier batches may be wrong, too. Otherwise return True.
        """
        singles = [entry.batch for entry in batch if entry.batch is not None]
        records = self._records(joined_examples(singles, self._padding))
        for entry, record in zip(batch, records, strict=True):
            entry.result = ReadText(entry.index, record)
        padded = len({entry.length for entry in batch}) > 1
        self._forwards[padded] += 1
        count = self._forwards[padded]
        # Check only the batches 1, 2, 4, 8 and so on, because a check needs another forward pass.
        # Batches with and without padding are counted separately.
        if count & (count - 1):
            return True
        [alone] = self._records(replace(singles[-1]))
        dtypes = (self._model.dtype, self._capture.dtype or self._model.dtype)
        in_half = min(dtype.itemsize for dtype in dtypes) < torch.float32.itemsize
        allowed = _TOLERANCE_HALF if in_half else _TOLERANCE
        difference = _difference(records[-1], alone)
        if difference <= allowed:
            return True
        if count > 1:
            raise _DifferentError(
                f"batch_size: in a batch, the weights of texts[{batch[-1].index}] differ by "
                f"{difference:.2g} from those of the text alone, unlike in earlier batches. Pass "
                "batch_size=1."
            )
        return False

    def _read_alone(self, entry: _Entry) -> None:
        entry.result = None
        with self._errors_of(entry):
            entry.result = ReadText(entry.index, self._record_alone(entry))
        entry.batch = None

    def _record_alone(self, entry: _Entry) -> AttentionRecord:
        if entry.batch is not None and entry.batch.size == 1:
            return self._records(entry.batch)[0]
        record = extract(
            self._loaded,
            entry.text,
            target=entry.target,
            progress=False,
            outputs=self._capture.outputs,
            **self._options,
        )
        if not isinstance(record, AttentionRecord):
            raise TypeError(_several_examples(entry.index, len(record)))
        return record

    def _records(self, batch: Batch) -> list[AttentionRecord]:
        return record_batch(self._encoder, batch, options=self._capture, outputs=self._outputs)

    def _with_text_number(self, index: int, error: Exception) -> Exception:
        """Return `error` with ``texts[3]: `` before its message, where 3 is the `index` of a text.

        The result is a new TypeError, ValueError, MemoryError, NotImplementedError or RuntimeError:
        the first of these classes of which `error` is an instance. There are two exceptions:

        - If the message is about an argument for all texts, or already names the text, return
          `error` unchanged.
        - If `error` is an instance of none of these classes, or a torch.OutOfMemoryError, return
          `error` with a note that names the text.
        """
        words = str(error)
        argument = re.split(r"\W", words, maxsplit=1)[0]
        of_all = argument in _SHARED_ARGUMENTS and (argument != "target" or self._target is None)
        if of_all or words.startswith(f"texts[{index}]"):
            return error
        kinds = (TypeError, ValueError, MemoryError, NotImplementedError, RuntimeError)
        kind = next((candidate for candidate in kinds if isinstance(error, candidate)), None)
        if kind is None or isinstance(error, torch.OutOfMemoryError):
            error.add_note(f"This was texts[{index}].")
            return error
        # Use the built-in base class of the error, because its own class may need arguments besides
        # the message.
        named = kind(f"texts[{index}]: {words}")
        named.__cause__ = error
        return named


def _first_failed(window: Sequence[_Entry]) -> int:
    """Return the index in `window` of the first text with an error, or the length of `window`."""
    failed = (number for number, entry in enumerate(window) if entry.error)
    return next(failed, len(window))


class _DifferentError(ValueError):
    """Error: a check shows wrong weights in a batch, although earlier checks showed none."""


def _difference(first_record: AttentionRecord, second_record: AttentionRecord) -> float:
    """Return the largest absolute difference between the weights of two records of the same text.

    Only the last `_NUM_COMPARED_QUERIES` queries of each head are compared. Return infinity if a
    compared weight is NaN. Ranks are not compared, because rounding may exchange two keys.
    """
    worst = 0.0
    for name, stack in first_record.stacks.items():
        if stack.ranks:
            continue
        alone = second_record.stacks[name]
        # Compare the last queries, where errors are most likely: padding follows directly after
        # them, and in a causal model they attend to the most keys.
        count = len(stack.query_tokens)
        rows = slice(max(0, count - _NUM_COMPARED_QUERIES), count)
        for layer in stack.layers:
            pair = stack.attention(layer), alone.attention(layer)
            heads = range(stack.num_heads(layer))
            first, second = (attention.block(heads, rows).cpu().numpy() for attention in pair)
            worst = float(np.maximum(worst, np.abs(first - second).max()))
    return math.inf if math.isnan(worst) else worst


def _several_examples(index: int, count: int) -> str:
    return f"texts[{index}] contains {count} examples. Pass each one as a separate text."


def _is_empty(text: Any) -> bool:
    """Whether `text` is missing, or has no characters except white space.

    Missing values are those of `is_missing`, such as None. A tuple or list is empty if all of its
    items are empty.
    """
    if isinstance(text, tuple | list):
        return all(map(_is_empty, text))
    return is_missing(text) or (isinstance(text, str) and not text.strip())
