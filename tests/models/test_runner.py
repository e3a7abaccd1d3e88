"""Copies of a text with different changes give the same logits in a batch as in single runs."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.interventions.example import Example
from attnviz.interventions.runner import Copy, Runner
from models.interrupts import state_of
from models.make_models import make_model

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 7, 61]])
ANSWER = (7, 8)
CHANGES = (
    av.Knockout(8, [1, 2], layers=0),
    av.Knockout(5, 3, layers=1, heads=2, renormalize=False),
    av.HideTokens(4),
    av.Ablate(-1, 1),
    av.Ablate(1, 3, factor=0.5),
    av.SetWeights(1, 0, "previous token"),
)


def runner_of(model: Any) -> Runner:
    runner = Runner(Example.one(model, {"input_ids": IDS}, None, {}))
    runner.ask(ANSWER)
    return runner


def alone(model: Any, *changes: Any) -> float:
    effect = av.intervene(model, {"input_ids": IDS}, changes, answer=ANSWER).effect
    return float(effect.after)


def together(runner: Runner, *changes: Any) -> list[float]:
    copies = [Copy(runner.change(change)) for change in changes]
    return runner.answers(copies, doing="changes", unit="forward")


# BLOOM and DeBERTa have their own code for attention. Gemma 3n cannot use stored outputs of earlier
# layers, so every copy runs all layers.
@pytest.mark.parametrize("kind", ["gpt2", "bert", "bloom", "deberta-v2", "gemma3n"])
def test_copies_with_different_changes_have_the_answers_of_single_runs(kind: str) -> None:
    model = make_model(kind)
    before = state_of([model])
    runner = runner_of(model)
    answers = together(runner, *CHANGES, CHANGES[0])
    assert answers == pytest.approx([alone(model, c) for c in (*CHANGES, CHANGES[0])], abs=2e-6)
    assert min(abs(one - other) for one, other in combinations(answers[:-1], 2)) > 1e-5
    assert runner.noise < 2e-6
    both = runner.change(CHANGES[0], CHANGES[3])
    [answer] = runner.answers([Copy(both)], doing="changes", unit="forward")
    assert answer == pytest.approx(alone(model, CHANGES[0], CHANGES[3]), abs=2e-6)
    assert state_of([model]) == before


def test_copies_run_one_at_a_time_in_a_model_that_mixes_them() -> None:
    """A hook mixes the mean over the batch into each output, so copies affect each other."""
    model = make_model("gpt2")
    expected = [alone(model, change) for change in CHANGES]
    handle = model.get_output_embeddings().register_forward_hook(
        lambda _module, _args, output: output + 5 * (output.mean(dim=0) - output)
    )
    runner = runner_of(model)
    assert together(runner, *CHANGES) == pytest.approx(expected, abs=2e-6)
    effects = av.head_effects(model, {"input_ids": IDS}, answer=ANSWER, progress=False)
    tokens = av.token_effects(model, {"input_ids": IDS}, answer=ANSWER, progress=False)
    handle.remove()
    for measured, separate in (
        (np.stack(list(effects)), av.head_effects(model, {"input_ids": IDS}, answer=ANSWER)),
        (tokens.values, av.token_effects(model, {"input_ids": IDS}, answer=ANSWER).values),
    ):
        assert np.allclose(measured, np.stack(list(separate)), atol=2e-6, equal_nan=True)


def test_the_model_is_restored_after_an_error_in_a_batch() -> None:
    model = make_model("gpt2")
    runner = runner_of(model)
    together(runner, *CHANGES)
    before = state_of([model])

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run([Copy(runner.change(CHANGES[3]))] * 2, fail)
    assert state_of([model]) == before
    assert not any("forward" in module.__dict__ for module in model.modules())
    assert together(runner, CHANGES[1]) == pytest.approx([alone(model, CHANGES[1])], abs=2e-6)


@pytest.mark.parametrize("kind", ["llama", "bloom"])
def test_permuted_weights_have_the_effect_of_weights_that_are_set(kind: str) -> None:
    model = make_model(kind)
    inputs = {"input_ids": IDS}
    effect = av.permutation_effect(model, inputs, layer=1, head=2, answer=ANSWER, permutations=3)
    weights = av.extract(model, inputs).stack().weights(layer=1, head=2).copy()
    own, generator = weights[8].copy(), np.random.default_rng(0)
    for value in effect.values:
        weights[8] = own[generator.permutation(9)]
        changed = av.intervene(model, inputs, av.SetWeights(1, 2, weights), answer=ANSWER).effect
        assert value == pytest.approx(abs(changed.change), abs=2e-6)
        assert value > 1e-5
