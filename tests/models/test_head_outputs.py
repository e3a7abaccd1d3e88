"""Outputs of heads, and their norms, equal those computed from the model's own modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import traitlets
import transformers
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from torch import nn

import attnviz as av
from attnviz.extraction.capture.stacks import StackLayers
from attnviz.extraction.tokens.arrange import _reorder
from attnviz.record.attention import QueryKeyAttention

TEXTS = ["the cat sat on the table", "the dog", "a cat and the dog and the cat ran", "the table"]
SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512}


def make_model(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "gpt2":
        config: Any = transformers.GPT2Config(n_embd=24, n_layer=2, n_head=4, vocab_size=512)
    elif kind == "llama":
        config = transformers.LlamaConfig(**SIZES, num_key_value_heads=2, intermediate_size=32)
    elif kind == "bert":
        config = transformers.BertConfig(**SIZES, intermediate_size=32)
    else:
        config = transformers.BloomConfig(hidden_size=24, n_layer=2, n_head=4, vocab_size=512)
    return transformers.AutoModel.from_config(config).eval()


def projections(model: Any) -> list[tuple[nn.Module, torch.Tensor]]:
    """Return the output projection of each layer with its matrix, (inputs, outputs)."""
    if model.config.model_type == "gpt2":
        return [(block.attn.c_proj, block.attn.c_proj.weight) for block in model.h]
    if model.config.model_type == "llama":
        modules = [layer.self_attn.o_proj for layer in model.layers]
    else:
        modules = [layer.attention.output.dense for layer in model.encoder.layer]
    return [(module, module.weight.T) for module in modules]


def added_by_heads(model: Any, ids: torch.Tensor) -> NDArray[np.float64]:
    """Use hooks to compute what each head adds to the residual stream.

    The result has the shape (layers, heads, queries, width).
    """
    inputs: list[torch.Tensor] = []
    handles = [
        module.register_forward_pre_hook(lambda _, given: inputs.append(given[0][0].double()))
        for module, _ in projections(model)
    ]
    with torch.no_grad():
        model(ids)
    for handle in handles:
        handle.remove()
    added = []
    for given, (_, matrix) in zip(inputs, projections(model), strict=True):
        width = len(matrix) // 4
        parts = [slice(width * head, width * (head + 1)) for head in range(4)]
        added.append([(given[:, part] @ matrix.detach().double()[part]).numpy() for part in parts])
    return np.array(added)


def relative_norms(added: NDArray[np.float64]) -> NDArray[np.float64]:
    norms = np.sqrt((added**2).sum(axis=3)).mean(axis=2)
    result: NDArray[np.float64] = norms / norms.mean(axis=1, keepdims=True)
    return result


def encoded(tokenizer: Any, text: str) -> torch.Tensor:
    ids: torch.Tensor = tokenizer(text, return_tensors="pt")["input_ids"]
    return ids


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_outputs_have_the_norms_and_inner_products_of_the_models_own(
    decoder: tuple[Any, Any], kind: str
) -> None:
    model, tokenizer = make_model(kind), decoder[1]
    ids = encoded(tokenizer, TEXTS[2])
    added = added_by_heads(model, ids)
    record = av.extract(model, ids, outputs=True)
    for layer, own in enumerate(added):
        outputs = record.stack().outputs(layer)
        assert outputs is not None
        assert outputs.shape == (4, ids.shape[1], 6)
        products = outputs @ outputs.transpose(0, 2, 1)
        assert_allclose(products, own @ own.transpose(0, 2, 1), atol=1e-5 * np.abs(own).max() ** 2)
    assert_allclose(
        av.analysis.head_scores(record, "output norm"), relative_norms(added), rtol=1e-4
    )


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_statistics_are_means_over_texts_without_padding(
    decoder: tuple[Any, Any], kind: str, batch_size: int
) -> None:
    model, tokenizer = make_model(kind), decoder[1]
    statistics = av.head_statistics(
        model, TEXTS, tokenizer=tokenizer, batch_size=batch_size, progress=False
    )
    own = [relative_norms(added_by_heads(model, encoded(tokenizer, text))) for text in TEXTS]
    assert_allclose(statistics.stack().mean("output norm"), np.mean(own, axis=0), rtol=1e-4)
    assert statistics.notes == []
    table = statistics.to_pandas()
    rows = table[table["score"] == "output norm"]
    assert_allclose(rows["mean"], np.mean(own, axis=0).ravel(), rtol=1e-4)
    assert rows["baseline"].isna().all()


def test_parts_and_files_have_the_same_scores(decoder: tuple[Any, Any], tmp_path: Any) -> None:
    model, tokenizer = decoder
    whole, *parts = (
        av.head_statistics(
            model,
            TEXTS,
            tokenizer=tokenizer,
            batch_size=1,
            part=part,
            progress=False,
        )
        for part in (None, (0, 2), (1, 2))
    )
    loaded = av.HeadStatistics.load(whole.save(tmp_path / "whole"))
    for other in (parts[0] + parts[1], loaded):
        assert_allclose(
            other.stack().mean("output norm"), whole.stack().mean("output norm"), rtol=1e-12
        )


def test_models_with_an_unknown_projection_have_a_note_in_place_of_the_score(
    decoder: tuple[Any, Any],
) -> None:
    model, tokenizer = make_model("bloom"), decoder[1]
    note = (
        "The outputs of heads are not shown for layers 0, 1 of stack “self”, because no linear "
        "output projection was found."
    )
    statistics = av.head_statistics(model, TEXTS, tokenizer=tokenizer, progress=False)
    assert "output norm" not in statistics.stack().score_names
    assert statistics.notes == [note]
    record = av.extract(model, TEXTS[0], tokenizer=tokenizer, outputs=True)
    assert note in record.notes
    assert record.stack().outputs(0) is None
    with pytest.raises(traitlets.TraitError, match=f"{note}$"):
        av.HeadView(record, order="output norm")
    plain = av.extract(model, TEXTS[0], tokenizer=tokenizer)
    with pytest.raises(traitlets.TraitError, match=r"Pass a record of .*outputs=True\)\.$"):
        av.HeadView(plain, order="output norm")


class Rounded(nn.Module):
    """Projection with a weight of integers, like a projection of a quantized model."""

    def __init__(self, matrix: torch.Tensor, bias: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter((matrix * 100).round().to(torch.int8), requires_grad=False)
        self.bias = bias

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs @ (self.weight.float() / 100) + self.bias


def test_projections_with_a_quantized_weight_are_read_from_their_results() -> None:
    model = make_model("gpt2")
    ids = torch.arange(9)[None]
    for block in model.h:
        matrix = torch.randn(24, 24)
        block.attn.c_proj = Rounded(matrix, torch.randn(24))
    record = av.extract(model, ids, outputs=True)
    inputs: list[torch.Tensor] = []
    for block in model.h:
        block.attn.c_proj.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    with torch.no_grad():
        model(ids)
    for layer, block in enumerate(model.h):
        outputs = record.stack().outputs(layer)
        assert outputs is not None
        for head in range(4):
            part = slice(6 * head, 6 * head + 6)
            own = inputs[layer][0, :, part] @ (block.attn.c_proj.weight[part].float() / 100)
            assert_allclose(np.linalg.norm(outputs[head], axis=1), own.norm(dim=1), rtol=1e-4)


def test_outputs_are_sorted_with_the_patches_of_an_image() -> None:
    vectors, outputs = torch.randn(1, 3, 2), torch.randn(1, 3, 2)
    layers = StackLayers(
        "vision", [], [{0: QueryKeyAttention(vectors, vectors, 1.0)}], outputs=[{0: outputs}]
    )
    _reorder(layers, 0, torch.tensor([2, 0, 1]))
    assert_allclose(layers.examples[0][0].parts["queries"], vectors[:, [2, 0, 1]])
    assert_allclose(layers.outputs[0][0], outputs[:, [2, 0, 1]])


def test_outputs_cannot_be_spooled(decoder: tuple[Any, Any], tmp_path: Any) -> None:
    model, tokenizer = decoder
    with pytest.raises(ValueError, match="outputs=True keeps outputs in memory"):
        av.extract(model, TEXTS[0], tokenizer=tokenizer, outputs=True, spool=tmp_path)
