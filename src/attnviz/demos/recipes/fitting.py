"""The training loop that the three recipes share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from tqdm.auto import tqdm

__all__ = ["Schedule", "fit"]

_WARM_UP_STEPS = 100
_LAST_RATE = 0.02


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    Attributes
    ----------
    steps : int
        Optimiser steps.
    learning_rate : float
        The highest: reached after 100 steps, then falling in a line to 2% of it.
    weight_decay : float
        As AdamW means it (Loshchilov & Hutter 2019, arXiv 1711.05101).
    """

    steps: int
    learning_rate: float
    weight_decay: float


def _share_of_rate(step: int, steps: int) -> float:
    falling = 1 - (1 - _LAST_RATE) * step / steps
    return min((step + 1) / _WARM_UP_STEPS, falling)


def fit(
    model: torch.nn.Module,
    loss_at: Callable[[int], torch.Tensor],
    schedule: Schedule,
    *,
    name: str,
) -> None:
    """Train a model, with a progress bar on stderr, and leave it in evaluation mode.

    `loss_at` gives the loss of a step, by its number from 0.
    """
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
    with tqdm(range(schedule.steps), desc=name, unit="step") as steps:
        for step in steps:
            loss = loss_at(step)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rate.step()
            if step % 50 == 0:
                steps.set_postfix(loss=f"{loss.item():.3f}")
    model.eval()
