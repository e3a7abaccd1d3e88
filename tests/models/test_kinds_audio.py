"""Records of audio models have the models' own weights. Frames of a sound are named by time."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from tokenizers import AddedToken

from attnviz import HeadView, MatrixView, extract
from models.tiny import SIZE, assert_own, built, extracted, own_modules, reference, sharpen

RATE = 16_000


def sound(seconds: float, seed: int = 0) -> NDArray[np.float32]:
    """Return noise at 16,000 samples per second as an array (samples,)."""
    random = np.random.default_rng(seed)
    return 0.1 * random.standard_normal(int(seconds * RATE)).astype(np.float32)


def test_the_frames_of_a_sound_are_the_keys_of_a_decoder() -> None:
    """Whisper pads every sound to 30 seconds, which are 1,500 frames of 0.02 s."""
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
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    model = built("WhisperForConditionalGeneration", settings, factor=14.0)
    extractor = transformers.WhisperFeatureExtractor(feature_size=80)
    ids = [1, 5, 99, 6]
    record = extract(model, sound(3), processor=extractor, decoder_input_ids=ids)
    assert list(record.stacks) == ["encoder", "decoder", "cross"]
    frames = record.stacks["encoder"].query_tokens
    times = tuple(f"{index / 50:.2f}s" for index in range(1500))
    assert frames.text == times[:150] + tuple(f"silence {time}" for time in times[150:])
    of_sound, silence = frames.grids
    assert (of_sound.positions, silence.start, silence.stop) == (tuple(range(150)), 150, 1500)
    assert of_sound.span(5) == pytest.approx((0.1, 0.12))
    assert silence.span(0) == pytest.approx((3.0, 3.02))
    assert record.stacks["cross"].key_tokens == frames
    assert record.stacks["decoder"].query_tokens.ids == tuple(ids)
    assert any("The sound ends at 3.00s" in note for note in record.notes)
    # Views open on the sound, and not on the silence after it.
    assert frames.sequence == (0,) * 150 + (None,) * 1350
    matrix, head = MatrixView(record, stack="cross"), HeadView(record, stack="cross", token=2)
    windows = [getattr(matrix, name) for name in ("query_window", "key_window")]
    assert windows == [None, [0, 150]]
    assert head.key_window is not None
    assert head.key_window[1] <= 150
    pinned = HeadView(record, stack="cross", key=1000)
    assert pinned.key_window is not None
    assert pinned.key_window[0] <= 1000 < pinned.key_window[1]

    features = extractor(sound(3), sampling_rate=RATE, return_tensors="pt")
    for inputs in (
        torch.from_numpy(sound(3)),
        {"array": sound(3), "sampling_rate": RATE},
        features,
    ):
        same = extract(model, inputs, processor=extractor, decoder_input_ids=ids)
        names = same.stacks["cross"].key_tokens.text
        assert names == (times if inputs is features else frames.text)
        weights, expected = (item.stacks["cross"].weights(layer=1) for item in (same, record))
        assert np.abs(weights - expected).max() < 1e-5
    # `same` is now the record of `features`, which do not contain the length of the sound.
    assert not any("ends at" in note for note in same.notes)
    assert not MatrixView(same, stack="cross").key_window


@pytest.fixture(scope="module")
def wav2vec2() -> Any:
    settings = {
        **SIZE,
        "vocab_size": 30,
        "conv_dim": [16] * 7,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 2,
        "feat_extract_norm": "layer",
    }
    return built("Wav2Vec2Model", settings, factor=30.0)


def test_frames_of_a_speech_encoder_are_named_by_their_times(
    wav2vec2: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame has 400 samples and starts 320 samples (0.02 s) after the previous one."""
    # Without the positional convolution, a query of layer 0 depends on one frame only.
    monkeypatch.setattr(wav2vec2.encoder.pos_conv_embed, "forward", torch.zeros_like)
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=False)
    samples = sound(0.8)
    record = extract(wav2vec2, samples, processor=extractor)
    count = (len(samples) - 400) // 320 + 1
    assert record.tokens.text == tuple(f"{index / 50:.2f}s" for index in range(count))
    assert not record.notes
    samples[6400:6480] += 1.0
    before, after = (
        stack.queries(layer=0, head=0)
        for stack in (record.stack(), extract(wav2vec2, samples, processor=extractor).stack())
    )
    changed = np.flatnonzero((before != after).any(-1))
    # Samples from 0.400 s to 0.405 s changed. A frame lasts 0.025 s, so two frames contain them.
    assert [record.tokens.text[index] for index in changed] == ["0.38s", "0.40s"]


