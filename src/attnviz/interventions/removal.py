"""Answers of a model to one example after some of the example's tokens are removed.

An example is one input of the model. Its answer is a number in the model's output, such as the
logit of one token minus that of another. The model runs on copies of the example, in batches. From
each copy, a different set of tokens is removed, in one of three ways (see the argument `removal` of
`attnviz.token_effects`).

Many heads of trained models give most of their weight to one token, usually the first, if they have
nothing to read (Xiao et al. 2024, arXiv 2309.17453). Without this attention sink, these heads read
other tokens instead, so its removal changes more than what the token says.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.extraction.families import sparse_kind
from attnviz.extraction.inputs.batch import masks_pairs
from attnviz.extraction.options import CaptureOptions, RecordOptions, check_options
from attnviz.interventions.example import MINIMAL_CAPTURE, NOT_KEPT, Example
from attnviz.interventions.runner import Arguments, Copy, Runner
from attnviz.record.attention import LayerAttention
from attnviz.record.softmax import row_tiles
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.utils.arguments import short_repr

Removal = Literal["mask", "mean embedding", "mean color"]


class TokenRemover:
    """Measurement of a model's answer to one example after tokens are removed.

    The parameters are those of `attnviz.token_effects`, and `finds_sinks`, which is whether sinks
    are looked for in the attention of the unchanged model. Creating an instance runs the unchanged
    model, and raises the errors of `attnviz.token_effects`.

    Attributes
    ----------
    runner : Runner
        Runner of the model, with the answer, its value with all tokens, and the noise.
    tokens : Tokens
        Tokens of the example. For an encoder-decoder model, the tokens of the encoder.
    choice : list of int
        Positions of the tokens that can be removed. The token after which the answer is read cannot
        be removed. With ``"mean color"``, only patches can be removed.
    sink_shares : ndarray of float64 or None
        Result of `sink_shares` for the tokens. None if `finds_sinks` is False, or if the attention
        does not fit into memory.
    """

    def __init__(
        self,
        model: Any,
        inputs: Any,
        target: str | None,
        options: RecordOptions,
        *,
        removal: Removal,
        answer: Any,
        position: int | str | None,
        finds_sinks: bool = False,
    ) -> None:
        if removal not in get_args(Removal):
            valid = ", ".join(map(repr, get_args(Removal)))
            raise ValueError(f"removal={short_repr(removal)} must be one of {valid}")
        check_options(options, refused=NOT_KEPT)
        example = Example.one(model, inputs, target, options)
        virtual = example.loaded.virtual
        if virtual is not None and not virtual.only_keys:
            raise NotImplementedError(
                f"model: tokens after virtual tokens ({virtual.kind}) cannot be removed. Use "
                "av.intervene with av.HideTokens."
            )
        example.check_runs("removing tokens")
        if finds_sinks:
            try:
                example.check_memory(CaptureOptions())
            except MemoryError:
                finds_sinks = False
        capture = CaptureOptions() if finds_sinks else MINIMAL_CAPTURE
        self.runner = runner = Runner(example, capture)
        runner.ask(answer, position)
        stacks, row = runner.outline.stacks, runner.reading.row
        name = "encoder" if "decoder" in stacks else runner.outline.stack().name
        self.tokens = runner.outline.stack(name if name in stacks else None).query_tokens
        if removal != "mean color" and len(self.tokens) != _token_ids(runner).shape[1]:
            # The queries of Perceiver are learned vectors instead of tokens of the text.
            name, self.tokens = "", runner.example.batch.tokens["input"][0]
        stack = runner.record.stacks.get(name) if finds_sinks else None
        self.sink_shares = None if stack is None else sink_shares(stack)
        count = len(self.tokens)
        read_at = None if row is None or "decoder" in stacks else count + row

        removable: Sequence[int] = range(count)
        if removal == "mean color":
            self._remove, removable = _coloring(runner, self.tokens)
        else:
            self._remove = _REMOVALS[removal](runner)
        self.choice = [token for token in removable if token != read_at]

    def answers(self, sets: Sequence[Sequence[int]], doing: str) -> list[float]:
        """Return for each of `sets` the answer without the tokens at the positions in this set.

        `doing` is the name of the computation in reports of the progress.
        """
        copies = [self._copy(tokens) for tokens in sets]
        return self.runner.answers(copies, self._copy(()), doing=doing, unit="forward")

    def _copy(self, tokens: Sequence[int]) -> Copy:
        """Return a copy of the example without the tokens at the positions `tokens`."""
        return Copy(inputs=partial(self._remove, tokens))


#: Function that takes the positions of the removed tokens, and returns the model's arguments
#: without these tokens.
_Remove = Callable[[Sequence[int]], Arguments]


def _token_ids(runner: Runner) -> torch.Tensor:
    ids: torch.Tensor | None = runner.arguments.get("input_ids")
    if ids is None:
        raise ValueError(
            f"removal: {type(runner.model).__name__} has no token ids as input. Pass "
            'removal="mean color" for an image.'
        )
    return ids


def _accepts(runner: Runner, name: str) -> bool:
    return name in inspect.signature(runner.model.forward).parameters


def _masking(runner: Runner) -> _Remove:
    ids, arguments = _token_ids(runner), runner.arguments
    own = arguments.get("attention_mask")
    if not _accepts(runner, "attention_mask"):
        raise ValueError(
            f'removal="mask": {type(runner.model).__name__} has no attention mask. Pass "mean '
            'embedding".'
        )
    if masks_pairs(arguments):
        raise ValueError(
            'removal="mask": the attention mask of inputs has entries for pairs of tokens. Pass '
            '"mean embedding".'
        )
    mask = torch.ones_like(ids) if own is None else own
    arguments = {**arguments, "attention_mask": mask}
    has_decoder = any(name.startswith("decoder_") for name in arguments)
    # Reformer does not compute positions from the mask. It fails if it has to pad a text with
    # explicit positions.
    is_reformer = "Reformer" in map(sparse_kind, runner.model.modules())
    takes_positions = _accepts(runner, "position_ids") and not is_reformer
    if takes_positions and "position_ids" not in arguments and not has_decoder:
        # Some models compute positions from the mask, so a removal would shift the positions of
        # later tokens. Explicit positions from 0 prevent this. They are used only if they do not
        # change the answer, because some models do not count from 0 (RoBERTa).
        positions = torch.arange(ids.shape[1], device=ids.device)[None]
        counted = {**arguments, "position_ids": positions}
        if runner.is_unchanged(Copy(inputs=lambda: counted)):
            arguments = counted

    def remove(tokens: Sequence[int]) -> Arguments:
        remaining = mask.clone()
        remaining[0, list(tokens)] = 0
        return {**arguments, "attention_mask": remaining}

    return remove


def _averaging(runner: Runner) -> _Remove:
    """Return the function that removes tokens as ``"mean embedding"`` does."""
    if not _accepts(runner, "inputs_embeds"):
        raise ValueError(
            f'removal="mean embedding": {type(runner.model).__name__} does not accept embeddings. '
            'Pass "mask".'
        )
    ids = _token_ids(runner)
    rest = {name: value for name, value in runner.arguments.items() if name != "input_ids"}

    def remove(tokens: Sequence[int]) -> Arguments:
        changed = embedded.clone()
        changed[0, list(tokens)] = embedded[0].mean(dim=0)
        return {**rest, "inputs_embeds": changed}

    # Some models accept embeddings, but also need the ids, for example to choose experts, or look
    # for the ids of the given embeddings. Whether a model does so shows when it runs.
    try:
        with torch.no_grad():
            embedded = runner.model.get_input_embeddings()(ids)
        runner.run([Copy(inputs=partial(remove, (0,)))])
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise NotImplementedError(
            f'removal="mean embedding": {type(runner.model).__name__} fails with other embeddings '
            f'than those of its token ids ({error}). Pass "mask".'
        ) from error
    return remove


def _coloring(runner: Runner, tokens: Tokens) -> tuple[_Remove, Sequence[int]]:
    """Return the function that removes patches as ``"mean color"`` does.

    The second result has the positions of the patches.
    """
    arguments, grids = runner.arguments, tokens.pictured
    pixels = arguments.get("pixel_values")
    if pixels is None or pixels.dim() != 4 or len(pixels) != 1 or len(grids) != 1:
        raise ValueError(
            'removal="mean color" needs one image whose patches are tokens. Pass "mask" for a text.'
        )
    [grid] = grids
    height, width = pixels.shape[2:]
    if height % grid.rows or width % grid.columns:
        raise ValueError(
            f"the patches, {grid.rows} x {grid.columns}, do not divide the image of {height} x "
            f"{width} pixels"
        )
    high, wide = height // grid.rows, width // grid.columns

    def remove(tokens: Sequence[int]) -> Arguments:
        changed = pixels.clone()
        mean = pixels[0].mean(dim=(1, 2))[:, None, None]
        for row, column in map(grid.cell, tokens):
            changed[0, :, row * high : (row + 1) * high, column * wide : (column + 1) * wide] = mean
        return {**arguments, "pixel_values": changed}

    return remove, grid.positions


_REMOVALS: dict[str, Callable[[Runner], _Remove]] = {
    "mask": _masking,
    "mean embedding": _averaging,
}


# A token is a sink of a head if its mean weight exceeds that of uniform attention by more than this
# share of the largest possible excess.
_EXCESS = 0.3


def sink_shares(stack: AttentionStack) -> NDArray[np.float64] | None:
    """Return for each token the share of the heads of all layers in which it is a sink, (tokens,).

    A token is a sink of a head if its weight, averaged over all other queries that may attend to
    it, is much larger than with uniform attention. If w is the mean weight and u that of uniform
    attention, ``(w - u) / (1 - u)`` must exceed 0.3. Tokens to which no other query may attend have
    the share 0. Return None if the stack has no self-attention with a softmax.
    """
    if stack.signed or stack.linear or stack.ranks or stack.key_tokens is not stack.query_tokens:
        return None
    is_sink = np.concatenate([_is_sink(stack.attention(number)) for number in stack.layers])
    return np.asarray(is_sink.mean(axis=0), dtype=np.float64)


def _is_sink(attention: LayerAttention) -> NDArray[np.bool_]:
    """Return for each head and key whether the key is a sink, (heads, keys)."""
    heads, count = range(attention.num_heads), attention.num_keys
    weight, uniform, queries = torch.zeros(3, len(heads), count, dtype=torch.float64).unbind()
    for rows in row_tiles(slice(0, count), len(heads) * count):
        allowed = attention.allowed(heads, rows)
        share = allowed.double() / allowed.sum(dim=-1, keepdim=True).clamp(min=1)
        others = allowed.clone()
        own = torch.arange(rows.start, rows.stop)
        others[:, own - rows.start, own] = False
        weight += (attention.block(heads, rows).cpu().double() * others).sum(dim=1)
        uniform += (share * others).sum(dim=1)
        queries += others.sum(dim=1)
    excess = (weight - uniform) / (queries - uniform).clamp(min=1e-9)
    return ((queries > 0) & (excess > _EXCESS)).numpy()
