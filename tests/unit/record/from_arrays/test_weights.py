"""Tests of which arguments `AttentionRecord.from_weights` accepts, and of errors for others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from attnviz.record.attention import StoredWeights
from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import Tokens
from unit.records import shares, vectors, words

LAYERS = [shares(2, 4, 4, seed=layer) for layer in range(3)]
TOKENS = words(4)


def record_of(attentions: Any, **options: Any) -> AttentionRecord:
    return AttentionRecord.from_weights(attentions, TOKENS, **options)


@pytest.mark.parametrize(
    "attentions",
    [
        pytest.param(LAYERS, id="list of arrays"),
        pytest.param(tuple(torch.from_numpy(a)[None] for a in LAYERS), id="outputs.attentions"),
        pytest.param(torch.from_numpy(np.stack(LAYERS)), id="one tensor"),
        pytest.param(np.stack(LAYERS)[:, None], id="one array with a batch of one"),
        pytest.param([a.tolist() for a in LAYERS], id="nested lists"),
        # torch warns about arrays that it cannot write to, and a warning fails a test.
        pytest.param([np.broadcast_to(a, a.shape) for a in LAYERS], id="read-only"),
        pytest.param([a[:, ::-1, ::-1].copy()[:, ::-1, ::-1] for a in LAYERS], id="reversed view"),
        pytest.param(
            [torch.from_numpy(a).requires_grad_() for a in LAYERS], id="awaiting gradients"
        ),
    ],
)
def test_every_shape_and_kind_is_accepted(attentions: Any) -> None:
    stack = record_of(attentions).stack()
    assert (stack.layers, stack.heads_per_layer) == ((0, 1, 2), (2, 2, 2))
    for layer, expected in enumerate(LAYERS):
        assert_allclose(stack.weights(layer=layer), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_kept_and_its_rounding_tolerated(dtype: torch.dtype) -> None:
    weights = torch.softmax(3 * vectors(1, 2, 300, 300), -1).to(dtype)
    rounded = weights.float().numpy()
    assert np.abs(rounded.sum(-1) - 1).max() > 1e-4
    for values in (weights, rounded):
        record = AttentionRecord.from_weights([values], words(300))
        assert_array_equal(record.stack().weights(layer=0), rounded[0])
    attention = AttentionRecord.from_weights([weights], words(300)).stack().attention(0)
    assert isinstance(attention, StoredWeights)
    assert attention.weights.dtype == dtype


def test_hard_attention_in_whole_numbers_is_accepted() -> None:
    for dtype in (np.int64, np.bool_):
        record = record_of([np.eye(4, dtype=dtype)[None]])
        assert_array_equal(record.stack().weights(layer=0, head=0), np.eye(4))


def test_the_stack_and_its_layers_can_have_names() -> None:
    record = record_of(LAYERS, stack="joint", layers=np.array([3, 7, 11]))
    stack = record.stacks["joint"]
    assert stack.layers == (3, 7, 11)
    assert {type(number) for number in stack.layers} == {int}
    assert_array_equal(stack.weights(layer=7), LAYERS[1])


def test_weights_of_any_sum_are_accepted_on_request() -> None:
    stack = record_of([LAYERS[0] * 3], normalized=False).stack()
    assert not stack.normalized
    assert stack.maximum == pytest.approx(3 * LAYERS[0].max())
    # By default, rows must sum to 1, but rows of zeros are accepted.
    assert record_of([LAYERS[0] * 0]).stack().normalized


def test_the_texts_of_a_pair_are_distinguished() -> None:
    assert record_of(LAYERS, sentence_b_start=3).tokens.sequence == (0, 0, 0, 1)
    tokens = Tokens.of(["[CLS]", "a", "b", "[SEP]"], special=[True, False, False, True])
    record = AttentionRecord.from_weights(LAYERS, tokens, sentence_b_start=2)
    assert record.tokens.sequence == (None, 0, 1, None)


def test_an_array_of_strings_is_a_list_of_tokens() -> None:
    strings: Any = np.array(TOKENS)
    assert AttentionRecord.from_weights(LAYERS, strings).tokens == Tokens.of(TOKENS)


def test_signed_numbers_of_any_size_are_accepted() -> None:
    numbers = np.random.default_rng(0).normal(scale=40.0, size=(2, 2, 4, 4)).astype(np.float32)
    stack = record_of(numbers, signed=True, measure="difference").stack()
    for layer in (0, 1):
        assert_array_equal(stack.weights(layer=layer), numbers[layer])
    for part in (stack, stack.only(1)):
        assert (part.signed, part.normalized, part.measure) == (True, False, "difference")
    assert repr(stack) == "<self: layers 0, 1, 2 heads each, 4 tokens, difference>"
    for sign in (1, -1):
        assert record_of(sign * numbers, signed=True).stack().maximum == np.abs(numbers).max()
    assert str(record_of(np.zeros((1, 1, 4, 4)), signed=True).stack().maximum) == "0.0"


def with_value(value: float) -> list[NDArray[np.float64]]:
    """Return the weights of three layers, with `value` at layer 1, head 1, query 2, key 3."""
    layers = [layer.astype(np.float64) for layer in LAYERS]
    layers[1][1, 2, 3] = value
    return layers


AT = r"query 2, key 3 is"


@pytest.mark.parametrize(
    ("attentions", "options", "message"),
    [
        (with_value(np.nan), {}, rf"attentions\[1\]: the weight of head 1, {AT} NaN"),
        (with_value(-0.25), {}, rf"{AT} negative, .*before the softmax"),
        (with_value(7.0), {}, r"query 2 sum to 7\.\d+, not to 1\. .* normalized=False"),
        # A sum of 0.99 differs from 1 by more than rounding.
        ([LAYERS[0] * np.float32(0.99)], {}, r"sum to 0\.99, not to 1"),
        (with_value(np.nan), {"normalized": False}, rf"{AT} NaN"),
        (with_value(-1.0), {"normalized": False}, rf"{AT} negative, .* signed=True"),
        (with_value(-np.inf), {"signed": True}, rf"{AT} NaN or infinite"),
        (with_value(-1e39), {"signed": True}, rf"{AT} .*infinite in float32"),
    ],
)
def test_invalid_numbers_are_refused(
    attentions: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        record_of(attentions, **options)


@pytest.mark.parametrize(
    ("attentions", "message"),
    [
        ([LAYERS[0], None], r"attentions contains None, .*attn_implementation=\"eager\""),
        ((), r"attentions is empty, .* attn_implementation=\"eager\""),
        ([np.stack([LAYERS[0]] * 3)], r"attentions\[0\] has shape \(3, 2, 4, 4\); .* one example"),
        ([LAYERS[0][:0]], r"attentions\[0\] has shape \(0, 4, 4\); it must be"),
        (
            [shares(2, 4, 5)],
            "layer 0: the attention has 4 queries and 5 keys, but query_tokens has 4 tokens and "
            "key_tokens 4; pass one token for each",
        ),
        ([LAYERS[0], shares(2, 5, 5)], "layer 1: the attention has 5 queries"),
        (
            np.stack(LAYERS)[:, 0],
            r"attentions\[0\] has shape \(4, 4\); it must be \(heads",
        ),
        # The `attentions` of model.generate(...) contain a tuple of layers for every step.
        ([tuple(a[None] for a in LAYERS)] * 2, r"attentions\[0\] has shape \(3, 1, 2, 4, 4\)"),
        ([a.swapaxes(1, 2) for a in LAYERS], r"not to 1\. The axes must be \(heads, queries"),
        (
            [a.swapaxes(0, 1) for a in LAYERS],
            "layer 0: the attention has 2 queries",
        ),
    ],
)
def test_other_shapes_are_refused_with_a_remedy(attentions: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        record_of(attentions)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"attentions": 7}, TypeError, "attentions must be a sequence .*; got int"),
        ({"attentions": [[[["a"]]]]}, TypeError, r"attentions\[0\] is not an array of numbers"),
        (
            {"attentions": [torch.from_numpy(LAYERS[0]) + 0j]},
            TypeError,
            r"attentions\[0\] is not an array of numbers: .* real",
        ),
        ({"attentions": None}, TypeError, r"attentions is missing; .* If that is None, the"),
        ({"tokens": None}, TypeError, "tokens is missing: the tokens of stack 'self'"),
        ({"tokens": np.arange(4)}, TypeError, r"tokens\[0\] is a int64"),
        ({"tokens": 7}, TypeError, "tokens must be a sequence of strings, .*got 7"),
        ({"tokens": [TOKENS, TOKENS]}, TypeError, r"tokens\[0\] is a list"),
        ({"key_tokens": "abcd"}, TypeError, "tokens must be a sequence of strings"),
        ({"layers": [0, 1, 1]}, ValueError, "must be different numbers from 0, one for each of"),
        ({"layers": [0.5, 1, 2]}, TypeError, r"list of whole numbers, .*; 0\.5 is not one"),
        ({"sentence_b_start": 4}, ValueError, "sentence_b_start=4 must be from 1 to 3"),
        ({"model": 3}, TypeError, "model must be a string"),
        ({"measure": "x" * 41}, ValueError, r"measure=.* short name of .* at most 40 characters"),
        ({"measure": "\u202eeffect"}, ValueError, r"measure=.* must be a short name of the values"),
        ({"signed": True, "normalized": True}, ValueError, "cannot be combined"),
        # Arguments that do not fit the other arguments are refused.
        ({"encoder_tokens": TOKENS}, TypeError, "encoder_tokens"),
        ({"cross_attentions": LAYERS}, TypeError, "cross_attentions cannot be used"),
    ],
)
def test_invalid_options_are_refused(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    arguments: dict[str, Any] = {"attentions": LAYERS, "tokens": TOKENS} | options
    with pytest.raises(error, match=message):
        AttentionRecord.from_weights(**arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "encoder_tokens is missing"),
        ({"encoder_tokens": TOKENS, "tokens": TOKENS}, "tokens"),
        ({"encoder_tokens": TOKENS, "stack": "joint"}, "stack cannot be used for stack"),
        ({"encoder_tokens": TOKENS, "decoder_attentions": LAYERS}, "decoder_tokens is missing"),
        ({"encoder_tokens": ["a", 4]}, r"tokens\[1\] is a"),
    ],
)
def test_invalid_options_of_an_encoder_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        AttentionRecord.from_weights(encoder_attentions=LAYERS, **options)
