"""Records of Swin, Swin 2 and SAM have the weights of attention within windows of an image."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from transformers.models.swin import modeling_swin

from attnviz import extract
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import WindowMask
from models.tiny import (
    Weights,
    built,
    changed_queries,
    extracted,
    own_modules,
    picture,
    with_patch,
)

_SWIN = {
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}
# Height and width of an image of 14 x 18 patches, which Swin pads to 16 x 20.
PADDED = (28, 36)


@cache
def swin(kind: str = "SwinModel") -> Any:
    return with_positions(built(kind, _SWIN, factor=20.0))


def with_positions(model: Any) -> Any:
    """Fill a model's relative position biases with random numbers, and return the model."""
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "relative_position_bias_table" in name or "rel_pos_" in name:
                parameter.normal_(0.0, 1.0, generator=random)
    return model


def processor() -> Any:
    return transformers.ViTImageProcessorPil(do_resize=False)


def pixels(height: int, width: int) -> dict[str, torch.Tensor]:
    return dict(processor()(images=picture(height, width), return_tensors="pt"))


def patches_by_window(layer: Any, rows: int, columns: int, partition: Any) -> NDArray[np.int64]:
    """Return the numbers of the patches in each window, (windows, positions). Padding is -1.

    The layer's own `maybe_pad` adds the padding, and `partition` divides the patches into windows.
    """
    numbers = torch.arange(1, rows * columns + 1).reshape(1, rows, columns, 1).float()
    padded, _ = layer.maybe_pad(numbers, rows, columns)
    shift = int(layer.shift_size)
    shifted = torch.roll(padded, (-shift, -shift), (1, 2))
    windows = partition(shifted, int(layer.window_size))
    patches: NDArray[np.int64] = windows.flatten(1).long().numpy() - 1
    return patches


def spread(own: Weights, windows: NDArray[np.int64], count: int) -> Weights:
    """Return one array (heads, `count`, `count`) with the weights of all windows.

    `own` has the weights of each window, (windows, heads, queries, keys). `windows` has the numbers
    of the patches in each window, or -1 for padding. Weights of padding are left out.
    """
    heads = own.shape[1]
    whole = np.zeros((heads, count, count), np.float32)
    for weights, tokens in zip(own, windows, strict=True):
        real = np.flatnonzero(tokens >= 0)
        rows, columns = np.meshgrid(tokens[real], tokens[real], indexing="ij")
        whole[:, rows, columns] = weights[:, real][:, :, real]
    return whole


