"""Heads whose output is multiplied by a gate, compared with formulas on the model's own tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

import attnviz as av
from attnviz.extraction.capture.outputs import FollowedOutputs
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


def own_gates(model: Any, gate_name: str, inputs: Any) -> list[np.ndarray]:
    """Compute the mean gates of each softmax layer from the module's projection.

    The arrays are (batch, heads, queries).
    """
    seen: list[torch.Tensor] = []
    modules = [getattr(layer, "self_attn", None) for layer in model.model.layers]
    handles = [
        getattr(module, gate_name).register_forward_hook(lambda *args: seen.append(args[2]))
        for module in modules
        if module is not None
    ]
    with torch.no_grad():
        model(**inputs, use_cache=False)
    for handle in handles:
        handle.remove()
    gates = [logits.double().unflatten(-1, (HEADS, -1)) for logits in seen]
    if gate_name == "q_proj":
        gates = [both.chunk(2, dim=-1)[1] for both in gates]
    return [torch.sigmoid(of_layer).mean(-1).transpose(1, 2).numpy() for of_layer in gates]


@pytest.mark.parametrize(("model_type", "class_name", "gate_name"), GATED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("padding", ["left", "right"])
def test_gates_are_sigmoids_of_the_models_own_projection(
    model_type: str, class_name: str, gate_name: str, dtype: torch.dtype, padding: str
) -> None:
    model = tiny_model(model_type, class_name, {"num_key_value_heads": 2}).to(dtype)
    ids, mask = IDS[:, :10].repeat(2, 1), torch.ones(2, 10, dtype=torch.int64)
    unpadded = slice(3, 10) if padding == "left" else slice(0, 7)
    mask[1] = 0
    mask[1, unpadded] = 1
    inputs = {"input_ids": ids, "attention_mask": mask}
    expected = own_gates(model, gate_name, inputs)
    # The gate and its product with the output are each rounded to the dtype.
    limit = 2 * torch.finfo(dtype).eps
    for index, (record, kept) in enumerate(
        zip(av.extract(model, inputs), (slice(None), unpadded), strict=True)
    ):
        stack = record.stacks["self"]
        assert len(stack.layers) == len(expected)
        for layer, own in zip(stack.layers, expected, strict=True):
            assert_allclose(stack.gates(layer), own[index][:, kept], rtol=limit)
        means = [own[index][:, kept].mean(-1) for own in expected]
        assert_allclose(av.analysis.head_scores(stack, "gate"), means, rtol=limit)
        if "linear" in record.stacks:
            assert not record.stacks["linear"].has_gates


def test_dimensions_without_output_are_left_out_of_the_mean() -> None:
    model = tiny_model("afmoe", "AfmoeForCausalLM", {"num_key_value_heads": 2})
    parts = parts_of(model, "gate_proj")
    # The heads 0 and 1 read the first key head, and the heads 2 and 3 the second.
    module = model.model.layers[-1].self_attn
    with torch.no_grad():
        module.v_proj.weight[3 : module.head_dim] = 0
        module.v_proj.weight[module.head_dim :] = 0
    gates = av.extract(model, IDS).stack().gates(-1)
    assert gates is not None
    assert_allclose(gates[:2], parts["gates"][:2, :, :3].mean(-1), rtol=1e-5)
    assert np.isnan(gates[2:]).all()


def test_a_gate_per_head_may_exceed_1() -> None:
    """Laguna has the softplus of one number per head."""
    model = tiny_model("laguna", "LagunaForCausalLM", {})
    module = model.model.layers[-1].self_attn
    seen: list[torch.Tensor] = []
    handle = module.g_proj.register_forward_hook(lambda *args: seen.append(args[2][0]))
    with torch.no_grad():
        module.g_proj.weight *= 8
        model(IDS, use_cache=False)
    handle.remove()
    expected = nn.functional.softplus(seen[0].double()).T.numpy()
    assert expected.max() > 1
    assert_allclose(av.extract(model, IDS).stack().gates(-1), expected, rtol=1e-5)


def test_statistics_have_the_mean_gate_over_texts() -> None:
    model = tiny_model("qwen3_next", "Qwen3NextForCausalLM", {})
    texts = [IDS[0, :9].tolist(), IDS[0, 4:].tolist()]
    statistics = av.head_statistics(model, texts, progress=False).stack("self")
    of_texts = [
        [own[0].mean(-1) for own in own_gates(model, "q_proj", {"input_ids": torch.tensor([text])})]
        for text in texts
    ]
    assert_allclose(statistics.mean("gate"), np.mean(of_texts, axis=0), rtol=1e-5)


def test_models_without_a_gate_have_no_gates() -> None:
    model = tiny_model("qwen3", "Qwen3ForCausalLM", {})
    stack = av.extract(model, IDS, outputs=True).stack()
    assert (stack.has_outputs, stack.has_gates, stack.gates(0)) == (True, False, None)
    assert "gate" not in av.analysis.measures_of(stack)


class UnitNorm(torch.nn.Module):
    """Norm without parameters, as in Dory."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(vectors, dim=-1)


