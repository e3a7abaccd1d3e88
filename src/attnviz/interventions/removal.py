"""Answers of a model to one example after some of its tokens are removed.

A token is removed in one of four ways, see the argument `removal` of `attnviz.token_effects`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import torch

from attnviz.interventions.example import NOT_KEPT, Example, check_options
from attnviz.interventions.runner import Arguments, Copy, Runner, copies_per_batch
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import short_repr

Removal = Literal["mask", "mean embedding", "delete", "mean color"]


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
class _Text:
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
    runner : Runner
        Runner of the model, with the answer, its value with all tokens, and the noise.
    tokens : Tokens
        Tokens of the example. For an encoder-decoder model, the tokens of the encoder.
    choice : list of int
        Positions of the tokens that can be removed. The token after which the answer is read is not
        among them.
    num_kept : int
        Number of these tokens that must remain: 1 if the text would be empty without them, else 0.
    """

    def __init__(
        self, example: Example, removal: Removal, answer: Any, position: int | str | None
    ) -> None:
        virtual = example.loaded.virtual
        if virtual is not None and not virtual.only_keys:
            raise NotImplementedError(
                f"model: tokens after virtual tokens ({virtual.kind}) cannot be removed. Use "
                "av.intervene with av.HideTokens."
            )
        example.check_runs("removing tokens", copies=copies_per_batch)
        self.runner = runner = Runner(example)
        runner.ask(answer, position)
        if removal == "delete" and runner.answer.of_hidden_states:
            raise ValueError(
                'removal="delete": hidden states of texts of different lengths cannot be '
                'compared. Pass "mask", or a function as answer=.'
            )
        stacks, row = runner.outline.stacks, runner.reading.row
        name = "encoder" if "decoder" in stacks else runner.outline.stack().name
        self.tokens = runner.outline.stack(name if name in stacks else None).query_tokens
        count = len(self.tokens)
        read_at = None if row is None or "decoder" in stacks else count + row

        def same(arguments: Arguments) -> bool:
            return runner.is_unchanged(Copy(inputs=lambda: arguments))

        text = _Text(runner.arguments, self.tokens, row, read_at, same)
        self._change = _CHANGES[removal](runner.model, text)
        self.choice = [token for token in self._change.tokens() if token != read_at]
        self.num_kept = int(removal == "delete" and len(self.choice) == count)

    def answers(self, sets: Sequence[Sequence[int]], doing: str) -> list[float]:
        """Return the answer without the tokens of each set. `doing` is as in `Progress`."""
        copies = [self._change.copy(tokens) for tokens in sets]
        return self.runner.answers(copies, self._change.copy(()), doing=doing, unit="forward")


class _Change:
    """Base class of the kinds of removal.

    An instance returns the arguments with which the model runs after tokens are removed.
    """

    def __init__(self, model: Any, text: _Text) -> None:
        self._model, self._text = model, text

    def __call__(self, tokens: Sequence[int]) -> Arguments:
        """Return the arguments of the model after `tokens` are removed. `tokens` may be empty."""
        raise NotImplementedError

    def copy(self, tokens: Sequence[int]) -> Copy:
        """Return a copy of the example without `tokens`."""
        return Copy(inputs=partial(self, tokens))

    def tokens(self) -> Iterator[int]:
        """Yield the positions of the tokens that this kind of removal can remove."""
        yield from range(len(self._text.tokens))

    def _ids(self) -> torch.Tensor:
        ids = self._text.arguments.get("input_ids")
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
    def __init__(self, model: Any, text: _Text) -> None:
        super().__init__(model, text)
        ids = self._ids()
        mask = text.arguments.get("attention_mask")
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
        self._arguments = {**text.arguments, "attention_mask": self._mask}
        has_positions = "position_ids" in self._arguments or _has_decoder(self._arguments)
        if self._accepts("position_ids") and not has_positions:
            # Some models compute positions from the mask, so a removal would shift the positions of
            # later tokens. Explicit positions prevent this. They are used only if they do not
            # change the answer: some models do not count from 0 (RoBERTa).
            positions = torch.arange(ids.shape[1], device=ids.device)[None]
            counted = {**self._arguments, "position_ids": positions}
            if text.same(counted):
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
    def __init__(self, model: Any, text: _Text) -> None:
        super().__init__(model, text)
        ids, table = self._ids(), model.get_input_embeddings()
        if not self._accepts("inputs_embeds"):
            raise ValueError(
                f'removal="mean embedding": {type(model).__name__} does not accept embeddings. '
                'Pass "mask" or "delete".'
            )
        with torch.no_grad():
            self._embedded = table(ids)
        self._mean = self._embedded[0].mean(dim=0)
        rest = {name: value for name, value in text.arguments.items() if name != "input_ids"}
        self._arguments = {**rest, "inputs_embeds": self._embedded}

    def __call__(self, tokens: Sequence[int]) -> Arguments:
        if not tokens:
            return self._arguments
        embedded = self._embedded.clone()
        embedded[0, list(tokens)] = self._mean
        return {**self._arguments, "inputs_embeds": embedded}


class _Delete(_Change):
    def __init__(self, model: Any, text: _Text) -> None:
        super().__init__(model, text)
        ids = self._ids()
        self._names = [
            name
            for name, value in text.arguments.items()
            if isinstance(value, torch.Tensor)
            and not name.startswith("decoder_")
            and value.dim() > 1
            and value.shape[1] == ids.shape[1]
        ]
        if any(name.startswith(("pixel_values", "input_features")) for name in text.arguments):
            raise ValueError('removal="delete" needs an input of text only. Pass "mask".')
        if ids.shape[1] < 2:
            raise ValueError('removal="delete": the text has only one token')

    def __call__(self, tokens: Sequence[int]) -> Arguments:
        if not tokens:
            return self._text.arguments
        arguments = dict(self._text.arguments)
        for name in self._names:
            value = arguments[name]
            kept = [token for token in range(value.shape[1]) if token not in tokens]
            arguments[name] = value[:, kept]
        return arguments

    def copy(self, tokens: Sequence[int]) -> Copy:
        """Return a copy of the example without `tokens`.

        If later tokens are deleted, the row with the answer is nearer to the end.
        """
        row, read_at = self._text.row, self._text.read_at
        if row is not None and read_at is not None:
            row += sum(token > read_at for token in tokens)
        return Copy(inputs=partial(self, tokens), num_deleted=len(tokens), row=row)


class _MeanColor(_Change):
    def __init__(self, model: Any, text: _Text) -> None:
        super().__init__(model, text)
        pixels = text.arguments.get("pixel_values")
        grids = text.tokens.grids
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
            return self._text.arguments
        high, wide = self._size
        pixels = self._pixels.clone()
        mean = self._pixels[0].mean(dim=(1, 2))[:, None, None]
        for token in tokens:
            row, column = self._grid.cell(token)
            pixels[0, :, row * high : (row + 1) * high, column * wide : (column + 1) * wide] = mean
        return {**self._text.arguments, "pixel_values": pixels}


_CHANGES: dict[Removal, Callable[[Any, _Text], _Change]] = {
    "mask": _Mask,
    "mean embedding": _MeanEmbedding,
    "delete": _Delete,
    "mean color": _MeanColor,
}
