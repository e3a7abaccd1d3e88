"""Records of vision models name patches by their positions, and contain the image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.testing import assert_allclose

from attnviz import Tokens, extract
from model_types.build import tiny_model
from models.tiny import SIZE, built, changed_queries, extracted, picture, with_patch

_PLAIN = {**SIZE, "image_size": 32, "patch_size": 8}
_WIDE = {**_PLAIN, "image_size": (32, 48)}
_STAGES = {
    "hidden_sizes": [16, 16, 24, 32],
    "depths": [1, 1, 1, 1],
    "num_attention_heads": [1, 2, 3, 4],
    "mlp_ratios": [1, 1, 1, 1],
}
_LLAMA_4 = {
    **_PLAIN,
    "intermediate_size": 192,
    "vision_output_dim": 48,
    "projector_input_dim": 48,
    "projector_output_dim": 48,
    "pixel_shuffle_ratio": 0.5,
}
# In the third stage, all 16 patches attend to each other, but the model does not sort them row by
# row.
_HIERA = {
    "embed_dim": 16,
    "image_size": [64, 64],
    "depths": [1, 1, 2, 1],
    "num_heads": [1, 2, 2, 2],
    "patch_size": [4, 4],
    "patch_stride": [4, 4],
    "patch_padding": [0, 0],
}

# Class, settings, (height, width) of the image, tokens before and tokens after the patches.
TOWERS: dict[str, tuple[str, dict[str, Any], tuple[int, int], list[str], list[str]]] = {
    "deit": ("DeiTModel", _WIDE, (32, 48), ["[CLS]", "[DIST]"], []),
    "dinov2 with registers": (
        "Dinov2WithRegistersModel",
        {**_PLAIN, "num_register_tokens": 3},
        (32, 48),
        ["[CLS]", "[REG1]", "[REG2]", "[REG3]"],
        [],
    ),
    "siglip": ("SiglipVisionModel", _PLAIN, (32, 32), [], []),
    "yolos": (
        "YolosModel",
        {**_WIDE, "num_detection_tokens": 3},
        (32, 48),
        ["[CLS]"],
        ["[DET1]", "[DET2]", "[DET3]"],
    ),
    # Llama 4 puts the class token after the patches.
    "llama 4": ("Llama4VisionModel", _LLAMA_4, (32, 32), [], ["[CLS]"]),
}


def processor(**settings: Any) -> Any:
    """Return an image processor that does not resize."""
    return transformers.ViTImageProcessorPil(do_resize=False, **settings)


@pytest.mark.parametrize("kind", TOWERS)
def test_patches_are_named_by_their_positions(kind: str) -> None:
    """A changed patch changes one query of layer 0, whose token has the name of the patch."""
    name, settings, (height, width), before, after = TOWERS[kind]
    model, image = built(name, settings), picture(height, width)
    rows, columns = height // 8, width // 8
    record = extracted(model, processor()(images=image, return_tensors="pt"))
    tokens = record.stacks["vision"].query_tokens
    patches = [f"{row},{column}" for row in range(rows) for column in range(columns)]
    assert list(tokens.text) == [*before, *patches, *after]
    assert tokens.special == (True,) * len(before) + (False,) * len(patches) + (True,) * len(after)
    assert grids_of(tokens) == [(0, len(before), rows, columns)]
    for row, column in [(0, columns - 1), (2, 1), (rows - 1, columns - 1)]:
        other = with_patch(image, (row * 8, column * 8), 8)
        changed = changed_queries(model, processor(), (image, other), "vision", 0)
        assert {tokens.text[token] for token in changed} == {f"{row},{column}"}


def test_the_stored_image_equals_the_input() -> None:
    """A record contains the colours of the image before the processor normalizes them."""
    model, image = built("ViTModel", _WIDE), picture(32, 48)
    for settings in (
        {"image_mean": [0.48, 0.45, 0.4], "image_std": [0.26, 0.25, 0.27]},
        {"do_normalize": False},
    ):
        record = extract(model, image, processor=processor(**settings))
        assert len(record.images) == 1
        assert np.abs(record.images[0].astype(int) - image).max() <= 1
        assert not record.notes
    encoded = processor()(images=image, return_tensors="pt")
    assert any("colours" in note for note in extract(model, encoded).notes)
    # If the processor resizes an image, the record contains the resized image.
    resizing = transformers.ViTImageProcessorPil(size={"height": 32, "width": 48})
    record = extract(model, np.full((64, 96, 3), 77, np.uint8), processor=resizing)
    assert record.images[0].shape == (32, 48, 3)
    assert np.abs(record.images[0].astype(int) - 77).max() <= 1


def grids_of(tokens: Tokens) -> list[tuple[int | None, int, int, int]]:
    """Return (image number, first token, rows, columns) of each patch grid."""
    return [(grid.image, grid.start, grid.rows, grid.columns) for grid in tokens.grids]


def test_a_pooling_head_is_a_separate_stack() -> None:
    """A single query of SigLIP's `torch.nn.MultiheadAttention` attends to all patches."""
    model = built("SiglipVisionModel", _PLAIN)
    inputs = processor()(images=picture(32, 32), return_tensors="pt")
    record = extract(model, inputs)
    stack = record.stacks["pooling"]
    assert stack.key_tokens == record.stacks["vision"].query_tokens
    head = model.head
    with torch.no_grad():
        states = model(**inputs).last_hidden_state
        _, own = head.attention(head.probe, states, states, average_attn_weights=False)
    assert np.abs(stack.weights(layer=0) - own[0].numpy()).max() < 1e-5


