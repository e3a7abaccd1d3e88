"""The additional memory of extraction grows with the length of the text, not with its square."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from attnviz import AttentionRecord, extract
from models.counting import LiveTensors
from models.tiny import built

# Forwards of these models make a tensor with n x n entries themselves: for texts longer than a
# sliding window, for a bias or mask added to all logits, and for a softmax that bypasses the
# dispatcher. Extraction reads a mask once and keeps its parameters.
WITH_A_SQUARE_OF_THEIR_OWN: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 64},
    "gemma3_text": {"sliding_window": 64},
    "t5": {},
    "bloom": {},
    "gptj": {},
}
LINEAR = ("llama", "mistral", "gemma3_text", "gpt2", "bert")
CLASSES = {
    "bert": "BertModel",
    "bloom": "BloomForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gptj": "GPTJForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "t5": "T5Model",
}
GROUPED = {"num_key_value_heads": 2, "intermediate_size": 64, "head_dim": 8}
SIZES: dict[str, dict[str, Any]] = {
    "bert": {"max_position_embeddings": 8192, "intermediate_size": 64},
    "bloom": {},
    "gemma3_text": GROUPED,
    "gpt2": {"n_positions": 8192},
    "gptj": {"n_positions": 8192, "rotary_dim": 4},
    "llama": GROUPED,
    "mistral": GROUPED,
    "t5": {"d_ff": 64, "d_kv": 8, "decoder_start_token_id": 0},
}


def model_of(kind: str, implementation: str | None = None, **changes: Any) -> Any:
    size = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 64,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    size |= SIZES[kind] | changes
    return built(CLASSES[kind], size, factor=4.0, implementation=implementation)


def arguments_of(model: Any, tokens: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 64, (1, tokens), generator=torch.Generator().manual_seed(0))
    arguments = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if model.config.is_encoder_decoder:
        arguments["decoder_input_ids"] = ids
    return arguments


def forward(model: Any, tokens: int) -> LiveTensors:
    # The options are those of the extraction.
    options: dict[str, Any] = {"use_cache": False}
    if "lm_head" in dict(model.named_children()):
        options["logits_to_keep"] = 1
    if type(model).__name__.startswith(("Bert", "T5", "GPTJ")):
        options = {}
    count = LiveTensors()
    with count, torch.no_grad():
        model(**arguments_of(model, tokens), **options)
    return count


def added(model: Any, tokens: int, **options: Any) -> int:
    """Return the peak memory of an extraction minus that of a plain forward, in bytes."""
    own = forward(model, tokens).peak
    count = LiveTensors()
    with count:
        extract(model, arguments_of(model, tokens), progress=False, **options)
    return count.peak - own


def record_bytes(record: AttentionRecord) -> int:
    layers = [record.stack().attention(number) for number in record.stack().layers]
    vectors = [layer_vectors for layer in layers if (layer_vectors := layer.vectors) is not None]
    assert len(vectors) == len(layers)
    return sum(vector.queries.nbytes + vector.keys.nbytes for vector in vectors)


def test_memory_added_to_a_forward_is_linear() -> None:
    model = model_of("llama", "sdpa")
    short, long = added(model, 2048), added(model, 8192)
    assert long <= 4.5 * short
    # The count includes at least the record, and not much more.
    record = extract(model, arguments_of(model, 8192), progress=False)
    assert record_bytes(record) == 2 * (4 + 2) * 8 * 8192 * 4
    assert record_bytes(record) <= long <= 1.5 * record_bytes(record)


def test_a_spooled_extraction_adds_little_memory(tmp_path: Path) -> None:
    model = model_of("llama", "sdpa")
    one_head = 8 * 8192 * 4
    assert added(model, 8192, spool=tmp_path / "spool") <= 4 * one_head


def test_the_count_sees_a_square() -> None:
    model = model_of("llama", "eager")
    assert forward(model, 1024).largest >= 4 * 1024 * 1024
    assert forward(model, 1024).peak > 3.5 * forward(model, 512).peak


@pytest.mark.parametrize("kind", LINEAR)
def test_no_tensor_of_these_is_a_square(kind: str) -> None:
    model = model_of(kind)
    tokens = 2048
    assert forward(model, tokens).largest < tokens * tokens
    count = LiveTensors()
    with count:
        extract(model, arguments_of(model, tokens), progress=False)
    assert count.largest < tokens * tokens


@pytest.mark.parametrize("kind", WITH_A_SQUARE_OF_THEIR_OWN)
def test_these_models_allocate_a_square_themselves(kind: str) -> None:
    tokens = 1024
    model = model_of(kind, **WITH_A_SQUARE_OF_THEIR_OWN[kind])
    assert forward(model, tokens).largest >= tokens * tokens
    # The record keeps no such tensor.
    record = extract(model, arguments_of(model, tokens), progress=False)
    assert record_bytes(record) < tokens * tokens


@pytest.mark.parametrize("kind", ["mistral", "gemma3_text"])
def test_the_mask_of_a_window_is_read_without_an_additional_square(kind: str) -> None:
    model = model_of(kind, **WITH_A_SQUARE_OF_THEIR_OWN[kind])
    assert added(model, 4096) <= 4.5 * added(model, 1024)
