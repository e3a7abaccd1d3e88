"""Recorded weights, compared with the same model's own eager weights for every layer and head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from attnviz.extraction import extract
from models.make_models import largest_error, make_model, reference
from models.tiny import arguments_of

TOLERANCE = 1e-4
# sdpa raises an error for a soft cap, and gpt-oss has no sdpa for its sinks.
EAGER_ONLY = {"gemma2", "gpt_oss"}
TEXT = ["albert", "bert", "gemma2", "gpt2", "gpt_oss", "llama", "mistral", "roberta"]
SEQ2SEQ = ["bart", "t5"]


def ids(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, 390, shape, generator=generator)


def implementations(kinds: list[str]) -> list[tuple[str, str]]:
    pairs = [(kind, name) for kind in kinds for name in ("sdpa", "eager")]
    return [pair for pair in pairs if pair[0] not in EAGER_ONLY or pair[1] == "eager"]


@pytest.mark.parametrize(("kind", "implementation"), implementations([*TEXT, *SEQ2SEQ, "vit"]))
def test_weights_equal_the_models_own(kind: str, implementation: str) -> None:
    model = make_model(kind)
    model.set_attn_implementation(implementation)
    arguments = arguments_of(kind)

    own = reference(model, arguments)
    record = extract(model, arguments)

    # Rows must have clear maxima: almost uniform rows would fit any formula.
    peaks = [layer.max(-1).mean() for layers in own.values() for layer in layers]
    assert np.mean(peaks) > 0.35
    error = largest_error(record, own)
    print(f"{kind} {implementation}: largest error {error:.1e}")  # noqa: T201
    assert error < TOLERANCE


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", SEQ2SEQ)
def test_padding_is_removed_on_both_sides_of_cross_attention(
    kind: str, implementation: str
) -> None:
    model = make_model(kind)
    model.set_attn_implementation(implementation)
    mask = torch.tensor([[1] * 9, [1] * 6 + [0] * 3])
    decoder_mask = torch.tensor([[1] * 4 + [0] * 2, [1] * 6])
    arguments = {
        "input_ids": ids(2, 9),
        "attention_mask": mask,
        "decoder_input_ids": ids(2, 6, seed=1),
        "decoder_attention_mask": decoder_mask,
    }

    own = reference(model, arguments)
    records = extract(model, arguments)

    for example, record in enumerate(records):
        keep = {
            "input": np.flatnonzero(mask[example]),
            "decoder": np.flatnonzero(decoder_mask[example]),
        }
        assert largest_error(record, own, example, keep) < TOLERANCE


def test_a_list_gives_the_records_of_the_single_texts(byte_tokenizer: Any) -> None:
    model = make_model("gpt2")
    texts = ["The cat sat on the mat.", "The dog", "A date such as 3 May 2021"]
    records = extract(model, texts, tokenizer=byte_tokenizer, progress=False)
    assert len(records) == 3
    for text, record in zip(texts, records, strict=True):
        alone = extract(model, text, tokenizer=byte_tokenizer)
        assert record.tokens == alone.tokens
        own = {"self": [alone.stacks["self"].weights(layer=n)[None] for n in range(3)]}
        assert largest_error(record, own) == 0.0


def test_the_trained_checkpoint_finds_the_antecedent(checkpoint_folder: Path) -> None:
    text = "The animal didn't cross the street because it was too tired."
    record = extract(str(checkpoint_folder), text)
    stack = record.stacks["self"]
    assert stack.num_layers == 6
    assert stack.heads_per_layer == (12,) * 6
    words = list(record.tokens)
    it, animal = words.index("it"), words.index("animal")
    best = max(float(stack.weights(layer=layer)[:, it, animal].max()) for layer in stack.layers)
    assert best == pytest.approx(0.68, abs=0.005)

    model = transformers.AutoModel.from_pretrained(checkpoint_folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint_folder)
    own = reference(model, tokenizer(text, return_tensors="pt"))
    error = largest_error(record, own)
    print(f"trained checkpoint: largest error {error:.1e}")  # noqa: T201
    assert error < TOLERANCE
