"""Models of sound: frames in an encoder, as keys of a decoder, and as tokens of a text."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from tokenizers import AddedToken

from attnviz import extract
from models.tiny import SIZE, assert_own, built, extracted, own_fields, own_modules, sharpen

RATE = 16_000


def sound(seconds: float, seed: int = 0) -> NDArray[np.float32]:
    """Return noise, (samples,)."""
    random = np.random.default_rng(seed)
    return 0.1 * random.standard_normal(int(seconds * RATE)).astype(np.float32)


@cache
def whisper() -> Any:
    settings = {
        "vocab_size": 400,
        "d_model": 48,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "num_mel_bins": 80,
        "max_target_positions": 64,
        "decoder_start_token_id": 1,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    model = built("WhisperForConditionalGeneration", settings, factor=14.0)
    sharpen(model, 3.0, "encoder")
    # The defaults refer to the real vocabulary, which is larger.
    model.generation_config.update(suppress_tokens=None, begin_suppress_tokens=None)
    return model


@cache
def whisper_extractor() -> Any:
    return transformers.WhisperFeatureExtractor(feature_size=80)


class TestWhisper:
    """Whisper pads every sound to 30 seconds: 1,500 frames of 0.02 s."""

    DECODER = (1, 5, 99, 6)

    def test_frames_and_weights(self) -> None:
        model, extractor = whisper(), whisper_extractor()
        features = extractor(sound(3), sampling_rate=RATE, return_tensors="pt")["input_features"]
        assert tuple(features.shape) == (1, 80, 3000)
        inputs = {"input_features": features, "decoder_input_ids": torch.tensor([self.DECODER])}
        record = extracted(model, inputs, processor=extractor)
        assert list(record.stacks) == ["encoder", "decoder", "cross"]
        frames = record.stacks["encoder"].query_tokens
        assert frames.text == tuple(f"{index / 50:.2f}s" for index in range(1500))
        assert record.stacks["cross"].key_tokens == frames
        assert record.stacks["decoder"].query_tokens.ids == self.DECODER
        own = own_fields(model, inputs)
        for name, peak in (("encoder", 0.02), ("decoder", 0.3), ("cross", 0.02)):
            layers = own[f"{name}_attentions"]
            expected = {number: layer[0] for number, layer in enumerate(layers)}
            assert_own(record, name, expected, peak=peak)
        # Uniform attention would be 1 / 1,500.
        assert own["encoder_attentions"][1].max() > 0.1

    def test_a_sound_as_an_array(self) -> None:
        model, extractor = whisper(), whisper_extractor()
        ids = list(self.DECODER)
        record = extract(model, sound(3), processor=extractor, decoder_input_ids=ids)
        features = extractor(sound(3), sampling_rate=RATE, return_tensors="pt")
        by_hand = extract(model, features, processor=extractor, decoder_input_ids=ids)
        for inputs in (
            torch.from_numpy(sound(3)),
            sound(3).astype(np.float64),
            {"array": sound(3), "sampling_rate": RATE},
        ):
            same = extract(model, inputs, processor=extractor, decoder_input_ids=ids)
            assert same.stacks["cross"].key_tokens == record.stacks["cross"].key_tokens
            for one in (record, by_hand):
                weights = one.stacks["cross"].weights(layer=1)
                assert np.abs(weights - same.stacks["cross"].weights(layer=1)).max() < 1e-5
        assert any("The sound ends at 3.00s" in note for note in record.notes)
        assert not any("ends at" in note for note in by_hand.notes)


_WAV2VEC2 = {
    **SIZE,
    "vocab_size": 30,
    "conv_dim": [16] * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}


@pytest.mark.parametrize(
    ("name", "more"),
    [("Wav2Vec2Model", {"feat_extract_norm": "layer"}), ("HubertModel", {})],
)
def test_speech_encoders(name: str, more: dict[str, Any]) -> None:
    """A frame has 400 samples and starts 320 samples (0.02 s) after the previous one."""
    model = built(name, {**_WAV2VEC2, **more}, factor=30.0)
    extractor = transformers.Wav2Vec2FeatureExtractor()
    for seconds in (5, 0.8):
        record = extract(model, sound(seconds), processor=extractor)
        count = (int(seconds * RATE) - 400) // 320 + 1
        assert record.tokens.text == tuple(f"{index / 50:.2f}s" for index in range(count))
        assert not record.notes
    inputs = dict(extractor(sound(0.8), sampling_rate=RATE, return_tensors="pt"))
    own = own_fields(model, inputs)["attentions"]
    same = extracted(model, inputs)
    for item in (record, same):
        assert_own(item, "self", {n: layer[0] for n, layer in enumerate(own)}, peak=0.1)


def test_a_frame_depends_on_the_samples_of_its_time() -> None:
    model = built("Wav2Vec2Model", {**_WAV2VEC2, "feat_extract_norm": "layer"})
    # Without the convolution over many frames, and before attention mixes them.
    model.encoder.pos_conv_embed.forward = torch.zeros_like
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=False)
    before, after = sound(0.8), sound(0.8)
    after[6400:6480] += 1.0
    queries = [
        extract(model, samples, processor=extractor).stacks["self"].queries(layer=0, head=0)
        for samples in (before, after)
    ]
    changed = np.flatnonzero((queries[0] != queries[1]).any(-1))
    # Frames start every 0.02 s. Those of 0.38 s and 0.40 s contain the time from 0.400 s to 0.405
    # s.
    assert changed.tolist() == [19, 20]


def test_sounds_of_different_lengths_in_a_batch() -> None:
    model = built("Wav2Vec2Model", {**_WAV2VEC2, "feat_extract_norm": "layer"}, factor=30.0)
    extractor = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True)
    batch = dict(
        extractor(
            [sound(0.8), sound(0.4, seed=1)], sampling_rate=RATE, padding=True, return_tensors="pt"
        )
    )
    records = extract(model, batch, processor=extractor)
    own = own_fields(model, batch)["attentions"]
    for example, record in enumerate(records):
        layers = {number: layer[example] for number, layer in enumerate(own)}
        assert_own(record, "self", layers, peak=0.1)
    clip = (int(0.4 * RATE) - 400) // 320 + 1
    assert not records[1].stacks["self"].weights(layer=1)[:, :, clip:].any()


class TestSoundAndText:
    """Qwen2-Audio: the frames of an audio encoder are tokens of the language model."""

    @pytest.fixture(scope="class")
    def processor(self, byte_tokenizer: Any) -> Any:
        tokenizer = copy.deepcopy(byte_tokenizer)
        marks = ["<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>", "<|im_start|>", "<|im_end|>"]
        tokenizer.add_tokens(
            [AddedToken(mark, special=True) for mark in marks], special_tokens=True
        )
        extractor = transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=2)
        return transformers.Qwen2AudioProcessor(extractor, tokenizer)

    @pytest.fixture(scope="class")
    def model(self, processor: Any) -> Any:
        config = transformers.Qwen2AudioConfig(
            audio_config={
                "d_model": 48,
                "encoder_layers": 2,
                "encoder_attention_heads": 4,
                "encoder_ffn_dim": 64,
                "num_mel_bins": 16,
                "max_source_positions": 100,
            },
            text_config=transformers.Qwen2Config(
                **SIZE, vocab_size=400, num_key_value_heads=2, max_position_embeddings=512
            ),
            audio_token_index=processor.audio_token_id,
        )
        model = built("Qwen2AudioForConditionalGeneration", config, factor=10.0)
        sharpen(model, 2.0, "audio_tower")
        return model

    def test_weights_names_and_times(self, model: Any, processor: Any) -> None:
        text = "<|audio_bos|><|AUDIO|><|audio_eos|>The cat"
        inputs = dict(
            processor(text=text, audio=sound(1.2), sampling_rate=RATE, return_tensors="pt")
        )
        record = extracted(model, inputs, processor=processor)
        assert list(record.stacks) == ["self", "audio"]
        # The encoder has 2 s in frames of 0.02 s. Two frames are a token, and 1.2 s are 30 tokens.
        frames = record.stacks["audio"].query_tokens
        assert frames.text == tuple(f"{index / 50:.2f}s" for index in range(100))
        tokens = record.stacks["self"].query_tokens
        assert tokens.text[1:31] == tuple(f"{index / 25:.2f}s" for index in range(30))
        assert "".join(tokens.text[31:]) == "<|audio_eos|>The·cat"
        assert not any(tokens.special[1:31])
        own = own_modules(model, inputs)
        for stack, part in (("self", "language_model"), ("audio", "audio_tower")):
            calls = [outputs[0][0] for name, outputs in own.items() if part in name]
            assert_own(record, stack, dict(enumerate(calls)), peak=0.2)

    def test_a_sound_with_a_text_in_every_form(self, model: Any, processor: Any) -> None:
        clip = sound(1.2)
        record = extract(model, (clip, "The cat"), processor=processor)
        content = [{"type": "audio", "audio": clip}, {"type": "text", "text": "The cat"}]
        chat = [{"role": "user", "content": content}]
        pair = ("The cat", {"array": clip, "sampling_rate": RATE})
        for inputs in (chat, pair):
            other = extract(model, inputs, processor=processor)
            for name in record.stacks:
                assert other.stacks[name].query_tokens == record.stacks[name].query_tokens
                weights = other.stacks[name].weights(layer=1)
                assert np.array_equal(weights, record.stacks[name].weights(layer=1))
        assert "0.04s" in record.stacks["self"].query_tokens.text

    def test_two_sounds_in_one_prompt(self, model: Any, processor: Any) -> None:
        content = [
            {"type": "audio", "audio": sound(1.2)},
            {"type": "audio", "audio": sound(0.6, seed=1)},
        ]
        record = extract(model, [{"role": "user", "content": content}], processor=processor)
        named = [text for text in record.stacks["self"].query_tokens.text if text.endswith("s")]
        assert [text for text in named if ":" in text] == [
            *(f"1: {index / 25:.2f}s" for index in range(30)),
            *(f"2: {index / 25:.2f}s" for index in range(15)),
        ]
