"""Records are correct for models in half precision or int8, compiled, offloaded or with hooks."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from transformers import modeling_flash_attention_utils

from attnviz import AttentionRecord, extract
from models import flash_attention
from models.make_models import largest_error, make_model
from models.tiny import reference

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5, 61, 40, 12]])


def received(model: Any, run: Callable[[], Any]) -> list[dict[str, Any]]:
    """Call `run`, and return the arguments of each call of the SDPA attention function."""
    table = transformers.AttentionInterface._global_mapping
    own, calls = table["sdpa"], []

    def noting(module: Any, query: Any, key: Any, value: Any, mask: Any, **options: Any) -> Any:
        calls.append({"query": query, "key": key, "mask": mask, **options})
        return own(module, query, key, value, mask, **options)

    assert model.config._attn_implementation == "sdpa"
    table["sdpa"] = noting
    try:
        run()
    finally:
        table["sdpa"] = own
    return calls


def softmax_of(call: dict[str, Any]) -> NDArray[np.float32]:
    """Compute the weights (heads, queries, keys) of a call in the result of `received`.

    A call without a mask is causal.
    """
    query, key = call["query"][0].float(), call["key"][0].float()
    key = key.repeat_interleave(len(query) // len(key), dim=0)
    logits = query @ key.transpose(1, 2) * call["scaling"]
    mask = call["mask"]
    count = logits.shape[-1]
    allowed = torch.ones(count, count, dtype=torch.bool).tril() if mask is None else mask[0, 0]
    weights = torch.softmax(logits.masked_fill(~allowed, -torch.inf), dim=-1)
    values: NDArray[np.float32] = weights.numpy()
    return values


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_half_precision(kind: str, dtype: torch.dtype) -> None:
    model = make_model(kind).to(dtype)
    records: list[AttentionRecord] = []
    calls = received(model, lambda: records.append(extract(model, IDS)))
    for weights, call in zip(records[0].to_numpy(), calls, strict=True):
        assert np.abs(weights - softmax_of(call)).max() < 1e-4
    assert any("float32 softmax" in note for note in records[0].notes)
    # Eager attention rounds logits and weights to half precision, so its weights differ slightly.
    model.set_attn_implementation("eager")
    with torch.no_grad():
        own = model(input_ids=IDS, output_attentions=True).attentions
    first = np.abs(own[0][0].float().numpy() - records[0].to_numpy()[0]).max()
    assert 0 < first < {torch.bfloat16: 0.05, torch.float16: 0.005}[dtype]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("kind", ["llama", "gemma2", "mistral"])
def test_flex_attention(kind: str) -> None:
    model = make_model(kind)
    own = reference(model, {"input_ids": IDS})
    model.set_attn_implementation("flex_attention")
    # Prevent a compilation, which takes most of a minute on a CPU.
    with torch.compiler.set_stance("force_eager"):
        assert largest_error(extract(model, IDS), own) < 1e-5


@pytest.mark.parametrize("kind", ["llama", "gemma2", "mistral", "bert"])
def test_calls_of_flash_attention_3(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second text of the batch has padding, which transformers removes before the call."""
    package = flash_attention.package()
    names: list[str] = []

    def noting(function: Any) -> Any:
        @functools.wraps(function)
        def noted(*args: Any, **options: Any) -> Any:
            names.append(function.__name__)
            return function(*args, **options)

        return noted

    for name in ("flash_attn_func", "flash_attn_varlen_func"):
        setattr(package, name, noting(getattr(package, name)))
    monkeypatch.setitem(sys.modules, flash_attention.NAME, package)
    monkeypatch.setattr(modeling_flash_attention_utils, "_loaded_implementation", None)
    model = make_model(kind).to(torch.bfloat16)
    ids = torch.cat([IDS, IDS.flip(1)])
    mask = torch.ones_like(ids)
    mask[1, -3:] = 0
    model.set_attn_implementation("eager")
    own = extract(model, {"input_ids": ids, "attention_mask": mask})
    # Without a GPU, transformers refuses this implementation in `set_attn_implementation`.
    model.config._attn_implementation = "flash_attention_3"
    records = extract(model, {"input_ids": ids, "attention_mask": mask})
    assert set(names) == {"flash_attn_varlen_func"}
    alone = extract(model, IDS)
    assert set(names) == {"flash_attn_varlen_func", "flash_attn_func"}
    for record, expected in ((records[0], own[0]), (records[1], own[1]), (alone, own[0])):
        pairs = list(zip(record.to_numpy(), expected.to_numpy(), strict=True))
        assert np.abs(np.subtract(*pairs[0])).max() < 1e-5
        assert max(np.abs(one - other).max() for one, other in pairs) < 0.05


