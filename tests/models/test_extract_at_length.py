"""The memory and copies of an extraction grow with the length of the text, not with its square."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from attnviz import extract
from models.counting import LiveTensors
from models.device_copies import Copies
from models.tiny import built

GROUPED = {"num_key_value_heads": 2, "intermediate_size": 64, "head_dim": 8}
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertModel", {"max_position_embeddings": 8192, "intermediate_size": 64}),
    "llama": ("LlamaForCausalLM", GROUPED),
    "mistral": ("MistralForCausalLM", GROUPED),
}


def model_of(kind: str, implementation: str | None = None, **changes: Any) -> Any:
    name, more = MODELS[kind]
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return built(name, SIZE | ids | more | changes, factor=4.0, implementation=implementation)


def arguments_of(tokens: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 64, (1, tokens), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def forward(model: Any, tokens: int) -> LiveTensors:
    # `extract` passes these options to models that accept them. `BertModel` does not.
    options: dict[str, Any] = {"use_cache": False, "logits_to_keep": 1}
    if type(model).__name__ == "BertModel":
        options = {}
    count = LiveTensors()
    with count, torch.no_grad():
        model(**arguments_of(tokens), **options)
    return count


def added(model: Any, tokens: int, **options: Any) -> int:
    """Return the peak memory of an extraction minus that of a plain forward, in bytes."""
    own = forward(model, tokens).peak
    count = LiveTensors()
    with count:
        extract(model, arguments_of(tokens), progress=False, **options)
    return count.peak - own


def test_memory_added_to_a_forward_is_linear() -> None:
    model = model_of("llama", "sdpa")
    short, long = added(model, 2048), added(model, 8192)
    assert long <= 4.5 * short
    # Size of the record: 2 layers, 4 query and 2 key heads, 8 dimensions, 8192 tokens, 4 bytes.
    num_bytes = 2 * (4 + 2) * 8 * 8192 * 4
    assert num_bytes <= long <= 1.5 * num_bytes


def test_a_spooled_extraction_adds_little_memory(tmp_path: Path) -> None:
    model = model_of("llama", "sdpa")
    one_head = 8 * 8192 * 4
    assert added(model, 8192, spool=tmp_path / "spool") <= 4 * one_head


@pytest.mark.parametrize("kind", MODELS)
def test_no_tensor_has_an_entry_for_each_pair_of_tokens(kind: str) -> None:
    model = model_of(kind)
    tokens = 2048
    assert forward(model, tokens).largest < tokens * tokens
    count = LiveTensors()
    with count:
        extract(model, arguments_of(tokens), progress=False)
    assert count.largest < tokens * tokens


def test_the_mask_of_a_window_is_read_without_a_copy() -> None:
    # For texts longer than the window, the model itself makes a mask of all pairs of tokens.
    model = model_of("mistral", sliding_window=64)
    assert forward(model, 1024).largest >= 1024 * 1024
    assert added(model, 4096) <= 4.5 * added(model, 1024)


@pytest.mark.parametrize("dtype", [None, "float64"])
def test_queries_and_keys_are_copied_no_more_than_once(dtype: str | None) -> None:
    """Without a GPU, the test counts copies on the CPU instead of copies from a GPU."""
    model, arguments = model_of("llama"), arguments_of(60)
    with torch.no_grad(), Copies("cpu", "cpu") as by_model:
        model(**arguments, use_cache=False)
    with Copies("cpu", "cpu") as by_both:
        extract(model, arguments, dtype=dtype, progress=False)
    # Queries and keys: 2 layers, 60 tokens, 4 query and 2 key heads, 8 dimensions, 4 bytes.
    num_bytes = 2 * 60 * (4 + 2) * 8 * 4
    assert num_bytes <= by_both.bytes - by_model.bytes < 2 * num_bytes
