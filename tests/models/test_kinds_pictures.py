"""Records name the right patches, also if a model tiles, pads, joins or resamples images."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from attnviz import extract
from attnviz.extraction.tokens.patches import pictures
from models.image_models import MODELS, TEXT, chat, mixing_nothing
from models.tiny import (
    SIZE,
    assert_own,
    built,
    changed_queries,
    extracted,
    own_modules,
    picture,
    reference,
    sharpen,
    with_patch,
)


def test_tiles_of_an_image_are_separate_images(byte_tokenizer: Any) -> None:
    """Idefics 3 reads an image of 64 x 64 pixels as four tiles and a smaller copy of the image."""
    model, processor = MODELS["idefics 3"](byte_tokenizer)
    image = picture(64, 64)
    record = extract(model, chat(image, "The cat"), processor=processor)
    tokens = record.stacks["self"].query_tokens
    assert [(grid.image, grid.rows, grid.columns) for grid in tokens.grids] == [
        (number, 2, 2) for number in range(5)
    ]
    marks = [tokens.text[grid.start - 1] for grid in tokens.grids]
    corners = "<row_1_col_1> <row_1_col_2> <row_2_col_1> <row_2_col_2>".split()
    assert marks == [*corners, "<global-img>"]
    # Image 1 is the second tile, which shows the upper right quarter.
    assert np.abs(record.images[1].astype(int) - image[:32, 32:]).max() <= 1
    alone = mixing_nothing(model)
    starts = [grid.start for grid in record.stacks["vision"].query_tokens.grids]
    read = [grid.start for grid in tokens.grids]
    # Change the patch in row 2, column 1 of the second tile. Two by two patches become one token
    # of the text, so the token in row 1, column 0 changes.
    other = with_patch(image, (16, 32 + 8), 8)
    pair = (chat(image, "The cat"), chat(other, "The cat"))
    changed = changed_queries(model, processor, pair, "vision", 0)
    assert {token for token in changed if token < starts[4]} == {starts[1] + 2 * 4 + 1}
    changed = changed_queries(alone, processor, pair, "self", 0)
    assert {token for token in changed if token < read[4]} == {read[1] + 2}


def test_tokens_of_a_resampler_are_not_patches(byte_tokenizer: Any) -> None:
    """The four tokens of an image in BLIP-2 must not be taken for two by two patches."""
    model, processor = MODELS["blip 2"](byte_tokenizer)
    inputs = dict(processor(images=picture(32, 32), text="The cat", return_tensors="pt"))
    record = extract(model, inputs, processor=processor)
    tokens = record.stacks["self"].query_tokens
    assert tokens.text[:5] == ("image 1",) * 4 + ("The",)
    assert not tokens.grids
    reading = record.stacks["connector crossattention"]
    assert reading.key_tokens == record.stacks["vision"].query_tokens
    assert not reading.query_tokens.grids


def pixtral_inputs(images: list[Any]) -> dict[str, torch.Tensor]:
    """Return encoded inputs of Pixtral: a text with two images, which are padded to one size."""
    page = torch.zeros(len(images), 3, *np.max([image.shape[:2] for image in images], axis=0))
    for sheet, image in zip(page, images, strict=True):
        height, width = image.shape[:2]
        sheet[:, :height, :width] = torch.from_numpy(image).permute(2, 0, 1) / 255
    # Token 9 stands for a square of patches. Pixtral's processor ends each row of an image with
    # token 10, and the last row with token 11.
    rows = [[9] * 4, [10], [9] * 4, [11], [5, 6], *[[9] * 2, [10]] * 2, [9] * 2, [11], [7]]
    return {
        "input_ids": torch.tensor([[number for row in rows for number in row]]),
        "pixel_values": page,
        "image_sizes": torch.tensor([image.shape[:2] for image in images]),
    }


def test_all_patches_of_all_images_in_one_row() -> None:
    """Pixtral joins the patches of all images in one sequence. Images may have different sizes."""
    config = transformers.Mistral3Config(
        vision_config=transformers.PixtralVisionConfig(**SIZE, image_size=64, patch_size=8),
        text_config=transformers.MistralConfig(**TEXT),
        image_token_index=9,
        spatial_merge_size=2,
    )
    model = built("Mistral3ForConditionalGeneration", config, factor=10.0)
    sharpen(model, 2.0, "vision_tower")
    images = [picture(32, 64), picture(48, 32, seed=1)]
    inputs = pixtral_inputs(images)
    processor = transformers.PixtralImageProcessorPil(do_normalize=False)
    record = extracted(model, inputs, processor=processor)
    tower, text = (record.stacks[name].query_tokens for name in ("vision", "self"))
    assert [(grid.image, grid.start, grid.rows, grid.columns) for grid in tower.grids] == [
        (0, 0, 4, 8),
        (1, 32, 6, 4),
    ]
    for stored, image in zip(record.images, images, strict=True):
        assert stored.shape == image.shape
        assert np.abs(stored.astype(int) - image).max() <= 1
    # Token 10 separates the rows of an image in the text. Four patches are a token.
    assert text.text[:6] == ("1: 0,0", "1: 0,1", "1: 0,2", "1: 0,3", "#10", "1: 1,0")
    assert [(grid.start, grid.rows, grid.columns, grid.gap) for grid in text.grids] == [
        (0, 2, 4, 1),
        (12, 3, 2, 1),
    ]
    own = own_modules(model, inputs, {"vision": "vision_tower", "self": "language_model"})
    assert_own(record, own, peak=0.2)
    # Change the patch in row 5, column 2 of image 2. Two by two patches become one token of the
    # text, so the token in row 2, column 1 changes.
    others = [images[0], with_patch(images[1], (8 * 5, 8 * 2), 8)]
    pair = (inputs, pixtral_inputs(others))
    for changed_model, stack, tokens, name in (
        (model, "vision", tower, "2: 5,2"),
        (mixing_nothing(model), "self", text, "2: 2,1"),
    ):
        changed = changed_queries(changed_model, None, pair, stack, 0)
        assert [tokens.text[token] for token in changed] == [name]


def test_an_image_padded_to_a_number_of_patches() -> None:
    """SigLIP 2 pads the twelve patches of this image to sixteen."""
    model = built("Siglip2VisionModel", {**SIZE, "patch_size": 8, "num_patches": 64}, factor=2.0)
    processor = transformers.Siglip2ImageProcessorPil(patch_size=8, max_num_patches=16)
    image = picture(24, 32)
    inputs = dict(processor(images=image, return_tensors="pt"))
    record = extracted(model, inputs, processor=processor)
    tokens = record.stacks["vision"].query_tokens
    assert tokens.text[:5] == ("0,0", "0,1", "0,2", "0,3", "1,0")
    assert tokens.text[12:] == ("[PAD]",) * 4
    assert np.abs(record.images[0].astype(int) - image).max() <= 1
    weights = record.stacks["vision"].weights(layer=1)
    assert not weights[:, :, 12:].any()
    assert_own(record, own_modules(model, inputs, {"vision": "encoder"}), peak=0.25)
    other = with_patch(image, (8 * 1, 8 * 3), 8)
    changed = changed_queries(model, processor, (image, other), "vision", 0)
    assert [tokens.text[token] for token in changed] == ["1,3"]


def test_an_image_as_keys_of_a_text_decoder(byte_tokenizer: Any) -> None:
    """The text decoder of TrOCR and similar models attends to the patches of an image."""
    sizes = {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 64}
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.ViTConfig(**SIZE, image_size=32, patch_size=8),
        transformers.GPT2Config(vocab_size=400, **sizes, add_cross_attention=True),
    )
    config.decoder_start_token_id, config.pad_token_id = 1, 0
    model = built("VisionEncoderDecoderModel", config, factor=12.0)
    sharpen(model, 8.0, "crossattention")
    processor = transformers.ViTImageProcessorPil(do_resize=False)
    image = picture(32, 32)
    record = extract(
        model, image, processor=processor, tokenizer=byte_tokenizer, target="The cat sat"
    )
    assert list(record.stacks) == ["encoder", "decoder", "cross"]
    cross = record.stacks["cross"]
    assert cross.key_tokens == record.stacks["encoder"].query_tokens
    assert cross.key_tokens.text[:3] == ("[CLS]", "0,0", "0,1")
    assert cross.query_tokens.text == ("<s>", "The", "·c", "at")
    ids = torch.tensor([cross.query_tokens.ids])
    inputs = {**processor(images=image, return_tensors="pt"), "decoder_input_ids": ids}
    assert_own(record, reference(model, inputs), peak=0.1)


_VISION = {**SIZE, "image_size": 32, "patch_size": 8}
_LAYOUT = {"input_size": 32, "patch_size": 8, "coordinate_size": 8, "shape_size": 8}
_PATCHES = ("[CLS]", *(f"{row},{column}" for row in range(4) for column in range(4)))
_WORDS = ("#5", "#6", "#7")


@pytest.mark.parametrize(
    ("name", "settings", "more", "expected"),
    [
        ("GitModel", {"vision_config": _VISION}, {}, _PATCHES + _WORDS),
        (
            "LayoutLMv3Model",
            {**_LAYOUT, "max_2d_position_embeddings": 64},
            {"bbox": torch.tensor([[[0, 0, 8, 8], [8, 8, 16, 16], [16, 16, 24, 24]]])},
            _WORDS + _PATCHES,
        ),
    ],
)
def test_one_attention_over_a_text_and_an_image(
    name: str, settings: dict[str, Any], more: dict[str, Any], expected: tuple[str, ...]
) -> None:
    """The image comes before the text in GIT, and after the text in LayoutLMv3."""
    model = mixing_nothing(built(name, {**SIZE, "vocab_size": 400, **settings}, factor=10.0))
    processor = transformers.ViTImageProcessorPil(do_resize=False)
    image = picture(32, 32)
    shared = {"input_ids": torch.tensor([[5, 6, 7]]), **more}
    inputs, others = (
        {**shared, **processor(images=pixels, return_tensors="pt")}
        for pixels in (image, with_patch(image, (8 * 1, 8 * 3), 8))
    )
    record = extract(model, inputs, processor=processor)
    tokens = record.stacks["self"].query_tokens
    assert tokens.text == expected
    assert [grid.start for grid in tokens.grids] == [expected.index("0,0")]
    assert np.abs(record.images[0].astype(int) - image).max() <= 1
    changed = changed_queries(model, processor, (inputs, others), "self", 0)
    assert [tokens.text[token] for token in changed] == ["1,3"]


@pytest.mark.parametrize(
    ("name", "kind", "block"),
    [
        ("Qwen2VLImageProcessorPil", "qwen2_vl", 2),
        ("Glm4vImageProcessorPil", "glm4v", 2),
        # HunYuan stores patches row by row, and the three channels of a pixel side by side.
        ("HunYuanVLImageProcessorPil", "hunyuan_vl", 1),
        ("Cosmos3EdgeImageProcessorPil", "cosmos3_edge", 2),
        ("Cosmos3EdgeImageProcessorPil", "cosmos3_edge_vision", 2),
    ],
)
def test_images_are_restored_from_patches(name: str, kind: str, block: int) -> None:
    """Image processors differ in the order of patches and in the order of numbers in a patch."""
    processor = getattr(transformers, name)(patch_size=8, merge_size=2, do_resize=False)
    images = [picture(32, 48), picture(64, 16, seed=1)]
    encoded = processor(images=images, return_tensors="pt")
    arguments = {name: encoded[name] for name in ("pixel_values", "image_grid_thw")}
    flat = arguments["pixel_values"].flatten(1)
    vision = SimpleNamespace(temporal_patch_size=flat.shape[1] // (3 * 64))
    config = SimpleNamespace(model_type=kind, vision_config=vision)
    restored, notes = pictures(arguments, config, processor, block=block)
    assert not notes
    for stored, image in zip(restored, images, strict=True):
        assert np.abs(stored.astype(int) - image).max() <= 1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"do_normalize": False},
        {"do_rescale": False},
        {"image_mean": [0.1, 0.2, 0.3]},
        {"images_kwargs": {"do_normalize": False}},
    ],
)
def test_pictures_have_the_colours_of_the_image_whatever_the_call_sets(
    options: dict[str, Any],
) -> None:
    processor = transformers.ViTImageProcessorPil(do_resize=False)
    image = picture(32, 32)
    encoded = processor(images=image, **options.get("images_kwargs", options), return_tensors="pt")
    [shown], notes = pictures(dict(encoded), SimpleNamespace(), processor, options=options)
    assert not notes
    assert np.abs(shown.astype(int) - image).max() <= 1