def counting_backend(counts: list[int]) -> Callable[..., Any]:
    """Return a backend for `torch.compile` that appends 1 to `counts` when compiled code runs."""

    def backend(graph: Any, inputs: Any) -> Any:
        del inputs

        def run(*arguments: Any) -> Any:
            counts.append(1)
            return graph(*arguments)

        return run

    return backend


@pytest.mark.slow
@pytest.mark.parametrize("how", ["whole", "in place", "a layer", "its forward"])
def test_a_compiled_model(how: str) -> None:
    model = make_model("llama")
    own = reference(model, {"input_ids": IDS})
    counts: list[int] = []
    options: dict[str, Any] = {"backend": counting_backend(counts)}
    compiled = model
    if how == "whole":
        compiled = torch.compile(model, **options)
    elif how == "in place":
        model.compile(**options)
    elif how == "a layer":
        model.model.layers[1] = torch.compile(model.model.layers[1], **options)
    else:
        model.forward = torch.compile(model.forward, **options)
    with torch.no_grad():
        before = compiled(input_ids=IDS).logits
    ran = len(counts)
    assert ran > 0
    assert largest_error(extract(compiled, IDS), own) < 1e-5
    assert len(counts) == ran
    with torch.no_grad():
        after = compiled(input_ids=IDS).logits
    # After the extraction, the model is still compiled and returns the same logits.
    assert len(counts) > ran
    assert torch.equal(before, after)
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_int8_weights() -> None:
    model = make_model("llama")
    with torch.no_grad():
        quantised = torch.ao.quantization.quantize_dynamic(
            model, {torch.nn.Linear}, dtype=torch.qint8
        )
        records: list[AttentionRecord] = []
        calls = received(quantised, lambda: records.append(extract(quantised, IDS)))
    for weights, call in zip(records[0].to_numpy(), calls, strict=True):
        assert np.abs(weights - softmax_of(call)).max() < 1e-4


@pytest.mark.parametrize("offloaded", [False, True])
def test_device_map(tmp_path: Path, *, offloaded: bool) -> None:
    """The parameters of an offloaded layer are on disk, except while the layer runs."""
    pytest.importorskip("accelerate", reason="pip install accelerate")
    model = make_model("llama")
    model.save_pretrained(tmp_path / "model")
    device_map: Any = "auto"
    if offloaded:
        on_disk = ("model.embed_tokens", "model.layers.1", "lm_head")
        others = ("model.layers.0", "model.layers.2", "model.norm", "model.rotary_emb")
        device_map = dict.fromkeys(on_disk, "disk") | dict.fromkeys(others, "cpu")
    spread = transformers.LlamaForCausalLM.from_pretrained(
        tmp_path / "model", device_map=device_map, offload_folder=str(tmp_path / "offloaded")
    )
    devices = {parameter.device.type for parameter in spread.parameters()}
    assert ("meta" in devices) == offloaded
    own = {"self": [weights[None] for weights in extract(model, IDS).to_numpy()]}
    assert largest_error(extract(spread, IDS), own) < 1e-6
    assert {parameter.device.type for parameter in spread.parameters()} == devices


def test_hooks_of_the_user_run() -> None:
    model = copy.deepcopy(make_model("llama"))
    for layer in model.model.layers:
        layer.self_attn.q_proj.register_forward_hook(lambda _module, _args, output: output * 0.5)
    halved = copy.deepcopy(make_model("llama"))
    with torch.no_grad():
        for layer in halved.model.layers:
            layer.self_attn.q_proj.weight *= 0.5
    own = reference(halved, {"input_ids": IDS})
    plain = reference(make_model("llama"), {"input_ids": IDS})
    assert np.abs(own["self"][0] - plain["self"][0]).max() > 0.1
    assert largest_error(extract(model, IDS), own) < 1e-5