def test_each_stage_of_a_pyramid_has_coarser_patches_and_keys() -> None:
    model, image = built("SegformerModel", _STAGES), picture(64, 96)
    record = extract(model, image, processor=processor())
    assert list(record.stacks) == [f"vision stage {number}" for number in range(1, 5)]
    sizes = [(16, 24), (8, 12), (4, 6), (2, 3)]
    for stack, (rows, columns) in zip(record.stacks.values(), sizes, strict=True):
        assert grids_of(stack.query_tokens) == [(0, 0, rows, columns)]
        assert grids_of(stack.key_tokens) == [(0, 0, 2, 3)]
    # Patches overlap, so changed pixels affect neighbouring patches, too.
    for row, column in [(3, 7), (9, 20), (15, 0)]:
        other = with_patch(image, (row * 4, column * 4), 4)
        changed = changed_queries(model, processor(), (image, other), "vision stage 1", 0)
        positions = {divmod(token, 24) for token in changed}
        assert (row, column) in positions
        assert max(max(abs(r - row), abs(c - column)) for r, c in positions) == 1


def test_object_queries_of_a_detector_are_not_patches() -> None:
    """The nine object queries of DETR must not be taken for three by three patches."""
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage2"]
    )
    settings = {"use_timm_backbone": False, "backbone": None, "backbone_config": backbone}
    settings |= {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "num_queries": 9}
    model = built("DetrModel", settings)
    record = extracted(model, dict(processor()(images=picture(64, 96), return_tensors="pt")))
    assert list(record.stacks) == ["encoder", "decoder", "cross"]
    encoder, decoder, cross = record.stacks.values()
    assert grids_of(encoder.query_tokens) == [(0, 0, 8, 12)]
    assert cross.key_tokens == encoder.query_tokens
    assert cross.query_tokens == decoder.query_tokens
    assert not decoder.query_tokens.grids
    assert decoder.query_tokens.text == tuple(f"[{number}]" for number in range(9))


def test_patches_of_a_video_cover_several_frames() -> None:
    model = built("VideoMAEModel", {**_PLAIN, "num_frames": 4, "tubelet_size": 2})
    frames = torch.randn(1, 4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    tokens = extracted(model, {"pixel_values": frames}).tokens
    assert grids_of(tokens) == [(0, 0, 4, 4), (2, 16, 4, 4)]
    changed = frames.clone()
    # A patch covers two frames, so the last of the four frames is in the second grid.
    changed[0, 3, :, 8:16, 24:32] += 1.0
    pair = ({"pixel_values": frames}, {"pixel_values": changed})
    (token,) = changed_queries(model, None, pair, "vision", 0)
    assert tokens.text[token] == "2: 1,3"


@pytest.mark.parametrize(
    ("name", "settings", "pixels"),
    [
        # ViT-MAE shuffles its patches, and drops 3/4 of them or, as here in the second case, none.
        ("ViTMAEModel", {**_PLAIN, "mask_ratio": 0.75, "image_size": 64}, (3, 64, 64)),
        ("ViTMAEModel", {**_PLAIN, "mask_ratio": 0.0}, (3, 32, 32)),
        ("HieraModel", _HIERA, (3, 64, 64)),
        # A layer of TimeSformer attends twice: first among patches at the same position in all
        # frames, then among patches of the same frame.
        ("TimesformerModel", {**_PLAIN, "num_frames": 4}, (4, 3, 32, 32)),
    ],
)
def test_patches_without_a_known_position_have_neutral_names(
    name: str, settings: dict[str, Any], pixels: tuple[int, ...]
) -> None:
    model = built(name, settings)
    values = torch.randn(1, *pixels, generator=torch.Generator().manual_seed(0))
    record = extract(model, {"pixel_values": values})
    named = [stack for stack in record.stacks.values() if stack.query_tokens.grids]
    # Only TimeSformer has named patches, and only in the second attention of a layer, where the
    # queries are the patches of a frame in their order.
    assert [stack.name for stack in named] == (["vision attention"] if len(pixels) == 4 else [])
    for stack in record.stacks.values():
        assert any("," in text for text in stack.query_tokens) == (stack in named)


def test_queries_and_keys_of_cvt_are_those_of_its_softmax() -> None:
    """CvT passes a list to `einsum`, and its projections have "Attention" in their names, too."""
    model = tiny_model("cvt", None, {})
    own: list[torch.Tensor] = []
    for name, module in model.named_modules():
        if name.endswith("attention.attention"):
            module.dropout.register_forward_pre_hook(lambda _, args: own.append(args[0][0]))
    record = extract(model, {"pixel_values": torch.randn(1, 3, 32, 32)})
    weights = [
        stack.weights(layer=layer) for stack in record.stacks.values() for layer in stack.layers
    ]
    assert len(weights) == len(own)
    for ours, theirs in zip(weights, own, strict=True):
        assert_allclose(ours, theirs, atol=1e-5)
