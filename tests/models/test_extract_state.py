"""Extractions restore the state of a model, work with threads and autocast, and refuse NaN."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.extraction import extract
from attnviz.extraction.hooks import evaluate
from attnviz.extraction.modules import modules_of
from attnviz.utils.cleanup import Cleanup
from models.interrupts import state_of
from models.make_models import make_model
from models.tiny import IDS, arguments_of


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", ["bart", "bert", "gpt2", "llama", "t5", "vit"])
def test_an_extraction_restores_the_state_of_the_model(kind: str, training: bool) -> None:
    model = make_model(kind).train(training)
    # Put one module in evaluation mode, like a frozen module in training.
    next(model.children()).eval()
    before, numbers = state_of([model]), torch.get_rng_state()
    record = extract(model, arguments_of(kind))
    assert state_of([model]) == before
    # An extraction must not draw random numbers, because that would change later sampling.
    assert torch.equal(torch.get_rng_state(), numbers)
    assert not isinstance(record, list)
    assert any("training mode" in note for note in record.notes) == any(before["mode"])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("parts", [("whole", "whole"), ("whole", "inner"), ("inner", "whole")])
def test_the_last_capture_restores_the_mode_of_a_module(
    parts: tuple[str, str], order: tuple[int, int]
) -> None:
    """Two calls of `evaluate` overlap. Each puts a module in evaluation mode until its cleanup.

    The module is the whole model or ``model.model``.
    """
    model = make_model("llama").train()
    model.model.layers[1].eval()
    before = state_of([model])
    cleanups = [Cleanup(), Cleanup()]
    model_parts = [model if part == "whole" else model.model for part in parts]
    for model_part, undo in zip(model_parts, cleanups, strict=True):
        assert evaluate(modules_of(model_part), undo)
    assert not any(module.training for model_part in model_parts for module in model_part.modules())
    with cleanups[order[0]]:
        pass
    # The other call has not ended, so its module is still in evaluation mode.
    assert not any(module.training for module in model_parts[order[1]].modules())
    with cleanups[order[1]]:
        pass
    torch.set_grad_enabled(True)
    assert state_of([model]) == before


@pytest.mark.parametrize(
    "way", ["gradient", "value norm", "direct", "integrated gradients", "generate"]
)
def test_forwards_in_other_threads_change_nothing(way: str) -> None:
    model = make_model("gpt2")

    def numbers() -> Any:
        method: Any = way
        if way == "generate":
            record = av.intervene(model, IDS, av.Ablate(layers=1, heads=0), generate=3)
        else:
            answer = None if way == "value norm" else (3, 4)
            record = av.attribute(model, IDS, method=method, answer=answer)
        return record.stack().weights(layer=2)

    @torch.no_grad()
    def forward() -> None:
        model(IDS[:, :3])

    expected = numbers()
    own = threading.get_ident()

    def pause(*_: Any) -> None:
        if threading.get_ident() == own:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(forward).result()

    # Each time the main thread reaches the second layer, another thread runs a forward.
    with model.transformer.h[1].attn.register_forward_pre_hook(pause):
        np.testing.assert_array_equal(numbers(), expected)


def test_removing_a_hook_during_a_forward_raises_no_error() -> None:
    """A forward iterates over a copy of the hooks, so it may look up a hook that was removed."""
    model = make_model("gpt2")
    own = threading.get_ident()
    inside, began, ended = threading.Event(), threading.Event(), threading.Event()

    def pause(*_: Any) -> None:
        if threading.get_ident() != own:
            began.set()
            assert ended.wait(100)
        else:
            inside.set()
            assert began.wait(100)

    @torch.no_grad()
    def forward() -> torch.Tensor:
        assert inside.wait(100)
        logits: torch.Tensor = model(IDS).logits
        return logits

    with torch.no_grad():
        expected = model(IDS).logits
    with (
        model.transformer.h[1].attn.register_forward_pre_hook(pause),
        ThreadPoolExecutor(1) as pool,
    ):
        future = pool.submit(forward)
        extract(model, IDS)
        ended.set()
        assert torch.equal(future.result(), expected)


@pytest.mark.parametrize("kind", ["bert", "bloom"])
def test_nan_in_any_head_is_an_error(kind: str) -> None:
    model = make_model(kind)
    attention = model.bert.encoder.layer[0].attention.self if kind == "bert" else None
    layer = attention.query if attention else model.transformer.h[0].self_attention.query_key_value
    with torch.no_grad():
        layer.weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match="NaN"):
        extract(model, IDS)


@pytest.mark.parametrize("kind", ["llama", "bloom"])
def test_autocast_adds_a_note_and_does_not_change_a_record(kind: str) -> None:
    stack = extract(make_model(kind), IDS).stack()
    outside = stack.weights(layer=1)
    with torch.autocast("cpu", torch.bfloat16):
        assert np.array_equal(stack.weights(layer=1), outside)
        record = extract(make_model("llama"), IDS)
    assert any("autocast" in note or "computes in bfloat16" in note for note in record.notes)
    half = extract(make_model("llama"), IDS, dtype="bfloat16")
    assert not any("computes in bfloat16" in note for note in half.notes)
