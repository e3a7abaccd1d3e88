"""Records of decoders have masks of sliding windows, and notes about layers without attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attnviz import extract
from attnviz.record.masks import BandMask
from model_types.build import tiny_model

IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5, 61, 7, 7, 12]])
COUNT = IDS.shape[1]


def record_of(model_type: str, settings: dict[str, Any], **options: Any) -> Any:
    """Return the record of `IDS` from a tiny model with `settings` in its configuration."""
    return extract(tiny_model(model_type, None, settings), IDS, **options)


def test_missing_rows_are_an_error() -> None:
    """The last layers of Gemma 4 skip all queries but the last if ``logits_to_keep`` is 1."""
    settings = {
        "num_hidden_layers": 5,
        "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2 + ["full_attention"],
    }
    model: Any = tiny_model("gemma4_text", "Gemma4ForCausalLM", settings)
    model.model.register_forward_pre_hook(
        lambda _, args, options: (args, {**options, "logits_to_keep": 1}), with_kwargs=True
    )
    with pytest.raises(NotImplementedError, match="1 of the 12 tokens of the text"):
        extract(model, IDS)


@pytest.mark.parametrize(
    ("model_type", "windowed"), [("mistral", (0, 1)), ("gemma2", (0, 2)), ("gpt_oss", (0, 2))]
)
def test_windows_are_stored_as_band_masks(model_type: str, windowed: tuple[int, ...]) -> None:
    """A window has four tokens: the query itself and three before it."""
    stack = record_of(model_type, {"sliding_window": 4}).stacks["self"]
    distance = np.arange(COUNT)[:, None] - np.arange(COUNT)
    for number in stack.layers:
        within = (distance >= 0) & (distance < (4 if number in windowed else COUNT))
        assert np.array_equal(stack.allowed(layer=number, head=0), within)
        assert not stack.weights(layer=number)[:, ~within].any()
        mask = stack.attention(number).mask
        assert mask == BandMask(3 if number in windowed else None, 0)


# Model type, settings, numbers of the layers with attention, and notes about the other layers.
HYBRIDS: list[tuple[str, dict[str, Any], tuple[int, ...], list[str]]] = [
    (
        "nemotron_h",
        {},
        (2,),
        [
            "Not shown in layer 1 of stack self: NemotronHMoE (no attention).",
            "Not shown in layer 3 of stack self: NemotronHMLP (no attention).",
        ],
    ),
    (
        "recurrent_gemma",
        {},
        (2,),
        ["Not shown in layers 0, 1, 3: RecurrentGemmaRecurrentBlock (no attention)."],
    ),
    # Some layers of Llama 3.2 Vision attend to an image. They do not run without an image.
    (
        "mllama_text_model",
        {"num_hidden_layers": 4, "cross_attention_layers": [1, 3]},
        (0, 2),
        ["Not shown in layers 1, 3: MllamaTextCrossAttention (did not run on this input)."],
    ),
]


@pytest.mark.parametrize(
    ("model_type", "settings", "layers", "notes"), HYBRIDS, ids=[case[0] for case in HYBRIDS]
)
def test_notes_name_the_layers_that_a_record_does_not_contain(
    model_type: str, settings: dict[str, Any], layers: tuple[int, ...], notes: list[str]
) -> None:
    record = record_of(model_type, settings)
    assert record.stacks["self"].layers == layers
    assert [note for note in record.notes if note.startswith("Not shown")] == notes


def test_selected_layers_of_a_hybrid_keep_their_numbers() -> None:
    settings = {"num_hidden_layers": 6, "attn_layer_offset": 1, "attn_layer_period": 3}
    whole = record_of("jamba", settings).stack("self")
    stack = record_of("jamba", settings, layers=[4]).stack("self")
    assert (whole.layers, stack.layers) == ((1, 4), (4,))
    np.testing.assert_allclose(stack.weights(layer=4), whole.weights(layer=4), rtol=0, atol=1e-6)
    with pytest.raises(IndexError, match=r"layer=0.*1, 4"):
        whole.weights(layer=0)
    with pytest.raises(
        ValueError,
        match=r"layer 7 .*'self' has layers 1, 4; stack 'linear' has layers 0, 2",
    ):
        record_of("jamba", settings, layers=[1, 7])
    # Layers that `layers` leaves out get no note.
    record = record_of("llama", {}, layers=1)
    assert not any(note.startswith("Layer") for note in record.notes)