def test_weights_of_padded_windows_are_the_models_own() -> None:
    height, width = PADDED
    model, inputs = swin(), pixels(height, width)
    record = extracted(model, inputs)
    parts = {f"vision stage {stage}": f"encoder.layers.{stage - 1}" for stage in (1, 2)}
    own = own_modules(model, inputs, parts)
    rows, columns = height // 2, width // 2
    for stage, name in enumerate(parts):
        stack = record.stacks[name]
        count = rows * columns
        names = [f"{row},{column}" for row in range(rows) for column in range(columns)]
        padding = -rows % 4 * columns + -columns % 4 * (rows + -rows % 4)
        assert list(stack.query_tokens.text) == names + ["[PAD]"] * padding
        assert stack.query_tokens.special == (False,) * count + (True,) * padding
        for number, layer in enumerate(model.encoder.layers[stage].blocks):
            assert int(layer.shift_size) == 2 * number
            windows = patches_by_window(layer, rows, columns, modeling_swin.window_partition)
            expected = spread(own[name][number], windows, count)
            computed = stack.weights(layer=number)
            assert np.abs(computed[:, :count, :count] - expected).max() < 1e-4
            assert expected.max(-1).mean() > 0.25
            # With the weights on padding, which the record also has, rows of patches sum to 1.
            assert np.abs(computed[:, :count].sum(-1) - 1).max() < 1e-5
        # The next stage merges two by two patches into one.
        rows, columns = -(-rows // 2), -(-columns // 2)


@pytest.mark.parametrize(
    ("kind", "height", "width"), [("SwinModel", *PADDED), ("Swinv2Model", 32, 48)]
)
def test_swin_patches_have_the_positions_in_their_names(kind: str, height: int, width: int) -> None:
    """A changed patch changes one query in layer 0, and the queries of its window in layer 1.

    Windows of layer 1 are shifted, so several of them overlap this window of layer 0. The queries
    of all patches in these shifted windows change in stage 2.
    """
    model, image = swin(kind), picture(height, width)
    rows, columns = height // 2, width // 2

    def changed_patches(stage: int, layer: int) -> set[tuple[int, int]]:
        """Return the row and column of each patch whose query changes."""
        tokens = changed_queries(model, processor(), pair, f"vision stage {stage}", layer)
        # Stage 2 merges two by two patches into one.
        height, width = (-(-length // stage) for length in (rows, columns))
        return {divmod(token, width) for token in tokens if token < height * width}

    patches = list(product(range(rows), range(columns)))
    for row, column in [(5, 9), (rows - 1, 2)]:
        pair = (image, with_patch(image, (2 * row, 2 * column), 2))
        assert changed_patches(1, 0) == {(row, column)}
        window = {(r, c) for r, c in patches if (r // 4, c // 4) == (row // 4, column // 4)}
        assert changed_patches(1, 1) == window
        # Windows of layer 1 are shifted by two patches and end at the edges of the image.
        blocks = {((r + 2) // 4, (c + 2) // 4) for r, c in window}
        visible = {(r, c) for r, c in patches if ((r + 2) // 4, (c + 2) // 4) in blocks}
        assert changed_patches(2, 0) == {(r // 2, c // 2) for r, c in visible}


def test_windows_are_stored_compactly() -> None:
    """The mask stores one window number for each patch."""
    stack = extract(swin(), pixels(32, 48)).stacks["vision stage 1"]
    attention = stack.attention(0)
    assert isinstance(attention, QueryKeyAttention)
    assert isinstance(attention.mask, WindowMask)
    windows = attention.mask.query_windows.reshape(16, 24)
    assert torch.equal(windows[:4, :4], torch.full((4, 4), int(windows[0, 0])))
    assert len(windows.unique()) == 4 * 6
    allowed = stack.allowed(layer=0, head=0)
    assert np.array_equal(allowed, stack.weights(layer=0, head=0) > 0)


def test_a_batch_of_images_in_windows() -> None:
    images = [picture(32, 48), picture(32, 48, seed=1)]
    batch = dict(processor()(images=images, return_tensors="pt"))
    for record, image in zip(extract(swin(), batch), images, strict=True):
        alone = extract(swin(), image, processor=processor())
        for name, stack in alone.stacks.items():
            assert record.stacks[name].query_tokens == stack.query_tokens
            difference = record.stacks[name].weights(layer=1) - stack.weights(layer=1)
            assert np.abs(difference).max() < 1e-5


def test_windows_of_sam_and_its_global_layer() -> None:
    """SAM pads 12 x 12 patches to 15 x 15 and divides them into windows of 5 x 5."""
    settings = {
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "image_size": 48,
        "patch_size": 4,
        "window_size": 5,
        "global_attn_indexes": [1],
        "mlp_dim": 64,
        "output_channels": 16,
        "initializer_range": 0.02,
    }
    model = with_positions(built("SamVisionModel", settings, factor=14.0))
    inputs = pixels(48, 48)
    record = extracted(model, inputs)
    windowed, whole = record.stacks["vision stage 1"], record.stacks["vision stage 2"]
    assert (windowed.layers, whole.layers) == ((0, 2), (1,))
    assert len(windowed.query_tokens) == 225
    assert windowed.query_tokens.text[:144] == whole.query_tokens.text
    assert set(windowed.query_tokens.text[144:]) == {"[PAD]"}
    eager = with_positions(built("SamVisionModel", settings, factor=14.0, implementation="eager"))
    own = own_modules(eager, inputs, {"vision": "attn"})["vision"]
    numbers = torch.arange(1, 145).reshape(1, 12, 12, 1).float()
    for number in (0, 2):
        windows, _ = model.vision_encoder.layers[number].window_partition(numbers, 5)
        tokens = windows.flatten(1).long().numpy() - 1
        expected = spread(own[number].reshape(9, 4, 25, 25), tokens, 144)
        weights = windowed.weights(layer=number)
        assert np.abs(weights[:, :144, :144] - expected).max() < 1e-4
        assert expected.max(-1).mean() > 0.25
    assert np.abs(whole.weights(layer=1) - own[1]).max() < 1e-4
