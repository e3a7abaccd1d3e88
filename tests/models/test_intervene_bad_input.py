"""Functions that measure an answer, such as a difference of two logits, refuse bad input."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from models.interrupts import state_of
from models.make_models import make_model
from models.tiny import SIZE, built

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 7, 61]])
CUT = av.Knockout(8, 2)


def changed(model: Any, inputs: Any, **options: Any) -> float:
    return float(av.intervene(model, inputs, CUT, **options).effect.after)


def attributed(model: Any, inputs: Any, method: Any = "gradient", **options: Any) -> Any:
    return av.attribute(model, inputs, method=method, **options).stack().weights(layer=1)


def predicted(model: Any, way: str) -> dict[str, Any]:
    """Return ``{"answer": (id of the most likely token, 8)}``, or {} for "permutation_effect"."""
    if way not in WITH_TOKENS:
        return {}
    with torch.no_grad():
        return {"answer": (int(model(IDS).logits[0, -1].argmax()), 8)}


WAYS: dict[str, Callable[..., Any]] = {
    "intervene": changed,
    "head_effects": lambda *args, **options: np.stack(list(av.head_effects(*args, **options))),
    "token_effects": lambda *args, **options: av.token_effects(*args, **options).values,
    "attribute": attributed,
    "integrated gradients": partial(attributed, method="integrated gradients"),
    "erasure_curve": lambda model, inputs, **options: (
        av.erasure_curve(model, inputs, np.arange(9.0), **options).values
    ),
    "sufficient_tokens": lambda *args, **options: np.array(
        [float(text[1:]) for text in av.sufficient_tokens(*args, **options).texts]
    ),
    "permutation_effect": lambda *args, **options: (
        av.permutation_effect(*args, layer=1, head=0, query=8, **options).values
    ),
}
#: Functions in `WAYS` whose answer may be tokens. `permutation_effect` needs a function as answer.
WITH_TOKENS = [way for way in WAYS if way != "permutation_effect"]


@pytest.mark.parametrize("way", WITH_TOKENS)
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"answer": 400}, ValueError, "answer=400 is out of range.* the vocabulary 0 to 399"),
        ({"answer": (7, 7)}, ValueError, "the two tokens are equal"),
        ({"answer": "cat"}, ValueError, "needs tokenizer="),
        ({"answer": (7, 8), "position": 30}, IndexError, "position=30"),
        # The token "#17" occurs twice, so it does not name a single position.
        ({"answer": (7, 8), "position": "#17"}, ValueError, "position='#17'"),
        ({"postion": 3}, TypeError, "postion= is not an argument"),
    ],
)
def test_an_answer_that_cannot_be_measured_is_refused(
    way: str, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        WAYS[way](make_model("gpt2"), {"input_ids": IDS}, **options)


@pytest.mark.parametrize("way", WAYS)
def test_unreadable_inputs_and_models_are_refused(way: str) -> None:
    with pytest.raises(TypeError, match="inputs"):
        WAYS[way](make_model("gpt2"), 3.5)
    with pytest.raises(TypeError, match="model must be"):
        WAYS[way](torch.nn.Linear(2, 2), {"input_ids": IDS})


@pytest.mark.parametrize("way", WAYS)
def test_a_model_in_training_mode_is_measured_in_evaluation_mode(way: str) -> None:
    model = make_model("gpt2")
    options = predicted(model, way)
    expected = WAYS[way](model, {"input_ids": IDS}, **options)
    model.train()
    before = state_of([model])
    values = WAYS[way](model, {"input_ids": IDS}, **options)
    assert state_of([model]) == before
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert np.allclose(values, expected, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("way", ["attribute", "integrated gradients"])
def test_gradients_are_refused_in_inference_mode(way: str) -> None:
    with torch.inference_mode(), pytest.raises(ValueError, match="inference_mode"):
        WAYS[way](make_model("gpt2"), {"input_ids": IDS}, answer=(7, 8))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, r"no logits.*pass a function .* answer=lambda output: output.start_logits.max\(\)"),
        (lambda output: output.start_logits, r"one number .* an array of the shape \(1, 9"),
        (lambda _: float("nan"), "the function returns nan for the unchanged model"),
    ],
)
def test_a_model_without_logits_needs_a_function_that_returns_one_number(
    way: str, answer: Any, words: str
) -> None:
    model = built("BertForQuestionAnswering", SIZE)
    with pytest.raises((TypeError, ValueError), match=words):
        WAYS[way](model, {"input_ids": IDS}, answer=answer)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_gradients_of_quantised_modules_are_refused() -> None:
    """Gradients do not pass through quantised modules, so attributions would be incomplete."""
    model = make_model("llama")
    quantised = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    answer = (7, 8)
    for method in ("gradient", "knockout gradient", "integrated gradients", "relevance"):
        with pytest.raises(NotImplementedError, match=r"gradients do not pass .* \(Linear\)"):
            attributed(quantised, {"input_ids": IDS}, method, answer=answer)
    # `intervene` needs no gradients.
    effect = av.intervene(quantised, {"input_ids": IDS}, CUT, answer=answer).effect
    assert np.isfinite(effect.after)
    assert effect.after != effect.before
    assert not any(module._forward_hooks for module in quantised.modules())


def test_an_answer_without_any_attention_is_a_number() -> None:
    """Without any keys, all heads have the output 0, as if they were ablated."""
    model = make_model("llama")
    record = av.intervene(model, {"input_ids": IDS}, av.Knockout(), answer=(7, 8))
    assert not record.stack().weights(layer=1).any()
    everything = av.intervene(model, {"input_ids": IDS}, av.Ablate(), answer=(7, 8))
    assert record.effect.after == pytest.approx(everything.effect.after, abs=1e-6)
    with pytest.raises(ValueError, match="NaN"):
        av.intervene(model, {"input_ids": IDS}, av.Ablate(factor=1e300), answer=(7, 8))
