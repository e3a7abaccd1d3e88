"""Errors for model outputs without attention weights, such as those of sdpa, name a remedy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import attnviz as av
from models.make_models import make_model

TOKENS = ["a", "b", "c"]


def outputs_of(implementation: str) -> Any:
    model = make_model("bert", implementation)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model(torch.tensor([[1, 2, 3]]), output_attentions=True)


@pytest.mark.parametrize(
    "use",
    [
        lambda outputs: av.show_head_view(outputs.attentions, tokens=TOKENS),
        lambda outputs: av.show_head_view(outputs, tokens=TOKENS),
        lambda outputs: av.AttentionRecord.from_weights(outputs.attentions, TOKENS),
        lambda _: av.AttentionRecord.from_weights(encoder_attentions=(), encoder_tokens=TOKENS),
    ],
)
def test_the_error_asks_for_the_model(use: Callable[[Any], Any]) -> None:
    outputs = outputs_of("sdpa")
    assert not any(layer is not None for layer in outputs.attentions or ())
    remedy = r"Pass the model itself, attnviz\.show_head_view\(model, text\).*attn_implementation="
    with pytest.raises((TypeError, ValueError), match=remedy):
        use(outputs)


def test_an_output_with_weights_is_no_record() -> None:
    with pytest.raises(TypeError, match=r"Pass its weights, outputs\.attentions, with tokens="):
        av.show_head_view(outputs_of("eager"), tokens=TOKENS)
