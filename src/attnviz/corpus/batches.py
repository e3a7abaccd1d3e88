"""Batches of texts that a model reads in one forward pass.

A batch has texts of similar length, so that it needs little padding. Padding follows the tokens of
a text and is removed from its record (the attention in the text).

In some models the texts of a batch influence each other. To detect this, some batches are checked:
the text with the most padding is also read alone, and its weights are compared with those in the
batch. If they differ in the first check, all texts of this batch and all later texts are read one
by one. If they differ in a later check, an error is raised, because records of earlier batches may
be wrong. Batches with and without padding have separate checks, so there is a first check for each
of the two kinds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from attnviz.corpus.columns import is_missing
from attnviz.corpus.texts import named_error
from attnviz.extraction import extract
from attnviz.extraction.capture.memory import forward_memory, free_memory
from attnviz.extraction.capture.outputs import HeadOutputs
from attnviz.extraction.families import max_batched_length
from attnviz.extraction.inputs.batch import Batch, joined_examples, kind_of_example
from attnviz.extraction.inputs.encode import Encoder
from attnviz.extraction.inputs.examples import examples_of
from attnviz.extraction.inputs.passages import passages_of
from attnviz.extraction.loaded import TooManyTokensError
from attnviz.extraction.models import load
from attnviz.extraction.options import RecordOptions, read_capture_options
from attnviz.extraction.records import record_batch
from attnviz.record.record import AttentionRecord
from attnviz.utils.arguments import whole_number

BatchSize = int | Literal["auto"]

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


def checked_batch_size(batch_size: Any) -> BatchSize:
    """Return `batch_size`.

    Raise TypeError or ValueError unless it is ``"auto"`` or a whole number of at least 1.
    """
    if isinstance(batch_size, str) and batch_size == "auto":
        return "auto"
    hint = 'the maximum number of texts in a batch, such as 16, or "auto"'
    return whole_number("batch_size", batch_size, 1, hint=hint)


@dataclass(eq=False)
class TextInput:
    """Text with its encoded input, and its result or error.

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
        encoded, and after the text was read alone or its result was taken. Also None with the
        option `generate`, because `extract` then encodes the text.
    kind : tuple of str or None
        Names and dtypes of the model's arguments for the text. Texts of the same kind can be read
        in one forward pass. None if the text must be read alone.
    result : ReadText or None
        Result of the text. None until it is read, and again after `take`. An empty or too long text
        gets its result when it is encoded.
    error : Exception or None
        Error that occurred when the text was encoded or read. Its message begins with the name of
        the text, ``texts[3]: ``.
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

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Store an error in the `with` block as `error`, or as the result of a too long text.

        The caller raises the error later, after the results of all earlier texts.
        """
        try:
            yield
        except TooManyTokensError as error:
            reason = f"texts[{self.index}]: {error}"
            self.result = ReadText(self.index, None, "too long", reason)
        except Exception as error:  # noqa: BLE001 - raised later
            self.error = named_error(error, f"texts[{self.index}]")


class BatchReader:
    """Encodes texts, divides them into batches, and reads the batches with a model.

    `max_texts` is the maximum number of texts of a batch, which can be infinite, and `max_tokens`
    the maximum number of their tokens with padding. `can_batch` is whether several texts are read
    in one forward pass. It can become False after a check.
    """

    def __init__(
        self, model: Any, options: RecordOptions, *, batch_size: BatchSize, outputs: bool
    ) -> None:
        loaded = load(model, options.get("tokenizer"), options.get("processor"))
        self._loaded, self._model = loaded, loaded.model
        self._options: dict[str, Any] = dict(options)
        self._capture = replace(read_capture_options(**options), outputs=outputs)
        self._outputs = HeadOutputs(self._model, vectors=outputs)
        self._encoder = Encoder(loaded, options, several=True)
        on_cpu = self._model.device.type in ("cpu", "meta")
        self.max_tokens = _MAX_TOKENS_CPU if on_cpu else _MAX_TOKENS_GPU
        self.max_texts = math.inf if batch_size == "auto" else batch_size
        self.can_batch = batch_size != 1 and options.get("generate") is None
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

    def encode(self, index: int, text: Any, target: str | None) -> TextInput:
        """Return the input of a text, or its result or error if it cannot be read."""
        made = TextInput(index, text, target)
        if _is_empty(text):
            made.result = ReadText(index, None, "empty")
        elif self._options.get("generate") is None:
            with made.catching():
                examples, are_several = examples_of(text)
                if are_several:
                    raise TypeError(_several_examples(len(examples)))
                made.batch = self._encoder.encode(examples[0], target, number=index)
                # Places of patches in images of the user are not used, and take time.
                made.batch.place_images = None
                if made.length <= self._max_length:
                    made.kind = kind_of_example(made.batch, self._encoder.loaded.accepted)
        return made

    def batches(self, texts: Sequence[TextInput]) -> Iterator[list[TextInput]]:
        """Divide the texts that have no result yet into batches.

        All texts of a batch have the same `TextInput.kind`. Texts of a kind are sorted by length,
        the longest first, which keeps padding small. A text whose kind is None forms a batch alone.
        """
        kinds: dict[tuple[str, ...] | None, list[TextInput]] = {}
        for text in texts:
            if text.result is None:
                kinds.setdefault(text.kind if self.can_batch else None, []).append(text)
        free = free_memory(self._model.device)
        room = math.inf if free is None else _MAX_SHARE_OF_MEMORY * free
        for kind, of_kind in kinds.items():
            if kind is None:
                yield from ([text] for text in of_kind)
                continue
            batch: list[TextInput] = []
            num_tokens = 0
            for text in sorted(of_kind, key=lambda item: -item.length):
                num_tokens += text.length
                if batch and not self._fits(len(batch) + 1, batch[0].length, num_tokens, room):
                    yield batch
                    batch, num_tokens = [], text.length
                batch.append(text)
            yield batch

    def _fits(self, count: int, longest: int, num_tokens: int, room: float) -> bool:
        """Whether a batch may have `count` texts.

        `longest` is the number of tokens of the longest of these texts. `num_tokens` is the total
        number of their tokens, without padding. If batch_size is a number, it is the only limit.
        If it is "auto", three things are limited: the number of tokens with padding, the share of
        padding, and the memory of the forward pass (to `room` bytes).
        """
        if count > self.max_texts:
            return False
        if not math.isinf(self.max_texts):
            return True
        padded = count * longest
        if padded > self.max_tokens:
            return False
        if padded > _MAX_TOKENS_ANY_PADDING and padded - num_tokens > _MAX_PADDING * padded:
            return False
        return forward_memory(self._loaded, count, longest) <= room

    def read(self, batch: Sequence[TextInput]) -> None:
        """Read a batch, and store the result or error of each text in its `TextInput`.

        Read all texts in one forward pass if possible. If memory is not sufficient, divide the
        batch into halves and read each half. Read each text alone if the first check shows wrong
        weights, or if another error occurs that one of the texts can cause, such as ValueError.
        Raise ValueError if a later check shows wrong weights.
        """
        if len(batch) == 1 or not self.can_batch:
            for text in batch:
                self._read_alone(text)
            return
        differs = False
        try:
            records, check = self._read_together(batch)
        except (MemoryError, torch.OutOfMemoryError):
            middle = len(batch) // 2
            self.read(batch[:middle])
            self.read(batch[middle:])
            return
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
            # Either one of the texts causes the error, or the model cannot read these texts
            # together. Read each text alone to find out.
            pass
        else:
            differs = check is not None and self._differs(batch, records[-1], check)
            if not differs:
                for text, record in zip(batch, records, strict=True):
                    text.result = ReadText(text.index, record)
                return
        for text in batch:
            self._read_alone(text)
        # Reading the batch together failed. If the weights were wrong, or each text could be read
        # alone, the cause is not one of the texts: the model cannot read several texts together. In
        # this case, read all further texts alone.
        self.can_batch = not differs and any(text.error for text in batch)

    def _read_together(
        self, batch: Sequence[TextInput]
    ) -> tuple[list[AttentionRecord], AttentionRecord | None]:
        """Read a batch in one forward pass, and return the records of its texts.

        If the batch is checked, the second result is the record of its last text alone, which has
        the most padding.
        """
        singles = [text.batch for text in batch if text.batch is not None]
        records = self._records(joined_examples(singles, self._padding))
        padded = self._has_padding(batch)
        self._forwards[padded] += 1
        count = self._forwards[padded]
        # Check only the batches 1, 2, 4, 8 and so on, because a check needs another forward pass.
        # Batches with and without padding are counted separately.
        is_checked = not count & (count - 1)
        return records, self._records(replace(singles[-1]))[0] if is_checked else None

    def _differs(
        self, batch: Sequence[TextInput], together: AttentionRecord, alone: AttentionRecord
    ) -> bool:
        """Whether two records of the last text of a batch have different weights.

        Raise ValueError if they differ, but did not in an earlier check: weights of earlier batches
        may be wrong, too.
        """
        dtypes = (self._model.dtype, self._capture.dtype or self._model.dtype)
        in_half = min(dtype.itemsize for dtype in dtypes) < torch.float32.itemsize
        difference = _difference(together, alone)
        if difference <= (_TOLERANCE_HALF if in_half else _TOLERANCE):
            return False
        if self._forwards[self._has_padding(batch)] > 1:
            raise ValueError(
                f"batch_size: in a batch, the weights of texts[{batch[-1].index}] differ by "
                f"{difference:.2g} from those of the text alone, unlike in earlier batches. Pass "
                "batch_size=1."
            )
        return True

    @staticmethod
    def _has_padding(batch: Sequence[TextInput]) -> bool:
        return len({text.length for text in batch}) > 1

    def _read_alone(self, text: TextInput) -> None:
        text.result = None
        with text.catching():
            text.result = ReadText(text.index, self._record_alone(text))
        text.batch = None

    def _record_alone(self, text: TextInput) -> AttentionRecord:
        if text.batch is not None and text.batch.size == 1:
            return self._records(text.batch)[0]
        record = extract(
            self._loaded,
            text.text,
            target=text.target,
            progress=False,
            outputs=self._capture.outputs,
            **self._options | {"passages": passages_of(self._options.get("passages"), text.index)},
        )
        if not isinstance(record, AttentionRecord):
            raise TypeError(_several_examples(len(record)))
        return record

    def _records(self, batch: Batch) -> list[AttentionRecord]:
        return record_batch(self._encoder, batch, options=self._capture, outputs=self._outputs)


def _difference(first_record: AttentionRecord, second_record: AttentionRecord) -> float:
    """Return the largest absolute difference between the weights of two records of the same text.

    Only the last `_NUM_COMPARED_QUERIES` queries of each head are compared. Return infinity if a
    compared weight is NaN, or if the records have different keys, such as summaries of padding.
    Ranks are not compared, because rounding may exchange two keys.
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
            if first.shape != second.shape:
                return math.inf
            worst = float(np.maximum(worst, np.abs(first - second).max()))
    return math.inf if math.isnan(worst) else worst


def _several_examples(count: int) -> str:
    return f"the text contains {count} examples. Pass each one as a separate text."


def _is_empty(text: Any) -> bool:
    """Whether `text` is missing, or has no characters except white space.

    Missing values are those of `is_missing`, such as None. A tuple or list is empty if all of its
    items are empty.
    """
    if isinstance(text, tuple | list):
        return all(map(_is_empty, text))
    return is_missing(text) or (isinstance(text, str) and not text.strip())
