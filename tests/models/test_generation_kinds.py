"""Texts generated from an image or a sound have the weights of the model's own steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
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
    model = sharpened(transformers.WhisperForConditionalGeneration(config))
    # `extract` must not pass the temperature to `generate`, which would then sample.
    model.generation_config.temperature = 1.0
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    return model


def test_a_text_from_a_sound_has_the_models_own_weights() -> None:
    model = whisper()
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


TOKENS: dict[str, Any] = {
    "is_multilingual": True,
    "lang_to_id": {"<|en|>": 170, "<|de|>": 171},
    "task_to_id": {"transcribe": 172, "translate": 173},
    "prev_sot_token_id": 174,
    "no_timestamps_token_id": 175,
    "decoder_start_token_id": 3,
    "alignment_heads": [[0, 0], [1, 2]],
}
GERMAN = {"language": "de", "task": "translate"}


def own_rows(model: Any, inputs: dict[str, Any], **options: Any) -> tuple[set[Any], list[int]]:
    """Return all texts that the decoder read during `model.generate`, and the returned text.

    Without a cache, each call of the decoder reads the whole text of each beam.
    """
    rows: set[Any] = set()

    def look(_module: Any, _args: Any, kwargs: Any) -> None:
        rows.update(map(tuple, kwargs["decoder_input_ids"].tolist()))

    handle = model.register_forward_pre_hook(look, with_kwargs=True)
    result = model.generate(**inputs, **options, use_cache=False)
    handle.remove()
    sequences = result if isinstance(result, torch.Tensor) else result["sequences"]
    return rows, sequences[0].tolist()


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize(
    ("options", "start"),
    [
        (GERMAN, [3, 171, 173, 175]),
        ({"language": "en"}, [3, 170, 172, 175]),
        ({"language": "de", "return_timestamps": True}, [3, 171, 172]),
        (
            GERMAN | {"prompt_ids": torch.tensor([174, 20, 21])},
            [174, 20, 21, 3, 171, 173, 175],
        ),
        (GERMAN | {"return_dict_in_generate": True}, [3, 171, 173, 175]),
        (GERMAN | {"return_segments": True}, [3, 171, 173, 175]),
        (GERMAN | {"suppress_tokens": [11, 12], "begin_suppress_tokens": [40]}, None),
        (GERMAN | {"max_length": 12, "max_new_tokens": None}, None),
        (GERMAN | {"return_token_timestamps": True}, None),
        (GERMAN | {"temperature": (0.0, 0.7), "compression_ratio_threshold": 0.01}, None),
    ],
)
def test_the_decoder_of_a_speech_model_reads_its_start_and_the_text(
    options: dict[str, Any], start: list[int] | None, beams: int
) -> None:
    inputs = {"input_features": torch.randn(1, 16, 100)}
    options = {"max_new_tokens": 8, "num_beams": beams} | options
    torch.manual_seed(1)
    rows, returned = own_rows(whisper(**TOKENS), inputs, **options)
    torch.manual_seed(1)
    model = whisper(**TOKENS)
    record = extract(model, inputs, generate=options)
    tokens = record.stacks["cross"].query_tokens
    start = start or [3, 171, 173, 175]
    text = [prediction.token.id for prediction in tokens.predictions]
    assert tuple(tokens.ids) in rows
    assert [*tokens.ids, text[-1]] == start + text
    # Whisper usually returns the text without its start. With timestamps, it returns the texts of
    # several windows.
    returned = returned[len(start) :] if returned[: len(start)] == start else returned
    assert returned == text or "return_timestamps" in options
    assert model.config._attn_implementation == whisper().config._attn_implementation
    eager = whisper()
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        own = eager(**inputs, decoder_input_ids=torch.tensor([tokens.ids]), output_attentions=True)
    for layer in range(2):
        for name, weights in (
            ("decoder", own.decoder_attentions),
            ("cross", own.cross_attentions),
        ):
            difference = record.stacks[name].weights(layer=layer) - weights[layer][0].numpy()
            assert np.abs(difference).max() < 1e-4


@pytest.mark.parametrize("beams", [1, 3])
def test_the_end_token_of_a_text_from_a_sound_is_predicted(beams: int) -> None:
    """Whisper removes the end token from the text that it returns."""
    inputs = {"input_features": torch.randn(1, 16, 100)}
    options = {"max_new_tokens": 12, "num_beams": beams, "language": "de", "length_penalty": -2.0}
    _, whole = own_rows(whisper(**TOKENS), inputs, **options)
    end = whole[5]
    rows, returned = own_rows(whisper(**TOKENS | {"eos_token_id": end}), inputs, **options)
    record = extract(whisper(**TOKENS | {"eos_token_id": end}), inputs, generate=options)
    tokens = record.stacks["decoder"].query_tokens
    assert list(tokens.ids) == [3, 171, 172, 175, *returned]
    assert tuple(tokens.ids) in rows
    assert tokens.predictions[-1].token.id == end
    assert tokens.predictions[-1].row is None


@pytest.mark.parametrize("beams", [1, 2])
def test_of_a_long_sound_the_record_shows_the_first_window(beams: int) -> None:
    inputs = {"input_features": torch.randn(1, 16, 260)}
    options = {"max_new_tokens": 9, "return_timestamps": True, "language": "de"}
    options["num_beams"] = beams
    model = whisper(**TOKENS)
    windows: list[torch.Tensor] = []
    handle = model.model.encoder.register_forward_pre_hook(
        lambda _, args, kwargs: windows.append(kwargs.get("input_features", *args)),
        with_kwargs=True,
    )
    rows, _ = own_rows(model, inputs, **options)
    handle.remove()
    record = extract(model, inputs, generate=options)
    tokens = record.stacks["decoder"].query_tokens
    assert tuple(tokens.ids) in rows
    assert tokens.ids[:3] == (3, 171, 172)
    [note] = [note for note in record.notes if "window" in note]
    # The second window starts at a frame of 10 ms.
    starts = [
        frame
        for frame in range(1, 261)
        if torch.equal(
            inputs["input_features"][..., frame : frame + 100],
            windows[1][..., : min(100, 260 - frame)],
        )
    ]
    assert f"from {starts[0] / 100:.2f}s" in note
    assert len(record.stacks["encoder"].query_tokens) == 50
    first = extract(
        model,
        {"input_features": inputs["input_features"][..., :100]},
        decoder_input_ids=[list(tokens.ids)],
    )
    difference = record.stacks["cross"].weights(layer=1) - first.stacks["cross"].weights(layer=1)
    assert np.abs(difference).max() < 1e-6


def test_silence_without_a_text_is_an_error_with_a_remedy() -> None:
    options: dict[str, Any] = {
        "max_new_tokens": 5,
        "no_speech_threshold": 0.0,
        "logprob_threshold": 10.0,
    }
    options |= {"temperature": (0.0,), "language": "de"}
    model = whisper(**TOKENS, no_speech_threshold=0.0)
    with pytest.raises(ValueError, match=r"no speech.*Remove no_speech_threshold"):
        extract(model, {"input_features": torch.randn(1, 16, 100)}, generate=options)
