"""Records of decoders: windows, shared keys, latent attention, layers of hybrids.

`model_types` compares their weights with the models' own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attnviz import extract
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask
from model_types.build import tiny_model
from models.tiny import built, reference

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5, 61, 7, 7, 12]])
COUNT = IDS.shape[1]


def record_of(model_type: str, settings: dict[str, Any], **options: Any) -> Any:
    """Return the record of a tiny model with changes to its configuration."""
    return extract(tiny_model(model_type, None, settings), IDS, **options)


def test_a_prompt_that_the_model_removes_from_its_output() -> None:
    """CPM-Ant inserts learned vectors before the text."""
    settings = {
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "dim_head": 12,
        "dim_ff": 64,
        "vocab_size": 400,
        "prompt_length": 3,
    }
    model = built("CpmAntForCausalLM", settings)
    record = extract(model, IDS)
    names = ("[virtual0]", "[virtual1]", "[virtual2]", "#5", "#17")
    assert record.tokens.text[:5] == names
    for number, layer in enumerate(reference(model, {"input_ids": IDS})["self"]):
        weights = record.stacks["self"].weights(layer=number)
        assert weights.shape == (4, COUNT + 3, COUNT + 3)
        assert np.abs(weights[:, 3:, 3:] - layer[0]).max() < 1e-5
    assert any("Its output does not contain them" in note for note in record.notes)


def test_missing_rows_are_an_error() -> None:
    """Gemma 4 with ``logits_to_keep=1`` computes only the last query in its last layers."""
    settings = {
        "num_hidden_layers": 5,
        "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2 + ["full_attention"],
    }
    model: Any = tiny_model("gemma4_text", "Gemma4ForCausalLM", settings)

    def only_the_last(module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        del module
        return args, {**kwargs, "logits_to_keep": 1}

    model.model.register_forward_pre_hook(only_the_last, with_kwargs=True)
    with pytest.raises(NotImplementedError, match="1 of the 12 tokens of the text"):
        extract(model, IDS)


@pytest.mark.parametrize(
    ("model_type", "windowed"), [("mistral", (0, 1)), ("gemma2", (0, 2)), ("gpt_oss", (0, 2))]
)
def test_windows_are_stored_as_band_masks(model_type: str, windowed: tuple[int, ...]) -> None:
    """A window has four tokens: the query itself and three before it."""
    stack = record_of(model_type, {"sliding_window": 4}).stacks["self"]
    distance = np.arange(COUNT)[:, None] - np.arange(COUNT)
    for number in stack.layers:
        within = (distance >= 0) & (distance < (4 if number in windowed else COUNT))
        assert np.array_equal(stack.allowed(layer=number, head=0), within)
        assert not stack.weights(layer=number)[:, ~within].any()
        mask = stack.attention(number).mask
        assert mask == BandMask(3 if number in windowed else None, 0)


def test_latent_attention_shares_the_rotated_part_of_keys() -> None:
    """DeepSeek-V2 (2024), eq. 15: every head's key ends with the same rotated vector."""
    stack = record_of("deepseek_v3", {"qk_nope_head_dim": 8, "qk_rope_head_dim": 4}).stacks["self"]
    for layer in stack.layers:
        keys = np.stack([stack.keys(layer=layer, head=head) for head in range(4)])
        assert keys.shape == (4, COUNT, 8 + 4)
        assert np.array_equal(keys[:, :, 8:], np.broadcast_to(keys[:1, :, 8:], (4, COUNT, 4)))
        assert np.abs(keys[0, :, :8] - keys[1, :, :8]).max() > 0.1


def test_key_heads_of_several_query_heads_are_stored_once() -> None:
    stack = record_of("mistral", {}).stacks["self"]
    for number in stack.layers:
        attention = stack.attention(number)
        assert isinstance(attention, QueryKeyAttention)
        assert attention.queries.shape == (4, COUNT, 16)
        assert attention.keys.shape == (2, COUNT, 16)


_FULL, _PART = "full_attention", "linear_attention"
_JAMBA = {"num_hidden_layers": 6, "attn_layer_offset": 1, "attn_layer_period": 3}
# Model type, settings, layers with attention, notes about the other layers.
HYBRIDS: list[tuple[str, dict[str, Any], tuple[int, ...], list[str]]] = [
    (
        "minimax",
        {"num_hidden_layers": 4, "layer_types": [_PART, _PART, _PART, _FULL]},
        (3,),
        ["Layers 0 to 2 are linear attention (MiniMaxLightningAttention) and are not shown."],
    ),
    (
        "nemotron_h",
        {},
        (2,),
        [
            "Layer 0 is a state-space layer (NemotronHMamba2Mixer) and is not shown.",
            "Layer 1 mixes no tokens (NemotronHMoE) and is not shown.",
            "Layer 3 mixes no tokens (NemotronHMLP) and is not shown.",
        ],
    ),
    (
        "falcon_h1",
        {},
        (0, 1),
        [
            "Layers 0, 1 each hold a state-space layer beside attention (FalconH1Mixer), which "
            "is not shown."
        ],
    ),
    (
        "jamba",
        _JAMBA,
        (1, 4),
        ["Layers 0, 2, 3, 5 are state-space layers (JambaMambaMixer) and are not shown."],
    ),
    (
        "lfm2",
        {"num_hidden_layers": 4, "layer_types": ["conv", "conv", _FULL, "conv"]},
        (2,),
        ["Layers 0, 1, 3 are convolutions (Lfm2ShortConv) and are not shown."],
    ),
    (
        "recurrent_gemma",
        {},
        (2,),
        ["Layers 0, 1, 3 are recurrent layers (RecurrentGemmaRecurrentBlock) and are not shown."],
    ),
    # Llama 3.2 Vision reads an image in some layers, which do not run for text alone.
    (
        "mllama_text_model",
        {"num_hidden_layers": 4, "cross_attention_layers": [1, 3]},
        (0, 2),
        ["Layers 1, 3 did not run on this input (MllamaTextCrossAttention) and are not shown."],
    ),
    ("llama", {}, (0, 1), []),
]


@pytest.mark.parametrize(
    ("model_type", "settings", "layers", "notes"), HYBRIDS, ids=[case[0] for case in HYBRIDS]
)
def test_notes_name_the_layers_that_a_record_does_not_contain(
    model_type: str, settings: dict[str, Any], layers: tuple[int, ...], notes: list[str]
) -> None:
    record = record_of(model_type, settings)
    assert record.stacks["self"].layers == layers
    assert [note for note in record.notes if note.startswith("Layer")] == notes


def test_layers_that_were_not_selected_are_not_noted_as_missing() -> None:
    record = record_of("llama", {}, layers=1)
    assert record.stacks["self"].layers == (1,)
    assert not any(note.startswith("Layer") for note in record.notes)


def test_selected_layers_of_a_hybrid_keep_their_numbers() -> None:
    whole = record_of("jamba", _JAMBA).stacks["self"]
    with pytest.raises(IndexError, match=r"layer=0.*1, 4"):
        whole.weights(layer=0)
    stack = record_of("jamba", _JAMBA, layers=[4]).stacks["self"]
    assert stack.layers == (4,)
    np.testing.assert_allclose(stack.weights(layer=4), whole.weights(layer=4), rtol=0, atol=1e-6)
    with pytest.raises(
        ValueError, match=r"layers: layer 2 does not exist; stack 'self' has layers 1, 4"
    ):
        record_of("jamba", _JAMBA, layers=[1, 2])
