"""What each token does to the model's answer: every token left out alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Unpack, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.extraction.capture.forward import arguments_of
from attnviz.extraction.models import evaluate
from attnviz.extraction.options import CaptureOptions, RecordOptions
from attnviz.interventions.copies import expanded
from attnviz.interventions.effect import Answer, answer_of, measured
from attnviz.interventions.runs import Runs, row_of
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import shown
from attnviz.utils.progress import Progress, Steps, completed, finished
from attnviz.utils.restoring import Restoring

__all__ = ["LeaveOut", "TokenEffects", "token_effects"]

LeaveOut = Literal["mask", "mean embedding", "delete", "mean color"]
Arguments = dict[str, Any]

# Tokens of all copies together: more make a forward no faster on a processor.
_TOKENS_AT_ONCE = 4096
# How far a copy in a batch may lie from the input alone, as a share of the answer.
_SAME = {torch.float32: 1e-3, torch.float64: 1e-6}
_SAME_HALF = 0.05


@dataclass(frozen=True, eq=False)
class TokenEffects:
    """What leaving each token out does to the model's answer.

    Attributes
    ----------
    values : ndarray of float64
        (tokens,): the answer without the token minus the answer with it. NaN where there is none:
        for the token after which the answer is read, and for tokens that are no patch of an image
        where colours are left out.
    noise : float
        How far the answer moves in the same computation when nothing is left out. A smaller effect
        says nothing.
    measure : str
        What the answer is, in words.
    leave_out : {"mask", "mean embedding", "delete", "mean color"}
        How tokens were left out.
    tokens : Tokens
        The tokens.

    Examples
    --------
    >>> tokens = Tokens.of(["a", " b"])
    >>> effects = TokenEffects(np.array([-2.0, np.nan]), 0.0, "logit", "mask", tokens)
    >>> effects.values
    array([-2., nan])
    """

    values: NDArray[np.float64]
    noise: float
    measure: str
    leave_out: LeaveOut
    tokens: Tokens

    def __repr__(self) -> str:
        if np.isnan(self.values).all():
            return f"<TokenEffects of {len(self.tokens)} tokens: none>"
        most = int(np.nanargmax(np.abs(self.values)))
        return (
            f"<TokenEffects of {len(self.tokens)} tokens ({self.leave_out}): "
            f"{self.tokens.text[most].strip('·')!r} ({most}) moves the {self.measure} most, by "
            f"{self.values[most]:+.4g} (noise {self.noise:.2g})>"
        )


def token_effects(
    model: Any,
    inputs: Any,
    *,
    leave_out: LeaveOut = "mask",
    answer: Any = None,
    position: int | str | None = None,
    target: str | None = None,
    progress: bool = True,
    **options: Unpack[RecordOptions],
) -> TokenEffects:
    """Leave out every token alone, and say how far the model's answer moves.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        As for `attnviz.extract`.
    inputs : object
        One example, as for `attnviz.extract`.
    leave_out : {"mask", "mean embedding", "delete", "mean color"}
        ``"mask"``: no other token reads it, by the model's attention mask. ``"mean embedding"``:
        its embedding is replaced by the mean of the text's. ``"delete"``: the text goes without it.
        ``"mean color"``: a patch gets the mean colour of its picture.
    answer : int, str or pair of these, optional
        As for `attnviz.intervene`. When left out, the likeliest answer against the second.
    position : int or str, optional
        The token after which the answer is read; the last one when left out.
    target : str, optional
        Text that the model is made to produce, as for `attnviz.extract`.
    progress : bool
        Whether a bar is shown where it takes longer than a second.
    **options
        `tokenizer`, `processor` and `truncation` of `attnviz.extract`.

    Returns
    -------
    TokenEffects
        One number for each token of the input.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit the model or the text: a model without a mask, without token
        embeddings, or without patches.
    NotImplementedError
        If the model answers otherwise when the same input comes several times in a batch.

    Notes
    -----
    There is more than one leave-one-out (Jain and Wallace 2019, arXiv 1902.10186, use the first),
    and they agree among themselves in part only: compare two before an attribution is judged by
    one (`attnviz.analysis.kendall_tau`). No effect is no proof that a token is not needed: another
    one may say the same.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                               # doctest: +SKIP
    >>> av.token_effects(model, "a b c a b", tokenizer=tokenizer).values          # doctest: +SKIP
    """
    if leave_out not in get_args(LeaveOut):
        known = ", ".join(map(repr, get_args(LeaveOut)))
        raise ValueError(f"leave_out={shown(leave_out)} must be one of {known}")
    for name in ("generate", "layers", "heads", "dtype"):
        if options.get(name) is not None:
            raise TypeError(f"token_effects has no {name}=; leave it out")
    runs = Runs(model, inputs, target, None, options)
    steps = _effects(runs, leave_out, answer, position)
    return finished(steps, "token effects") if progress else completed(steps)


@dataclass(frozen=True)
class _Example:
    """An example, and how its arguments are changed to leave a token out."""

    arguments: Arguments
    tokens: Tokens
    # Positions of the tokens among the padded ones.
    places: Sequence[int]
    # Where the answer is read: from the end, and which token that is.
    row: int | None
    read_at: int | None


def _effects(
    runs: Runs, leave_out: LeaveOut, wanted: Any, position: int | str | None
) -> Steps[TokenEffects]:
    model = runs.loaded.model
    forward = runs.forward(CaptureOptions(), None)
    record = runs.record(forward, CaptureOptions())
    row, after = row_of(record, position, forward.outputs)
    encoder_decoder = "decoder" in record.stacks
    name = "encoder" if encoder_decoder else record.stack().name
    tokens = record.stacks[name].query_tokens if name in record.stacks else record.tokens
    del record, forward
    sequence = runs.batch.sequences.get("input")
    unpadded = None if sequence is None else sequence.unpadded[0]
    places = range(len(tokens)) if unpadded is None else unpadded.tolist()
    example = _Example(
        arguments_of(model, runs.batch, 1 if row is None else -row),
        tokens,
        places,
        row,
        None if row is None or encoder_decoder else len(tokens) + row,
    )
    change = _CHANGES[leave_out](model, example)
    plain = _run(model, change(None))
    tokenizer = runs.encoder.tokenizer(needed=False)
    answer = answer_of(model, plain, tokenizer, wanted, position=row, after=after)
    before = measured(answer, plain, plain)
    values = np.full(len(tokens), np.nan)
    left = [number for number in change.tokens() if number != example.read_at]
    noise = 0.0
    together = max(1, _TOKENS_AT_ONCE // max(1, len(tokens)) - 1)
    done = 0
    for start in range(0, len(left), together):
        some = left[start : start + together]
        found, same = _together(model, change, answer, (plain, before), some)
        noise = max(noise, abs(same))
        values[some] = found
        done += len(some)
        yield Progress("tokens", done, len(left), "token")
    return TokenEffects(values, noise, answer.measure, leave_out, tokens)


def _together(
    model: Any, change: _Change, answer: Answer, known: tuple[Any, float], some: Sequence[int]
) -> tuple[list[float], float]:
    """The answers without each of some tokens, less the answer with all; and the noise of it."""
    plain, before = known
    parts = [change(None), *(change(number) for number in some)]
    same_shape = parts[1].keys() == parts[0].keys() and all(
        not isinstance(value, torch.Tensor) or parts[1][name].shape == value.shape
        for name, value in parts[0].items()
    )
    # Texts that lack a token are shorter than the whole one.
    batches = [parts] if same_shape else [parts[:1], parts[1:]]
    found: list[float] = []
    for batch in batches:
        outputs = _run(model, _stacked(batch))
        for number in range(len(batch)):
            place = some[len(found) - 1] if found else None
            here = replace(answer, position=change.row(place)) if answer.position else answer
            found.append(measured(here, outputs, plain, number) - before)
    share = _SAME.get(model.dtype, _SAME_HALF)
    if abs(found[0]) > share * max(1.0, abs(before)):
        raise NotImplementedError(
            f"model: {type(model).__name__} answers otherwise when the same input comes several "
            f"times in a batch (by {abs(found[0]):.2g}), or when its positions are given"
        )
    return found[1:], found[0]


def _stacked(parts: Sequence[Arguments]) -> Arguments:
    """Arguments of several copies as those of one batch."""
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
    with Restoring() as undo, undo, undo:
        evaluate(model, undo)
        return model(**arguments)


class _Change:
    """Arguments of the model without a token; the base class changes nothing."""

    def __init__(self, model: Any, example: _Example) -> None:
        self._model, self._example = model, example

    def __call__(self, token: int | None) -> Arguments:
        raise NotImplementedError

    def tokens(self) -> Iterator[int]:
        """Tokens that can be left out."""
        yield from range(len(self._example.tokens))

    def row(self, token: int | None) -> int | None:
        """Where the answer stands then, from the end."""
        del token
        return self._example.row

    def _ids(self) -> torch.Tensor:
        ids = self._example.arguments.get("input_ids")
        if ids is None:
            raise ValueError(
                f"leave_out: {type(self._model).__name__} is given no token ids here; give "
                'leave_out="mean color" for an image'
            )
        found: torch.Tensor = ids
        return found

    def _accepts(self, name: str) -> bool:
        return name in inspect.signature(self._model.forward).parameters


class _Mask(_Change):
    def __init__(self, model: Any, example: _Example) -> None:
        super().__init__(model, example)
        ids = self._ids()
        mask = example.arguments.get("attention_mask")
        if not self._accepts("attention_mask"):
            raise ValueError(
                f'leave_out="mask": {type(model).__name__} has no attention mask; give '
                '"mean embedding" or "delete"'
            )
        if mask is not None and mask.dim() != 2:
            raise ValueError(
                'leave_out="mask": the attention mask given has four axes; give "mean embedding"'
            )
        self._mask = torch.ones_like(ids) if mask is None else mask
        arguments = {**example.arguments, "attention_mask": self._mask}
        # Positions that are counted by the mask would move with it.
        given = "position_ids" in arguments
        if self._accepts("position_ids") and not given and not _has_decoder(arguments):
            counted = self._mask.long().cumsum(-1) - 1
            arguments["position_ids"] = counted.clamp_min(0)
            if mask is None or bool(mask.all()):
                arguments["position_ids"] = torch.arange(ids.shape[1], device=ids.device)[None]
        self._arguments = arguments

    def __call__(self, token: int | None) -> Arguments:
        if token is None:
            return self._arguments
        mask = self._mask.clone()
        mask[0, self._example.places[token]] = 0
        return {**self._arguments, "attention_mask": mask}


def _has_decoder(arguments: Arguments) -> bool:
    return any(name.startswith("decoder_") for name in arguments)


class _MeanEmbedding(_Change):
    def __init__(self, model: Any, example: _Example) -> None:
        super().__init__(model, example)
        ids, table = self._ids(), model.get_input_embeddings()
        if not self._accepts("inputs_embeds"):
            raise ValueError(
                f'leave_out="mean embedding": {type(model).__name__} takes no embeddings; give '
                '"mask" or "delete"'
            )
        with torch.no_grad():
            self._embedded = table(ids)
        self._mean = self._embedded[0, list(example.places)].mean(dim=0)
        rest = {name: value for name, value in example.arguments.items() if name != "input_ids"}
        self._arguments = {**rest, "inputs_embeds": self._embedded}

    def __call__(self, token: int | None) -> Arguments:
        if token is None:
            return self._arguments
        embedded = self._embedded.clone()
        embedded[0, self._example.places[token]] = self._mean
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
            raise ValueError('leave_out="delete" is for texts alone; give "mask"')
        if ids.shape[1] < 2:
            raise ValueError('leave_out="delete": the text is one token long')

    def __call__(self, token: int | None) -> Arguments:
        if token is None:
            return self._example.arguments
        gone = self._example.places[token]
        arguments = dict(self._example.arguments)
        for name in self._names:
            value = arguments[name]
            arguments[name] = torch.cat([value[:, :gone], value[:, gone + 1 :]], dim=1)
        return arguments

    def row(self, token: int | None) -> int | None:
        """One nearer to the end where a token behind it is gone."""
        row, read_at = self._example.row, self._example.read_at
        if token is None or row is None or read_at is None or token < read_at:
            return row
        return row + 1


class _MeanColor(_Change):
    def __init__(self, model: Any, example: _Example) -> None:
        super().__init__(model, example)
        pixels = example.arguments.get("pixel_values")
        grids = example.tokens.grids
        if pixels is None or pixels.dim() != 4 or len(pixels) != 1 or len(grids) != 1:
            raise ValueError(
                'leave_out="mean color" is for one image whose patches are tokens; give "mask" for '
                "a text"
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
        """The patches."""
        yield from range(self._grid.start, self._grid.stop)

    def __call__(self, token: int | None) -> Arguments:
        if token is None:
            return self._example.arguments
        row, column = self._grid.place(token)
        high, wide = self._size
        pixels = self._pixels.clone()
        mean = self._pixels[0].mean(dim=(1, 2))[:, None, None]
        pixels[0, :, row * high : (row + 1) * high, column * wide : (column + 1) * wide] = mean
        return {**self._example.arguments, "pixel_values": pixels}


_CHANGES: dict[LeaveOut, Callable[[Any, _Example], _Change]] = {
    "mask": _Mask,
    "mean embedding": _MeanEmbedding,
    "delete": _Delete,
    "mean color": _MeanColor,
}
