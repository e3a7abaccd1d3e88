"""Output of a model without weights, as with sdpa: the error says what to pass instead."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

import attnviz as av

TOKENS = ["a", "b", "c"]
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
WAY_OUT = (
    r"Pass the model itself, attnviz\.show_head_view\(model, text\).*attn_implementation=\"eager"
)


@pytest.fixture(scope="module")
def model() -> Any:
    config = transformers.BertConfig(**SIZE, intermediate_size=32, vocab_size=50)
    model: Any = transformers.BertModel(config).eval()
    model.set_attn_implementation("sdpa")
    return model


@pytest.fixture(scope="module")
def outputs(model: Any) -> Any:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        returned = model(torch.tensor([[1, 2, 3]]), output_attentions=True)
    # The tests are about an output without weights.
    assert not any(layer is not None for layer in returned.attentions or ())
    return returned


@pytest.mark.parametrize(
    "use",
    [
        lambda outputs: av.show_head_view(outputs.attentions, tokens=TOKENS),
        lambda outputs: av.show_matrix_view(outputs.attentions),
        lambda outputs: av.show_head_view(outputs, tokens=TOKENS),
        lambda outputs: av.AttentionRecord.from_weights(outputs.attentions, TOKENS),
        lambda _: av.show_head_view(None, tokens=TOKENS),
        lambda _: av.AttentionRecord.from_weights(encoder_attentions=(), encoder_tokens=TOKENS),
    ],
)
def test_the_error_asks_for_the_model(use: Callable[[Any], Any], outputs: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=WAY_OUT):
        use(outputs)


def test_an_output_as_a_record_is_refused_with_a_remedy(model: Any) -> None:
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        without = model(ids)
        model.set_attn_implementation("eager")
        outputs = model(ids, output_attentions=True)
    model.set_attn_implementation("sdpa")
    with pytest.raises(TypeError, match=f"the output of a model, without weights: .*{WAY_OUT}"):
        av.show_head_view(without, tokens=TOKENS)
    with pytest.raises(TypeError, match=r"Pass its weights, outputs\.attentions, with tokens="):
        av.show_head_view(outputs, tokens=TOKENS)
