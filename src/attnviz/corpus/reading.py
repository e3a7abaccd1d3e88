"""Reading of texts: one record for each text, with several texts in one forward pass.

Texts are read in windows and sorted by length within a window, so that little is padded. Padding
follows a text and is removed from its record. Whether texts of a batch change each other is checked
in some batches: the text with the most padding is also read alone. If its weights differ, the model
reads one text at a time.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Unpack

import numpy as np
import torch

from attnviz.corpus.columns import is_missing
from attnviz.corpus.texts import Texts
from attnviz.extraction import extract
from attnviz.extraction.capabilities import TooManyTokensError
from attnviz.extraction.capture.check import CheckedCalls
from attnviz.extraction.capture.forward import run_forward
from attnviz.extraction.capture.memory import forward_memory, free_memory
from attnviz.extraction.families import max_batched_length
from attnviz.extraction.inputs.batch import Batch, joined_examples, kind_of_example
from attnviz.extraction.inputs.encode import Encoder, examples_of
from attnviz.extraction.inputs.truncate import read_truncation
from attnviz.extraction.models import load, name_of
from attnviz.extraction.options import RecordOptions, read_capture_options
from attnviz.extraction.records import records_of_forward
from attnviz.record.record import AttentionRecord
from attnviz.utils.arguments import whole_number

__all__ = [
    "BatchSize",
    "ReadText",
    "checked_batch_size",
    "checked_target",
    "read_records",
]

BatchSize = int | Literal["auto"]

# Arguments that are the same for all texts.
_SHARED_ARGUMENTS = {*RecordOptions.__annotations__, "model", "progress", "target"}
# Maximum number of tokens of a batch, padding included. On a CPU, larger batches are not faster and
# exceed its caches. A GPU needs larger batches.
_MAX_TOKENS_CPU = 1_024
_MAX_TOKENS_GPU = 16_384
# Maximum share of padding in a batch. Batches of up to `_MAX_TOKENS_ANY_PADDING` tokens are exempt:
# they take the same time anyway.
_MAX_PADDING = 0.2
_MAX_TOKENS_ANY_PADDING = 128
# Batches of a window. In a larger window more texts have equal lengths, but all records of a window
# stay in memory if they are returned in order.
_BATCHES_PER_WINDOW = 32
# Maximum share of the free memory that one forward pass may need.
_MAX_SHARE_OF_MEMORY = 0.25
# Maximum difference between weights in a batch and weights of the text alone.
_TOLERANCE = 1e-4
_TOLERANCE_HALF = 2e-2
# Number of queries of each head that are compared.
_NUM_COMPARED_QUERIES = 16


@dataclass(frozen=True)
class ReadText:
    """Record of a text, or the reason why the text was left out.

    Attributes
    ----------
    place : int
        Index of the text.
    record : AttentionRecord or None
        None if the text was left out.
    skip_reason : {"", "empty", "too long"}
        Reason: the text is empty, or has more tokens than the model has positions.
    reason : str
        Text of the error of a text that is too long.
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
    **options: Unpack[RecordOptions],
) -> Iterator[ReadText]:
    """Read texts with a model, several in one forward pass, and yield the record of each.

    The first text is read alone, so that a wrong argument raises at once.

    Parameters
    ----------
    model : object
        As for `attnviz.extract`. A loaded model is not loaded again.
    texts : Texts
        All texts.
    places : iterable of int
        Indices of the texts to read, in this order. Consumed as needed.
    target : sequence of str, optional
        Output that the model is made to produce, an entry for each of `texts`.
    batch_size : int or "auto"
        Maximum number of texts in a batch. By default as many as are fast and fit into memory.
    ordered : bool
        Whether records are yielded in the order of `places`, which delays some of them. Otherwise
        they are yielded as forward passes end.
    ahead : callable, optional
        Called for each text with the number of tokens of its input, or 0 if it is not known.
        Returns whether to add further texts to the window. All texts of earlier windows were
        yielded by then.
    done : callable, optional
        Called after each forward pass with its number of input tokens. The records may be yielded
        later.
    **options
        Options of `attnviz.extract` that are the same for all texts.

    Yields
    ------
    ReadText
        One for each of `places`.

    Raises
    ------
    TypeError, ValueError, MemoryError, OSError, NotImplementedError
        As `attnviz.extract`, with the number of the text (``texts[1734]: ...``) that cannot be
        read. All texts before it are yielded first.
    """
    reader = _Reader(
        model,
        texts,
        target,
        options,
        batch_size=checked_batch_size(batch_size),
    )
    indices = iter(indices)
    first = True
    while True:
        window = reader.window(indices, ahead, alone=first)
        if not window:
            return
        yield from reader.read(window, done, ordered=ordered)
        first = first and all(entry.skip_reason for entry in window)