def test_gates_are_looked_for_until_a_model_is_known_to_have_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = []
    original = FollowedOutputs.watch

    def watch(self: Any, undo: Any) -> None:
        watched.append(self)
        original(self, undo)

    monkeypatch.setattr(FollowedOutputs, "watch", watch)
    for model_type, count in (("llama", 1), ("qwen3_next", 3)):
        model = tiny_model(model_type, None, {})
        watched.clear()
        for _ in range(3):
            av.extract(model, IDS)
        assert len(watched) == count
    # Outputs of heads need output projections, so models without gates are observed for them, too.
    plain = tiny_model("llama", None, {})
    av.extract(plain, IDS)
    assert av.extract(plain, IDS, outputs=True).stack().has_outputs


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


OTHERS = [torch.tensor([[7, 9, 31, 5, 88]]), torch.tensor([[61, 5, 12, 100, 3, 44, 71]])]


def at_their_mean(model: Any, layer: int, head: int, texts: list[torch.Tensor]) -> Any:
    """Set the input of the output projection to its mean over texts, by a plain hook.

    Return the handle of the hook.
    """
    projection = model.model.layers[layer].self_attn.o_proj
    seen: list[torch.Tensor] = []
    handle = projection.register_forward_pre_hook(lambda _, args: seen.append(args[0][0]))
    with torch.no_grad():
        for text in texts:
            model(text, use_cache=False)
    handle.remove()
    mean = torch.cat(seen).mean(dim=0)
    width = len(mean) // HEADS
    columns = slice(head * width, (head + 1) * width)

    def edit(_: Any, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        inputs = args[0].clone()
        inputs[..., columns] = mean[columns]
        return (inputs, *args[1:])

    return projection.register_forward_pre_hook(edit)


def answer_of(model: Any, text: torch.Tensor) -> float:
    with torch.no_grad():
        logits = model(text, use_cache=False).logits[0, -1].double()
    return float(logits[5] - logits[7])


@pytest.mark.parametrize(("model_type", "class_name", "gate_name"), GATED)
def test_a_head_is_set_to_its_mean_after_the_gate(
    model_type: str, class_name: str, gate_name: str
) -> None:
    model = tiny_model(model_type, class_name, {})
    # Gates of a random model are almost 0.5 everywhere. Others change the mean of a product.
    module = model.model.layers[-1].self_attn
    with torch.no_grad():
        getattr(module, gate_name).weight.mul_(8)
    layer = av.extract(model, IDS).stacks["self"].layers[-1]
    ablation = av.Ablate(layer, 1, stack="self", mean_of=OTHERS)
    record = av.intervene(model, IDS, ablation, answer=(5, 7))
    texts = [IDS, *OTHERS]
    effects = av.head_effects(model, texts, answer=(5, 7), ablate="mean", stack="self")
    before = answer_of(model, IDS)
    handle = at_their_mean(model, layer, 1, OTHERS)
    expected = answer_of(model, IDS) - before
    handle.remove()
    assert record.effect.change == pytest.approx(expected, abs=max(1e-6, 1e-4 * abs(expected)))
    assert abs(expected) > 1e-4
    of_texts = []
    for index, text in enumerate(texts):
        before = answer_of(model, text)
        handle = at_their_mean(model, layer, 2, [*texts[:index], *texts[index + 1 :]])
        of_texts.append(answer_of(model, text) - before)
        handle.remove()
    assert effects[-1][2] == pytest.approx(np.mean(of_texts), abs=1e-5)
    assert answer_of(model, IDS) == pytest.approx(record.effect.before, abs=1e-5)


def test_a_head_keeps_its_mean_while_the_model_generates() -> None:
    model = tiny_model("afmoe", "AfmoeForCausalLM", {})
    layer = len(model.model.layers) - 1
    settings: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False}
    ablation = av.Ablate(layer, [0, 1, 2, 3], mean_of=OTHERS)
    record = av.intervene(model, IDS, ablation, generate=settings, progress=False)
    handles = [at_their_mean(model, layer, head, OTHERS) for head in range(HEADS)]
    own = model.generate(IDS, **settings, eos_token_id=None)
    for handle in handles:
        handle.remove()
    stack = record.stacks["self"]
    assert list(stack.query_tokens.ids)[COUNT:] == own[0, COUNT:].tolist()