def test_sounds_of_different_lengths_in_a_batch(wav2vec2: Any) -> None:
    extractor = transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True)
    sounds = [sound(0.8), sound(0.4, seed=1)]
    batch = dict(extractor(sounds, sampling_rate=RATE, padding=True, return_tensors="pt"))
    records = extract(wav2vec2, batch, processor=extractor)
    for example, record in enumerate(records):
        assert_own(record, reference(wav2vec2, batch), peak=0.1, example=example)
    clip = (len(sounds[1]) - 400) // 320 + 1
    assert not records[1].stack().weights(layer=1)[:, :, clip:].any()


@pytest.mark.parametrize(("seconds", "note"), [(5, "lasts 5.00s.*first 2.00s"), (2, None)])
@pytest.mark.parametrize("kind", ["whisper", "ast"])
def test_a_note_says_that_a_processor_drops_the_end_of_a_sound(
    kind: str, seconds: int, note: str | None
) -> None:
    extractor: Any
    options: dict[str, Any] = {}
    if kind == "whisper":
        config = {"vocab_size": 400, "d_model": 48, "encoder_layers": 2, "decoder_layers": 2}
        config |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_mel_bins": 16}
        config |= {"max_source_positions": 100, "pad_token_id": 0, "decoder_start_token_id": 1}
        model = built("WhisperForConditionalGeneration", config | {"eos_token_id": 2})
        extractor = transformers.WhisperFeatureExtractor(feature_size=16, chunk_length=2)
        options = {"decoder_input_ids": [1, 5]}
    else:
        model = built("ASTModel", {**SIZE, "num_mel_bins": 16, "max_length": 200})
        extractor = transformers.ASTFeatureExtractor(num_mel_bins=16, max_length=200)
    record = extract(model, sound(seconds), processor=extractor, **options)
    # The end of the sound does not change what the model reads.
    changed = sound(seconds)
    changed[3 * RATE :] = 0
    name = extractor.model_input_names[0]
    both = [extractor(part, sampling_rate=RATE)[name] for part in (sound(seconds), changed)]
    assert np.allclose(both[0], both[1])
    notes = [text for text in record.notes if "sound" in text and "no times" not in text]
    assert (not notes) if note is None else re.search(note, notes[0])


class TestSoundAndText:
    """Qwen2-Audio makes one token of the language model from two frames of the audio encoder."""

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
        # The encoder pads the sound of 1.2 s (60 frames, or 30 tokens) to 2 s (100 frames).
        frames = record.stacks["audio"].query_tokens
        assert frames.text == tuple(f"{index / 50:.2f}s" for index in range(100))
        tokens = record.stacks["self"].query_tokens
        assert tokens.text[1:31] == tuple(f"{index / 25:.2f}s" for index in range(30))
        assert "".join(tokens.text[31:]) == "<|audio_eos|>The·cat"
        assert not any(tokens.special[1:31])
        own = own_modules(model, inputs, {"self": "language_model", "audio": "audio_tower"})
        assert_own(record, own, peak=0.2)

    def test_a_sound_with_a_text_in_every_form(self, model: Any, processor: Any) -> None:
        clip = sound(1.2)
        record = extract(model, (clip, "The cat"), processor=processor)
        content = [{"type": "audio", "audio": clip}, {"type": "text", "text": "The cat"}]
        pair = ("The cat", {"array": clip, "sampling_rate": RATE})
        for inputs in ([{"role": "user", "content": content}], pair):
            other = extract(model, inputs, processor=processor)
            for name, stack in record.stacks.items():
                # Only a chat has the passages of its turns.
                tokens = [one.query_tokens for one in (other.stacks[name], stack)]
                assert replace(tokens[0], passages=()) == replace(tokens[1], passages=())
                weights = other.stacks[name].weights(layer=1)
                assert np.array_equal(weights, stack.weights(layer=1))
        assert "0.04s" in record.stacks["self"].query_tokens.text

    def test_a_note_says_that_a_sound_beside_a_text_is_cut(
        self, model: Any, processor: Any
    ) -> None:
        clips = [sound(1.2), sound(2.5), sound(3)]
        record = extract(model, (clips[1], "The cat"), processor=processor)
        assert record.notes == (
            "The sound lasts 2.50s. The processor keeps the first 2.00s of it.",
        )
        content: list[dict[str, Any]] = [{"type": "audio", "audio": clip} for clip in clips]
        content.append({"type": "text", "text": "The cat"})
        record = extract(model, [{"role": "user", "content": content}], processor=processor)
        assert record.notes[:2] == (
            "Sound 2 lasts 2.50s. The processor keeps the first 2.00s of it.",
            "Sound 3 lasts 3.00s. The processor keeps the first 2.00s of it.",
        )
