"""The relative position bias of T5, and proteins as texts."""

from __future__ import annotations

from math import log
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

from attnviz import extract
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask, DistanceBias
from models.tiny import SIZE, assert_own, built, reference

T5 = {
    "vocab_size": 400,
    "d_model": 48,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
    "num_layers": 3,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "d_kv": 12,
    "d_ff": 64,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
}


def bucket(distance: int, *, both_ways: bool, buckets: int, furthest: int) -> int:
    """Return the bucket of a distance as in Raffel et al. (2020): half exact, half logarithmic."""
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
    """The stored bias has one number per distance, and equals the model's table."""
    model = built("T5ForConditionalGeneration", T5, factor=2.5)
    count = 30
    ids = torch.arange(5, 5 + count)[None]
    record = extract(model, {"input_ids": ids, "decoder_input_ids": ids})
    side = getattr(model, stack)
    table = side.block[0].layer[0].SelfAttention.relative_attention_bias.weight.detach().numpy()
    positions = np.array(
        [
            [
                bucket(key - query, both_ways=stack == "encoder", buckets=8, furthest=20)
                for key in range(count)
            ]
            for query in range(count)
        ]
    )
    assert len(set(positions.flat)) > 4
    expected: NDArray[np.float32] = table[positions].transpose(2, 0, 1)
    everything = slice(0, count)
    for number in range(3):
        attention = record.stacks[stack].attention(number)
        assert isinstance(attention, QueryKeyAttention)
        bias = attention.bias
        assert isinstance(bias, DistanceBias)
        assert bias.values.shape == (4, 2 * count - 1)
        visible = np.tri(count, dtype=bool) if stack == "decoder" else np.ones((count, count), bool)
        for head in range(4):
            values = bias.added(head, everything, everything).numpy()
            assert np.abs(values - expected[head])[visible].max() < 1e-6
        assert attention.mask == (BandMask(None, 0) if stack == "decoder" else None)
    cross = record.stacks["cross"].attention(0)
    assert isinstance(cross, QueryKeyAttention)
    assert cross.bias is None


def test_letters_of_proteins_are_tokens(tmp_path: Path) -> None:
    """ESM: a letter is an amino acid. The shorter protein of a batch is padded."""
    sequence = "MKTAYIAKQRQISFVKSHFSRQ"
    letters = "<cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C <mask>"
    (tmp_path / "vocab.txt").write_text("\n".join(letters.split()))
    tokenizer = transformers.EsmTokenizer(str(tmp_path / "vocab.txt"))
    settings = {
        **SIZE,
        "vocab_size": 25,
        "pad_token_id": 1,
        "mask_token_id": 24,
        "position_embedding_type": "rotary",
        "max_position_embeddings": 64,
    }
    model = built("EsmForMaskedLM", settings, factor=14.0)
    batch = tokenizer([sequence, "MKTAY"], padding=True, return_tensors="pt")
    whole, short = extract(model, batch, tokenizer=tokenizer)
    assert whole.tokens.text == ("<cls>", *sequence, "<eos>")
    assert whole.tokens.special == (True, *[False] * len(sequence), True)
    assert short.tokens.text == ("<cls>", *"MKTAY", "<eos>")
    own = reference(model, batch)["self"]
    assert_own(whole, {"self": own})
    assert_own(short, {"self": [layer[:, :, :7, :7] for layer in own]}, example=1)
