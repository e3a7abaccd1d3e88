"""Tests of the check that captured queries and keys give the model's output or weights."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from attnviz.extraction.capture import check
from attnviz.extraction.capture.calls import read_attention
from attnviz.extraction.capture.check import SelfCheck, foreign_name
from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.masks import MaskReader, Positions
from attnviz.record.attention import QueryKeyAttention, StoredAttention, StoredWeights

HEADS, LENGTH, WIDTH = 4, 9, 6
# The check compares 32 rows per head. With 8 heads, it compares each of the 256 rows of a long text
# in one head.
ROWS, LONG, MANY_HEADS = 32, 256, 8
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def call(
    dtype: torch.dtype = torch.float32,
    *,
    examples: int = 1,
    heads: int = HEADS,
    length: int = LENGTH,
    key_heads: int | None = None,
) -> AttentionCall:
    """Return an `AttentionCall` with random inputs and the output that torch computes."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(examples, count, length, WIDTH, generator=generator).to(dtype)
        for count in (heads, key_heads or heads, key_heads or heads)
    )
    output = scaled_dot_product_attention(query, key, value, enable_gqa=True).transpose(1, 2)
    return AttentionCall(
        nn.Identity(), "sdpa", query, key, value, None, {"is_causal": False}, output
    )


def with_weights(original: AttentionCall) -> AttentionCall:
    """Return the call as eager attention: with softmax weights, without values and output."""
    assert original.query is not None
    assert original.key is not None
    logits = original.query.double() @ original.key.double().mT * WIDTH**-0.5
    weights = logits.softmax(dim=-1).to(original.query.dtype)
    return replace(original, implementation="eager", value=None, output=None, weights=weights)


def captured(
    original: AttentionCall,
    *,
    unpadded: Sequence[Positions] | None = None,
    compared: SelfCheck | None = None,
) -> Sequence[StoredAttention]:
    compared = compared or SelfCheck()
    attentions = read_attention(
        original,
        unpadded or [Positions(None, None)] * original.num_examples,
        MaskReader(),
        compared,
        name="layers.0.attention",
    )
    compared.finish()
    return attentions


def changed(tensor: torch.Tensor | None, index: Any, by: float) -> torch.Tensor:
    assert tensor is not None
    tensor = tensor.clone()
    tensor[index] += by
    return tensor


def with_output(original: AttentionCall, index: Any, by: float) -> AttentionCall:
    """Return the call with `by` added to its output at `index` (example, query, head, dim)."""
    return replace(original, output=changed(original.output, index, by))


def is_refused(original: AttentionCall, **options: Any) -> bool:
    try:
        captured(original, **options)
    except NotImplementedError:
        return True
    return False


def test_every_row_of_every_head_and_example_is_compared() -> None:
    correct = call(examples=3, key_heads=2)
    assert not is_refused(correct)
    for example, head, row in itertools.product(range(3), range(HEADS), range(LENGTH)):
        with pytest.raises(
            NotImplementedError,
            match=re.escape("layers.0.attention")
            + rf".*differs by 0\.001 .*in head {head}, query {row}\. ",
        ):
            captured(with_output(correct, (example, row, head, row % WIDTH), 1e-3))


def test_the_size_of_parts_does_not_change_what_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    correct = call(examples=3, key_heads=2)
    # Compute the weights of 4 rows, of 2 heads (which share a key head), or of 4 heads at a time.
    for entries in (4 * LENGTH, 2 * LENGTH**2, 4 * LENGTH**2):
        monkeypatch.setattr(check, "_MAX_ENTRIES_AT_ONCE", entries)
        assert not is_refused(correct)
        for index in [(0, 0, 0), (0, 3, 3), (1, 8, 1), (2, 8, 3)]:
            assert is_refused(with_output(correct, index, 1e-3))


def test_rows_of_a_batch_may_be_one_example() -> None:
    correct, rows = call(), [Positions(None, None)] * 3
    assert not is_refused(correct, unpadded=rows)
    assert is_refused(with_output(correct, (0, 4, 2), 0.1), unpadded=rows)


def test_padding_is_not_compared() -> None:
    correct = call(examples=2)
    assert correct.query is not None
    kept = torch.tensor([0, 2, 3, 4, 7])
    unpadded = [Positions(None, None), Positions(kept, kept)]
    mask = torch.ones(2, 1, LENGTH, LENGTH, dtype=torch.bool)
    mask[1, ..., [1, 5, 6, 8]] = False
    output = scaled_dot_product_attention(correct.query, correct.key, correct.value, mask)  # type: ignore[arg-type]
    padded = replace(correct, mask=mask, output=output.transpose(1, 2))
    assert not is_refused(padded, unpadded=unpadded)
    for row in range(LENGTH):
        wrong = with_output(padded, (1, row, 2), 0.1)
        assert is_refused(wrong, unpadded=unpadded) == (row in kept)


def test_a_row_that_is_wrong_in_all_heads_of_a_long_text_is_found() -> None:
    correct = call(heads=MANY_HEADS, length=LONG)
    assert not is_refused(correct)
    for row in range(0, LONG, 5):
        assert is_refused(with_output(correct, (0, row), 0.1))


@pytest.mark.parametrize("length", [LONG, LONG + 37])
def test_consecutive_wrong_rows_of_one_head_are_found(length: int) -> None:
    correct = call(heads=MANY_HEADS, length=length)
    num_wrong = length // ROWS + 1
    for head, first in itertools.product((0, 3, MANY_HEADS - 1), range(0, length - num_wrong, 23)):
        rows = slice(first, first + num_wrong)
        assert is_refused(with_output(correct, (0, rows, head), 0.1))


