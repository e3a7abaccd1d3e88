"""`extract` reads a user's attention function only if its weights are softmax(logits)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from transformers.masking_utils import AttentionMaskInterface

from attnviz import AttentionRecord, extract
from models.explicit_attention import attention_function
from models.tiny import SIZE, built

LENGTH, WINDOW = 24, 8
# Function that changes logits (batch, heads, queries, keys) in place. Masked keys have -inf.
Change = Callable[[torch.Tensor], None]


class Own:
    """Softmax that stores its results.

    If `change` is set, it edits the logits of call number `call` before the softmax.
    """

    def __init__(self) -> None:
        self.change: Change | None = None
        self.call = 0
        self.weights: list[torch.Tensor] = []

    def __call__(self, module: Any, logits: torch.Tensor) -> torch.Tensor:
        del module
        if self.change is not None and len(self.weights) == self.call:
            self.change(logits)
        weights = logits.softmax(dim=-1)
        self.weights.append(weights)
        return weights


@pytest.fixture
def own(register: Callable[[str, Callable[..., Any]], str], monkeypatch: pytest.MonkeyPatch) -> Own:
    weights = Own()
    register("mine", attention_function(weights, window=WINDOW))
    masks = AttentionMaskInterface._global_mapping
    monkeypatch.setitem(masks, "mine", masks["sdpa"])
    return weights


@pytest.fixture(scope="module")
def mistral() -> Any:
    config = {**SIZE, "num_key_value_heads": 2, "vocab_size": 99, "sliding_window": WINDOW}
    return built("MistralForCausalLM", config)


@pytest.fixture
def model(mistral: Any, own: Own) -> Iterator[Any]:
    mistral.set_attn_implementation("mine")
    yield mistral
    mistral.set_attn_implementation("sdpa")


IDS = torch.randint(0, 99, (3, LENGTH), generator=torch.Generator().manual_seed(1))


def extracted(model: Any, own: Own, change: Change | None = None, call: int = 0) -> Any:
    own.weights.clear()
    own.change, own.call = change, call
    return extract(model, {"input_ids": IDS}, progress=False)


def test_functions_that_follow_the_formula_are_shown_and_named(model: Any, own: Own) -> None:
    records: list[AttentionRecord] = extracted(model, own)
    for number, record in enumerate(records):
        for layer, weights in enumerate(own.weights):
            computed = record.stacks["self"].weights(layer=layer)
            assert np.abs(computed - weights[number].numpy()).max() < 1e-5
        notes = [note for note in record.notes if "'mine'" in note]
        assert len(notes) == 1
        assert "explicit_attention) does not come with transformers" in notes[0]
        assert "bias + mask), compared with its output." in notes[0]


def test_functions_of_transformers_are_not_named(mistral: Any) -> None:
    for name in ("sdpa", "eager"):
        mistral.set_attn_implementation(name)
        [record, *_] = extract(mistral, {"input_ids": IDS}, progress=False)
        assert not any("does not come with" in note for note in record.notes)
    mistral.set_attn_implementation("sdpa")


def _formula_of_a_head(logits: torch.Tensor) -> None:
    logits[:, 2] = torch.where(logits[:, 2].isinf(), -torch.inf, torch.tanh(logits[:, 2]))


def _a_row_without_its_mask(logits: torch.Tensor) -> None:
    row = logits[:, :, 13]
    row[row.isinf()] = 0


def _one_row_of_one_example(logits: torch.Tensor) -> None:
    logits[1, 0, 5] *= 1.05


@pytest.mark.parametrize("call", [0, 1])
@pytest.mark.parametrize(
    "change", [_formula_of_a_head, _a_row_without_its_mask, _one_row_of_one_example]
)
def test_functions_that_differ_in_one_call_are_refused(
    model: Any, own: Own, change: Change, call: int
) -> None:
    with pytest.raises(NotImplementedError, match=r"'mine'.* is not softmax.*its output differs"):
        extracted(model, own, change, call)


@pytest.mark.parametrize("number", [0, 3])
def test_one_window_that_differs_is_refused(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"image_size": 32, "embed_dim": 24, "depths": [2], "num_heads": [2], "window_size": 4}
    model = built("SwinModel", config, implementation="eager")
    pixels = {"pixel_values": torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(2))}
    file: Any = sys.modules[type(model).__module__]
    own = file.eager_attention_forward
    by = 0.0

    def patched(*arguments: Any, **options: Any) -> Any:
        output, weights = own(*arguments, **options)
        output[number, 3, 1] += by
        return output, weights

    monkeypatch.setattr(file, "eager_attention_forward", patched)
    record = extract(model, pixels, progress=False)
    assert any("'eager'" in note and "does not come with" in note for note in record.notes)
    by = 0.01
    with pytest.raises(NotImplementedError, match="differs by"):
        extract(model, pixels, progress=False)
