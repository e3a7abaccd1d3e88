"""Training loop of all demo models."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tqdm.auto import tqdm

_WARM_UP_STEPS = 100
_LAST_RATE = 0.02


@dataclass(frozen=True)
class Schedule:
    """Number of steps, learning rate and weight decay of a training.

    Attributes
    ----------
    steps : int
        Number of optimiser steps.
    learning_rate : float
        Maximum of the learning rate. The rate rises to it during the first 100 steps, and then
        decreases linearly to 2% of it.
    weight_decay : float
        Weight decay of AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101).
    """

    steps: int
    learning_rate: float
    weight_decay: float


class Checkpoints:
    """Copies of a model after given steps of its training.

    Parameters
    ----------
    after : sequence of int
        Increasing numbers of steps after which the model is copied. 0 is before the first step.
        Training ends after the last of these numbers.

    Attributes
    ----------
    models : dict of int to torch.nn.Module
        Stored copies of the model, in evaluation mode, by the number of steps.
    """

    def __init__(self, after: Sequence[int]) -> None:
        self.after = tuple(after)
        self.models: dict[int, Any] = {}

    def keep(self, step: int, model: torch.nn.Module) -> None:
        """Store a copy of the model if a checkpoint is requested after this step."""
        if step in self.after:
            kept = copy.deepcopy(model).eval()
            kept.zero_grad(set_to_none=True)
            self.models[step] = kept


def _share_of_rate(step: int, steps: int) -> float:
    falling = 1 - (1 - _LAST_RATE) * step / steps
    return min((step + 1) / _WARM_UP_STEPS, falling)


def fit(
    model: torch.nn.Module,
    loss_at: Callable[[int], torch.Tensor],
    schedule: Schedule,
    *,
    name: str,
    checkpoints: Checkpoints | None = None,
) -> None:
    """Train a model, with a progress bar on stderr, and leave it in evaluation mode.

    `loss_at` returns the loss of a step, numbered from 0. If there are checkpoints, training stops
    after the last of them.
    """
    last = schedule.steps if checkpoints is None else checkpoints.after[-1]
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=schedule.learning_rate,
        betas=(0.9, 0.98),
        weight_decay=schedule.weight_decay,
    )
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: _share_of_rate(step, schedule.steps)
    )
    model.train()
    with tqdm(range(last), desc=name, unit="step", disable=last == 0) as steps:
        if checkpoints is not None:
            checkpoints.keep(0, model)
        for step in steps:
            loss = loss_at(step)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rate.step()
            if step % 50 == 0:
                steps.set_postfix(loss=f"{loss.item():.3f}")
            if checkpoints is not None:
                checkpoints.keep(step + 1, model)
    model.eval()
