"""Records of decoders: windows, soft caps, sinks, latent attention, layers of hybrids.

`tests/model_types` compares their weights with the models' own.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from attnviz import extract
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask
from models.tiny import SIZE, built, extracted, own_fields

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5, 61, 7, 7, 12]])
COUNT = IDS.shape[1]

_DECODER: dict[str, Any] = {
    **SIZE,
    "vocab_size": 400,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_WINDOW = {**_DECODER, "sliding_window": 4}
_EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 1}
_SOME_EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 32}
_LATENT = {
    **_DECODER,
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 10,
    "n_routed_experts": 2,
    "num_experts_per_tok": 1,
    "n_shared_experts": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}

# Class and settings.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral": ("MistralForCausalLM", _WINDOW),
    "gemma 2": (
        "Gemma2ForCausalLM",
        {**_WINDOW, "head_dim": 12, "attn_logit_softcapping": 2.0},
    ),
    "gpt-oss": ("GptOssForCausalLM", {**_WINDOW, **_EXPERTS, "head_dim": 12}),
    "deepseek 3": ("DeepseekV3ForCausalLM", _LATENT),
    "jamba": (
        "JambaForCausalLM",
        {
            **_DECODER,
            "num_hidden_layers": 6,
            "attn_layer_offset": 1,
            "attn_layer_period": 3,
            "num_experts": 2,
            "mamba_d_state": 4,
            "mamba_dt_rank": 4,
        },
    ),
    "qwen 3 next": (
        "Qwen3NextForCausalLM",
        {
            **_DECODER,
            **_SOME_EXPERTS,
            "num_hidden_layers": 8,
            "head_dim": 12,
            "shared_expert_intermediate_size": 32,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
    ),
    # The last two layers read keys and values of earlier layers.
    "gemma 4, shared keys": (
        "Gemma4ForCausalLM",
        {
            **_WINDOW,
            "num_hidden_layers": 5,
            "num_kv_shared_layers": 2,
            "layer_types": ["sliding_attention", "full_attention"] * 2 + ["full_attention"],
            "head_dim": 12,
            "global_head_dim": 12,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 400,
        },
    ),
}


def model_of(kind: str) -> Any:
    name, settings = KINDS[kind]
    model = built(name, settings)
    if kind == "gpt-oss":
        with torch.no_grad():
            for number, layer in enumerate(model.model.layers):
                layer.self_attn.sinks.copy_(torch.tensor([-2.0, 0.0, 1.0, 3.0]) + number)
    return model


@cache
def record_of(kind: str) -> Any:
    return extracted(model_of(kind), {"input_ids": IDS})


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
    record = extracted(model, {"input_ids": IDS})
    names = ("[virtual0]", "[virtual1]", "[virtual2]", "#5", "#17")
    assert record.tokens.text[:5] == names
    for number, layer in enumerate(own_fields(model, {"input_ids": IDS})["attentions"]):
        weights = record.stacks["self"].weights(layer=number)
        assert weights.shape == (4, COUNT + 3, COUNT + 3)
        assert np.abs(weights[:, 3:, 3:] - layer[0]).max() < 1e-5
    assert any("Its output does not contain them" in note for note in record.notes)


def test_missing_rows_are_an_error() -> None:
    """A Gemma 4 that drops all queries but the last in the layers with shared keys."""
    model = model_of("gemma 4, shared keys")

    def only_the_last(module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        del module
        return args, {**kwargs, "logits_to_keep": 1}

    model.model.register_forward_pre_hook(only_the_last, with_kwargs=True)
    with pytest.raises(NotImplementedError, match="1 of the 12 tokens of the text"):
        extract(model, IDS)


@pytest.mark.parametrize(
    ("kind", "windowed"), [("mistral", (0, 1)), ("gemma 2", (0,)), ("gpt-oss", (0,))]
)
def test_windows_are_kept_as_windows(kind: str, windowed: tuple[int, ...]) -> None:
    """A window has four tokens: the query itself and three before it."""
    stack = record_of(kind).stacks["self"]
    distance = np.arange(COUNT)[:, None] - np.arange(COUNT)
    for number in stack.layers:
        within = (distance >= 0) & (distance < (4 if number in windowed else COUNT))
        assert np.array_equal(stack.allowed(layer=number, head=0), within)
        assert not stack.weights(layer=number)[:, ~within].any()
        mask = stack.attention(number).mask
        assert mask == BandMask(3 if number in windowed else None, 0)


def test_latent_attention_shares_the_rotated_part_of_keys() -> None:
    """DeepSeek-V2 (2024), eq. 15: every head's key ends with the same rotated vector."""
    stack = record_of("deepseek 3").stacks["self"]
    for layer in stack.layers:
        keys = np.stack([stack.keys(layer=layer, head=head) for head in range(4)])
        assert keys.shape == (4, COUNT, 8 + 4)
        assert np.array_equal(keys[:, :, 8:], np.broadcast_to(keys[:1, :, 8:], (4, COUNT, 4)))
        assert np.abs(keys[0, :, :8] - keys[1, :, :8]).max() > 0.1


