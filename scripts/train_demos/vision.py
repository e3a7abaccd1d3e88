"""Demo vision model: a small ViT that names the shape in a picture."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil

from train_demos.fitting import Checkpoints, Schedule, fit
from train_demos.shapes import IMAGE_SIZE, PATCH_SIZE, SHAPES, draw_shapes

_SEED = 22
SCHEDULE = Schedule(steps=2600, learning_rate=3e-3, weight_decay=0.05)
_BATCH = 64
_WIDTH = 64
_POSITION_AMPLITUDE = 0.5


def patch_positions(width: int) -> torch.Tensor:
    """Return vectors (patches, width) of the sines and cosines of each patch's row and column."""
    side = IMAGE_SIZE // PATCH_SIZE
    frequencies = torch.logspace(0, -1.2, width // 4)
    angles = torch.arange(side)[:, None] * frequencies
    waves = torch.cat([angles.sin(), angles.cos()], dim=1)
    rows = waves[:, None].expand(side, side, -1)
    columns = waves[None].expand(side, side, -1)
    return torch.cat([rows, columns], dim=2).flatten(0, 1)


def _model() -> ViTForImageClassification:
    torch.manual_seed(_SEED)
    config = ViTConfig(
        image_size=IMAGE_SIZE,
        patch_size=PATCH_SIZE,
        hidden_size=_WIDTH,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.05,
        id2label=dict(enumerate(SHAPES)),
        label2id={shape: number for number, shape in enumerate(SHAPES)},
    )
    model = ViTForImageClassification(config)
    with torch.no_grad():
        # Position 0 belongs to the CLS token.
        positions = _POSITION_AMPLITUDE * patch_positions(_WIDTH)
        model.vit.embeddings.position_embeddings[0, 1:] = positions
    return model


def train(
    steps: int | None = None, checkpoints: Checkpoints | None = None
) -> tuple[ViTForImageClassification, Any]:
    """Build the vision model and its processor, and train the model (three minutes on one core).

    The processor is the ViT processor of transformers that uses Pillow instead of torchvision.
    """
    model = _model()
    generator = np.random.default_rng(_SEED)
    schedule = SCHEDULE if steps is None else replace(SCHEDULE, steps=steps)

    def loss_at(_step: int) -> torch.Tensor:
        images, kinds, _ = draw_shapes(generator, _BATCH)
        # Normalize a batch like the processor, with a mean and a standard deviation of 0.5.
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1
        return cross_entropy(model(pixel_values=pixels).logits, torch.from_numpy(kinds))

    fit(model, loss_at, schedule, name="vision", checkpoints=checkpoints)
    processor = ViTImageProcessorPil(
        size={"height": IMAGE_SIZE, "width": IMAGE_SIZE},
        image_mean=[0.5, 0.5, 0.5],
        image_std=[0.5, 0.5, 0.5],
    )
    return model, processor
