"""Erasure curves, sufficient tokens and permutation effects equal results of plain forwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from models.explicit_attention import attention_function
from models.make_models import make_model

TEXT = "the animal did not cross the street because it was too wide so the"


@pytest.fixture(scope="module")
def decoder() -> tuple[Any, dict[str, Any]]:
    model, tokenizer = av.demos.load("decoder")
    return model, {"tokenizer": tokenizer, "answer": ("street", "animal")}


def without(model: Any, options: dict[str, Any], gone: Any) -> float:
    """Compute the difference of two logits without attnviz, with the tokens at `gone` masked.

    The logits are those of the two tokens in ``options["answer"]``.
    """
    tokenizer = options["tokenizer"]
    encoded = tokenizer(TEXT, return_tensors="pt")
    mask = torch.ones_like(encoded["input_ids"])
    mask[0, list(gone)] = 0
    positions = torch.arange(mask.shape[1])[None]
    with torch.no_grad():
        row = model(encoded["input_ids"], attention_mask=mask, position_ids=positions).logits[0, -1]
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"][0] for text in options["answer"]]
    return float(row[ids[0]] - row[ids[1]])


def test_a_curve_has_the_answer_without_each_number_of_tokens(decoder: Any) -> None:
    model, options = decoder
    effects = av.token_effects(model, TEXT, **options)
    curve = av.erasure_curve(model, TEXT, effects, random_orders=5, **options)
    assert curve.order[0] == int(np.nanargmin(effects.values))
    for count in (0, 1, 4, 13):
        expected = without(model, options, curve.order[:count])
        assert curve.values[count] == pytest.approx(expected, abs=1e-4)
    assert curve.flips_after == int(np.flatnonzero(curve.values <= 0)[0]) == 1
    # The ranking erases the most important token first. Random orders usually erase it later.
    assert curve.random_flips_after > 2
    assert curve.random_mean.shape == curve.random_standard_error.shape == curve.values.shape


def test_random_orders_have_the_mean_and_the_standard_error_of_a_sample(decoder: Any) -> None:
    model, options = decoder
    # Tokens with the score NaN are not erased, so each random order begins with token 1 or 5.
    ranking = [np.nan] * 14
    ranking[1], ranking[5] = 2.0, 1.0
    curve = av.erasure_curve(model, TEXT, ranking, random_orders=5, **options)
    first, second = (without(model, options, [token]) for token in (1, 5))
    share_of_first = (curve.random_mean[1] - second) / (first - second)
    num_first = round(5 * share_of_first)
    assert 0 < num_first < 5
    assert share_of_first == pytest.approx(num_first / 5, abs=1e-3)
    answers = [first] * num_first + [second] * (5 - num_first)
    expected = np.std(answers, ddof=1) / 5**0.5
    assert curve.random_standard_error[1] == pytest.approx(expected, rel=1e-3)


def test_the_smallest_sufficient_set_is_found(decoder: Any) -> None:
    model, options = decoder
    tokens = av.sufficient_tokens(model, TEXT, **options)
    assert tokens.exact
    assert tokens.texts == ("wide",)
    # Token 13, the last, is always kept. With this token alone, “animal” is more likely.
    choice = range(13)
    assert without(model, options, choice) <= 0
    alone = [without(model, options, set(choice) - {token}) for token in choice]
    assert tokens.positions == (int(np.argmax(alone)),)
    assert tokens.value == pytest.approx(max(alone), abs=1e-4)


def test_the_sufficient_set_of_a_long_text_is_marked_as_inexact(decoder: Any) -> None:
    model, options = decoder
    text = f"the dog saw the cat . {TEXT}"
    tokens = av.sufficient_tokens(model, text, **options)
    assert not tokens.exact
    assert tokens.value > 0
    assert 0 < len(tokens.positions) < 19


def test_invalid_arguments_are_refused(decoder: Any) -> None:
    model, options = decoder
    with pytest.raises(ValueError, match=r"ranking has shape \(3,\)"):
        av.erasure_curve(model, TEXT, [1, 2, 3], **options)
    with pytest.raises(ValueError, match="have the score NaN"):
        av.erasure_curve(model, TEXT, [np.nan] * 14, **options)
    with pytest.raises(ValueError, match="more likely than the other"):
        av.sufficient_tokens(model, TEXT, **(options | {"answer": ("animal", "street")}))


def test_a_permutation_equals_a_permuted_row_by_hand(register: Callable[..., str]) -> None:
    """The reference is an attention function that permutes the weights of the last query."""
    model, ids = make_model("llama"), torch.tensor([[5, 17, 42, 17, 99, 8, 23, 7, 61]])
    effect = av.permutation_effect(model, ids, layer=1, head=2, permutations=3)
    assert effect.num_keys == 9
    with pytest.raises(ValueError, match="may attend to 1 key"):
        av.permutation_effect(model, ids, layer=1, head=2, query=0)
    keys: list[int] = []

    def permuted(module: Any, logits: torch.Tensor) -> torch.Tensor:
        weights = logits.softmax(dim=-1)
        if keys and module.layer_idx == 1:
            weights[0, 2, 8] = weights[0, 2, 8, keys]
        return weights

    model.set_attn_implementation(register("permuted", attention_function(permuted)))
    generator = np.random.default_rng(0)
    with torch.no_grad():
        before = model(ids).logits[0, -1].softmax(dim=-1)
        for value in effect.values:
            keys[:] = generator.permutation(9).tolist()
            after = model(ids).logits[0, -1].softmax(dim=-1)
            assert value == pytest.approx(float((after - before).abs().sum()) / 2, abs=1e-6)
            assert value > 1e-4
