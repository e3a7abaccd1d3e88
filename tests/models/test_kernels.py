"""Linear layers have the same weights if kernels of fla and mamba-ssm compute their outputs.

The tests run on a CUDA device, or in Triton's interpreter (`make kernels`).
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from transformers import AutoModelForCausalLM

import attnviz as av
from attnviz.extraction.capture.linear import globals_of
from attnviz.extraction.families import LINEAR_RULES
from model_types.build import tiny_model
from model_types.reference import noted_rules
from models import interpreter

pytestmark = pytest.mark.gpu

if interpreter.INTERPRETS:
    interpreter.prepare()

DEVICE = "cpu" if interpreter.INTERPRETS else "cuda"
# Largest error of the output of a kernel, relative to its largest output. On a GPU, kernels may
# multiply in TF32.
ROUNDING = 1e-4 if interpreter.INTERPRETS else 2.0**-7
IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5, 61, 7, 7, 12] * 6])


@pytest.fixture(autouse=True)
def _kernels() -> None:
    pytest.importorskip("fla", reason="pip install flash-linear-attention")
    pytest.importorskip("mamba_ssm", reason="pip install mamba-ssm")


def is_kernel(rule: Any) -> bool:
    """Whether a rule of transformers calls a kernel."""
    return bool(inspect.getclosurevars(rule).nonlocals["is_new_implementation"])


def check_weights(model: Any, inputs: Any) -> list[Any]:
    """Compare the weights of an extraction with the rules that ran. Return these rules.

    The weights must be the outputs of each rule for one-hot values. For rules of transformers, the
    torch function that the kernel replaces computes these outputs.
    """
    with noted_rules(model, LINEAR_RULES) as calls:
        stack = av.extract(model, inputs).stacks["linear"]
    assert len(calls) == stack.num_layers
    for layer, (rule, arguments, output) in zip(stack.layers, calls, strict=True):
        name = next(name for name in ("value", "hidden_states", "v", "x") if name in arguments)
        values = arguments[name]
        count, heads = values.shape[1:3]
        one_hot = torch.eye(count, device=DEVICE)[None, :, None].repeat(1, 1, heads, 1)
        with torch.no_grad():
            result = inspect.unwrap(rule)(**{**arguments, name: one_hot})
        result = result[0] if isinstance(result, tuple) else result
        weights = stack.weights(layer=layer)
        expected = result[0].transpose(0, 1).cpu().numpy()
        assert_allclose(weights, expected, atol=ROUNDING * np.abs(expected).max())
        own = output[0].transpose(0, 1).cpu().numpy()
        recomputed = weights @ values[0].transpose(0, 1).cpu().numpy()
        assert_allclose(recomputed, own, atol=ROUNDING * np.abs(own).max())
    return [rule for rule, _, _ in calls]


@pytest.mark.parametrize(
    ("model_type", "count"),
    [
        ("qwen3_next", 70),
        ("qwen3_5_text", 20),
        ("olmo_hybrid", 20),
        ("kimi_linear", 20),
        ("bamba", 20),
        ("falcon_h1", 20),
        ("granitemoehybrid", 20),
        ("nemotron_h", 20),
    ],
)
def test_kernels_give_the_weights_of_torch(model_type: str, count: int) -> None:
    model = tiny_model(model_type, None, {}).to(DEVICE)
    assert all(map(is_kernel, check_weights(model, IDS[:, :count])))


def test_the_kernel_of_mamba_1_gives_the_shares_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("falcon_mamba", None, {}).to(DEVICE)
    weights = av.extract(model, IDS).stacks["linear"].weights(layer=0)
    space = globals_of(model.layers[0].mixer)
    rule = space["mamba_selective_scan"]
    assert is_kernel(rule)
    monkeypatch.setitem(space, "mamba_selective_scan", inspect.unwrap(rule))
    expected = av.extract(model, IDS).stacks["linear"].weights(layer=0)
    assert_allclose(weights, expected, atol=ROUNDING * np.abs(expected).max())


@pytest.mark.parametrize("model_type", ["qwen3_next", "bamba"])
def test_kernels_in_half_precision_pass_the_check(model_type: str) -> None:
    model = tiny_model(model_type, None, {}).to(DEVICE, torch.float16)
    record = av.extract(model, IDS[:, :20])
    assert record.stacks["linear"].layers == (0, 1)


def test_the_output_of_a_kernel_can_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("qwen3_next", "Qwen3NextForCausalLM", {}).to(DEVICE)
    change = av.Knockout(queries=9, keys=5, layers=0, stack="linear")
    effect = av.intervene(model, IDS[:, :20], change, answer=5).effect
    space = globals_of(model.model.layers[0].linear_attn)
    name = "torch_chunk_gated_delta_rule"
    monkeypatch.setitem(space, name, inspect.unwrap(space[name]))
    expected = av.intervene(model, IDS[:, :20], change, answer=5).effect
    difference = expected.after - expected.before
    assert abs(effect.after - effect.before - difference) < max(ROUNDING, 0.05 * abs(difference))


def test_the_package_kernels_makes_a_rule_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = pytest.importorskip("kernels", reason="pip install kernels")
    model = tiny_model("qwen3_next", None, {}).to(DEVICE)
    weights = av.extract(model, IDS[:, :20]).stacks["linear"].weights(layer=0)
    space = globals_of(model.layers[0].linear_attn)
    name = "torch_chunk_gated_delta_rule"
    module = kernels.use_kernel_forward_from_hub("chunk_gated_delta_rule")(space[name])
    assert isinstance(module, torch.nn.Module)
    monkeypatch.setitem(space, name, module)
    again = av.extract(model, IDS[:, :20]).stacks["linear"].weights(layer=0)
    assert np.array_equal(again, weights)


def model_of_fla(name: str, **settings: Any) -> Any:
    models = pytest.importorskip("fla.models")
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 128}
    # The parts of a layer outside of its rule are computed by torch, and not by fused kernels.
    plain = {"fuse_norm": False, "fuse_swiglu": False, "fuse_cross_entropy": False}
    config = getattr(models, f"{name}Config")(**sizes, **plain, use_cache=False, **settings)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    # Make queries, keys, gates and strengths larger than those of a random model.
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if any(part in path for part in ("q_proj", "k_proj", "f_proj", "a_proj", "b_proj")):
                parameter.mul_(8)
    return model.to(DEVICE)


HEADS = {"num_heads": 4, "head_dim": 16}


@pytest.mark.parametrize(
    ("name", "settings", "count", "rule"),
    [
        ("GatedDeltaNet", HEADS, 8, "fused_recurrent_gated_delta_rule"),
        ("GatedDeltaNet", HEADS, 70, "chunk_gated_delta_rule"),
        (
            "GatedDeltaNet",
            {**HEADS, "allow_neg_eigval": True, "num_v_heads": 8, "use_short_conv": False},
            8,
            "fused_recurrent_gated_delta_rule",
        ),
        ("KDA", HEADS, 8, "fused_recurrent_kda"),
        (
            "KDA",
            {**HEADS, "allow_neg_eigval": True, "safe_gate": True, "lower_bound": -5.0},
            8,
            "fused_recurrent_kda",
        ),
        ("DeltaNet", {"num_heads": 4}, 8, "fused_recurrent_delta_rule"),
        ("Mamba2", {"head_dim": 16, "state_size": 16}, 8, "mamba_chunk_scan_combined"),
    ],
)
def test_models_of_fla(
    name: str,
    settings: dict[str, Any],
    count: int,
    rule: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if interpreter.INTERPRETS and name == "Mamba2":
        kind = pytest.importorskip("fla.layers").Mamba2
        # The layer calls its kernels only on a GPU.
        monkeypatch.setattr(kind, "torch_forward", kind.cuda_kernels_forward)
    model = model_of_fla(name, **settings)
    ids = IDS[:, :count]
    # If layers get a mask, they also pass the two ends of the text to the rule (`cu_seqlens`).
    inputs = ids if name == "Mamba2" else {"input_ids": ids, "attention_mask": ids.ne(-1).long()}
    assert {function.__name__ for function in check_weights(model, inputs)} == {rule}


def test_padding_of_a_model_of_fla() -> None:
    model = model_of_fla("GatedDeltaNet", **HEADS)
    mask = torch.ones_like(IDS[:, :10])
    mask[0, :4] = 0
    padded = av.extract(model, {"input_ids": IDS[:, :10], "attention_mask": mask})
    alone = av.extract(model, IDS[:, 4:10])
    for layer in alone.stacks["linear"].layers:
        expected = alone.stacks["linear"].weights(layer=layer)
        weights = padded.stacks["linear"].weights(layer=layer)
        assert_allclose(weights, expected, atol=ROUNDING * np.abs(expected).max())


def test_packed_texts_and_unknown_rules_are_errors() -> None:
    model = model_of_fla("GatedDeltaNet", **HEADS)
    ids = IDS[:, :4].repeat(2, 1)
    with pytest.raises(NotImplementedError, match=r"layers\.0\.attn.*cu_seqlens.*Pass one text"):
        av.extract(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    with pytest.raises(ValueError, match=r"GLAForCausalLM.*linear attention with a known rule"):
        av.extract(model_of_fla("GLA", num_heads=4), IDS[:, :10])
