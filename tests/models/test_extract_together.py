"""Concurrent extractions in threads, tasks and forked processes give the same results."""

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
from models.make_models import make_model

TEXTS = [torch.tensor([[7, 31, 12, 99, 5, 210, 44, 8]]), torch.tensor([[5, 17, 42, 17, 99]])]
Weights = NDArray[np.float32]


def weights(model: Any, number: int) -> Weights:
    """Return all weights of one of the texts."""
    stack = extract(model, TEXTS[number % 2], progress=False).stack()
    return np.stack([stack.weights(layer=layer) for layer in stack.layers])


def mode_of(model: Any) -> list[bool]:
    return [module.training for module in model.modules()]


def in_threads(*work: Callable[[], None]) -> None:
    """Run functions concurrently, and raise an error of any thread."""
    start = threading.Barrier(len(work))

    def run(task: Callable[[], None]) -> None:
        start.wait()
        task()

    with ThreadPoolExecutor(len(work)) as pool:
        for future in [pool.submit(run, task) for task in work]:
            future.result()


@pytest.fixture
def dropping() -> Any:
    """A model in training mode with strong dropout. One part is in evaluation mode."""
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
    before = list(map(mode_of, models))
    alone = [weights(model, number) for number, model in enumerate(models)]

    def work(number: int) -> None:
        for _ in range(6):
            assert np.array_equal(weights(models[number], number), alone[number])

    in_threads(*(partial(work, number) for number in range(4)))
    assert list(map(mode_of, models)) == before


def test_forwards_and_training_in_other_threads_are_not_affected(dropping: Any) -> None:
    # All threads share one sequence of random numbers. Without dropout training is reproducible.
    none = dict.fromkeys(["attn_pdrop", "resid_pdrop", "embd_pdrop"], 0.0)
    shared, trained = make_model("gpt2"), make_model("gpt2", **none)
    with torch.no_grad():
        own = shared(TEXTS[0]).logits
    first = {name: value.clone() for name, value in trained.state_dict().items()}
    done = threading.Event()
    extracted = 0

    def watch() -> None:
        nonlocal extracted
        while not done.is_set() or not extracted:
            for model in (shared, dropping):
                weights(model, extracted)
            extracted += 1

    def train() -> list[float]:
        trained.load_state_dict(first)
        losses = []
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.05)
        for _ in range(8):
            logits = trained.train()(TEXTS[0]).logits[0]
            loss = torch.nn.functional.cross_entropy(logits[:-1], TEXTS[0][0, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    all_losses: list[list[float]] = []

    def work() -> None:
        try:
            for _ in range(20):
                with torch.no_grad():
                    assert torch.equal(shared(TEXTS[0]).logits, own)
            all_losses.append(train())
        finally:
            done.set()

    in_threads(watch, work)
    assert all_losses == [train()]
    assert all_losses[0][-1] < all_losses[0][0]
    assert trained.training


def _send(queue: Any, model: Any) -> None:
    # A DataLoader does the same: torch's threads do not exist in a forked process.
    torch.set_num_threads(1)
    queue.put((weights(model, 0), mode_of(model)))


def in_a_fork(model: Any) -> tuple[Weights, list[bool]]:
    """Return the weights that a forked process extracts, and the mode of its modules."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_send, args=(queue, model))
    process.start()
    received: tuple[Weights, list[bool]] = queue.get()
    process.join()
    return received


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no processes")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_extracts_the_same_weights(dropping: Any) -> None:
    """The fork may happen while another thread extracts."""
    before, alone = mode_of(dropping), weights(dropping, 0)
    done = threading.Event()

    def fork() -> None:
        try:
            for _ in range(4):
                assert np.array_equal(in_a_fork(dropping)[0], alone)
        finally:
            done.set()

    def watch() -> None:
        while not done.is_set():
            weights(dropping, 1)

    in_threads(fork, watch)
    assert mode_of(dropping) == before
    # Without another thread the fork finds the modules in the caller's mode, and restores it.
    assert in_a_fork(dropping)[1] == before
