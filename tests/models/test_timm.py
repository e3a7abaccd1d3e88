"""Records of timm's Swin and CaiT in transformers' wrapper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers.models.timm_wrapper import modeling_timm_wrapper
from transformers.models.timm_wrapper.configuration_timm_wrapper import TimmWrapperConfig

from attnviz import extract
from models.image_models import softmaxes


@pytest.fixture
def wrapped(timm_wrapper: None) -> Callable[..., Any]:
    """Return a function that makes a model of timm in transformers' wrapper."""

    def make(architecture: str, **options: Any) -> Any:
        torch.manual_seed(0)
        config = TimmWrapperConfig(architecture=architecture, model_args=options, do_pooling=False)
        model = modeling_timm_wrapper.TimmWrapperModel(config).eval()
        with torch.no_grad():
            for name, module in model.named_modules():
                if isinstance(module, nn.Linear) and "attn" in name:
                    module.weight.normal_(std=0.2)
        return model

    return make


@pytest.mark.parametrize(
    ("architecture", "image", "window"),
    [
        ("swin_tiny_patch4_window7_224", (56, 56), 7),
        # The image has one row of windows, so windows are shifted along columns only.
        ("swin_tiny_patch4_window7_224", (28, 56), (7, 7)),
        ("swinv2_tiny_window8_256", (64, 64), 8),
    ],
)
def test_swin(
    wrapped: Callable[..., Any], architecture: str, image: tuple[int, int], window: Any
) -> None:
    sizes = {"img_size": image, "window_size": window, "depths": (2, 2), "embed_dim": 24}
    model = wrapped(architecture, **sizes, num_heads=(2, 4))
    pixels = torch.randn(1, 3, *image, generator=torch.Generator().manual_seed(1))
    record = extract(model, {"pixel_values": pixels})
    outputs = [
        stack.weights(layer=number) for stack in record.stacks.values() for number in stack.layers
    ]
    expected = softmaxes(model, pixels)
    assert len(outputs) == len(expected) == 4
    for weights, own in zip(outputs, expected, strict=True):
        blocks = torch.stack([torch.block_diag(*head) for head in own.transpose(0, 1)])
        assert blocks.amax() > 0.3
        assert np.abs(weights - blocks.numpy()).max() < 1e-5


def test_a_note_names_the_modules_of_cait_that_are_left_out(wrapped: Callable[..., Any]) -> None:
    """CaiT mixes heads after the softmax, except in two last layers of class attention."""
    model = wrapped("cait_xxs24_224", img_size=64, depth=4)
    pixels = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    with pytest.warns(UserWarning, match="not shown"):
        record = extract(model, {"pixel_values": pixels})
    assert [stack.num_layers for stack in record.stacks.values()] == [2]
    assert (
        "timm_model.blocks.*.attn (TalkingHeadAttn) also attend in layers 0 to 3. The weights "
        "cannot be read and are not shown."
    ) in record.notes
