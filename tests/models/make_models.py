"""Functions that make tiny models, and compare records with the models' own weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz import AttentionRecord, extract
from models.tiny import built, reference

_IDS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SIZE = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
_TEXT = {**_IDS, **_SIZE, "intermediate_size": 64, "vocab_size": 400, "max_position_embeddings": 64}
_GROUPED = {**_TEXT, "num_key_value_heads": 2}
_WINDOW = {**_GROUPED, "head_dim": 12, "sliding_window": 5}
_SEQ2SEQ = {**_IDS, "vocab_size": 400, "d_model": 48, "decoder_start_token_id": 2}
_LAYERS = {
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
}

#: Class and configuration of each kind of model.
_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", _TEXT),
    "albert": ("AlbertModel", {**_TEXT, "embedding_size": 24}),
    "roberta": ("RobertaModel", {**_TEXT, "pad_token_id": 1}),
    "gpt2": (
        "GPT2LMHeadModel",
        {**_IDS, "vocab_size": 400, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 64},
    ),
    "llama": ("LlamaForCausalLM", _GROUPED),
    "mistral": ("MistralForCausalLM", {**_GROUPED, "sliding_window": 5}),
    "gemma2": ("Gemma2ForCausalLM", {**_WINDOW, "attn_logit_softcapping": 4.0}),
    "gpt_oss": (
        "GptOssForCausalLM",
        {**_WINDOW, "num_local_experts": 2, "num_experts_per_tok": 1},
    ),
    # The last two of the five layers read keys and values of earlier layers.
    "gemma3n": (
        "Gemma3nForCausalLM",
        {
            **_WINDOW,
            "num_hidden_layers": 5,
            "num_kv_shared_layers": 2,
            "layer_types": ["sliding_attention", "full_attention"] * 2 + ["full_attention"],
            "vocab_size_per_layer_input": 400,
            "hidden_size_per_layer_input": 8,
            "laurel_rank": 4,
            "activation_sparsity_pattern": [0.0] * 5,
        },
    ),
    # The numbers of layers and of heads differ between encoder and decoder.
    "bart": (
        "BartForConditionalGeneration",
        {
            **_SEQ2SEQ,
            **_LAYERS,
            "decoder_layers": 3,
            "decoder_attention_heads": 6,
            "max_position_embeddings": 64,
        },
    ),
    "t5": (
        "T5ForConditionalGeneration",
        {
            **_SEQ2SEQ,
            "decoder_start_token_id": 0,
            "num_layers": 2,
            "num_decoder_layers": 3,
            "num_heads": 4,
            "d_kv": 12,
            "d_ff": 64,
        },
    ),
    "vit": (
        "ViTForImageClassification",
        {**_SIZE, "intermediate_size": 64, "image_size": 32, "patch_size": 8},
    ),
    "bigbird_pegasus": (
        "BigBirdPegasusForConditionalGeneration",
        {**_SEQ2SEQ, **_LAYERS, "decoder_layers": 2, "decoder_attention_heads": 4},
    ),
    "bloom": (
        "BloomForCausalLM",
        {**_IDS, "vocab_size": 400, "hidden_size": 48, "n_layer": 2, "n_head": 4},
    ),
    "deberta-v2": ("DebertaV2ForMaskedLM", {**_TEXT, "num_hidden_layers": 2}),
    "openai-gpt": (
        "OpenAIGPTLMHeadModel",
        {"vocab_size": 400, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 64},
    ),
    "rwkv": (
        "RwkvForCausalLM",
        {**_IDS, "vocab_size": 400, "hidden_size": 48, "num_hidden_layers": 2},
    ),
}

# Factors by which queries and keys are scaled, so that the largest weight of a row is about 0.5 on
# average. T5 needs a smaller factor, because it does not divide logits by the square root of the
# head size.
_FACTORS = {"albert": 30.0, "bart": 12.0, "bert": 12.0, "roberta": 14.0, "t5": 2.5, "vit": 13.0}


def make_model(kind: str, implementation: Any = None, **settings: Any) -> Any:
    """Return a tiny float32 model of a kind. Calls with equal arguments return equal models."""
    name, config = _KINDS[kind]
    if kind == "gemma2" and implementation is None:
        # For Gemma 2, older versions of transformers choose SDPA, which has no soft cap.
        implementation = "eager"
    factor = _FACTORS.get(kind, 10.0)
    return built(name, config | settings, factor=factor, implementation=implementation)


def largest_error(
    record: AttentionRecord | None,
    own: Mapping[str, list[NDArray[np.float32]]],
    example: int = 0,
    keep: Mapping[str, NDArray[np.int64]] | None = None,
) -> float:
    """Return the largest difference between the weights of a record and `own` (see `reference`).

    `keep` contains the positions of the example that are not padding: `keep["decoder"]` for the
    decoder of an encoder-decoder, and `keep["input"]` for other texts. None means all positions.
    """
    assert record is not None
    assert list(record.stacks) == list(own)
    worst = 0.0
    for name, layers in own.items():
        stack = record.stacks[name]
        assert stack.layers == tuple(range(len(layers)))
        for number, layer in enumerate(layers):
            expected = layer[example]
            if keep is not None:
                queries = keep["decoder" if name in ("decoder", "cross") else "input"]
                keys = keep["decoder" if name == "decoder" else "input"]
                expected = expected[:, queries][:, :, keys]
            weights = stack.weights(layer=number)
            assert weights.shape == expected.shape
            worst = max(worst, float(np.abs(weights - expected).max()))
    return worst


def extract_own(
    model: Any, arguments: Mapping[str, Any], keep: Any = None, own: Any = None, **options: Any
) -> Any:
    """Return the result of `extract`, and assert that all weights equal the model's own.

    `own` contains the model's own weights, by default `reference(model, arguments)`. `keep[i]` is
    the argument `keep` of `largest_error` for example `i`.
    """
    own = reference(model, arguments) if own is None else own
    extracted: Any = extract(model, arguments, **options)
    records = extracted if isinstance(extracted, list) else [extracted]
    for example, record in enumerate(records):
        positions = None if keep is None else keep[example]
        assert largest_error(record, own, example, positions) < 1e-4
    return extracted
