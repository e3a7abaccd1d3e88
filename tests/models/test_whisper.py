"""Whisper tiny.en, a trained speech model: its text, its weights, and seconds of its frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from model_types.checkpoints import checked
from models.real_checkpoints import SAID, speech, whisper

pytestmark = pytest.mark.slow

# Start and end of the words in seconds, from the events of espeak-ng. "on the" is one event.
WORDS = (
    ("The", 0.0, 0.129),
    ("cat", 0.129, 0.49),
    ("sat", 0.49, 0.827),
    ("on", 0.827, 1.075),
    ("the", 0.827, 1.075),
    ("mat", 1.075, 1.679),
    ("and", 1.679, 1.887),
    ("the", 1.887, 2.01),
    ("dog", 2.01, 2.335),
    ("looked", 2.335, 2.674),
    ("at", 2.674, 2.854),
    ("the", 2.854, 2.983),
    ("moon", 2.983, 3.442),
)
# One of the heads that Whisper's own times of words use (`alignment_heads` of its configuration).
LAYER, HEAD = 3, 2


@pytest.fixture(scope="module")
def model_and_processor() -> tuple[Any, Any]:
    return whisper()


@pytest.fixture(scope="module")
def record(model_and_processor: tuple[Any, Any]) -> av.AttentionRecord:
    model, processor = model_and_processor
    made = av.extract(model, speech(), processor=processor, generate=20, progress=False)
    assert isinstance(made, av.AttentionRecord)
    return made


def test_the_text_is_what_was_said(
    model_and_processor: tuple[Any, Any], record: av.AttentionRecord
) -> None:
    model, processor = model_and_processor
    features = processor.feature_extractor(speech(), sampling_rate=16_000, return_tensors="pt")
    wanted = model.generate(features.input_features, max_length=None, max_new_tokens=20)
    ids = record.stack("decoder").query_tokens.ids
    assert ids == (model.config.decoder_start_token_id, *wanted[0].tolist())
    assert processor.tokenizer.decode(ids, skip_special_tokens=True).strip() == SAID


def test_all_weights_equal_those_of_the_eager_model(
    model_and_processor: tuple[Any, Any], record: av.AttentionRecord
) -> None:
    model, processor = model_and_processor
    features = processor.feature_extractor(speech(), sampling_rate=16_000, return_tensors="pt")
    ids = torch.tensor([record.stack("decoder").query_tokens.ids])
    inputs = {"input_features": features.input_features, "decoder_input_ids": ids}
    forward, comparison = checked(model, inputs)
    assert comparison.right
    assert comparison.unverified == {}
    for name in ("encoder", "decoder", "cross"):
        for layer in range(4):
            difference = forward.stack(name).weights(layer) - record.stack(name).weights(layer)
            assert np.abs(difference).max() < 1e-4


def test_the_cross_attention_is_a_staircase_over_the_seconds(record: av.AttentionRecord) -> None:
    stack = record.stack("cross")
    frames = stack.key_tokens.text
    end = len(speech()) / 16_000
    assert frames == tuple(
        f"{'silence ' if number / 50 >= end else ''}{number / 50:.2f}s" for number in range(1500)
    )
    # A query predicts the next token, so it reads the sound of that one.
    peaks = stack.weights(LAYER, HEAD).argmax(axis=-1)[1:-2]
    seconds = [float(frames[peak].removesuffix("s")) for peak in peaks]
    assert seconds == sorted(seconds)
    tokens = [token.strip("·") for token in stack.query_tokens.text[2:-1]]
    read = [pair for pair in zip(tokens, seconds, strict=True) if pair[0] != ","]
    assert [token for token, _ in read] == [word for word, _, _ in WORDS]
    for (_, second), (_, start, end) in zip(read, WORDS, strict=True):
        # A tenth of a second is less than the shortest of these words.
        assert start - 0.1 < second < end + 0.1


def test_notes_say_where_the_sound_ends(record: av.AttentionRecord) -> None:
    end = len(speech()) / 16_000
    assert any(f"The sound ends at {end:.2f}s" in note for note in record.notes)
