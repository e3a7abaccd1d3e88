"""The decoder reads a target as in a training call of the model, with one start token."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import processors

from attnviz.extraction import extract
from models.steps import IDS
from models.tiny import built

SPECIAL = {"vocab_size": 400, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DECODER = {
    "d_model": 48,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 64,
    "decoder_start_token_id": 2,
}
BART = {
    **SPECIAL,
    **DECODER,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "max_position_embeddings": 64,
}
SOUND = {**BART, "max_source_positions": 50, "max_target_positions": 64}
T5 = {**SPECIAL, "d_model": 48, "num_layers": 2, "num_heads": 4, "d_kv": 12, "d_ff": 64}
VISION = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
IMAGE = {**VISION, "intermediate_size": 64, "image_size": 32, "patch_size": 8}
TEXT = {"input_ids": IDS}


def captioner(start: int) -> dict[str, Any]:
    """Return the configuration of a model whose decoder reads the patches of an image."""
    decoder = {**SPECIAL, **DECODER, "model_type": "trocr", "cross_attention_hidden_size": 48}
    return {
        "encoder": {"model_type": "vit", **IMAGE},
        "decoder": decoder | {"max_position_embeddings": 64},
        "decoder_start_token_id": start,
        "pad_token_id": 0,
    }


# Start and end are the special tokens that a tokenizer adds, as in the tokenizers of these models.
# A language has the id 5.
@pytest.mark.parametrize(
    ("name", "config", "inputs", "template"),
    [
        ("T5ForConditionalGeneration", T5 | {"decoder_start_token_id": 0}, TEXT, "$A </s>"),
        ("BartForConditionalGeneration", BART, TEXT, "<s> $A </s>"),
        ("BartForConditionalGeneration", BART | {"decoder_start_token_id": 1}, TEXT, "<s> $A </s>"),
        ("MBartForConditionalGeneration", BART, TEXT, "$A </s> <|assistant|>"),
        ("MBartForConditionalGeneration", BART, TEXT, "<|assistant|> $A </s>"),
        ("M2M100ForConditionalGeneration", BART, TEXT, "<|assistant|> $A </s>"),
        ("MarianMTModel", BART | {"decoder_start_token_id": 0}, TEXT, "$A </s>"),
        ("PegasusForConditionalGeneration", BART | {"decoder_start_token_id": 0}, TEXT, "$A </s>"),
        (
            "WhisperForConditionalGeneration",
            SOUND | {"decoder_start_token_id": 1, "num_mel_bins": 16},
            {"input_features": torch.ones(1, 16, 100)},
            "<s> <|assistant|> $A </s>",
        ),
        (
            "Speech2TextForConditionalGeneration",
            SOUND | {"input_feat_per_channel": 16, "conv_channels": 32},
            {"input_features": torch.ones(1, 100, 16)},
            "$A </s>",
        ),
        ("VisionEncoderDecoderModel", 1, {"pixel_values": torch.ones(1, 3, 32, 32)}, "<s> $A </s>"),
        ("VisionEncoderDecoderModel", 2, {"pixel_values": torch.ones(1, 3, 32, 32)}, "<s> $A </s>"),
    ],
)
def test_the_decoder_reads_a_target_as_in_a_training_call(
    name: str, config: Any, inputs: dict[str, Any], template: str, byte_tokenizer: Any
) -> None:
    tokenizer = copy.deepcopy(byte_tokenizer)
    ids = {
        token: tokenizer.convert_tokens_to_ids(token) for token in ("<s>", "</s>", "<|assistant|>")
    }
    tokenizer._tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=list(ids.items())
    )
    model = built(name, captioner(config) if isinstance(config, int) else config)
    start = getattr(model.config, "decoder_start_token_id", None)
    labels = tokenizer(text_target="the cat", return_tensors="pt")["input_ids"]
    read: list[torch.Tensor] = []

    def look(_module: Any, args: Any, kwargs: Any) -> None:
        read.append(kwargs.get("input_ids", args[0] if args else None))

    def decoder_ids(labels: torch.Tensor) -> list[int]:
        with torch.no_grad():
            model(**inputs, labels=labels)
        return read[-1][0].tolist()

    handle = model.get_decoder().register_forward_pre_hook(look, with_kwargs=True)
    trained = decoder_ids(labels)
    # Scripts for training remove the start token of a tokenizer that adds it, so that the decoder
    # does not read it twice.
    has_start = labels[0, 0] == start
    expected = decoder_ids(labels[:, 1:]) if has_start else trained
    handle.remove()
    record = extract(model, inputs, target="the cat", tokenizer=tokenizer)
    tokens = record.stacks["cross"].query_tokens
    assert list(tokens.ids) == expected
    assert expected.count(1) < 2
    predicted = [prediction.token.id for prediction in tokens.predictions]
    assert predicted == labels[0, int(has_start) :].tolist()
    # Labels of the caller are those of the model's own call.
    own = extract(model, inputs | {"labels": labels}, tokenizer=tokenizer)
    assert list(own.stacks["cross"].query_tokens.ids) == trained
    same = extract(model, inputs | {"decoder_input_ids": torch.tensor([expected])})
    difference = record.stacks["cross"].weights(layer=1) - same.stacks["cross"].weights(layer=1)
    assert np.abs(difference).max() < 1e-6


def test_targets_of_several_lengths_have_one_start_token(byte_tokenizer: Any) -> None:
    tokenizer = copy.deepcopy(byte_tokenizer)
    tokenizer._tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    model = built("BartForConditionalGeneration", BART | {"decoder_start_token_id": 1})
    inputs = {"input_ids": IDS.repeat(2, 1)}
    targets = ["the cat sat on the mat", "a dog"]
    for target, record in zip(
        targets, extract(model, inputs, target=targets, tokenizer=tokenizer), strict=True
    ):
        ids = tokenizer(target)["input_ids"]
        tokens = record.stacks["decoder"].query_tokens
        assert list(tokens.ids) == ids[:-1]
        assert [prediction.token.id for prediction in tokens.predictions] == ids[1:]
