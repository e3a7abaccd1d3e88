"""Quantised models: their weights, the outputs of their heads, statistics and gradients.

Tests of a kind are skipped if its package is missing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.testing import assert_allclose
from torch import nn

import attnviz as av
from attnviz import demos
from models.tiny import built
from rounding import forwards_error

pytestmark = pytest.mark.filterwarnings("ignore")

TOKENIZER = demos.load("decoder")[1]
TEXTS = demos.sentences()[:4]
HEADS, HEAD_DIM, LAYERS = 4, 32, 2
CONFIG = {
    "hidden_size": HEADS * HEAD_DIM,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": len(TOKENIZER),
    "max_position_embeddings": 64,
}


def plain_model() -> Any:
    return built("LlamaForCausalLM", CONFIG)


def dynamic(_folder: Path) -> Any:
    return torch.ao.quantization.quantize_dynamic(plain_model(), {nn.Linear}, dtype=torch.qint8)


def loaded(folder: Path, settings: Any) -> Any:
    plain_model().save_pretrained(folder)
    return transformers.LlamaForCausalLM.from_pretrained(
        folder, quantization_config=settings, device_map="cpu", dtype=torch.float32
    )


def torchao(name: str) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        pytest.importorskip("torchao", reason="pip install torchao")
        from torchao import quantization  # type: ignore[import-not-found, unused-ignore]

        return loaded(folder, transformers.TorchAoConfig(getattr(quantization, name)()))

    return make


def bitsandbytes(**settings: Any) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        pytest.importorskip("bitsandbytes", reason="pip install bitsandbytes")
        return loaded(folder, transformers.BitsAndBytesConfig(**settings))

    return make


def compressed(folder: Path) -> Any:
    """Return a model with weights of 8 bits, which were saved by compressed-tensors."""
    pytest.importorskip("compressed_tensors", reason="pip install compressed-tensors")
    from compressed_tensors.compressors import (  # type: ignore[import-not-found, unused-ignore]
        ModelCompressor,
    )
    from compressed_tensors.quantization import (  # type: ignore[import-not-found, unused-ignore]
        QuantizationConfig,
        apply_quantization_config,
        preset_name_to_scheme,
    )

    model = plain_model()
    scheme = preset_name_to_scheme("W8A16", ["Linear"])
    settings = QuantizationConfig(config_groups={"all": scheme}, ignore=["lm_head"])
    apply_quantization_config(model, settings)
    for module in model.modules():
        if hasattr(module, "weight_scale"):
            largest = module.weight.detach().abs().amax(dim=1, keepdim=True)
            module.weight_scale.data = largest / 127
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)
    return transformers.LlamaForCausalLM.from_pretrained(
        folder, device_map="cpu", dtype=torch.float32
    )


MAKERS = {
    "dynamic int8": dynamic,
    "torchao int8": torchao("Int8WeightOnlyConfig"),
    "torchao int8, inputs too": torchao("Int8DynamicActivationInt8WeightConfig"),
    "torchao int8 in blocks": torchao("IntxWeightOnlyConfig"),
    "torchao float8": torchao("Float8WeightOnlyConfig"),
    "bitsandbytes int8": bitsandbytes(load_in_8bit=True),
    "bitsandbytes fp4": bitsandbytes(load_in_4bit=True, bnb_4bit_quant_type="fp4"),
    "bitsandbytes nf4": bitsandbytes(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    "compressed-tensors int8": compressed,
}
# Kinds that round the inputs of a projection to 8 bits. If the largest input is at most 6 times the
# standard deviation, the error of the inputs is at most 6 / 254 of their norm.
ROUNDS_INPUTS = {"dynamic int8", "torchao int8, inputs too", "bitsandbytes int8"}
# On some CPUs, bitsandbytes computes with weights of 4 bits in bfloat16: the inputs and the weights
# are rounded to 8 bits of mantissa.
HALF = {"bitsandbytes fp4", "bitsandbytes nf4"}


def tolerance(kind: str) -> float:
    return 6 / 254 if kind in ROUNDS_INPUTS else 2**-7 if kind in HALF else 1e-5


@pytest.fixture(params=MAKERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(kind: str, tmp_path: Path) -> Any:
    return MAKERS[kind](tmp_path).eval()


def output_projections(model: Any) -> list[nn.Module]:
    return [layer.self_attn.o_proj for layer in model.model.layers]


def inputs_of(modules: list[Any], run: Callable[[], Any]) -> list[torch.Tensor]:
    """Return the first input of each module during `run`."""
    taken: list[torch.Tensor] = []
    hooks = [
        module.register_forward_pre_hook(lambda _, inputs: taken.append(inputs[0].clone()))
        for module in modules
    ]
    with torch.no_grad():
        run()
    for hook in hooks:
        hook.remove()
    return taken


def test_weights_and_outputs_are_the_models_own(model: Any, kind: str) -> None:
    model.set_attn_implementation("eager")
    # The model runs first in `extract`. Some kinds convert their weights in the first forward.
    record = av.extract(model, TEXTS[0], tokenizer=TOKENIZER, outputs=True)
    ids = TOKENIZER(TEXTS[0], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        own = model(input_ids=ids, output_attentions=True).attentions
    for weights, expected in zip(record.to_numpy(), own, strict=True):
        assert np.abs(weights - expected[0].numpy()).max() <= forwards_error(record)
    projections = output_projections(model)
    inputs = inputs_of(projections, lambda: model(input_ids=ids))
    for layer, projection in enumerate(projections):
        outputs = record.stack().outputs(layer)
        assert outputs is not None
        for head in range(HEADS):
            part = torch.zeros_like(inputs[layer])
            columns = slice(HEAD_DIM * head, HEAD_DIM * (head + 1))
            part[..., columns] = inputs[layer][..., columns]
            with torch.no_grad():
                own_norms = projection(part)[0].norm(dim=-1).numpy()
            norms = np.linalg.norm(outputs[head], axis=-1)
            assert np.abs(norms - own_norms).max() <= tolerance(kind) * own_norms.max()


def test_statistics_of_several_calls_can_be_added(model: Any) -> None:
    """The hash of the weights is the same before and after the first forward."""
    parts = [
        av.head_statistics(model, texts, tokenizer=TOKENIZER, progress=False)
        for texts in (TEXTS[:2], TEXTS[2:], TEXTS)
    ]
    added = (parts[0] + parts[1]).stack().mean("output norm")
    assert_allclose(added, parts[2].stack().mean("output norm"), rtol=1e-6)


def test_value_norms_are_those_of_the_projection(model: Any, kind: str) -> None:
    attributed = av.attribute(
        model, TEXTS[0], tokenizer=TOKENIZER, method="value norm", progress=False
    )
    record = av.extract(model, TEXTS[0], tokenizer=TOKENIZER)
    ids = TOKENIZER(TEXTS[0], return_tensors="pt")["input_ids"]
    attention = model.model.layers[0].self_attn
    [hidden] = inputs_of([attention.v_proj], lambda: model(input_ids=ids))
    with torch.no_grad():
        values = attention.v_proj(hidden)[0].unflatten(-1, (2, HEAD_DIM))
        for head in range(HEADS):
            part = torch.zeros(1, len(values), HEADS * HEAD_DIM)
            part[..., HEAD_DIM * head : HEAD_DIM * (head + 1)] = values[:, head // 2]
            norms = attention.o_proj(part)[0].norm(dim=-1).numpy()
            expected = record.to_numpy()[0][head] * norms
            result = attributed.to_numpy()[0][head]
            assert np.abs(result - expected).max() <= tolerance(kind) * norms.max()


GRADIENT: dict[str, Any] = {"tokenizer": TOKENIZER, "answer": 5, "progress": False}


@pytest.mark.parametrize("kind", ["dynamic int8", "torchao int8, inputs too"])
@pytest.mark.parametrize("method", ["gradient", "integrated gradients", "direct"])
def test_missing_gradients_are_refused(kind: str, method: Any, tmp_path: Path) -> None:
    model = MAKERS[kind](tmp_path)
    with pytest.raises(NotImplementedError, match=r"gradients do not pass .*o_proj"):
        av.attribute(model, TEXTS[0], method=method, **GRADIENT)
    # The error recommends these.
    av.attribute(model, TEXTS[0], tokenizer=TOKENIZER, method="value norm", progress=False)
    av.head_effects(model, TEXTS[0], **GRADIENT)


@pytest.mark.parametrize(
    "kind",
    ["torchao int8", "torchao int8 in blocks", "torchao float8", "compressed-tensors int8"],
)
def test_gradients_are_those_of_plain_weights(kind: str, tmp_path: Path) -> None:
    model, plain = MAKERS[kind](tmp_path).eval(), plain_model()
    with torch.no_grad():
        model(torch.tensor([[1]]))
        for name, module in plain.named_modules():
            if isinstance(module, nn.Linear):
                unit_vectors = torch.eye(module.in_features)
                module.weight.copy_(model.get_submodule(name)(unit_vectors).T)
    methods: list[Any] = ["gradient", "direct"]
    for method in methods:
        result, expected = (
            av.attribute(either, TEXTS[0], method=method, **GRADIENT).to_numpy()[-1]
            for either in (model, plain)
        )
        assert np.abs(result - expected).max() <= 1e-4 * np.abs(expected).max()


def test_other_weights_have_another_hash() -> None:
    pytest.importorskip("torchao", reason="pip install torchao")
    from torchao import quantization

    statistics = []
    for factor in (1.0, 1.5):
        model = copy.deepcopy(plain_model())
        with torch.no_grad():
            model.model.layers[1].self_attn.o_proj.weight *= factor
        quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
        statistics.append(
            av.head_statistics(model, TEXTS, tokenizer=TOKENIZER, name="same", progress=False)
        )
    with pytest.raises(ValueError, match="weights of the model"):
        statistics[0] + statistics[1]
