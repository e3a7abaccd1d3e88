"""Heads whose output is multiplied by a gate, compared with formulas on the model's own tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import attnviz as av
from model_types.build import tiny_model

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5, 61, 7, 7, 12] * 2])
COUNT, HEADS = IDS.shape[1], 4
# Model type, class, and the name of the module that computes the gate. In the Qwen models, the
# query projection returns queries and gates of each head, one after the other.
GATED = [
    ("qwen3_next", "Qwen3NextForCausalLM", "q_proj"),
    ("qwen3_5_text", "Qwen3_5ForCausalLM", "q_proj"),
    ("afmoe", "AfmoeForCausalLM", "gate_proj"),
]


def parts_of(model: Any, gate_name: str) -> dict[str, np.ndarray]:
    """Return gates, values and projection rows of the heads of the last layer, by plain hooks."""
    module = model.model.layers[-1].self_attn
    seen: dict[str, torch.Tensor] = {}
    handles = [
        getattr(module, name).register_forward_hook(
            lambda _, args, output, name=name: seen.update({name: output, f"{name} in": args[0]})
        )
        for name in {gate_name, "v_proj", "o_proj"}
    ]
    with torch.no_grad():
        model(IDS, use_cache=False)
    for handle in handles:
        handle.remove()
    gates = seen[gate_name][0]
    if gate_name == "q_proj":
        gates = gates.view(COUNT, HEADS, -1).chunk(2, dim=-1)[1].flatten(1)
    values = seen["v_proj"][0].view(COUNT, -1, module.head_dim).transpose(0, 1)
    return {
        "gates": torch.sigmoid(gates).view(COUNT, HEADS, -1).transpose(0, 1).double().numpy(),
        "values": values.repeat_interleave(HEADS // len(values), 0).double().numpy(),
        "rows": module.o_proj.weight.detach().double().T.view(HEADS, module.head_dim, -1).numpy(),
        "gated": seen["o_proj in"][0].view(COUNT, HEADS, -1).transpose(0, 1).double().numpy(),
    }


@pytest.mark.parametrize(("model_type", "class_name", "gate_name"), GATED)
def test_value_norms_are_those_of_gated_values(
    model_type: str, class_name: str, gate_name: str
) -> None:
    model = tiny_model(model_type, class_name, {})
    parts = parts_of(model, gate_name)
    record = av.extract(model, IDS)
    layer = record.stacks["self"].layers[-1]
    added = np.einsum("hqd,hkd,hda->hqka", parts["gates"], parts["values"], parts["rows"])
    expected = record.stacks["self"].weights(layer=layer) * np.linalg.norm(added, axis=-1)
    attributed = av.attribute(model, IDS, method="value norm").stacks["self"]
    assert_allclose(attributed.weights(layer=layer), expected, atol=1e-4 * expected.max())
    block = attributed.attention(layer).block([2], slice(4, 9), slice(1, 6))
    assert_allclose(block[0], expected[2, 4:9, 1:6], atol=1e-4 * expected.max())
    bound = attributed.attention(layer).bound
    assert bound is not None
    assert expected.max() <= bound


@pytest.mark.parametrize(("model_type", "class_name", "gate_name"), GATED)
def test_outputs_of_heads_are_gated(model_type: str, class_name: str, gate_name: str) -> None:
    model = tiny_model(model_type, class_name, {})
    parts = parts_of(model, gate_name)
    stack = av.extract(model, IDS, outputs=True).stacks["self"]
    outputs = stack.outputs(stack.layers[-1])
    assert outputs is not None
    expected = np.linalg.norm(parts["gated"] @ parts["rows"], axis=-1)
    assert_allclose(np.linalg.norm(outputs, axis=-1), expected, atol=1e-4 * expected.max())


def test_direct_attributions_pass_the_gate() -> None:
    """The gradient of the logits at the last norm, with a constant scale, is worked by hand."""
    model = tiny_model("qwen3_next", "Qwen3NextForCausalLM", {})
    parts = parts_of(model, "q_proj")
    norm = model.model.norm
    seen: list[torch.Tensor] = []
    handle = norm.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        model(IDS, use_cache=False)
    handle.remove()
    stream = seen[0][0, -1].double()
    scale = (stream.square().mean() + norm.eps).sqrt()
    unembed = (model.lm_head.weight[5] - model.lm_head.weight[7]).detach().double()
    direction = (unembed * (1 + norm.weight.detach().double()) / scale).numpy()
    attributed = av.attribute(model, IDS, method="direct", answer=(5, 7)).stacks["self"]
    layer = attributed.layers[-1]
    expected = parts["gated"][:, -1, None] @ parts["rows"] @ direction
    sums = attributed.weights(layer=layer)[:, -1].sum(axis=1)
    assert_allclose(sums, expected[:, 0], atol=1e-4 * np.abs(expected).max())


class UnitNorm(torch.nn.Module):
    """Norm without parameters, as in Dory."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(vectors, dim=-1)


@pytest.mark.parametrize("gated", [False, True])
def test_a_norm_after_the_attention_is_no_gate(*, gated: bool) -> None:
    """BitNet normalizes the outputs of all heads together, so no head adds to the stream alone."""
    model: Any = tiny_model("bitnet", "BitNetForCausalLM", {})
    if gated:
        model = tiny_model("afmoe", "AfmoeForCausalLM", {})
        for layer in model.model.layers:
            layer.self_attn.o_proj = torch.nn.Sequential(UnitNorm(), layer.self_attn.o_proj)
    with pytest.raises(NotImplementedError, match="no known output projection"):
        av.attribute(model, IDS, method="value norm")
