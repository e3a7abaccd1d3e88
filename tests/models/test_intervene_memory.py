"""Interventions that would not fit into memory raise an error before the model runs.

While `head_effects` runs on many texts, the outputs of heads of only one text are in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import attnviz as av
import attnviz.extraction.capture.memory
from models.counting import LiveTensors
from models.make_models import make_model

IDS = torch.randint(5, 300, (1, 60), generator=torch.Generator().manual_seed(0))
RUNS: dict[str, Callable[[Any, Any], Any]] = {
    # The first text fits into memory, but the second does not.
    "ablating every head": lambda model, inputs: av.head_effects(
        model, [IDS[:, :2], inputs["input_ids"]], progress=False
    ),
    "removing tokens": av.token_effects,
    "method='gradient'": av.attribute,
    "method='integrated gradients'": lambda model, inputs: av.attribute(
        model, inputs, method="integrated gradients"
    ),
    "permuting weights": lambda model, inputs: av.permutation_effect(
        model, inputs, layer=1, head=0
    ),
}


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Return a function that sets the free bytes of memory that attnviz reads (None: unknown)."""

    def set_free(count: int | None) -> None:
        monkeypatch.setattr(attnviz.extraction.capture.memory, "free_memory", lambda _: count)
        monkeypatch.setattr(attnviz.extraction.capture.memory, "_MIN_CHECKED", 0)

    return set_free


@pytest.mark.parametrize("doing", RUNS)
def test_too_little_memory_raises_before_the_model_runs(
    doing: str, free: Callable[[int | None], None]
) -> None:
    model = make_model("gpt2")
    run, begun = RUNS[doing], []
    handle = model.register_forward_pre_hook(lambda *_: begun.append(0))
    free(100_000)
    with pytest.raises(MemoryError) as raised:
        run(model, {"input_ids": IDS})
    assert not begun
    words = str(raised.value)
    assert doing in words
    assert "100 kB are free" in words
    assert words.endswith("Pass a shorter text, or truncation=.")
    handle.remove()
    free(None)
    run(model, {"input_ids": IDS[:, :4]})


def test_the_outputs_of_only_one_text_are_in_memory() -> None:
    model = make_model("gpt2")
    peaks = {}
    for count in (1, 30):
        with LiveTensors() as tensors:
            av.head_effects(model, [IDS] * count, progress=False)
        peaks[count] = tensors.peak
    # Compare with half of the size of all outputs: 30 texts, 3 layers, 60 tokens, 48 float32 each.
    assert peaks[30] - peaks[1] < 30 * 3 * 60 * 48 * 4 / 2


def test_the_memory_of_a_changed_record_is_checked_before_the_model_runs(
    free: Callable[[int | None], None],
) -> None:
    model = make_model("gpt2")
    begun: list[int] = []
    model.register_forward_pre_hook(lambda *_: begun.append(0))
    # Set the free memory one byte too low: 3 layers, queries and keys, 60 tokens, 48 float32 each.
    free(3 * 2 * 60 * 48 * 4 - 1)
    change = av.Knockout(5, 2)
    for length, generate in ((60, None), (52, 9)):
        with pytest.raises(MemoryError, match="inputs: keeping the queries and keys of 3 layers"):
            av.intervene(model, {"input_ids": IDS[:, :length]}, change, generate=generate)
    assert not begun
    record = av.intervene(model, {"input_ids": IDS}, change, layers=[0, 1])
    assert record.stack().layers == (0, 1)
