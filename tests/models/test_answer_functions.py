"""The argument `answer` may be a function of the model's output.

Effects on the number that this function returns equal those from plain forwards of the model.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
import traitlets

import attnviz as av
from attnviz.interventions.changes import change_to_json
from models.tiny import IDS, SIZE, built
from unit.complete_replies import whole_reply

GIVEN = {"input_ids": IDS}
COUNT = IDS.shape[1]
ABLATE = av.Ablate(1, 2)


def start_of_span(output: Any) -> torch.Tensor:
    difference: torch.Tensor = output.start_logits[0, 3] - output.end_logits[0, 5]
    return difference


def widest(output: Any) -> float:
    return float(output.start_logits.max() - output.end_logits.min())


def early_logit(output: Any) -> torch.Tensor:
    """Return the logit of id 7 at the third token. A function may choose any position."""
    logit: torch.Tensor = output.logits[0, 2, 7]
    return logit


#: Path of the attention output projection of BERT. {} stands for the number of the layer.
BERT = "bert.encoder.layer.{}.attention.output.dense"


def by_hand(
    model: Any, function: Any, projection: str = "", head: int = 0, **options: Any
) -> float:
    """Call `function` with the model's output, and return the result.

    If `projection` is the path of a module, `head` is ablated in the input of this module.
    """

    def ablate(module: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        del module
        output = arguments[0].clone()
        size = SIZE["hidden_size"] // SIZE["num_attention_heads"]
        output[..., head * size : (head + 1) * size] = 0
        return (output, *arguments[1:])

    hook = projection and model.get_submodule(projection).register_forward_pre_hook(ablate)
    try:
        with torch.no_grad():
            return float(function(model(**{**GIVEN, **options})))
    finally:
        if hook:
            hook.remove()


@pytest.mark.parametrize(
    ("name", "projection", "function"),
    [
        ("BertForQuestionAnswering", BERT, start_of_span),
        ("LlamaForCausalLM", "model.layers.{}.self_attn.o_proj", early_logit),
    ],
)
def test_effects_of_heads_equal_ablation_by_hand(name: str, projection: str, function: Any) -> None:
    model = built(name, SIZE)
    before = by_hand(model, function)
    effects = av.head_effects(model, GIVEN, answer=function)
    assert effects.measure == f"value of {function.__name__}"
    for layer in (0, 1):
        expected = [by_hand(model, function, projection.format(layer), head) for head in range(4)]
        assert effects[layer] == pytest.approx(np.array(expected) - before, abs=1e-5)
        assert np.abs(effects[layer]).max() > 1e-3
    effect = av.intervene(model, GIVEN, av.Ablate(1, 2), answer=function).effect
    assert [effect.before, effect.after] == pytest.approx(
        [before, before + effects[1][2]], abs=1e-5
    )
    assert str(effect).startswith(f"value of {function.__name__}: ")


def test_the_answer_of_a_reranker_is_its_single_logit() -> None:
    model = built("BertForSequenceClassification", {**SIZE, "num_labels": 1})

    def score(output: Any) -> Any:
        return output.logits[0, 0]

    expected = [by_hand(model, score, BERT.format(1), head) for head in range(4)]
    effects = av.head_effects(model, GIVEN)
    assert effects.measure == "value of score"
    assert effects[1] == pytest.approx(np.array(expected) - by_hand(model, score), abs=1e-5)
    moved = av.permutation_effect(model, GIVEN, layer=1, head=0, query=0)
    assert (moved.measure, moved.median > 0) == ("value of score", True)


def test_removed_tokens_equal_explicit_forwards() -> None:
    model = built("BertForQuestionAnswering", SIZE)
    before = by_hand(model, widest)
    expected = []
    for token in range(COUNT):
        mask = torch.ones_like(IDS)
        mask[0, token] = 0
        expected.append(by_hand(model, widest, attention_mask=mask))
    effects = av.token_effects(model, GIVEN, answer=widest)
    assert effects.values == pytest.approx(np.array(expected) - before, abs=1e-5)
    curve = av.erasure_curve(model, GIVEN, effects, answer=widest, random_orders=2)
    assert curve.values[:2] == pytest.approx([before, min(expected)], abs=1e-5)
    assert len(curve.order) == COUNT
    assert "value of widest" in repr(curve)


def test_a_view_measures_a_function() -> None:
    model = built("BertForQuestionAnswering", SIZE)
    view = av.HeadView(av.extract(model, GIVEN), model=model, inputs=GIVEN)

    def answer_to(*changes: Any) -> dict[str, Any]:
        view.changes = list(changes)
        request = {"changes": list(map(change_to_json, view.changes))}
        header = whole_reply(view._channel._server, "intervene", request).header
        return dict(json.loads(json.dumps(header, allow_nan=False)))

    with pytest.raises(ValueError, match=r"no logits.*pass a function"):
        answer_to()
    view.answer = start_of_span
    before, after = (by_hand(model, start_of_span, *where) for where in ((), (BERT.format(1), 2)))
    assert answer_to()["sentence"] == f"Unchanged. Value of start_of_span: {before:.1f}."
    words = "Without head 1.2, the value of start_of_span goes from "
    assert answer_to(ABLATE)["sentence"].startswith(words)
    record = view.changed_record
    assert record is not None
    measured = [record.effect.before, record.effect.after]
    assert measured == pytest.approx([before, after], abs=1e-5)
    # The browser and an exported HTML page get only the name of the function.
    assert view.get_state("answer")["answer"]["function"] == "start_of_span"
    assert "the value of start_of_span goes from" in view.to_html()
    view.answer = lambda output: 2 * start_of_span(output)
    record = view.changed_record
    assert record is not None
    assert record.effect.after == pytest.approx(2 * after, abs=1e-5)
    with pytest.raises(traitlets.TraitError, match="must return one number"):
        view.answer = lambda output: output


def test_a_function_is_refused_with_a_position(decoder: Any) -> None:
    model, tokenizer = decoder
    options = {"tokenizer": tokenizer, "answer": early_logit, "position": 1}
    with pytest.raises(ValueError, match="position=1: answer is a function, which chooses"):
        av.token_effects(model, "the cat sat", **options)
