"""Records from weights: every accepted shape, and errors that name the fault and its position."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

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
        pytest.param([list(a) for a in LAYERS], id="lists of arrays"),
        pytest.param([a.astype(np.float64) for a in LAYERS], id="float64"),
        pytest.param([a.astype(">f4") for a in LAYERS], id="big endian"),
        # Read-only arrays. A warning would be an error in this test.
        pytest.param([np.broadcast_to(a, a.shape) for a in LAYERS], id="read-only"),
        pytest.param([a[:, ::-1, ::-1].copy()[:, ::-1, ::-1] for a in LAYERS], id="reversed view"),
        pytest.param([np.asfortranarray(a) for a in LAYERS], id="columns first"),
        pytest.param(
            [torch.from_numpy(a).requires_grad_() for a in LAYERS], id="awaiting gradients"
        ),
    ],
)
def test_every_shape_and_kind_is_accepted(attentions: Any) -> None:
    stack = record_of(attentions).stacks["self"]
    assert stack.layers == (0, 1, 2)
    assert stack.heads_per_layer == (2, 2, 2)
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
    assert attention.values.dtype == dtype


def test_hard_attention_in_whole_numbers_is_accepted() -> None:
    for dtype in (np.int64, np.bool_, np.uint8):
        record = record_of([np.eye(4, dtype=dtype)[None]])
        assert_array_equal(record.stacks["self"].weights(layer=0, head=0), np.eye(4))


def test_the_stack_and_its_layers_can_have_names() -> None:
    assert list(record_of(LAYERS, stack="joint").stacks) == ["joint"]
    for numbers in ([3, 7, 11], np.array([3, 7, 11]), range(3, 12, 4)):
        record = record_of(LAYERS, layers=numbers)
        assert record.stacks["self"].layers == (3, 7, 11)
        assert {type(number) for number in record.stacks["self"].layers} == {int}
        assert_array_equal(record.stacks["self"].weights(layer=7), LAYERS[1])


def test_weights_of_any_sum_are_accepted_on_request() -> None:
    record = record_of([LAYERS[0] * 3], normalized=False)
    stack = record.stacks["self"]
    assert not stack.normalized
    assert stack.maximum == pytest.approx(3 * LAYERS[0].max())
    # A query may have no weight at all.
    assert record_of([LAYERS[0] * 0], normalized=False).stacks["self"].maximum == 0
    assert record_of([LAYERS[0] * 0]).stacks["self"].normalized


def test_the_texts_of_a_pair_are_distinguished() -> None:
    assert record_of(LAYERS, sentence_b_start=3).tokens.sequence == (0, 0, 0, 1)
    tokens = Tokens.of(["[CLS]", "a", "b", "[SEP]"], special=[True, False, False, True])
    record = AttentionRecord.from_weights(LAYERS, tokens, sentence_b_start=2)
    assert record.tokens.sequence == (None, 0, 1, None)


def with_value(value: float) -> list[Any]:
    """Return three layers with `value` in layer 1, head 1, query 2, key 3."""
    layers = [layer.copy() for layer in LAYERS]
    layers[1][1, 2, 3] = value
    return layers


HEAD_1 = r"attentions\[1\], head 1"


@pytest.mark.parametrize(
    ("attentions", "message"),
    [
        (with_value(np.nan), rf"{HEAD_1}: the weight at query 2, key 3 is NaN"),
        (with_value(np.inf), rf"{HEAD_1}: the weight at query 2, key 3 is infinite"),
        (
            with_value(-0.25),
            rf"{HEAD_1}: the weight at .* is negative, .*before the softmax",
        ),
        (
            with_value(7.0),
            rf"{HEAD_1}: .* query 2 sum to 7\.\d+, not to 1; .* normalized=False",
        ),
        ([LAYERS[0], None], r"attentions\[1\] is None: .*attn_implementation=\"eager\""),
        ([], r"attentions is empty, .* Pass the model itself, attnviz.show_head_view\(model"),
        ((), r"attentions is empty, .* attn_implementation=\"eager\""),
        ((None, None), r"attentions\[0\] is None: .* Pass the model itself, attnviz.show_head_v"),
        (np.zeros((0, 2, 4, 4)), "attentions is empty"),
        (
            [np.stack([LAYERS[0]] * 3)],
            r"a batch of 3 examples, but .*\[layer\[i : i \+ 1\] for layer in attentions\]",
        ),
        (np.zeros((1,) * 6), r"attentions is one array of shape \(1, 1, 1, 1, 1, 1\)"),
        # A deviation of a hundredth is more than rounding.
        ([LAYERS[0] * np.float32(0.99)], r"sum to 0\.99, not to 1"),
        (
            [LAYERS[0], np.zeros((0, 4, 4))],
            r"attentions\[1\] has shape \(0, 4, 4\), which contains no",
        ),
        ([shares(2, 3, 4)], "layer 0: the attention has 3 queries but query_tokens has 4 tokens"),
        ([shares(2, 4, 5)], "layer 0: the attention has 5 keys but key_tokens has 4 tokens"),
        ([LAYERS[0], shares(2, 5, 5)], "layer 1: the attention has 5 queries"),
        (
            LAYERS[0][0],
            r"one array of shape \(4, 4\); .*Two axes .* pass attentions\[None, None\]",
        ),
        (
            np.stack([layer[0] for layer in LAYERS]),
            r"one layer, heads 3, .*: pass attentions\[None\]; or one head per layer, layers 3, "
            r".*: pass attentions\[:, None\]",
        ),
        (
            [layer[0] for layer in LAYERS],
            r"If each layer has one, pass \[layer\[None\] for .* one layer, pass \[numpy.stack",
        ),
        # The `attentions` of model.generate(...) are a tuple of layers for every step.
        (
            [tuple(a[None] for a in LAYERS)] * 2,
            r"Five axes are those of several layers, as generate\(\) .*attentions\[step\]",
        ),
        (
            [layer.swapaxes(1, 2) for layer in LAYERS],
            r"not to 1; axis -2 does, .*: .*swapaxes\(-2, -1\); if .* pass normalized=False",
        ),
        (
            [layer.swapaxes(0, 2) for layer in LAYERS],
            r"not to 1; axis -3 does, and seems to be the keys: .*swapaxes\(-3, -1\)",
        ),
        (
            [layer.swapaxes(0, 1) for layer in LAYERS],
            r"4 query tokens .*: axes -3 and -2 seem to be swapped: pass layer.swapaxes\(-3, -2\)",
        ),
    ],
)
def test_invalid_values_and_shapes_are_refused(attentions: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        record_of(attentions)


def test_signed_numbers_of_any_size_are_accepted() -> None:
    numbers = np.random.default_rng(0).normal(scale=40.0, size=(2, 2, 4, 4)).astype(np.float32)
    stack = record_of(numbers, signed=True, measure="difference").stack()
    assert (stack.signed, stack.normalized, stack.measure) == (True, False, "difference")
    for layer in (0, 1):
        assert_array_equal(stack.weights(layer=layer), numbers[layer])
    # The largest absolute value, of either sign.
    for sign in (1, -1):
        assert record_of(sign * numbers, signed=True).stack().maximum == np.abs(numbers).max()
    assert record_of(-np.abs(numbers), signed=True).stack().maximum == np.abs(numbers).max()
    nothing = record_of(np.zeros((1, 1, 4, 4)), signed=True).stack().maximum
    # Minus zero would be printed with its sign.
    assert (nothing, math.copysign(1, nothing)) == (0.0, 1.0)
    assert repr(stack) == "<self: layers 0, 1, 2 heads each, 4 tokens, difference>"
    part = stack.only(1)
    assert (part.signed, part.normalized, part.measure) == (True, False, "difference")


@pytest.mark.parametrize(
    ("attentions", "message"),
    [
        (7, "attentions must be a sequence with one array per layer; got int"),
        ("the cat", "attentions must be a sequence with one array per layer; got str"),
        (["the cat"], r"attentions\[0\] is not an array of numbers"),
        ([[[["a", "b"], ["c", "d"]]]], r"attentions\[0\] is not an array of numbers"),
        ([[[[1.0], [0.5, 0.5]]]], r"attentions\[0\] is not an array of numbers"),
        (
            [torch.from_numpy(LAYERS[0]) + 0j],
            r"attentions\[0\] is not an array of numbers \(.*complex",
        ),
        (
            None,
            r"attentions is missing; pass a model's outputs.attentions, .* If that is None, the",
        ),
    ],
)
def test_other_types_than_arrays_are_refused(attentions: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        record_of(attentions)


@pytest.mark.parametrize(
    ("tokens", "kind", "message"),
    [
        (None, TypeError, "tokens is missing: the tokens of stack 'self', one per query"),
        (np.arange(4), TypeError, r"tokens\[0\] is a int64"),
        (7, TypeError, "tokens must be a sequence of strings, .*got int"),
        (words(3), ValueError, "the attention has 4 queries but query_tokens has 3 tokens"),
        (
            [TOKENS, TOKENS],
            ValueError,
            r"tokens has 2 lists of tokens, .*Pass tokens\[i\] with the weights of example i",
        ),
    ],
)
def test_invalid_tokens_are_refused(tokens: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        AttentionRecord.from_weights(LAYERS, tokens)


def test_an_array_of_strings_is_a_list_of_tokens() -> None:
    strings: Any = np.array(TOKENS)
    assert AttentionRecord.from_weights(LAYERS, strings).tokens == Tokens.of(TOKENS)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"layers": [0, 1]},
            ValueError,
            "must be 3 different numbers from 0, one per layer of attentions",
        ),
        (
            {"layers": [0, 1, 1]},
            ValueError,
            "must be 3 different numbers from 0, one per layer of attentions",
        ),
        ({"layers": [-1, 0, 1]}, ValueError, "must be 3 different numbers from 0"),
        ({"layers": "abc"}, TypeError, "layers='abc' must be a list of whole numbers, one"),
        ({"layers": [0.5, 1, 2]}, TypeError, r"list of whole numbers, .*; 0\.5 is not one"),
        ({"sentence_b_start": 0}, ValueError, "sentence_b_start=0 must be from 1 to 3"),
        ({"sentence_b_start": 4}, ValueError, "sentence_b_start=4 must be from 1 to 3"),
        ({"sentence_b_start": "x"}, TypeError, "sentence_b_start='x' must be a whole number"),
        ({"model": 3}, TypeError, "model must be a string"),
        ({"key_tokens": "abcd"}, TypeError, "key_tokens must be a sequence of strings"),
        ({"measure": ""}, ValueError, r"measure=.* must be a short name of the values"),
        ({"measure": "a\nb"}, ValueError, r"measure=.* must be a short name of the values"),
        ({"measure": "x" * 41}, ValueError, r"measure=.* must be a short name of the values"),
        ({"measure": "\u202eeffect"}, ValueError, r"measure=.* must be a short name of the values"),
        ({"measure": 7}, TypeError, "measure=7 must be a string"),
        ({"signed": "yes"}, TypeError, "signed='yes' must be True or False"),
        ({"signed": True, "normalized": True}, ValueError, "cannot be combined"),
    ],
)
def test_invalid_options_are_refused(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        record_of(LAYERS, **options)


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        (np.nan, {"normalized": False}, "is NaN"),
        (np.inf, {"normalized": False}, "is infinite"),
        (-1.0, {"normalized": False}, r"is negative, .* signed=True"),
        (np.nan, {"signed": True}, "is NaN"),
        (-np.inf, {"signed": True}, "is infinite"),
        (-1e39, {"signed": True}, r"is larger than 3\.4e\+38, .* float32"),
    ],
)
def test_invalid_numbers_are_refused_with_any_sum(
    value: float, options: dict[str, Any], message: str
) -> None:
    layers = [layer.astype(np.float64) for layer in LAYERS]
    layers[1][1, 2, 3] = value
    with pytest.raises(ValueError, match=f"query 2, key 3 {message}"):
        record_of(layers, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder_attentions": LAYERS}, "encoder_tokens is missing"),
        ({"decoder_attentions": LAYERS}, "decoder_tokens is missing"),
        ({"cross_attentions": LAYERS, "encoder_tokens": TOKENS}, "decoder_tokens is missing"),
        (
            {"cross_attentions": LAYERS, "decoder_tokens": TOKENS},
            "encoder_tokens is missing: the keys of the cross attention",
        ),
        (
            {"attentions": LAYERS, "tokens": TOKENS, "cross_attentions": LAYERS},
            "attentions= is for one kind of attention",
        ),
        # Every argument is used or refused.
        ({"attentions": LAYERS, "tokens": TOKENS, "encoder_tokens": TOKENS}, "encoder_tokens"),
        (
            {
                "encoder_attentions": LAYERS,
                "encoder_tokens": TOKENS,
                "tokens": TOKENS,
                "sentence_b_start": 2,
            },
            "tokens, sentence_b_start",
        ),
        (
            {"encoder_attentions": LAYERS, "encoder_tokens": TOKENS, "stack": "joint"},
            "stack='joint' is the name of the stack of attentions=",
        ),
        ({"decoder_attentions": LAYERS, "decoder_tokens": ["a", 4]}, r"decoder_tokens\[1\] is a"),
        ({"attentions": LAYERS, "tokens": TOKENS, "stack": " "}, "must be a name"),
        ({"attentions": LAYERS, "tokens": TOKENS, "stack": 3}, "stack=3 must be a name"),
    ],
)
def test_missing_and_conflicting_arguments_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        AttentionRecord.from_weights(**options)
