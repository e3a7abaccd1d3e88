"""Recorded weights equal the model's own eager weights in every layer and head."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnviz.extraction import extract
from models.make_models import largest_error, make_model, reference
from models.tiny import arguments_of

TOLERANCE = 1e-4
# sdpa raises an error for a soft cap, and gpt-oss has no sdpa for its sinks.
EAGER_ONLY = {"gemma2", "gpt_oss"}
TEXT = ["albert", "bert", "gemma2", "gpt2", "gpt_oss", "llama", "mistral", "roberta"]
ENCODER_DECODERS = ["bart", "t5"]


def ids(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, 390, shape, generator=generator)


def implementations(kinds: list[str]) -> list[tuple[str, str]]:
    pairs = [(kind, name) for kind in kinds for name in ("sdpa", "eager")]
    return [pair for pair in pairs if pair[0] not in EAGER_ONLY or pair[1] == "eager"]


@pytest.mark.parametrize(
    ("kind", "implementation"), implementations([*TEXT, *ENCODER_DECODERS, "vit"])
)
def test_weights_equal_the_models_own(kind: str, implementation: str) -> None:
    model = make_model(kind)
    model.set_attn_implementation(implementation)
    arguments = arguments_of(kind)

    own = reference(model, arguments)
    record = extract(model, arguments)

    # Rows must have clear maxima: almost uniform rows would fit any formula.
    peaks = [layer.max(-1).mean() for layers in own.values() for layer in layers]
    assert np.mean(peaks) > 0.35
    assert largest_error(record, own) < TOLERANCE


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ENCODER_DECODERS)
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
