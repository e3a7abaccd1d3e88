"""Texts generated from an image or a sound have the weights of the model's own steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers

from attnviz.extraction import extract
from models.speech import TOKENS, whisper
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


VISION = {**SIZE, "image_size": 32, "patch_size": 16}


def blip() -> Any:
    torch.manual_seed(0)
    text = {**SIZE, **SPECIAL, "max_position_embeddings": 64, "sep_token_id": 2}
    config = transformers.BlipConfig(
        text_config=text | {"encoder_hidden_size": 48}, vision_config=VISION, projection_dim=48
    )
    return sharpened(transformers.BlipForConditionalGeneration(config))


def test_a_prompt_that_generate_changes_is_the_one_in_the_record() -> None:
    """BLIP replaces the first token of the prompt with its start token, and drops the last one."""
    model, read = blip(), set()
    ids = torch.tensor([[9, 5, 17, 8, 2]])
    inputs = {"pixel_values": torch.randn(1, 3, 32, 32), "input_ids": ids}
    inputs["attention_mask"] = torch.ones_like(ids)

    def look(_module: Any, _args: Any, kwargs: Any) -> None:
        read.add(tuple(kwargs["input_ids"][0].tolist()))

    handle = model.text_decoder.register_forward_pre_hook(look, with_kwargs=True)
    # BLIP writes into the ids that it gets.
    returned = model.generate(
        **inputs | {"input_ids": ids.clone()}, max_new_tokens=4, do_sample=False, use_cache=False
    )[0]
    handle.remove()
    record = extract(model, inputs, generate=4)
    tokens = record.stacks["self"].query_tokens
    assert tokens.ids == tuple(returned.tolist())
    assert tokens.ids[:-1] in read
    assert tokens.ids[:4] == (1, 5, 17, 8)
    assert ids.tolist() == [[9, 5, 17, 8, 2]]
    assert [prediction.token.id for prediction in tokens.predictions] == returned[4:].tolist()
    assert any("changed the prompt" in note for note in record.notes)
    own = own_steps(model, 4, None, **inputs | {"input_ids": ids.clone()})
    expected = stitched(own.attentions, 1, 7, None)
    weights = record.stacks["self"].weights(layer=1)[:, :7, :7]
    assert np.abs(weights - expected).max() < 1e-4


def test_a_text_starts_with_the_ids_that_generate_chooses_for_an_image() -> None:
    for model in (blip(), git()):
        inputs = {"pixel_values": torch.randn(1, 3, 32, 32)}
        returned = model.generate(**inputs, max_new_tokens=4, do_sample=False)[0].tolist()
        stack = extract(model, inputs, generate=4).stacks["self"]
        predictions = stack.query_tokens.predictions
        assert [prediction.token.id for prediction in predictions] == returned[1:]
        # The patches of GIT's image come before its text.
        assert len(stack.query_tokens) - len(returned) == predictions[0].query


def instructblip() -> Any:
    torch.manual_seed(0)
    text = transformers.T5Config(
        **SPECIAL, d_model=48, d_kv=12, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    config = transformers.InstructBlipConfig(
        vision_config=VISION,
        qformer_config=SIZE | {"encoder_hidden_size": 48, "cross_attention_frequency": 1},
        text_config=text.to_dict(),
        num_query_tokens=3,
        image_token_id=150,
    )
    model = transformers.InstructBlipForConditionalGeneration(config)
    sharpen(model, 3.0)
    model.generation_config.update(eos_token_id=None)
    return model.eval()


@pytest.mark.parametrize("beams", [1, 3])
def test_the_language_model_of_instructblip_may_have_a_decoder(beams: int) -> None:
    """The configuration of InstructBLIP does not say that its language model is T5."""
    model = instructblip()
    ids = torch.tensor([[150, 150, 150, 9, 5, 17, 8]])
    inputs = {"pixel_values": torch.randn(1, 3, 32, 32), "input_ids": ids}
    inputs |= {"attention_mask": torch.ones_like(ids), "qformer_input_ids": ids[:, 3:]}
    options = {"max_new_tokens": 5, "num_beams": beams}
    returned = model.generate(**inputs, **options)[0].tolist()
    record = extract(model, inputs, generate=options)
    assert list(record.stacks["cross"].query_tokens.ids or ()) == returned[:-1]
    own = own_steps(model, 5, None, **inputs, decoder_input_ids=torch.tensor([returned[:-1]]))
    expected = own.cross_attentions[0][1][0].numpy()
    weights = record.stacks["cross"].weights(layer=1)
    assert np.abs(weights - expected).max() < 1e-4


def git() -> Any:
    torch.manual_seed(0)
    config = transformers.GitConfig(
        vision_config=VISION, **SIZE, **SPECIAL, max_position_embeddings=64
    )
    return sharpened(transformers.GitForCausalLM(config))


def test_a_text_after_the_patches_of_an_image_is_predicted() -> None:
    model = git()
    ids = torch.tensor([[9, 5, 17, 8]])
    inputs = {"pixel_values": torch.randn(1, 3, 32, 32), "input_ids": ids}
    inputs["attention_mask"] = torch.ones_like(ids)
    own = own_steps(model, 4, None, **inputs)
    record = extract(model, inputs, generate=4)
    stack = record.stacks["self"]
    # The image has 4 patches and a class token.
    expected = stitched(own.attentions, 1, 5 + 7, None)
    assert np.abs(stack.weights(layer=1)[:, :12, :12] - expected).max() < 1e-4
    text = own.sequences[0].tolist()
    assert [prediction.token.id for prediction in stack.query_tokens.predictions] == text[4:]
    for step, prediction in enumerate(stack.query_tokens.predictions):
        assert prediction.query == 5 + 3 + step
        probabilities = torch.softmax(own.logits[step][0].double(), dim=-1)
        assert prediction.token.probability == pytest.approx(
            float(probabilities[prediction.token.id]), rel=1e-3
        )


def mllama() -> Any:
    torch.manual_seed(0)
    config = transformers.MllamaConfig(
        text_config=SIZE
        | SPECIAL
        | {
            "num_hidden_layers": 2,
            "cross_attention_layers": [1],
            "num_key_value_heads": 2,
            "max_position_embeddings": 64,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
        vision_config={
            "hidden_size": 48,
            "attention_heads": 4,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_global_layers": 1,
            "vision_output_dim": 96,
            "intermediate_layers_indices": [0],
            "image_size": 28,
            "patch_size": 14,
            "max_num_tiles": 1,
            "supported_aspect_ratios": [[1, 1]],
        },
        image_token_index=150,
    )
    return sharpened(transformers.MllamaForConditionalGeneration(config))


def test_the_mask_of_an_image_grows_with_the_text() -> None:
    """The cross-attention of Llama 3.2 Vision has a mask with a row per token."""
    model = mllama()
    ids = torch.tensor([[9, 150, 17, 8]])
    mask = torch.ones(1, 4, 1, 1, dtype=torch.long)
    # The token before the image does not see it.
    mask[0, 0] = 0
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.randn(1, 1, 1, 3, 28, 28),
        "aspect_ratio_ids": torch.tensor([[1]]),
        "aspect_ratio_mask": torch.ones(1, 1, 1, dtype=torch.long),
        "cross_attention_mask": mask,
    }
    own = own_steps(model, 4, None, **inputs)
    record = extract(model, inputs, generate=4)
    stack = record.stacks["cross"]
    assert stack.query_tokens.ids == tuple(own.sequences[0].tolist())
    expected = stitched(own.attentions, 1, 7, own.attentions[0][1].shape[-1])
    weights = stack.weights(layer=stack.layers[0])[:, :7]
    assert np.abs(weights[:, 1:] - expected[:, 1:, : weights.shape[-1]]).max() < 1e-4


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
    rows, _ = own_rows(model, inputs, **options)
    record = extract(model, inputs, generate=options)
    tokens = record.stacks["decoder"].query_tokens
    assert tuple(tokens.ids) in rows
    assert tokens.ids[:3] == (3, 171, 172)
    [note] = [note for note in record.notes if "window" in note]
    assert "the first window of the sound (1 s)" in note
    assert len(record.stacks["encoder"].query_tokens) == 50
    first = extract(
        model,
        {"input_features": inputs["input_features"][..., :100]},
        decoder_input_ids=[list(tokens.ids)],
    )
    difference = record.stacks["cross"].weights(layer=1) - first.stacks["cross"].weights(layer=1)
    assert np.abs(difference).max() < 1e-6


def test_a_sound_that_is_taken_for_silence_has_no_text() -> None:
    model = whisper(**TOKENS)
    sound = {"input_features": torch.randn(1, 16, 100, generator=torch.Generator().manual_seed(0))}
    settings = {"no_speech_threshold": 1e-5, "logprob_threshold": 0.0, "temperature": 0.0}
    assert not model.generate(**sound, max_new_tokens=5, **settings).numel()
    with pytest.raises(ValueError, match=r"no_speech_threshold=1e-05 .* generates no text"):
        extract(model, sound, generate={"max_new_tokens": 5, **settings})
