"""Queries and keys that do not give the attention's own output or weights are noticed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from attnviz.extraction.capture.calls import capture
from attnviz.extraction.capture.copies import Copier
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.masks import MaskReader, Positions
from attnviz.extraction.options import CaptureOptions
from attnviz.record.attention import GivenWeights, QueryKeyAttention

HEADS, LENGTH, WIDTH = 4, 9, 6
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
# How far outputs may lie apart, relative to the largest value (1 here).
ALLOWED = {torch.float64: 1e-3, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def call(dtype: torch.dtype = torch.float32) -> AttentionCall:
    """An attention as torch's own function computes it, with values up to 1."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(1, HEADS, LENGTH, WIDTH, generator=generator).to(dtype) for _ in range(3)
    )
    value = value / value.abs().amax(dim=(2, 3), keepdim=True)
    output = scaled_dot_product_attention(query, key, value).transpose(1, 2)
    return AttentionCall(
        nn.Identity(), "sdpa", query, key, value, None, {"is_causal": False}, output
    )


def with_weights(given: AttentionCall) -> AttentionCall:
    """The same as it is traced: with the weights that the model's softmax gave, and no output."""
    assert given.query is not None
    assert given.key is not None
    logits = given.query.double() @ given.key.double().mT * WIDTH**-0.5
    weights = logits.softmax(dim=-1).to(given.query.dtype)
    return replace(given, implementation="eager", value=None, output=None, weights=weights)


def captured(given: AttentionCall, turn: int) -> QueryKeyAttention | GivenWeights:
    (found,), _ = capture(
        given,
        [Positions(None, None)],
        MaskReader(),
        Copier(CaptureOptions()),
        heads=range(HEADS),
        name="layers.0.attention",
        turn=turn,
    )
    return found


def changed(tensor: torch.Tensor, at: tuple[int, ...], by: float) -> torch.Tensor:
    tensor = tensor.clone()
    tensor[at] += by
    return tensor


@pytest.mark.parametrize("head", range(HEADS))
@pytest.mark.parametrize("row", [LENGTH // 2, LENGTH - 1])
def test_each_head_is_held_against_the_output_in_its_turn(head: int, row: int) -> None:
    given = call()
    wrong = replace(given, output=changed(given.output, (0, row, head, 0), 0.1))
    for turn in range(2 * HEADS):
        if turn % HEADS == head:
            with pytest.raises(NotImplementedError, match=re.escape("layers.0.attention")):
                captured(wrong, turn)
        else:
            captured(wrong, turn)


@pytest.mark.parametrize("dtype", DTYPES)
def test_outputs_may_differ_by_rounding_alone(dtype: torch.dtype) -> None:
    given = call(dtype)
    assert isinstance(captured(given, turn=0), QueryKeyAttention)
    for factor in (-2, 2):
        at = (0, LENGTH - 1, 0, 0)
        wrong = replace(given, output=changed(given.output, at, factor * ALLOWED[dtype]))
        with pytest.raises(NotImplementedError, match="differs by"):
            captured(wrong, turn=0)


@pytest.mark.parametrize("head", range(HEADS))
@pytest.mark.parametrize("row", [LENGTH // 2, LENGTH - 1])
def test_each_head_is_held_against_the_weights_in_its_turn(head: int, row: int) -> None:
    given = with_weights(call())
    assert given.weights is not None
    wrong = replace(given, weights=changed(given.weights, (0, head, row, 0), 0.1))
    for turn in range(2 * HEADS):
        expected = GivenWeights if turn % HEADS == head else QueryKeyAttention
        assert isinstance(captured(wrong, turn), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_may_differ_by_rounding_alone(dtype: torch.dtype) -> None:
    given = with_weights(call(dtype))
    assert given.weights is not None
    allowed = {torch.float64: 1e-4, torch.float32: 1e-4}.get(dtype, ALLOWED[dtype])
    assert isinstance(captured(given, turn=0), QueryKeyAttention)
    for factor in (-2, 2):
        wrong = changed(given.weights, (0, 0, LENGTH - 1, 0), factor * allowed)
        assert isinstance(captured(replace(given, weights=wrong), turn=0), GivenWeights)
