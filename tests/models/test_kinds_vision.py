"""Vision models: names and positions of their tokens, and their stored images.

`model_types` compares the weights with the models' own.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from attnviz import extract
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

_HIERA = {
    "embed_dim": 16,
    "image_size": [64, 64],
    "depths": [1, 1, 1],
    "num_heads": [1, 2, 2],
    "masked_unit_size": [8, 8],
    "num_query_pool": 2,
}

# Class, settings, height and width of the image, tokens before and after the patches.
TOWERS: dict[str, tuple[str, dict[str, Any], tuple[int, int], list[str], list[str]]] = {
    "vit": ("ViTModel", _WIDE, (32, 48), ["[CLS]"], []),
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
    # Unlike all other models, Llama 4 puts its class token after the patches.
    "llama 4": ("Llama4VisionModel", _LLAMA_4, (32, 32), [], ["[CLS]"]),
}


@cache
def tower(kind: str) -> Any:
    name, settings, *_ = TOWERS[kind]
    return built(name, settings)


def processor(**settings: Any) -> Any:
    """Return an image processor that changes only colours."""
    return transformers.ViTImageProcessorPil(do_resize=False, **settings)


@pytest.mark.parametrize("kind", TOWERS)
def test_patches_are_named_by_their_positions(kind: str) -> None:
    """Before the first layer, a token depends on the pixels of one patch only."""
    _, _, (height, width), before, after = TOWERS[kind]
    model, image = tower(kind), picture(height, width)
    rows, columns = height // 8, width // 8
    record = extracted(model, processor()(images=image, return_tensors="pt"))
    tokens = record.stacks["vision"].query_tokens
    patches = [f"{row},{column}" for row in range(rows) for column in range(columns)]
    assert list(tokens.text) == [*before, *patches, *after]
    assert tokens.special == (True,) * len(before) + (False,) * len(patches) + (True,) * len(after)
    assert [(grid.image, grid.start, grid.rows, grid.columns) for grid in tokens.grids] == [
        (0, len(before), rows, columns)
    ]
    for row, column in [(0, 0), (0, columns - 1), (rows - 1, 0), (2, 1), (rows - 1, columns - 1)]:
        other = with_patch(image, (row * 8, column * 8), 8)
        changed = changed_queries(model, processor(), (image, other), "vision", 0)
        assert {tokens.text[token] for token in changed} == {f"{row},{column}"}


def test_the_stored_image_equals_the_input() -> None:
    """Colours are reconstructed from mean and deviation, up to rounding."""
    image = picture(32, 48)
    for settings in (
        {"image_mean": [0.48, 0.45, 0.4], "image_std": [0.26, 0.25, 0.27]},
        {"image_mean": [0.0, 0.0, 0.0], "image_std": [1.0, 1.0, 1.0]},
        {"do_normalize": False},
    ):
        record = extract(tower("vit"), image, processor=processor(**settings))
        assert len(record.images) == 1
        assert np.abs(record.images[0].astype(int) - image).max() <= 1
        assert not record.notes
    encoded = processor()(images=image, return_tensors="pt")
    assert any("colours" in note for note in extract(tower("vit"), encoded).notes)


def test_an_image_is_stored_as_the_model_received_it() -> None:
    """The image has the size and the colours of the pixel values after resizing."""
    image = np.zeros((64, 96, 3), np.uint8)
    image[:32, 48:] = (250, 20, 30)
    resizing = transformers.ViTImageProcessorPil(size={"height": 32, "width": 48})
    record = extract(tower("vit"), image, processor=resizing)
    stored = record.images[0]
    assert stored.shape == (32, 48, 3)
    assert np.abs(stored[:14, 26:].astype(int) - (250, 20, 30)).max() <= 1
    assert not stored[18:].any()


def test_a_pooling_head_is_a_separate_stack() -> None:
    """SigLIP's head has one query for all patches. torch's own module returns its weights."""
    model = tower("siglip")
    inputs = processor()(images=picture(32, 32), return_tensors="pt")
    record = extract(model, inputs)
    stack = record.stacks["pooling"]
    assert stack.key_tokens == record.stacks["vision"].query_tokens
    head = model.head
    with torch.no_grad():
        states = model(**inputs).last_hidden_state
        _, own = head.attention(head.probe, states, states, average_attn_weights=False)
    assert np.abs(stack.weights(layer=0) - own[0].numpy()).max() < 1e-5


# Class, settings, image, and for each stage the grids of queries and of keys.
PYRAMIDS: dict[str, tuple[str, dict[str, Any], tuple[int, int], list[Any]]] = {
    "segformer": (
        "SegformerModel",
        _STAGES,
        (64, 96),
        [((16, 24), (2, 3)), ((8, 12), (2, 3)), ((4, 6), (2, 3)), ((2, 3), (2, 3))],
    ),
    "pvt": (
        "PvtModel",
        {**_STAGES, "image_size": 64},
        (64, 64),
        [((16, 16), (2, 2)), ((8, 8), (2, 2)), ((4, 4), (2, 2)), ((2, 2), (2, 2))],
    ),
}


@pytest.mark.parametrize("kind", PYRAMIDS)
def test_stages_of_a_pyramid(kind: str) -> None:
    """Each stage has its own patches, and coarser keys than queries."""
    name, settings, (height, width), stages = PYRAMIDS[kind]
    model, image = built(name, settings), picture(height, width)
    record = extract(model, image, processor=processor())
    assert list(record.stacks) == [f"vision stage {number}" for number in range(1, 5)]
    for stack, grids in zip(record.stacks.values(), stages, strict=True):
        tokens = (stack.query_tokens, stack.key_tokens)
        shapes = [[(grid.rows, grid.columns) for grid in side.grids] for side in tokens]
        assert shapes == [[grids[0]], [grids[1]]]
    # The last stage of PVT adds a class token.
    assert record.stacks["vision stage 4"].query_tokens.text[0] == (
        "[CLS]" if kind == "pvt" else "0,0"
    )


def test_patches_of_a_pyramid_have_the_positions_in_their_names() -> None:
    """Segformer's patches overlap: changed pixels reach only the neighbouring patches."""
    model, image = built("SegformerModel", _STAGES), picture(64, 96)
    for row, column in [(3, 7), (9, 20), (15, 0)]:
        other = with_patch(image, (row * 4, column * 4), 4)
        changed = changed_queries(model, processor(), (image, other), "vision stage 1", 0)
        positions = {divmod(token, 24) for token in changed}
        assert (row, column) in positions
        assert max(max(abs(r - row), abs(c - column)) for r, c in positions) == 1


