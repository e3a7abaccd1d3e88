"""Demo vision-language model: a small LLaVA that names the shape with a given colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import (
    CLIPImageProcessorPil,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)

from train_demos.fitting import Checkpoints, Schedule, fit
from train_demos.scenes import WORDS, Scene, draw_scene
from train_demos.shapes import IMAGE_SIZE, PATCH_SIZE, SHAPES, patches_of
from train_demos.tokenizers import word_tokenizer
from train_demos.vision import patch_positions

_SEED = 5
SCHEDULE = Schedule(steps=1500, learning_rate=2e-3, weight_decay=0.02)
_BATCH = 32
_WIDTH = 64
_IMAGE_TOKEN = "<image>"
_NUM_PATCHES = (IMAGE_SIZE // PATCH_SIZE) ** 2
_POSITION_AMPLITUDE = 0.5
# Label of tokens that the loss of transformers ignores.
_NO_LABEL = -100


def _processor() -> LlavaProcessor:
    tokenizer = word_tokenizer(WORDS, ["<pad>", "<unk>", "<end>"], max_length=96)
    tokenizer.add_special_tokens({"additional_special_tokens": [_IMAGE_TOKEN]})
    return LlavaProcessor(
        image_processor=CLIPImageProcessorPil(
            size={"height": IMAGE_SIZE, "width": IMAGE_SIZE},
            crop_size={"height": IMAGE_SIZE, "width": IMAGE_SIZE},
            image_mean=[0.5, 0.5, 0.5],
            image_std=[0.5, 0.5, 0.5],
        ),
        tokenizer=tokenizer,
        patch_size=PATCH_SIZE,
        vision_feature_select_strategy="default",
        image_token=_IMAGE_TOKEN,
        num_additional_image_tokens=1,
    )


def _model(processor: LlavaProcessor) -> LlavaForConditionalGeneration:
    torch.manual_seed(_SEED)
    tokenizer: Any = processor.tokenizer
    config = LlavaConfig(
        vision_config={
            "model_type": "clip_vision_model",
            "hidden_size": _WIDTH,
            "intermediate_size": 128,
            "projection_dim": _WIDTH,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "image_size": IMAGE_SIZE,
            "patch_size": PATCH_SIZE,
            "initializer_range": 0.05,
        },
        text_config={
            "model_type": "llama",
            "hidden_size": _WIDTH,
            "intermediate_size": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": len(tokenizer),
            "max_position_embeddings": 128,
            "initializer_range": 0.05,
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
        },
        image_token_index=tokenizer.convert_tokens_to_ids(_IMAGE_TOKEN),
        image_seq_length=_NUM_PATCHES,
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
    )
    model = LlavaForConditionalGeneration(config)
    with torch.no_grad():
        # Position 0 belongs to the CLS token.
        positions = model.get_parameter("model.vision_tower.embeddings.position_embedding.weight")
        positions[1:] = _POSITION_AMPLITUDE * patch_positions(_WIDTH)
    model.generation_config.max_new_tokens = 2
    return model


def _pixels(scenes: Sequence[Scene]) -> torch.Tensor:
    """Normalize a batch like the processor, with a mean and a standard deviation of 0.5."""
    images = torch.from_numpy(np.stack([scene.image for scene in scenes]))
    return images.permute(0, 3, 1, 2).float() / 127.5 - 1


def _train_tower(tower: Any, generator: np.random.Generator, schedule: Schedule) -> None:
    """Train the vision tower alone to classify each patch by its shape, or as background.

    Otherwise the complete model would need much longer to distinguish shapes than to find colours.
    """
    names = torch.nn.Linear(_WIDTH, len(SHAPES) + 1)

    def loss_at(_step: int) -> torch.Tensor:
        scenes = [draw_scene(generator) for _ in range(_BATCH)]
        labels = np.full((_BATCH, _NUM_PATCHES), len(SHAPES))
        for label, scene in zip(labels, scenes, strict=True):
            for shape, patches in zip(scene.shapes, patches_of(scene.masks), strict=True):
                label[patches] = SHAPES.index(shape)
        # The language model also reads these hidden states. The CLS token is left out.
        read = tower(_pixels(scenes), output_hidden_states=True).hidden_states[-1][:, 1:]
        return cross_entropy(names(read).flatten(0, 1), torch.from_numpy(labels).flatten())

    both = torch.nn.ModuleList([tower, names])
    fit(both, loss_at, replace(schedule, steps=max(schedule.steps // 4, 1)), name="vision tower")


def train(
    steps: int | None = None, checkpoints: Checkpoints | None = None
) -> tuple[LlavaForConditionalGeneration, LlavaProcessor]:
    """Build the model and its processor, and train the model (minutes on one core)."""
    processor = _processor()
    tokenizer: Any = processor.tokenizer
    model = _model(processor)
    generator = np.random.default_rng(_SEED)
    schedule = SCHEDULE if steps is None else replace(SCHEDULE, steps=steps)
    _train_tower(model.model.vision_tower, generator, schedule)

    def loss_at(_step: int) -> torch.Tensor:
        scenes = [draw_scene(generator) for _ in range(_BATCH)]
        image = torch.full((_BATCH, _NUM_PATCHES), model.config.image_token_id)
        ids, labels = [image], [torch.full_like(image, _NO_LABEL)]
        # The text has a sentence about each of the two shapes.
        for which in (0, 1):
            prompts = [scene.prompt(which) for scene in scenes]
            answers = [f"{scene.answer(which)} {tokenizer.eos_token}" for scene in scenes]
            # All prompts have two words, so padding is not needed.
            prompt = torch.tensor(tokenizer(prompts)["input_ids"])
            answer = torch.tensor(tokenizer(answers)["input_ids"])
            ids += [prompt, answer]
            # The words of the prompt cannot be predicted from the picture, so they have no label.
            labels += [torch.full_like(prompt, _NO_LABEL), answer]
        pixels = _pixels(scenes)
        loss: torch.Tensor = model(
            input_ids=torch.cat(ids, dim=1), pixel_values=pixels, labels=torch.cat(labels, dim=1)
        ).loss
        return loss

    fit(model, loss_at, schedule, name="vision-language", checkpoints=checkpoints)
    return model, processor
