"""Inputs of all tools: weights like those of a language model.

    PYTHONPATH=tests python -m benchmarks.inputs LAYERS TOKENS FILE.npy

The command writes weights to a file, so that no tool's figures include the memory of making them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch


def texts(tokens: int) -> list[str]:
    """Return one name for each token."""
    return [f"token{position}" for position in range(tokens)]


def weights(layers: int, heads: int, tokens: int) -> torch.Tensor:
    """Return causal weights with a sink, a preference for near keys, and heads of different
    sharpness.
    """
    generator = torch.Generator().manual_seed(0)
    positions = torch.arange(tokens)
    distance = (positions[:, None] - positions).float()
    sharpness = 0.5 + 3 * torch.rand(layers, heads, 1, 1, generator=generator)
    nearness = 0.3 * torch.rand(layers, heads, 1, 1, generator=generator)
    out = torch.empty(layers, heads, tokens, tokens)
    for layer in range(layers):
        noise = torch.randn((heads, tokens, tokens), generator=generator)
        logits = sharpness[layer] * noise - nearness[layer] * distance
        logits[..., 0] += 4
        out[layer] = torch.softmax(logits.masked_fill(distance < 0, -torch.inf), dim=-1)
    return out


def main(layers: str, tokens: str, path: str) -> None:
    """Write weights with as many heads as layers."""
    torch.set_num_threads(1)
    np.save(Path(path), weights(int(layers), int(layers), int(tokens)).numpy())


if __name__ == "__main__":
    main(*sys.argv[1:])
