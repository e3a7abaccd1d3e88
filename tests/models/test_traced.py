"""Models that do not use transformers' `AttentionInterface` are read correctly or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attnviz import extract
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, DenseBias
from model_types.build import tiny_model
from models.make_models import largest_error, make_model
from models.tiny import reference

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5, 61]])
CLASSES = {
    "bloom": "BloomForCausalLM",
    "openai-gpt": "OpenAIGPTModel",
    "gpt_neox_japanese": "GPTNeoXJapaneseForCausalLM",
    "deberta": "DebertaModel",
    "deberta-v2": "DebertaV2Model",
    "xlnet": "XLNetModel",
}


def model_of(model_type: str) -> Any:
    """Return a tiny model of a type in `CLASSES`. Its parameters are the same in every call."""
    relative = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
    settings = relative if model_type.startswith("deberta") else {}
    return tiny_model(model_type, CLASSES[model_type], settings)


def test_queries_and_keys_give_the_weights_by_hand() -> None:
    """BLOOM adds 2^(-8 i / num_heads) times the key position to logits of head i = 1, 2, ..."""
    stack = extract(model_of("bloom"), {"input_ids": IDS}).stacks["self"]
    positions = np.arange(IDS.shape[1])
    for head in range(4):
        queries, keys = (side(layer=1, head=head) for side in (stack.queries, stack.keys))
        assert queries is not None
        assert keys is not None
        logits = queries @ keys.T / np.sqrt(16) + 2.0 ** (-2 * (head + 1)) * positions
        logits[positions[:, None] < positions] = -np.inf
        powers = np.exp(logits - logits.max(1, keepdims=True))
        expected = powers / powers.sum(1, keepdims=True)
        assert np.abs(stack.weights(layer=1, head=head) - expected).max() < 1e-5


def test_a_position_bias_is_stored_compactly_and_a_causal_mask_is_recognised() -> None:
    attention = extract(model_of("bloom"), {"input_ids": IDS}).stacks["self"].attention(0)
    assert isinstance(attention, QueryKeyAttention)
    assert attention.mask == BandMask(None, 0)
    assert isinstance(attention.bias, DenseBias)
    assert attention.bias.values.shape == (4, 1, IDS.shape[1])


@pytest.mark.parametrize("kind", ["deberta", "deberta-v2", "xlnet"])
def test_disentangled_attention_notes_that_products_are_only_a_part(kind: str) -> None:
    record = extract(model_of(kind), {"input_ids": IDS})
    assert any("only a part of the logits" in note for note in record.notes)


@pytest.mark.parametrize("again", [False, True])
def test_modules_that_the_forward_replaces(*, again: bool) -> None:
    """BigBird-Pegasus replaces modules of its encoder in the first forward of a short text."""
    model = make_model("bigbird_pegasus")
    arguments = {"input_ids": IDS, "decoder_input_ids": IDS[:, :4]}
    own = reference(model, arguments)
    if again:
        extract(model, arguments)
    assert largest_error(extract(model, arguments), own) < 1e-5


class _Times(torch.nn.Module):
    """Module that multiplies attention weights by `factor`. It replaces a dropout module."""

    def __init__(self, factor: torch.Tensor, *, in_place: bool) -> None:
        super().__init__()
        self.factor, self.in_place = factor, in_place

    def forward(self, weights: torch.Tensor) -> torch.Tensor:
        return weights.mul_(self.factor) if self.in_place else weights * self.factor


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("kind", ["bloom", "openai-gpt", "gpt_neox_japanese"])
def test_weights_that_are_changed_after_the_softmax_are_refused(kind: str, in_place: bool) -> None:
    def with_factor(factor: torch.Tensor) -> Any:
        model = model_of(kind)
        for module in list(model.modules()):
            for name in {"attention_dropout", "attn_dropout"} & set(dict(module.named_children())):
                setattr(module, name, _Times(factor, in_place=in_place))
        return model

    arguments = {"input_ids": IDS}
    plain = extract(model_of(kind), arguments)
    same = extract(with_factor(torch.ones(1, 4, 1, 1)), arguments)
    for one, other in zip(plain.to_numpy(), same.to_numpy(), strict=True):
        assert np.allclose(one, other, atol=1e-6)
    less = torch.tensor([1.0, 1.0, 0.5, 1.0]).view(1, 4, 1, 1)
    with pytest.raises(NotImplementedError, match=r"changes its attention weights after the soft"):
        extract(with_factor(less), arguments)
