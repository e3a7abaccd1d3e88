"""The demo models through `extract`: heads have the same scores as with the models' own weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attnviz
from attnviz import demos

# Names of attentions in a model's output, by the names of stacks.
STACKS = {
    "decoder": {"self": "attentions"},
    "encoder-decoder": {
        "encoder": "encoder_attentions",
        "decoder": "decoder_attentions",
        "cross": "cross_attentions",
    },
    "vision": {"vision": "attentions"},
    "vision-language": {"self": "attentions", "vision": "vision_attentions"},
}


@torch.no_grad()
@pytest.mark.parametrize("name", demos.NAMES)
def test_each_example_is_extracted_as_the_model_attends(name: str) -> None:
    model, reader = demos.load(name)
    example = demos.example(name)
    # `extract` finds the tokenizer or the processor beside the model.
    record = attnviz.extract(model, **example)
    assert record.model == name
    assert set(record.stacks) == set(STACKS[name])

    inputs: dict[str, Any]
    if name == "vision-language":
        image, prompt = example["inputs"]
        text = f"{reader.image_token}{prompt} {example['target']}"
        inputs = dict(reader(images=image, text=text, return_tensors="pt"))
    else:
        inputs = dict(reader(example["inputs"], return_tensors="pt"))
    if name == "encoder-decoder":
        inputs["labels"] = reader(example["target"], return_tensors="pt")["input_ids"]
    model.set_attn_implementation("eager")
    outputs = model(**inputs, output_attentions=True)
    if name == "vision-language":
        tower = model.model.vision_tower(inputs["pixel_values"], output_attentions=True)
        outputs["vision_attentions"] = tower.attentions
    for stack_name, attribute in STACKS[name].items():
        stack = record.stacks[stack_name]
        for layer, own in zip(stack.layers, outputs[attribute], strict=True):
            np.testing.assert_allclose(stack.weights(layer=layer), own[0].numpy(), atol=1e-4)
