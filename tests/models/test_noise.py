"""The noise of effects bounds their rounding errors, which are differences from float64."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import attnviz as av
from models.interrupts import state_of
from models.make_models import make_model

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 7, 61], [11, 3, 250, 8, 399, 71, 3, 12, 90]])
PAIR = (7, 8)
Values = NDArray[np.float64]


def inputs_of(kind: str, text: int) -> dict[str, torch.Tensor]:
    ids = IDS[text : text + 1]
    decoder = {"decoder_input_ids": ids[:, :4]} if kind == "t5" else {}
    return {"input_ids": ids, **decoder}


def in_two_dtypes(kind: str, dtype: torch.dtype) -> tuple[Any, Any]:
    """Return a model in `dtype`, and a model with the same parameters in float64."""
    model = copy.deepcopy(make_model(kind)).to(dtype)
    return model, copy.deepcopy(model).double()


def effects_of(model: Any, inputs: Any, pair: Any) -> list[tuple[Values, float]]:
    """Return effects and their noise: of all heads, of all tokens, of a cut, and of an ablation."""
    options: dict[str, Any] = {"answer": pair, "progress": False}
    heads = av.head_effects(model, inputs, **options)
    tokens = av.token_effects(model, inputs, **options)
    values = tokens.values[~np.isnan(tokens.values)]
    made = [(np.concatenate(heads.values), heads.noise), (values, tokens.noise)]
    for change in (
        av.Knockout(-1, 1, layers=1, heads=2, stack=heads.stack),
        av.Ablate(1, 1, stack=heads.stack),
    ):
        effect = av.intervene(model, inputs, change, **options).effect
        made.append((np.array([effect.change]), effect.noise))
    return made


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_most_rounding_errors_do_not_exceed_the_noise(dtype: torch.dtype) -> None:
    errors, bounds = [], []
    # `AlbertModel` has no logits, so effects are measured on its hidden states.
    for kind in ("gpt2", "llama", "bert", "t5", "albert"):
        model, exact = in_two_dtypes(kind, dtype)
        pair = None if kind == "albert" else PAIR
        for text in (0, 1):
            inputs = inputs_of(kind, text)
            pairs = zip(
                effects_of(model, inputs, pair), effects_of(exact, inputs, pair), strict=True
            )
            for (values, noise), (expected, _) in pairs:
                errors.append(np.abs(values - expected))
                bounds.append(np.full(len(values), noise))
    error, bound = np.concatenate(errors), np.concatenate(bounds)
    # If the noise were 0, only the share of effects without an error would be below it.
    assert np.mean(error > 0) > 0.8
    assert np.mean(error <= bound) >= 0.9


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_head_that_adds_almost_nothing_has_no_effect_above_the_noise(dtype: torch.dtype) -> None:
    model = copy.deepcopy(make_model("gpt2")).to(dtype)
    with torch.no_grad():
        model.transformer.h[1].attn.c_proj.weight[:12] *= 2.0**-20
    inputs = inputs_of("gpt2", 0)
    effects = av.head_effects(model, inputs, answer=PAIR)
    assert abs(effects[1][0]) <= effects.noise
    effect = av.intervene(model, inputs, av.Ablate(1, 0), answer=PAIR).effect
    assert abs(effect.change) <= effect.noise
    assert "no larger than the noise" in str(effect)


def test_other_measurements_have_a_noise_in_half_precision() -> None:
    model = copy.deepcopy(make_model("llama")).to(torch.bfloat16)
    inputs = inputs_of("llama", 0)
    # The logits are about 1, and have the relative precision 2 ** -8.
    asked: dict[str, Any] = {"answer": lambda output: 10 + output.logits[0, -1, 7].double()}
    noises = {
        "permutation": av.permutation_effect(model, inputs, layer=1, head=0).noise,
        "erasure": av.erasure_curve(model, inputs, np.arange(9.0), random_orders=2, **asked).noise,
        "sufficient": av.sufficient_tokens(model, inputs, **asked).noise,
    }
    for name, noise in noises.items():
        assert 1e-5 < noise < 1, name


def test_the_noise_is_reproducible_and_leaves_nothing_behind() -> None:
    model = copy.deepcopy(make_model("gpt2")).to(torch.float16)
    before, state = state_of([model]), torch.get_rng_state()
    inputs = inputs_of("gpt2", 0)
    one, other = (av.head_effects(model, inputs, answer=PAIR).noise for _ in range(2))
    assert one == other > 0
    assert torch.equal(torch.get_rng_state(), state)
    assert state_of([model]) == before


def test_effects_say_that_they_do_not_exceed_the_noise() -> None:
    model = copy.deepcopy(make_model("bert")).to(torch.bfloat16)
    inputs = inputs_of("bert", 0)
    heads = av.head_effects(model, inputs, answer=PAIR)
    below = sum(int((np.abs(values) <= heads.noise).sum()) for values in heads)
    view = av.ModelView(av.extract(model, inputs), scores={"effect": heads})
    words = "no effect exceeds" if below == 12 else f"{below} of 12 effects do not exceed"
    for text in (repr(heads), view.score_notes["effect"]):
        assert text.rstrip(")>").endswith(f", which {words}")
