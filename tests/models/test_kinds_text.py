"""Kinds of text models: encoder-decoders with their targets, and proteins."""

from __future__ import annotations

from functools import cache
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

from attnviz import extract
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, DistanceBias
from models.tiny import SIZE, assert_own, built, extracted, own_fields

pytestmark = pytest.mark.models

TEXT = "The cat sat on the mat."
TARGET = "the dog looked"

_IDS = {"vocab_size": 400, "d_model": 48, "pad_token_id": 0, "eos_token_id": 1}
_BY_SIDE = {
    **_IDS,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "bos_token_id": 2,
    "forced_eos_token_id": None,
}
_T5 = {
    **_IDS,
    "decoder_start_token_id": 0,
    "num_layers": 3,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "d_kv": 12,
    "d_ff": 64,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
}

# Class, settings, and the factor that makes rows peaked; T5 doesn't scale its products.
KINDS: dict[str, tuple[str, dict[str, Any], float]] = {
    "t5": ("T5ForConditionalGeneration", _T5, 2.5),
    "bart": (
        "BartForConditionalGeneration",
        {**_BY_SIDE, "decoder_start_token_id": 1},
        14.0,
    ),
    "marian": ("MarianMTModel", {**_BY_SIDE, "decoder_start_token_id": 0}, 14.0),
}


@cache
def made(kind: str) -> Any:
    name, settings, factor = KINDS[kind]
    return built(name, settings, factor=factor)


def assert_all_own(record: Any, model: Any, arguments: dict[str, Any]) -> None:
    fields = own_fields(model, arguments)
    assert list(record.stacks) == ["encoder", "decoder", "cross"]
    for stack in record.stacks:
        layers = fields[f"{stack}_attentions"]
        assert_own(record, stack, {number: layer[0] for number, layer in enumerate(layers)})


@pytest.mark.parametrize("kind", KINDS)
def test_encoder_decoder_weights_are_the_models_own(kind: str) -> None:
    model = made(kind)
    arguments = {
        "input_ids": torch.tensor([[5, 17, 42, 17, 99, 8, 23]]),
        "decoder_input_ids": torch.tensor([[0, 7, 8, 99]]),
    }
    record = extracted(model, arguments)
    assert_all_own(record, model, arguments)
    assert record.stacks["cross"].query_tokens == record.stacks["decoder"].query_tokens
    assert record.stacks["cross"].key_tokens == record.stacks["encoder"].query_tokens


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_is_a_text(kind: str, piece_tokenizer: Any) -> None:
    model = made(kind)
    record = extract(model, TEXT, tokenizer=piece_tokenizer, target=TARGET)
    # As in training: each label is predicted from those before it, the first from a start token.
    labels = piece_tokenizer(TARGET)["input_ids"]
    fed = [model.config.decoder_start_token_id, *labels[:-1]]
    encoded = piece_tokenizer(TEXT, return_tensors="pt")
    inputs = {"input_ids": encoded["input_ids"], "decoder_input_ids": torch.tensor([fed])}
    assert_all_own(record, model, inputs)
    tokens = record.stacks["decoder"].query_tokens
    assert tokens.ids == tuple(fed)
    assert [each.token.id for each in tokens.predictions] == labels
    assert [each.query for each in tokens.predictions] == list(range(len(labels)))
    assert record.stacks["encoder"].query_tokens.ids == tuple(encoded["input_ids"][0].tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_that_the_model_generates(kind: str, piece_tokenizer: Any) -> None:
    model = made(kind)
    encoded = piece_tokenizer(TEXT, return_tensors="pt")
    ids = encoded["input_ids"]
    with torch.no_grad():
        came = model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False
        )
    record = extract(model, TEXT, tokenizer=piece_tokenizer, generate=6, progress=False)
    tokens = record.stacks["decoder"].query_tokens
    assert tokens.ids == tuple(came[0, :-1].tolist())
    assert [each.token.id for each in tokens.predictions] == came[0, 1:].tolist()
    assert_all_own(record, model, {"input_ids": ids, "decoder_input_ids": came[:, :-1]})


