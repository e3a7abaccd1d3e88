"""Small Qwen3-Next that continues repeated words, trained from random weights in minutes.

Three layers are linear attention (gated delta rule), and the last has a softmax. The model learns
the task of `train_demos.induction`. The linear layers pass each word to its neighbour, and the
softmax layer finds the earlier occurrence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen3NextConfig, Qwen3NextForCausalLM

from train_demos.fitting import Checkpoints, Schedule, fit
from train_demos.induction import repeated_words
from train_demos.tokenizers import word_tokenizer
from train_demos.vocabulary import SPECIAL_TOKENS, WORDS

_SEED = 1
SCHEDULE = Schedule(steps=400, learning_rate=5e-3, weight_decay=0.01)


def _model() -> Any:
    torch.manual_seed(_SEED)
    config = Qwen3NextConfig(
        vocab_size=len(SPECIAL_TOKENS) + len(WORDS),
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=4,
        layer_types=["linear_attention"] * 3 + ["full_attention"],
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        max_position_embeddings=512,
        num_experts=0,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=2,
    )
    return Qwen3NextForCausalLM(config)


def train(
    steps: int | None = None, checkpoints: Checkpoints | None = None
) -> tuple[Any, PreTrainedTokenizerFast]:
    """Build the model and its tokenizer, and train the model (minutes on one core)."""
    tokenizer = word_tokenizer(WORDS, SPECIAL_TOKENS, max_length=512)
    model = _model()
    schedule = SCHEDULE if steps is None else replace(SCHEDULE, steps=steps)
    loss_at = repeated_words(model, seed=_SEED, rows=32)
    fit(model, loss_at, schedule, name="hybrid", checkpoints=checkpoints)
    return model, tokenizer