def test_object_queries_of_a_detector_are_not_patches() -> None:
    """DETR: nine queries do not form a three-by-three grid."""
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage2"]
    )
    settings = {
        "use_timm_backbone": False,
        "backbone": None,
        "backbone_config": backbone,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "num_queries": 9,
    }
    pixels = processor()(images=picture(64, 96), return_tensors="pt").pixel_values
    record = extracted(built("DetrModel", settings), {"pixel_values": pixels})
    assert list(record.stacks) == ["encoder", "decoder", "cross"]
    encoder, decoder, cross = record.stacks.values()
    assert [(grid.rows, grid.columns) for grid in encoder.query_tokens.grids] == [(8, 12)]
    assert cross.key_tokens == encoder.query_tokens
    assert cross.query_tokens == decoder.query_tokens
    assert not decoder.query_tokens.grids
    assert decoder.query_tokens.text == tuple(f"[{number}]" for number in range(9))


def test_patches_of_a_video_cover_several_frames() -> None:
    settings = {**_PLAIN, "num_frames": 4, "tubelet_size": 2}
    model = built("VideoMAEModel", settings)
    frames = torch.randn(1, 4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    record = extracted(model, {"pixel_values": frames})
    grids = record.tokens.grids
    assert [(grid.image, grid.start, grid.rows, grid.columns) for grid in grids] == [
        (0, 0, 4, 4),
        (2, 16, 4, 4),
    ]
    assert record.tokens.text[20] == "2: 1,0"
    changed = frames.clone()
    # A patch covers two frames. The fourth frame is in the second patch.
    changed[0, 3, :, 8:16, 24:32] += 1.0
    before, after = (
        record.stacks["vision"].queries(layer=0, head=0),
        extract(model, {"pixel_values": changed}).stacks["vision"].queries(layer=0, head=0),
    )
    assert np.flatnonzero(np.abs(before - after).max(-1) > 1e-5).tolist() == [16 + 1 * 4 + 3]


@pytest.mark.parametrize(
    ("name", "settings", "pixels"),
    [
        # ViT-MAE shuffles its patches, and drops 3/4 of them in the first case.
        ("ViTMAEModel", {**_PLAIN, "mask_ratio": 0.75, "image_size": 64}, (3, 64, 64)),
        ("ViTMAEModel", {**_PLAIN, "mask_ratio": 0.0}, (3, 32, 32)),
        ("HieraModel", _HIERA, (3, 64, 64)),
        # In the first attention of a layer, patches at the same position in all frames attend to
        # each other. In the second attention, patches of the same frame do.
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
    # In its second attention TimeSformer reads whole frames with their patches.
    assert [stack.name for stack in named] == (["vision attention"] if len(pixels) == 4 else [])
    for stack in record.stacks.values():
        assert any("," in text for text in stack.query_tokens) == (stack in named)