@pytest.mark.parametrize("kind", ["mistral", "jamba", "qwen 3 next"])
def test_shared_key_heads_are_kept_once(kind: str) -> None:
    stack = record_of(kind).stacks["self"]
    for number in stack.layers:
        attention = stack.attention(number)
        assert isinstance(attention, QueryKeyAttention)
        assert attention.queries.shape == (4, COUNT, 12)
        assert attention.keys.shape == (2, COUNT, 12)


_LINEAR = "are linear attention ({}) and are not shown."
_STATES = "are state-space layers ({}) and are not shown."
_FULL, _PART = "full_attention", "linear_attention"
# Class, settings in addition to those of `KINDS`, layers with attention, notes about the others.
HYBRIDS: dict[str, tuple[str, dict[str, Any], tuple[int, ...], list[str]]] = {
    "qwen 3 next": (
        *KINDS["qwen 3 next"],
        (3, 7),
        ["Layers 0 to 2, 4 to 6 " + _LINEAR.format("Qwen3NextGatedDeltaNet")],
    ),
    "nemotron h": (
        "NemotronHForCausalLM",
        {
            "hybrid_override_pattern": "M-*M-",
            "num_hidden_layers": 5,
            "head_dim": 12,
            "mamba_num_heads": 4,
            "mamba_head_dim": 8,
            "ssm_state_size": 8,
            "n_groups": 1,
            "chunk_size": 8,
        },
        (2,),
        [
            "Layers 0, 3 " + _STATES.format("NemotronHMamba2Mixer"),
            "Layers 1, 4 mix no tokens (NemotronHMLP) and are not shown.",
        ],
    ),
    "falcon h1": (
        "FalconH1ForCausalLM",
        {
            "head_dim": 12,
            "mamba_d_ssm": 32,
            "mamba_n_heads": 4,
            "mamba_d_head": 8,
            "mamba_d_state": 8,
            "mamba_n_groups": 1,
        },
        (0, 1),
        [
            "Layers 0, 1 each hold a state-space layer beside attention (FalconH1Mixer), which "
            "is not shown."
        ],
    ),
    "minimax": (
        "MiniMaxForCausalLM",
        {
            **_EXPERTS,
            "num_hidden_layers": 4,
            "head_dim": 12,
            "layer_types": [_PART, _PART, _PART, _FULL],
        },
        (3,),
        ["Layers 0 to 2 " + _LINEAR.format("MiniMaxLightningAttention")],
    ),
    "jamba": (
        *KINDS["jamba"],
        (1, 4),
        ["Layers 0, 2, 3, 5 " + _STATES.format("JambaMambaMixer")],
    ),
    "lfm 2": (
        "Lfm2ForCausalLM",
        {"num_hidden_layers": 4, "layer_types": ["conv", "conv", _FULL, "conv"]},
        (2,),
        ["Layers 0, 1, 3 are convolutions (Lfm2ShortConv) and are not shown."],
    ),
    "recurrent gemma": (
        "RecurrentGemmaForCausalLM",
        {
            "num_hidden_layers": 3,
            "head_dim": 12,
            "lru_width": 48,
            "attention_window_size": 64,
            "block_types": ["recurrent", "recurrent", "attention"],
        },
        (2,),
        ["Layers 0, 1 are recurrent layers (RecurrentGemmaRecurrentBlock) and are not shown."],
    ),
    "llama": ("LlamaForCausalLM", {}, (0, 1), []),
}


def about_layers(record: Any) -> list[str]:
    return [note for note in record.notes if note.startswith("Layer")]


@pytest.mark.parametrize("kind", HYBRIDS)
def test_a_record_says_which_layers_it_does_not_contain(kind: str) -> None:
    name, settings, numbers, expected = HYBRIDS[kind]
    model = built(name, {**_DECODER, **settings})
    record = extract(model, IDS)
    assert record.stacks["self"].layers == numbers
    assert about_layers(record) == expected


def test_layers_that_were_not_chosen_are_not_noted_as_missing() -> None:
    record = extract(built("LlamaForCausalLM", _DECODER), IDS, layers=1)
    assert record.stacks["self"].layers == (1,)
    assert about_layers(record) == []


def test_layers_that_did_not_run_are_named() -> None:
    """Llama 3.2 Vision reads an image in some layers, which do not run for text alone."""
    text = {**_DECODER, "num_hidden_layers": 4, "cross_attention_layers": [1, 3]}
    record = extract(built("MllamaForCausalLM", {**text, "rope_parameters": None}), IDS)
    assert record.stacks["self"].layers == (0, 2)
    assert about_layers(record) == [
        "Layers 1, 3 did not run on this input (MllamaTextCrossAttention) and are not shown."
    ]


def test_some_layers_of_a_hybrid_keep_their_numbers() -> None:
    whole = record_of("jamba").stacks["self"]
    with pytest.raises(IndexError, match=r"layer=0.*1, 4"):
        whole.weights(layer=0)
    model = model_of("jamba")
    stack = extract(model, IDS, layers=[4]).stacks["self"]
    assert stack.layers == (4,)
    np.testing.assert_allclose(stack.weights(layer=4), whole.weights(layer=4), rtol=0, atol=1e-6)
    with pytest.raises(
        ValueError, match=r"layers: layer 2 does not exist; stack 'self' has layers 1, 4"
    ):
        extract(model, IDS, layers=[1, 2])