def test_some_rows_of_a_single_head_are_compared() -> None:
    correct = call(heads=1, length=LONG)
    assert correct.query is not None
    mask = torch.ones(1, 1, LONG, LONG, dtype=torch.bool).tril()
    output = scaled_dot_product_attention(correct.query, correct.key, correct.value, mask)  # type: ignore[arg-type]
    causal = replace(correct, mask=mask, output=output.transpose(1, 2))
    assert not is_refused(causal)
    assert is_refused(with_output(causal, (0, slice(LONG // ROWS), 0), 0.1))


def test_some_rows_of_each_of_many_examples_are_compared() -> None:
    correct = call(examples=16, length=64)
    assert not is_refused(correct)
    for example in range(16):
        assert is_refused(with_output(correct, (example, slice(0, 16), 1), 0.1))


def test_calls_of_several_layers_are_compared_together() -> None:
    compared, correct = SelfCheck(), call()
    for layer in range(4):
        original = with_output(correct, (0, 5, 2), 0.1) if layer == 2 else correct
        read_attention(
            original, [Positions(None, None)], MaskReader(), compared, name=f"layers.{layer}"
        )
    with pytest.raises(NotImplementedError, match=r"layers\.2 .* in head 2, query 5\. "):
        compared.finish()


def test_an_output_that_the_model_overwrites_later_is_compared_as_it_was() -> None:
    compared, correct = SelfCheck(), call()
    read_attention(correct, [Positions(None, None)], MaskReader(), compared, name="layers.0")
    assert correct.output is not None
    correct.output.zero_()
    compared.finish()


@pytest.mark.parametrize("dtype", DTYPES)
def test_outputs_may_differ_by_rounding_alone(dtype: torch.dtype) -> None:
    correct = call(dtype)
    assert correct.output is not None
    # Rounding changes a number by up to half the machine epsilon.
    unit = torch.finfo(dtype).eps / 2
    assert not is_refused(replace(correct, output=correct.output * (1 + unit)))
    by = {torch.float16: 0.03, torch.bfloat16: 0.25}.get(dtype, 3e-4)
    for sign in (-1, 1):
        assert is_refused(with_output(correct, (0, LENGTH - 1, 0, 0), sign * by))


@pytest.mark.parametrize(("dtype", "factor"), [(torch.bfloat16, 1.2), (torch.float32, 1.001)])
def test_a_temperature_of_one_head_is_found(dtype: torch.dtype, factor: float) -> None:
    correct = call(dtype, length=64)
    assert correct.query is not None
    for head in range(HEADS):
        query = correct.query.clone()
        query[:, head] *= factor
        wrong = scaled_dot_product_attention(query, correct.key, correct.value)  # type: ignore[arg-type]
        assert is_refused(replace(correct, output=wrong.transpose(1, 2)))


def test_every_row_is_compared_with_the_weights() -> None:
    correct = with_weights(call(examples=2))
    attentions = captured(correct)
    assert all(isinstance(attention, QueryKeyAttention) for attention in attentions)
    for example, head, row in itertools.product(range(2), range(HEADS), range(LENGTH)):
        weights = changed(correct.weights, (example, head, row, 0), 0.01)
        attention = captured(replace(correct, weights=weights))[example]
        # The model's own weights are kept instead of queries and keys.
        assert isinstance(attention, StoredWeights)
        assert torch.equal(attention.weights[head, row], weights[example, head, row])


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_may_differ_by_rounding_alone(dtype: torch.dtype) -> None:
    correct = with_weights(call(dtype))
    assert isinstance(captured(correct)[0], QueryKeyAttention)
    allowed = {torch.float16: 2e-2, torch.bfloat16: 1.5e-1}.get(dtype, 1e-4)
    for sign in (-1, 1):
        wrong = changed(correct.weights, (0, 0, LENGTH - 1, 0), sign * allowed)
        assert isinstance(captured(replace(correct, weights=wrong))[0], StoredWeights)


def test_an_output_that_is_nan_is_named() -> None:
    with pytest.raises(ValueError, match="returned NaN"):
        captured(with_output(call(), (0, 4, 2, 0), float("nan")))


def own_function(*arguments: Any, **options: Any) -> Any:
    return sdpa_attention_forward(*arguments, **options)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("mine", own_function),
        ("sdpa", own_function),
        ("mine", functools.partial(own_function, scaling=1.0)),
        ("kernels-community/flash-attn3", sdpa_attention_forward),
        ("mine", nn.Identity()),
    ],
)
def test_functions_that_transformers_does_not_ship_are_foreign(name: str, function: Any) -> None:
    name_of_function = foreign_name(replace(call(), implementation=name, function=function))
    assert name_of_function is not None
    assert name_of_function.startswith(repr(name))


def test_all_rows_of_a_foreign_function_are_compared() -> None:
    correct = replace(call(heads=1, length=600), function=own_function, implementation="mine")
    for row in range(0, 600, 60):
        assert is_refused(with_output(correct, (0, row), 0.1))


def test_an_output_of_another_size_cannot_be_compared() -> None:
    correct = replace(call(), function=own_function, implementation="mine")
    compared = SelfCheck()
    captured(replace(correct, output=torch.zeros(3)), compared=compared)
    assert list(compared.foreign.values()) == [False]