def checked_batch_size(batch_size: Any) -> BatchSize:
    """Return `batch_size` if it is ``"auto"`` or a whole number of at least 1, else raise."""
    if isinstance(batch_size, str) and batch_size == "auto":
        return "auto"
    hint = 'the maximum number of texts in a batch, such as 16, or "auto"'
    return whole_number("batch_size", batch_size, 1, hint=hint)


def checked_target(target: Sequence[str] | None, texts: Texts) -> None:
    """Raise ValueError unless `target` has an entry for each text."""
    if target is not None and (isinstance(target, str) or len(target) != len(texts)):
        description = "one string" if isinstance(target, str) else f"{len(target)} entries"
        raise ValueError(
            f"target must be a list with an entry for each of the {len(texts)} texts, not "
            f"{description}"
        )


@dataclass(eq=False)
class _Entry:
    """Text of a window, which is a group of texts that are read before the next group.

    `batch` is the encoded input. It is None if `extract` has to encode the text. `record`,
    `skip_reason` or `error` is the result.
    """

    index: int
    text: Any = None
    target: str | None = None
    batch: Batch | None = None
    kind: tuple[str, ...] | None = None
    skip_reason: Literal["", "empty", "too long"] = ""
    reason: str = ""
    record: AttentionRecord | None = None
    error: Exception | None = None

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the input, or 0 if it is not known."""
        sequences = {} if self.batch is None else self.batch.sequences
        return sequences["input"].length if "input" in sequences else 0

    @property
    def length(self) -> int:
        """Length of the longest token sequence."""
        sequences = () if self.batch is None else self.batch.sequences.values()
        return max((sequence.length for sequence in sequences), default=0)

    @property
    def is_read(self) -> bool:
        return self.record is not None or bool(self.skip_reason)

    def read(self) -> ReadText:
        """Return the result, and drop the references to the record and the input."""
        text = ReadText(self.index, self.record, self.skip_reason, self.reason)
        self.record = self.batch = None
        return text


class _Reader:
    def __init__(
        self,
        model: Any,
        texts: Texts,
        target: Sequence[str] | None,
        options: RecordOptions,
        *,
        batch_size: BatchSize,
    ) -> None:
        self._loaded = load(model, options.get("tokenizer"), options.get("processor"))
        self._model: Any = self._loaded.model
        self._texts, self._target = texts, target
        self._options: dict[str, Any] = {
            **options,
            "tokenizer": self._loaded.tokenizer,
            "processor": self._loaded.processor,
        }
        self._capture = read_capture_options(
            options.get("layers"), options.get("dtype"), options.get("device", "cpu")
        )
        self._title = options.get("name") or name_of(self._model)
        truncation = read_truncation(options.get("truncation", False))
        self._encoder = Encoder(self._loaded, truncation=truncation)
        self._max_texts = math.inf if batch_size == "auto" else batch_size
        self._auto = batch_size == "auto"
        self._can_batch = batch_size != 1 and options.get("generate") is None
        self._max_length = max_batched_length(self._model.config)
        self._checked = CheckedCalls()
        # Number of batches of several texts so far, without padding and with it.
        self._forwards = Counter[bool]()

    @cached_property
    def _max_tokens(self) -> int:
        device = self._model.device.type
        return _MAX_TOKENS_CPU if device in ("cpu", "meta") else _MAX_TOKENS_GPU

    @cached_property
    def _padding(self) -> int:
        """Token id for padding. Its value does not matter, but the model must have it."""
        tokenizer = self._encoder.tokenizer(required=False)
        table = None
        with suppress(NotImplementedError):
            table = self._model.get_input_embeddings()
        vocabulary_size = getattr(getattr(table, "weight", None), "shape", (math.inf,))[0]
        config = self._model.config.get_text_config()
        for source in (config, tokenizer):
            padding = getattr(source, "pad_token_id", None)
            if isinstance(padding, int) and 0 <= padding < vocabulary_size:
                return padding
        return 0

    def window(
        self, indices: Iterator[int], ahead: Callable[[int], bool] | None, *, alone: bool
    ) -> list[_Entry]:
        """Encode the texts of the next window. Return an empty list after the last text."""
        window: list[_Entry] = []
        num_tokens = 0
        max_window_tokens = self._max_tokens * _BATCHES_PER_WINDOW
        for index in indices:
            entry = self._make_entry(index)
            window.append(entry)
            num_tokens += entry.length
            # A text of unknown length ends the window: its memory use is unknown too.
            has_length = self._can_batch and (entry.num_tokens or entry.skip_reason)
            if entry.error or alone or not has_length:
                break
            has_full_batch = math.isinf(self._max_texts) or len(window) >= self._max_texts
            if num_tokens >= max_window_tokens and has_full_batch:
                break
            if len(window) >= self._max_texts * _BATCHES_PER_WINDOW:
                break
            if ahead is not None and not entry.skip_reason and not ahead(entry.num_tokens):
                break
        return window

    def _make_entry(self, index: int) -> _Entry:
        entry = _Entry(index, self._texts[index])
        if _is_empty(entry.text):
            entry.skip_reason = "empty"
            return entry
        entry.target = None if self._target is None else self._target[index]
        if self._options.get("generate") is not None:
            return entry
        try:
            examples, are_several = examples_of(entry.text)
            if are_several:
                raise TypeError(_several_examples(index, len(examples)))  # noqa: TRY301 - handled like the others
            entry.batch = self._encoder.encode(examples[0], entry.target)
        except TooManyTokensError as error:
            entry.skip_reason, entry.reason = "too long", f"texts[{index}]: {error}"
        except (TypeError, ValueError, MemoryError, OSError, NotImplementedError) as error:
            entry.error = self._with_text_number(index, error)
        else:
            if entry.length <= self._max_length:
                entry.kind = kind_of_example(entry.batch, self._encoder.accepted)
        return entry

    def read(
        self, window: Sequence[_Entry], done: Callable[[int], None] | None, *, ordered: bool
    ) -> Iterator[ReadText]:
        """Read the texts of a window. Raise an error after all texts before it are yielded."""
        order = {entry: number for number, entry in enumerate(window)}
        # Index of the first text of the window that has an error so far.
        first_failed = min(
            (order[failed] for failed in window if failed.error),
            default=len(window),
        )
        num_yielded = 0
        # Texts that were left out need no forward pass.
        at_once = [entry for entry in window if entry.is_read]
        for batch in self._batches(window[:first_failed]):
            if all(order[entry] > first_failed for entry in batch):
                continue
            count = sum(entry.num_tokens for entry in batch)
            self._read(batch)
            if done is not None:
                done(count)
            first_failed = min(
                [
                    first_failed,
                    *(order[failed] for failed in batch if failed.error),
                ]
            )
            if not ordered:
                yield from (entry.read() for entry in batch if not entry.error)
            while ordered and num_yielded < first_failed and window[num_yielded].is_read:
                yield window[num_yielded].read()
                num_yielded += 1
        remaining = window[num_yielded:first_failed] if ordered else at_once
        yield from (entry.read() for entry in remaining if entry.is_read)
        if first_failed < len(window):
            error = window[first_failed].error
            if error is not None:
                raise error

    def _batches(self, window: Sequence[_Entry]) -> Iterator[list[_Entry]]:
        """Divide the texts into batches: of one kind, longest first, with little padding."""
        kinds: dict[tuple[str, ...] | None, list[_Entry]] = {}
        for entry in window:
            if not entry.is_read:
                kinds.setdefault(entry.kind if self._can_batch else None, []).append(entry)
        free = free_memory(self._model.device)
        room = math.inf if free is None else _MAX_SHARE_OF_MEMORY * free
        for kind, entries in kinds.items():
            if kind is None:
                yield from ([entry] for entry in entries)
                continue
            batch: list[_Entry] = []
            for entry in sorted(entries, key=lambda item: -item.length):
                if batch and not self._fits(batch, entry, room):
                    yield batch
                    batch = []
                batch.append(entry)
            yield batch

    def _fits(self, batch: Sequence[_Entry], entry: _Entry, room: float) -> bool:
        """Whether a text fits into a batch of texts that are at least as long."""
        count, longest = len(batch) + 1, batch[0].length
        if count > self._max_texts:
            return False
        if not self._auto:
            return True
        padded = count * longest
        if padded > self._max_tokens:
            return False
        real = sum(other.length for other in batch) + entry.length
        if padded > _MAX_TOKENS_ANY_PADDING and padded - real > _MAX_PADDING * padded:
            return False
        return forward_memory(self._model, count, longest) <= room

    def _read(self, batch: Sequence[_Entry]) -> None:
        """Read a batch, in one forward pass if that works. Store an error in the entry."""
        if len(batch) == 1 or not self._can_batch:
            for entry in batch:
                self._read_alone(entry)
            return
        try:
            same = self._read_together(batch)
        except _DifferentError:
            raise
        except (MemoryError, torch.OutOfMemoryError):
            same = False
            half = len(batch) // 2
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
            # The cause may be one text or the batch. Reading each text alone shows which.
            same, half = False, 0
        else:
            half = 0
        if same:
            return
        for entry in batch:
            entry.record = None
        if half:
            self._read(batch[:half])
            self._read(batch[half:])
            return
        for entry in batch:
            self._read_alone(entry)
        # If a text also failed alone, the batch was not the cause, and batches continue.
        self._can_batch = any(entry.error for entry in batch)

    def _read_together(self, batch: Sequence[_Entry]) -> bool:
        """Read a batch in one forward pass. Return False if its weights differ from those alone.

        Raise ValueError instead if earlier batches were accepted, as they may have differed too.
        """
        singles = [entry.batch for entry in batch if entry.batch is not None]
        joined = joined_examples(singles, self._padding)
        for entry, record in zip(batch, self._records(joined), strict=True):
            entry.record = record
        padded = len({entry.length for entry in batch}) > 1
        self._forwards[padded] += 1
        count = self._forwards[padded]
        # Compare in batches 1, 2, 4, 8, ...
        if count & (count - 1):
            return True
        shortest = batch[-1]
        if shortest.batch is None or shortest.record is None:
            raise TypeError(f"texts[{shortest.index}] was not encoded")
        alone = self._records(replace(shortest.batch))[0]
        dtypes = (self._model.dtype, self._capture.dtype or self._model.dtype)
        in_half = min(dtype.itemsize for dtype in dtypes) < torch.float32.itemsize
        allowed = _TOLERANCE_HALF if in_half else _TOLERANCE
        difference = _difference(shortest.record, alone)
        if difference <= allowed:
            return True
        if count > 1:
            raise _DifferentError(
                f"batch_size: in a batch, the weights of texts[{shortest.index}] differ by "
                f"{difference:.2g} from those of the text alone, unlike in earlier batches. Pass "
                "batch_size=1."
            )
        return False

    def _read_alone(self, entry: _Entry) -> None:
        try:
            entry.record = self._record_alone(entry)
        except TooManyTokensError as error:
            entry.skip_reason, entry.reason = "too long", f"texts[{entry.index}]: {error}"
        except Exception as error:  # noqa: BLE001 - raised after all texts before it are yielded
            entry.error = self._with_text_number(entry.index, error)
        entry.batch = None

    def _record_alone(self, entry: _Entry) -> AttentionRecord:
        if entry.batch is not None and entry.batch.size == 1:
            return self._records(entry.batch)[0]
        record = extract(
            self._model,
            entry.text,
            target=entry.target,
            progress=False,
            **self._options,
        )
        if not isinstance(record, AttentionRecord):
            raise TypeError(_several_examples(entry.index, len(record)))
        return record

    def _records(self, batch: Batch) -> list[AttentionRecord]:
        forward = run_forward(
            self._loaded,
            batch,
            encoder_decoder=self._encoder.encoder_decoder,
            options=self._capture,
            checked=self._checked,
        )
        return records_of_forward(
            self._loaded,
            self._encoder,
            batch,
            forward,
            title=self._title,
            options=self._capture,
        )

    def _with_text_number(self, index: int, error: Exception) -> Exception:
        """Return `error` with the number of the text in its message."""
        kinds = (TypeError, ValueError, MemoryError, NotImplementedError, RuntimeError)
        kind = next((candidate for candidate in kinds if isinstance(error, candidate)), None)
        if kind is None or isinstance(error, torch.OutOfMemoryError):
            error.add_note(f"This was texts[{index}].")
            return error
        words = str(error)
        # A new error: a subclass may compute its message from several arguments.
        named = kind(f"{self._text_prefix(index, words)}{words}")
        named.__cause__ = error
        return named

    def _text_prefix(self, index: int, words: str) -> str:
        """Return the number of the text as a prefix, or "" if the argument belongs to all texts."""
        argument = re.split(r"\W", words, maxsplit=1)[0]
        # A target, if there is one, belongs to a text.
        of_all = argument in _SHARED_ARGUMENTS and (argument != "target" or self._target is None)
        has_number = words.startswith(f"texts[{index}]")
        return "" if of_all or has_number else f"texts[{index}]: "


class _DifferentError(ValueError):
    """Weights of texts in one batch differ from those of the same texts alone."""


def _difference(first_record: AttentionRecord, second_record: AttentionRecord) -> float:
    """Return the largest difference of weights of two records, in the last queries of each head.

    Return infinity if the records have different tokens, stacks, layers or heads.
    """
    if list(first_record.stacks) != list(second_record.stacks):
        return math.inf
    worst = 0.0
    for name, stack in first_record.stacks.items():
        alone = second_record.stacks[name]
        if (stack.query_tokens.text, stack.key_tokens.text) != (
            alone.query_tokens.text,
            alone.key_tokens.text,
        ):
            return math.inf
        if stack.layers != alone.layers or stack.heads_per_layer != alone.heads_per_layer:
            return math.inf
        # The last queries are next to the padding. In a causal model they see the most keys.
        count = len(stack.query_tokens)
        rows, columns = (
            slice(max(0, count - _NUM_COMPARED_QUERIES), count),
            slice(0, len(stack.key_tokens)),
        )
        for layer in stack.layers:
            pair = stack.attention(layer), alone.attention(layer)
            for head in range(stack.num_heads(layer)):
                first, second = (attention.weights(head, rows, columns) for attention in pair)
                worst = float(np.maximum(worst, np.abs(first - second).max()))
    return math.inf if math.isnan(worst) else worst


def _several_examples(index: int, count: int) -> str:
    return f"texts[{index}] contains {count} examples. Pass each one as a separate text."


def _is_empty(text: Any) -> bool:
    """Whether `text` is missing, or all of its parts are blank."""
    if isinstance(text, tuple | list):
        return all(map(_is_empty, text))
    return is_missing(text) or (isinstance(text, str) and not text.strip())
