"""NaN in a model raises an error. Under torch.autocast, a record gets a note but is unchanged."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnviz import extract
from models.make_models import make_model

IDS = torch.tensor([[5, 17, 42, 17, 99, 8]])


@pytest.mark.parametrize("kind", ["bert", "bloom"])
def test_nan_in_any_head_is_an_error(kind: str) -> None:
    model = make_model(kind)
    attention = model.bert.encoder.layer[0].attention.self if kind == "bert" else None
    layer = attention.query if attention else model.transformer.h[0].self_attention.query_key_value
    with torch.no_grad():
        layer.weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match="NaN"):
        extract(model, IDS)


@pytest.mark.parametrize("kind", ["llama", "bloom"])
def test_autocast_changes_no_record(kind: str) -> None:
    stack = extract(make_model(kind), IDS).stacks["self"]
    outside = stack.weights(layer=1)
    with torch.autocast("cpu", torch.bfloat16):
        inside = stack.weights(layer=1)
    assert np.array_equal(outside, inside)


def test_extraction_under_autocast_adds_a_note() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        record = extract(make_model("llama"), IDS)
    assert any("autocast" in note or "computes in bfloat16" in note for note in record.notes)
    half = extract(make_model("llama"), IDS, dtype="bfloat16")
    assert not any("computes in bfloat16" in note for note in half.notes)
