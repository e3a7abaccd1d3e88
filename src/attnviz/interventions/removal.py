"""Answers of a model to one example after some of its tokens are removed.

A token is removed in one of four ways, see the argument `removal` of `attnviz.token_effects`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal, get_args

import torch

from attnviz.extraction.capture.forward import arguments_of
from attnviz.extraction.models import evaluate
from attnviz.interventions.answer import answer_of, reading_of
from attnviz.interventions.copies import expanded, rounding_of
from attnviz.interventions.runs import MINIMAL_CAPTURE, NOT_KEPT, ExampleRunner, check_options
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import short_repr
from attnviz.utils.cleanup import Cleanup
from attnviz.utils.progress import report

__all__ = ["Removal", "TokenRemover", "read_removal"]

Removal = Literal["mask", "mean embedding", "delete", "mean color"]
Arguments = dict[str, Any]

# Approximate maximum number of tokens in one batch, over all copies of a text. Larger batches are
# not faster on a CPU.
_TOKENS_AT_ONCE = 4096


def read_removal(value: Any, options: Any) -> Removal:
    """Return the argument `removal` after a check.

    Raise ValueError for an unknown kind of removal, and TypeError for unsupported `options`.
    """
    if value not in get_args(Removal):
        valid = ", ".join(map(repr, get_args(Removal)))
        raise ValueError(f"removal={short_repr(value)} must be one of {valid}")
    check_options(options, refused=NOT_KEPT)
    removal: Removal = value
    return removal


@dataclass(frozen=True)
class _Example:
    """One example, with the values that a kind of removal needs."""

    arguments: Arguments
    tokens: Tokens
    # Row of the logits from which the answer is read, as in `Reading.row`, and position in `tokens`
    # to which this row belongs. The position is None if the row belongs to no token of `tokens`.
    row: int | None
    read_at: int | None
    # Function that returns whether the model has the same answer for other arguments, up to
    # rounding.
    same: Callable[[Arguments], bool]


class TokenRemover:
    """Measurement of a model's answer to one example after tokens are removed.

    Attributes
    ----------
    tokens : Tokens
        Tokens of the example. For an encoder-decoder model, the tokens of the encoder.
    answer : Answer
        Definition of the measured number.
    before : float
        Answer with all tokens.
    noise : float
        Rounding error of the measurement: the largest difference between `before` and the answer of
        a copy with all tokens in a batch. Updated when answers are computed.
    """

    def __init__(
        self, runner: ExampleRunner, removal: Removal, answer: Any, position: int | str | None
    ) -> None:
        self._model = model = runner.loaded.model
        virtual = runner.loaded.virtual
        if virtual is not None and not virtual.only_keys:
            raise NotImplementedError(
                f"model: tokens after virtual tokens ({virtual.kind}) cannot be removed. Use "
                "av.intervene with av.HideTokens."
            )
        runner.check_runs("removing tokens", copies=lambda count: _sets_per_batch(count) + 1)
        forward = runner.forward(MINIMAL_CAPTURE, None)
        record = runner.record(forward, MINIMAL_CAPTURE)
        reading = reading_of(record, position, forward.outputs, runner.batch, answer)
        row = reading.row
        encoder_decoder = "decoder" in record.stacks
        name = "encoder" if encoder_decoder else record.stack().name
        self.tokens = record.stack(name if name in record.stacks else None).query_tokens
        del record, forward
        count = len(self.tokens)
        arguments = arguments_of(model, runner.batch, reading.logits(answer))
        plain = _run(model, arguments)
        self.answer = answer_of(runner, plain, answer, reading)
        if removal == "delete" and self.answer.of_hidden_states:
            raise ValueError(
                'removal="delete": hidden states of texts of different lengths cannot be '
                'compared. Pass "mask", or a function as answer=.'
            )
        self.before = self.answer.value(plain)
        self.noise = 0.0
        self._noise_measured = False
        example = _Example(
            arguments,
            self.tokens,
            row,
            None if row is None or encoder_decoder else count + row,
            lambda changed: (
                self._deviation(_run(model, changed)) <= rounding_of(model, self.before)
            ),
        )
        self._change = _CHANGES[removal](model, example)
        #: Positions of the tokens that can be removed. The token after which the answer is read is
        #: not among them.
        self.choice = [token for token in self._change.tokens() if token != example.read_at]
        #: Number of these tokens that must remain: 1 if the text would be empty without them, else
        #: 0.
        self.num_kept = int(removal == "delete" and len(self.choice) == count)
        self._sets_per_batch = _sets_per_batch(count)

    def answers(self, sets: Sequence[Sequence[int]], doing: str) -> list[float]:
        """Compute one answer for each set: the answer without the tokens of this set.

        `doing` is the label of the progress bar.
        """
        answers: list[float] = []
        # The texts of one batch must have the same length. After deletion, the length depends on
        # the size of the set, so the sets are sorted by size.
        order = sorted(range(len(sets)), key=lambda index: len(sets[index]))
        for start in range(0, len(order), self._sets_per_batch):
            chunk = [sets[index] for index in order[start : start + self._sets_per_batch]]
            for _, group in groupby(chunk, key=self._length):
                answers += self._of_group(list(group))
            report(doing, len(answers), len(sets), "forward")
        values = [0.0] * len(sets)
        for index, value in zip(order, answers, strict=True):
            values[index] = value
        return values

    def _length(self, tokens: Sequence[int]) -> int:
        return len(tokens) if isinstance(self._change, _Delete) else 0

    def _of_group(self, sets: Sequence[Sequence[int]]) -> list[float]:
        """Return one answer for each set. All remaining texts must have the same length."""
        beside = self._length(sets[0]) == 0
        if beside:
            # The batch starts with a copy without a removal. If the answer of this copy differs
            # from that of the text alone, the model does not compute each copy separately.
            sets = [(), *sets]
        elif not self._noise_measured:
            # A copy with all tokens is longer than the others, so it needs a separate batch.
            self._check_copies(len(sets) + 1)
        outputs = _run(self._model, _stacked([self._change(tokens) for tokens in sets]))
        values = []
        for number, tokens in enumerate(sets):
            answer = self.answer
            if answer.position is not None:
                answer = replace(answer, position=self._change.row(tokens))
            values.append(answer.value(outputs, number))
        if beside:
            self._check(abs(values.pop(0) - self.before))
        return values

    def _check_copies(self, count: int) -> None:
        """Run `count` copies with all tokens in a batch, and compare each answer with `before`.

        See `_check` for the noise and the error.
        """
        outputs = _run(self._model, _stacked([self._change(())] * count))
        for copy in range(count):
            self._check(self._deviation(outputs, copy))
        self._noise_measured = True

    def _deviation(self, outputs: Any, copy: int = 0) -> float:
        """Return the absolute difference between `before` and the answer of one copy."""
        return abs(self.answer.value(outputs, copy) - self.before)

    def _check(self, off: float) -> None:
        """Set `noise` to `off` if `off` is larger.

        `off` is the absolute difference between `before` and the answer of a copy with all tokens.
        Raise NotImplementedError if `off` is NaN or larger than a rounding error.
        """
        # Comparisons with NaN are False, so this also rejects NaN.
        if not off <= rounding_of(self._model, self.before):
            raise NotImplementedError(
                f"model: the answer of {type(self._model).__name__} differs (by {off:.2g}) when "
                "the same input is repeated in a batch, or passed as embeddings. Pass another "
                "removal."
            )
        self.noise = max(self.noise, off)


def _stacked(parts: Sequence[Arguments]) -> Arguments:
    """Return the arguments for one batch, from the arguments for each copy."""
    first = parts[0]
    stacked = {}
    for name, value in first.items():
        shared = all(part[name] is value for part in parts)
        if shared or not isinstance(value, torch.Tensor) or value.dim() == 0:
            stacked[name] = expanded(value, len(parts))
        else:
            stacked[name] = torch.cat([part[name] for part in parts])
    return stacked


def _run(model: Any, arguments: Arguments) -> Any:
    with Cleanup() as undo, undo:
        evaluate(model, undo)
        return model(**arguments)


def _sets_per_batch(num_tokens: int) -> int:
    """Return the number of sets of tokens in one batch. The batch may have an additional copy."""
    return max(1, _TOKENS_AT_ONCE // max(1, num_tokens) - 1)


class _Change:
    """Base class of the kinds of removal.

    An instance returns the arguments with which the model runs after tokens are removed.
    """

    def __init__(self, model: Any, example: _Example) -> None:
        self._model, self._example = model, example

    def __call__(self, tokens: Sequence[int]) -> Arguments:
        """Return the arguments of the model after `tokens` are removed. `tokens` may be empty."""
        raise NotImplementedError

    def tokens(self) -> Iterator[int]:
        """Yield the positions of the tokens that this kind of removal can remove."""
        yield from range(len(self._example.tokens))

    def row(self, tokens: Sequence[int]) -> int | None:
        """Return the row of the logits with the answer after `tokens` are removed.

        Rows are counted as in `Reading.row`.
        """
        del tokens
        return self._example.row

    def _ids(self) -> torch.Tensor:
        ids = self._example.arguments.get("input_ids")
        if ids is None:
            raise ValueError(
                f"removal: {type(self._model).__name__} has no token ids as input. Pass "
                'removal="mean color" for an image.'
            )
        token_ids: torch.Tensor = ids
        return token_ids

    def _accepts(self, name: str) -> bool:
        return name in inspect.signature(self._model.forward).parameters


class _Mask(_Change):
    def __init__(self, model: Any, example: _Example) -> None:
        super().__init__(model, example)
        ids = self._ids()
        mask = example.arguments.get("attention_mask")
        if not self._accepts("attention_mask"):
            raise ValueError(
                f'removal="mask": {type(model).__name__} has no attention mask. Pass "mean '
                'embedding" or "delete".'
            )
        if mask is not None and mask.dim() != 2:
            raise ValueError(
                'removal="mask": the attention mask of inputs has four axes. Pass "mean embedding".'
            )
        self._mask = torch.ones_like(ids) if mask is None else mask
        self._arguments = {**example.arguments, "attention_mask": self._mask}
        has_positions = "position_ids" in self._arguments or _has_decoder(self._arguments)
        if self._accepts("position_ids") and not has_positions:
            # Some models compute positions from the mask, so a removal would shift the positions of
            # later tokens. Explicit positions prevent this. They are used only if they do not
            # change the answer: some models do not count from 0 (RoBERTa).
            positions = torch.arange(ids.shape[1], device=ids.device)[None]
            counted = {**self._arguments, "position_ids": positions}
            if example.same(counted):
                self._arguments = counted

    def __call__(self, tokens: Sequence[int]) -> Arguments:
        if not tokens:
            return self._arguments
        mask = self._mask.clone()
        mask[0, list(tokens)] = 0
        return {**self._arguments, "attention_mask": mask}


def _has_decoder(arguments: Arguments) -> bool:
    return any(name.startswith("decoder_") for name in arguments)


class _MeanEmbedding(_Change):
    def __init__(self, model: Any, example: _Example) -> None:
        super().__init__(model, example)
        ids, table = self._ids(), model.get_input_embeddings()
        if not self._accepts("inputs_embeds"):
            raise ValueError(
                f'removal="mean embedding": {type(model).__name__} does not accept embeddings. '
                'Pass "mask" or "delete".'
            )
        with torch.no_grad():
            self._embedded = table(ids)
        self._mean = self._embedded[0].mean(dim=0)
        rest = {name: value for name, value in example.arguments.items() if name != "input_ids"}
        self._arguments = {**rest, "inputs_embeds": self._embedded}

    def __call__(self, tokens: Sequence[int]) -> Arguments:
        if not tokens:
            return self._arguments
        embedded = self._embedded.clone()
        embedded[0, list(tokens)] = self._mean
        return {**self._arguments, "inputs_embeds": embedded}


class _Delete(_Change):
    def __init__(self, model: Any, example: _Example) -> None:
        super().__init__(model, example)
        ids = self._ids()
        self._names = [
            name
            for name, value in example.arguments.items()
            if isinstance(value, torch.Tensor)
            and not name.startswith("decoder_")
            and value.dim() > 1
            and value.shape[1] == ids.shape[1]
        ]
        if any(name.startswith(("pixel_values", "input_features")) for name in example.arguments):
            raise ValueError('removal="delete" needs an input of text only. Pass "mask".')
        if ids.shape[1] < 2:
            raise ValueError('removal="delete": the text has only one token')

    def __call__(self, tokens: Sequence[int]) -> Arguments:
        if not tokens:
            return self._example.arguments
        arguments = dict(self._example.arguments)
        for name in self._names:
            value = arguments[name]
            kept = [token for token in range(value.shape[1]) if token not in tokens]
            arguments[name] = value[:, kept]
        return arguments

    def row(self, tokens: Sequence[int]) -> int | None:
        """Return the row with the answer. If later tokens are deleted, it is nearer to the end."""
        row, read_at = self._example.row, self._example.read_at
        if row is None or read_at is None:
            return row
        return row + sum(token > read_at for token in tokens)


class _MeanColor(_Change):
    def __init__(self, model: Any, example: _Example) -> None:
        super().__init__(model, example)
        pixels = example.arguments.get("pixel_values")
        grids = example.tokens.grids
        if pixels is None or pixels.dim() != 4 or len(pixels) != 1 or len(grids) != 1:
            raise ValueError(
                'removal="mean color" needs one image whose patches are tokens. Pass "mask" for a '
                "text."
            )
        self._pixels, self._grid = pixels, grids[0]
        height, width = pixels.shape[2:]
        if height % self._grid.rows or width % self._grid.columns:
            raise ValueError(
                f"the patches, {self._grid.rows} x {self._grid.columns}, do not divide the image "
                f"of {height} x {width} pixels"
            )
        self._size = height // self._grid.rows, width // self._grid.columns

    def tokens(self) -> Iterator[int]:
        yield from range(self._grid.start, self._grid.stop)

    def __call__(self, tokens: Sequence[int]) -> Arguments:
        if not tokens:
            return self._example.arguments
        high, wide = self._size
        pixels = self._pixels.clone()
        mean = self._pixels[0].mean(dim=(1, 2))[:, None, None]
        for token in tokens:
            row, column = self._grid.cell(token)
            pixels[0, :, row * high : (row + 1) * high, column * wide : (column + 1) * wide] = mean
        return {**self._example.arguments, "pixel_values": pixels}


_CHANGES: dict[Removal, Callable[[Any, _Example], _Change]] = {
    "mask": _Mask,
    "mean embedding": _MeanEmbedding,
    "delete": _Delete,
    "mean color": _MeanColor,
}
