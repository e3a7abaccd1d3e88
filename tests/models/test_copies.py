"""Interventions on models whose last layers read keys and values of earlier layers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from models.explicit_attention import attention_function
from models.tiny import SIZE, built

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 7, 61]])
PAIR = (7, 8)
TEXT = {
    **SIZE,
    "num_hidden_layers": 5,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "vocab_size": 120,
    "vocab_size_per_layer_input": 120,
    "hidden_size_per_layer_input": 8,
    "sliding_window": 4,
    "num_kv_shared_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"] * 2 + ["full_attention"],
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
#: The batch is the second axis of Gemma 3n's hidden states. In both models, a layer cannot run from
#: the hidden states alone, because the last layers read keys and values of earlier layers.
MODELS = {
    "gemma3n": (
        "Gemma3nForCausalLM",
        {**TEXT, "laurel_rank": 4, "activation_sparsity_pattern": [0.0] * 5},
    ),
    "gemma4": ("Gemma4ForCausalLM", {**TEXT, "global_head_dim": 12}),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    """A model of each kind in float64, with query and key projections multiplied by 4."""
    return built(*MODELS[request.param], factor=4.0).double()


def difference(outputs: Any) -> float:
    row = outputs.logits[0, -1].double()
    return float(row[PAIR[0]] - row[PAIR[1]])


def test_effects_of_heads_equal_columns_of_zeros(model: Any) -> None:
    """The reference is the model with the head's columns of the projection set to 0."""
    effects = av.head_effects(model, IDS, answer=PAIR)
    with torch.no_grad():
        before = difference(model(IDS))
        for layer, values in zip(effects.layers, effects, strict=True):
            for head in range(4):
                cut = copy.deepcopy(model)
                projection = cut.model.layers[layer].self_attn.o_proj
                projection.weight[:, 12 * head : 12 * (head + 1)] = 0
                expected = difference(cut(IDS)) - before
                assert values[head] == pytest.approx(expected, abs=1e-9)
                assert abs(expected) > 1e-5


def test_integrated_gradients_equal_slopes_of_autograd(model: Any) -> None:
    """The numbers of a layer sum to an integral over a factor that scales its outputs."""
    steps = 4
    record = av.attribute(
        model, IDS, answer=PAIR, method="integrated gradients", steps=steps, dtype=torch.float64
    )
    nodes, shares = np.polynomial.legendre.leggauss(steps)

    def slope(layer: int, factor: float) -> float:
        """Return the derivative of the answer by a factor of the layer's outputs, by autograd."""
        scale = torch.tensor(factor, dtype=torch.float64, requires_grad=True)
        projection = model.model.layers[layer].self_attn.o_proj
        hook = projection.register_forward_pre_hook(lambda _, args: (args[0] * scale,))
        try:
            row = model(IDS).logits[0, -1]
        finally:
            hook.remove()
        [derivative] = torch.autograd.grad(row[PAIR[0]] - row[PAIR[1]], [scale])
        return float(derivative)

    for layer in (0, 1):
        slopes = [slope(layer, float(node)) for node in (nodes + 1) / 2]
        expected = float(np.dot(shares / 2, slopes))
        weights = record.stack().weights(layer=layer).astype(np.float64).sum()
        # The model's norms and the numbers of a record are float32.
        assert weights == pytest.approx(expected, rel=1e-4, abs=1e-6)
        assert abs(expected) > 1e-3


def test_a_permutation_equals_a_permuted_row_by_hand(
    model: Any, register: Callable[..., str]
) -> None:
    """The reference is an attention function that permutes the same row."""
    keys: list[int] = []

    def permuted(module: Any, logits: torch.Tensor) -> torch.Tensor:
        weights = logits.softmax(dim=-1)
        if keys and module.layer_idx == 1:
            weights[0, 2, 8] = weights[0, 2, 8, keys]
        return weights

    effect = av.permutation_effect(model, IDS, layer=1, head=2, permutations=3)
    assert effect.num_keys == 9
    assert effect.noise < 1e-6
    model.set_attn_implementation(register("permuted", attention_function(permuted)))
    generator = np.random.default_rng(0)
    with torch.no_grad():
        before = model(IDS).logits[0, -1].softmax(dim=-1)
        for value in effect.values:
            keys[:] = generator.permutation(9).tolist()
            after = model(IDS).logits[0, -1].softmax(dim=-1)
            # A record's weights are float32.
            assert value == pytest.approx(float((after - before).abs().sum()) / 2, abs=1e-6)
            assert value > 1e-4
