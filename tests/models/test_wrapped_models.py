"""Extraction from objects that contain one transformers model, and from a model of timm."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from attnviz import AttentionRecord, extract
from models.image_models import softmaxes
from models.make_models import make_model
from rounding import forwards_error

TEXT = "The animal didn't cross the street because it was too tired."
IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5]])


def same(one: AttentionRecord, other: AttentionRecord) -> bool:
    """Return whether two records have the same tokens, and equal weights up to rounding."""
    pairs = zip(one.to_numpy("self"), other.to_numpy("self"), strict=True)
    error = forwards_error(one)
    return one.tokens == other.tokens and all(np.abs(a - b).max() < error for a, b in pairs)


def test_a_sentence_transformer_brings_its_tokenizer(checkpoint_folder: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    encoder = library.SentenceTransformer(str(checkpoint_folder), device="cpu")
    assert same(extract(encoder, TEXT), extract(str(checkpoint_folder), TEXT))


def test_a_trainer(tmp_path: Path) -> None:
    model = make_model("llama")
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), report_to="none")
    trainer = transformers.Trainer(model=model, args=arguments)
    assert same(extract(trainer, IDS), extract(model, IDS))


class Lightning(nn.Module):
    """Module with a loss and models, as in PyTorch Lightning."""

    def __init__(self, **models: nn.Module) -> None:
        super().__init__()
        self.loss = nn.CrossEntropyLoss()
        self.parts = nn.ModuleDict(models)


def test_a_module_around_one_model() -> None:
    model = make_model("llama")
    compiled: Any = torch.compile(model, backend="eager")
    assert same(extract(Lightning(model=compiled), IDS), extract(model, IDS))


def test_a_module_around_two_models_is_refused() -> None:
    model = make_model("llama")
    with pytest.raises(TypeError, match=r"Lightning, which contains 2 models\. Pass one"):
        extract(Lightning(student=model, teacher=copy.deepcopy(model)), IDS)


def test_a_model_of_timm(timm: Any, timm_wrapper: None) -> None:
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2).eval()
    pixels = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    record = extract(model, {"pixel_values": pixels})
    stack = record.stacks["vision"]
    assert [*stack.query_tokens.text[:3], stack.query_tokens.text[-1]] == [
        "[CLS]", "0,0", "0,1", "3,3",
    ]  # fmt: skip
    weights_by_layer, expected = record.to_numpy("vision"), softmaxes(model, pixels)
    assert len(weights_by_layer) == len(expected) == 2
    for weights, own in zip(weights_by_layer, expected, strict=True):
        assert np.abs(weights - own[0].numpy()).max() < forwards_error(record)
