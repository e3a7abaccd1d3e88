"""`extract` reads models of timm, and objects that contain a single model of transformers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from torch import nn
from transformers.models.timm_wrapper import modeling_timm_wrapper
from transformers.models.timm_wrapper.configuration_timm_wrapper import TimmWrapperConfig

from attnviz import AttentionRecord, extract
from models.image_models import softmaxes
from models.make_models import make_model
from rounding import forwards_error

TEXT = "The animal didn't cross the street because it was too tired."
IDS = torch.tensor([[5, 17, 42, 17, 99, 8, 23, 5]])


def same(one: AttentionRecord, other: AttentionRecord) -> bool:
    """Return whether two records have the same tokens, and equal weights up to rounding."""
    pairs = zip(one.to_numpy("self"), other.to_numpy("self"), strict=True)
    error = forwards_error(one)
    return one.tokens == other.tokens and all(np.abs(a - b).max() < error for a, b in pairs)


def test_a_sentence_transformer_brings_its_tokenizer(checkpoint_folder: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    encoder = library.SentenceTransformer(str(checkpoint_folder), device="cpu")
    assert same(extract(encoder, TEXT), extract(str(checkpoint_folder), TEXT))


def test_a_trainer(tmp_path: Path) -> None:
    model = make_model("llama")
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), report_to="none")
    trainer = transformers.Trainer(model=model, args=arguments)
    assert same(extract(trainer, IDS), extract(model, IDS))


class Lightning(nn.Module):
    """Module that contains a loss and models, like a module of PyTorch Lightning."""

    def __init__(self, **models: nn.Module) -> None:
        super().__init__()
        self.loss = nn.CrossEntropyLoss()
        self.parts = nn.ModuleDict(models)


def test_a_module_around_one_model() -> None:
    model = make_model("llama")
    compiled: Any = torch.compile(model, backend="eager")
    assert same(extract(Lightning(model=compiled), IDS), extract(model, IDS))


def test_a_module_around_two_models_is_refused() -> None:
    model = make_model("llama")
    with pytest.raises(TypeError, match=r"Lightning, which contains 2 models\. Pass one"):
        extract(Lightning(student=model, teacher=copy.deepcopy(model)), IDS)


def test_a_model_of_timm(timm: Any, timm_wrapper: None) -> None:
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=64, depth=2).eval()
    pixels = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    record = extract(model, {"pixel_values": pixels})
    stack = record.stacks["vision"]
    assert [*stack.query_tokens.text[:3], stack.query_tokens.text[-1]] == [
        "[CLS]", "0,0", "0,1", "3,3",
    ]  # fmt: skip
    weights_by_layer, expected = record.to_numpy("vision"), softmaxes(model, pixels)
    assert len(weights_by_layer) == len(expected) == 2
    for weights, own in zip(weights_by_layer, expected, strict=True):
        assert np.abs(weights - own[0].numpy()).max() < forwards_error(record)


@pytest.fixture
def wrapped(timm_wrapper: None) -> Callable[..., Any]:
    """Function that makes a timm model in transformers' wrapper, with uneven attention weights."""

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
        # The image has a single row of windows, so windows are shifted only horizontally.
        ("swin_tiny_patch4_window7_224", (28, 56), (7, 7)),
        ("swinv2_tiny_window8_256", (64, 64), 8),
    ],
)
def test_swin_of_timm(
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
    modules = [block for stage in model.timm_model.layers for block in stage.blocks]
    assert len(outputs) == len(expected) == len(modules) == 4
    for weights, own, module in zip(outputs, expected, modules, strict=True):
        blocks = torch.stack([torch.block_diag(*head) for head in own.transpose(0, 1)])
        assert blocks.amax() > 0.3
        # The record has the patches row by row, and the model has them window by window.
        (rows, columns), (height, width) = module.input_resolution, module.window_size
        patches: NDArray[np.int64] = np.arange(rows * columns).reshape(rows, columns)
        patches = np.roll(patches, [-shift for shift in module.shift_size], axis=(0, 1))
        patches = patches.reshape(rows // height, height, columns // width, width)
        patches = patches.transpose(0, 2, 1, 3).ravel()
        assert np.abs(weights[:, patches][:, :, patches] - blocks.numpy()).max() < 1e-5


def test_a_note_names_the_modules_of_cait_that_are_left_out(wrapped: Callable[..., Any]) -> None:
    """The record has only the last two layers. The other layers mix heads after the softmax."""
    model = wrapped("cait_xxs24_224", img_size=64, depth=4)
    pixels = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    with pytest.warns(UserWarning, match="not shown"):
        record = extract(model, {"pixel_values": pixels})
    assert [stack.num_layers for stack in record.stacks.values()] == [2]
    assert (
        "timm_model.blocks.*.attn (TalkingHeadAttn) also attend in layers 0 to 3. The weights "
        "cannot be read and are not shown."
    ) in record.notes
