"""A tiny Whisper whose generation configuration has languages, tasks and timestamps."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from models.tiny import sharpen

SPECIAL = {"vocab_size": 200, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
#: Settings of the generation configuration, for `whisper`.
TOKENS: dict[str, Any] = {
    "is_multilingual": True,
    "lang_to_id": {"<|en|>": 170, "<|de|>": 171},
    "task_to_id": {"transcribe": 172, "translate": 173},
    "prev_sot_token_id": 174,
    "no_timestamps_token_id": 175,
    "decoder_start_token_id": 3,
    "alignment_heads": [[0, 0], [1, 2]],
}


def whisper(**settings: Any) -> Any:
    """Return a tiny Whisper with tokens for languages, tasks and timestamps."""
    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        **SPECIAL,
        num_mel_bins=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        d_model=48,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=50,
        max_target_positions=64,
        decoder_start_token_id=3,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    sharpen(model, 8.0)
    model.generation_config.update(eos_token_id=None, repetition_penalty=5.0)
    # `extract` must not pass the temperature to `generate`, which would then sample.
    model.generation_config.temperature = 1.0
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    return model.eval()