def bucket(distance: int, *, both_ways: bool, buckets: int, furthest: int) -> int:
    """Shaw-like buckets as Raffel et al. (2020) describe them: half exact, half logarithmic."""
    first = 0
    if both_ways:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    further = exact + int(log(distance / exact) / log(furthest / exact) * (buckets - exact))
    return first + min(further, buckets - 1)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_a_relative_bias_is_kept_by_distance(stack: str) -> None:
    """T5's bias, looked up in the model's own table by the formula, and not n x n numbers."""
    model = made("t5")
    count = 30
    ids = torch.arange(5, 5 + count)[None]
    record = extract(model, {"input_ids": ids, "decoder_input_ids": ids})
    side = getattr(model, stack)
    table = side.block[0].layer[0].SelfAttention.relative_attention_bias.weight.detach().numpy()
    places = np.array(
        [
            [
                bucket(key - query, both_ways=stack == "encoder", buckets=8, furthest=20)
                for key in range(count)
            ]
            for query in range(count)
        ]
    )
    assert len(set(places.flat)) > 4
    expected: NDArray[np.float32] = table[places].transpose(2, 0, 1)
    everything = slice(0, count)
    for number in range(3):
        attention = record.stacks[stack].attention(number)
        assert isinstance(attention, QueryKeyAttention)
        bias = attention.bias
        assert isinstance(bias, DistanceBias)
        assert bias.values.shape == (4, 2 * count - 1)
        seen = np.tri(count, dtype=bool) if stack == "decoder" else np.ones((count, count), bool)
        for head in range(4):
            found = bias.added(head, everything, everything).numpy()
            assert np.abs(found - expected[head])[seen].max() < 1e-6
        assert attention.mask == (BandMask(None, 0) if stack == "decoder" else None)
    cross = record.stacks["cross"].attention(0)
    assert isinstance(cross, QueryKeyAttention)
    assert cross.bias is None


class TestProtein:
    """ESM: a letter is an amino acid, and a token."""

    SEQUENCE = "MKTAYIAKQRQISFVKSHFSRQ"

    @pytest.fixture
    def tokenizer(self, tmp_path: Path) -> Any:
        letters = "<cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C <mask>"
        file = tmp_path / "vocab.txt"
        file.write_text("\n".join(letters.split()))
        return transformers.EsmTokenizer(str(file))

    @pytest.fixture
    def model(self) -> Any:
        settings = {
            **SIZE,
            "vocab_size": 25,
            "pad_token_id": 1,
            "mask_token_id": 24,
            "position_embedding_type": "rotary",
            "max_position_embeddings": 64,
        }
        return built("EsmForMaskedLM", settings, factor=14.0)

    def test_every_amino_acid_is_a_token(self, model: Any, tokenizer: Any) -> None:
        record = extract(model, self.SEQUENCE, tokenizer=tokenizer)
        assert record.tokens.text == ("<cls>", *self.SEQUENCE, "<eos>")
        assert record.tokens.special == (True, *[False] * len(self.SEQUENCE), True)
        own = own_fields(model, tokenizer(self.SEQUENCE, return_tensors="pt"))["attentions"]
        assert_own(record, "self", {number: layer[0] for number, layer in enumerate(own)})

    def test_a_batch_of_proteins_of_different_lengths(self, model: Any, tokenizer: Any) -> None:
        batch = tokenizer([self.SEQUENCE, "MKTAY"], padding=True, return_tensors="pt")
        records = extract(model, batch, tokenizer=tokenizer)
        assert records[1].tokens.text == ("<cls>", *"MKTAY", "<eos>")
        own = own_fields(model, batch)["attentions"]
        assert_own(records[1], "self", {n: layer[1, :, :7, :7] for n, layer in enumerate(own)})
