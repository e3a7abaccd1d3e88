"""Extractions that run at the same time, in threads or forked processes, give equal weights."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from attnviz import extract
from models.interrupts import state_of
from models.make_models import make_model

TEXTS = [torch.tensor([[7, 31, 12, 99, 5, 210, 44, 8]]), torch.tensor([[5, 17, 42, 17, 99]])]
Weights = NDArray[np.float32]


def weights(model: Any, number: int) -> Weights:
    """Return the weights of `TEXTS[number % 2]` as an array (layers, heads, queries, keys)."""
    stack = extract(model, TEXTS[number % 2], progress=False).stack()
    return np.stack([stack.weights(layer=layer) for layer in stack.layers])


def in_threads(*work: Callable[[], None]) -> None:
    """Run each function in a thread, and raise the error of a thread that fails."""
    start = threading.Barrier(len(work))

    def run(task: Callable[[], None]) -> None:
        start.wait()
        task()

    with ThreadPoolExecutor(len(work)) as pool:
        for future in [pool.submit(run, task) for task in work]:
            future.result()


@pytest.fixture
def dropping() -> Any:
    """A Llama with attention dropout, in training mode except for layer 1."""
    model = make_model("llama", attention_dropout=0.4).train()
    model.model.layers[1].eval()
    return model


@pytest.mark.parametrize("parts", ["one model", "models", "a model and its part"])
def test_four_threads_extract_the_same_weights_at_once(parts: str, dropping: Any) -> None:
    models = {
        "one model": [dropping] * 4,
        "models": [dropping, make_model("bloom").train(), make_model("bert"), dropping],
        "a model and its part": [dropping, dropping.model, dropping, dropping.model],
    }[parts]
    before = state_of(models)
    alone = [weights(model, number) for number, model in enumerate(models)]

    def work(number: int) -> None:
        for _ in range(6):
            assert np.array_equal(weights(models[number], number), alone[number])

    in_threads(*(partial(work, number) for number in range(4)))
    assert state_of(models) == before


def test_gradients_in_another_thread_are_not_affected(dropping: Any) -> None:
    model = make_model("gpt2")

    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        model(TEXTS[0]).logits.square().sum().backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    expected = gradients()
    done = threading.Event()

    def work() -> None:
        try:
            for _ in range(20):
                assert all(map(torch.equal, gradients(), expected))
        finally:
            done.set()

    def extract_meanwhile() -> None:
        while not done.is_set():
            weights(model, 0)
            weights(dropping, 1)

    in_threads(work, extract_meanwhile)


def _send(queue: Any, model: Any) -> None:
    # A fork does not copy the threads of torch, so the new process must compute in one thread.
    torch.set_num_threads(1)
    queue.put(weights(model, 0))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no processes")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_that_is_forked_during_an_extraction_extracts_the_same_weights(
    dropping: Any,
) -> None:
    before, alone = state_of([dropping]), weights(dropping, 0)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    inside, forked = threading.Event(), threading.Event()

    def wait_for_fork(*_: Any) -> None:
        # The other thread waits here, because a fork in the middle of a computation copies the
        # locks of MKL and oneDNN as they are, and the new process may wait for them forever.
        if not inside.is_set():
            inside.set()
            assert forked.wait(60)

    hook = dropping.model.layers[0].register_forward_pre_hook(wait_for_fork)
    process = context.Process(target=_send, args=(queue, dropping), daemon=True)
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(weights, dropping, 1)
        try:
            assert inside.wait(60)
            process.start()
            assert np.array_equal(queue.get(timeout=60), alone)
            process.join(60)
            assert process.exitcode == 0
        finally:
            forked.set()
        other.result()
    hook.remove()
    assert state_of([dropping]) == before
