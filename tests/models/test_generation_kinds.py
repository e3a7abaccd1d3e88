"""Texts generated from an image or a sound have the weights of the model's own steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transformers

from attnviz.extraction import extract
from models.steps import assert_predictions, own_steps, stitched
from models.tiny import SIZE, sharpen

IMAGE = 150
IDS = torch.tensor([[1, 5, IMAGE, IMAGE, IMAGE, IMAGE, 7, 9]])
SPECIAL = {"vocab_size": 200, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def sharpened(model: Any) -> Any:
    """Make a model's attention less uniform and its generated text varied. Return the model."""
    sharpen(model, 8.0)
    model.generation_config.update(eos_token_id=None, repetition_penalty=5.0)
    return model.eval()


def gemma3() -> Any:
    torch.manual_seed(0)
    config = transformers.Gemma3Config(
        text_config=SIZE
        | SPECIAL
        | {
            "num_key_value_heads": 2,
            "head_dim": 12,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention"],
        },
        vision_config=SIZE | {"image_size": 28, "patch_size": 14},
        mm_tokens_per_image=4,
        image_token_index=IMAGE,
        boi_token_index=151,
        eoi_token_index=152,
    )
    return sharpened(transformers.Gemma3ForConditionalGeneration(config))


def test_a_text_after_an_image_has_the_models_own_weights() -> None:
    model = gemma3()
    types = (IDS == IMAGE).long()
    inputs = {"pixel_values": torch.randn(1, 3, 28, 28), "token_type_ids": types}
    own = own_steps(model, 9, IDS, **inputs)
    encoded = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS), **inputs}
    record = extract(model, encoded, generate=9)
    stack = record.stacks["self"]
    for layer in range(2):
        expected = stitched(own.attentions, layer, 16, None)
        weights = stack.weights(layer=layer)[:, :16, :16]
        assert np.abs(weights - expected).max() < 1e-4
    # Tokens of the image attend to later tokens of the image.
    assert stitched(own.attentions, 1, 16, None)[0, 2, 3] > 0
    assert_predictions(stack.query_tokens, own, 8)
    assert not record.stacks["vision"].query_tokens.predictions


def test_a_text_from_a_sound_has_the_models_own_weights() -> None:
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
    model = sharpened(transformers.WhisperForConditionalGeneration(config))
    # `extract` must not pass the temperature to `generate`, which would then sample.
    model.generation_config.temperature = 1.0
    sound = torch.randn(1, 16, 100)
    whole = {"input_features": sound, "force_unique_generate_call": True}
    own = own_steps(model, 6, None, **whole)
    record = extract(model, {"input_features": sound}, generate=6)
    tokens = record.stacks["cross"].query_tokens
    assert tokens.ids == tuple(own.sequences[0, :-1].tolist())
    assert_predictions(tokens, own, 1)
    for layer in range(2):
        for name, steps, num_keys in (
            ("decoder", own.decoder_attentions, None),
            ("cross", own.cross_attentions, 50),
        ):
            weights = record.stacks[name].weights(layer=layer)
            assert np.abs(weights - stitched(steps, layer, 6, num_keys)).max() < 1e-4
