"""Boxes of an image as the user passed it: cropped, padded, resized, in tiles, or one of several.

`moved` changes a square of the user's image and finds the tokens that move. It knows nothing of how
attnviz finds boxes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from PIL import Image

from attnviz import AttentionRecord, analysis, extract
from attnviz.extraction.inputs.encode import Encoder
from attnviz.record import PatchGrid
from models.image_models import MODELS, chat, mixing_nothing
from models.tiny import SIZE, built, changed_queries, picture, with_patch

TEXT = "The cat sat"
SQUARE = {"height": 32, "width": 32}
Make = Callable[[str], tuple[Any, Any]]


@pytest.fixture(scope="module")
def make(byte_tokenizer: Any) -> Make:
    return cache(lambda kind: MODELS[kind](byte_tokenizer))


@pytest.fixture(scope="module")
def vit() -> Any:
    return built("ViTModel", transformers.ViTConfig(**SIZE, image_size=32, patch_size=8))


def processor(**settings: Any) -> Any:
    defaults = {"size": {"shortest_edge": 32}, "crop_size": SQUARE}
    return transformers.CLIPImageProcessorPil(**(defaults | settings))


def patch_numbers(grid: PatchGrid) -> NDArray[np.float32]:
    """Return the number of the patch at each pixel of the user's image, or NaN."""
    assert grid.size is not None
    numbers = np.arange(grid.rows * grid.columns, dtype=np.float64)
    return grid.in_pixels(numbers.reshape(grid.rows, grid.columns), grid.size)


def moved(
    model: Any, reader: Any, image: NDArray[np.uint8], corner: tuple[int, int], name: str
) -> set[int]:
    """Return the tokens that 8 x 8 pixels of the image move. `name` is that of a stack."""
    images = (image, with_patch(image, corner, 8))
    inputs = [each if name == "vision" else (each, TEXT) for each in images]
    return changed_queries(model, reader, (inputs[0], inputs[1]), name, 0)


@pytest.mark.parametrize("size", [(32, 64), (64, 32)])
def test_a_square_of_a_cropped_image_moves_the_patch_at_its_place(
    vit: Any, size: tuple[int, int]
) -> None:
    """The processor takes the middle of the image, 32 x 32 pixels, without resizing it."""
    image, reader = picture(*size), processor()
    (grid,) = extract(vit, image, processor=reader).stack().query_tokens.grids
    numbers = patch_numbers(grid)
    assert numbers.shape == size
    for row in range(0, size[0], 8):
        for column in range(0, size[1], 8):
            square = numbers[row : row + 8, column : column + 8]
            tokens = moved(vit, reader, image, (row, column), "vision")
            if tokens:
                assert {grid.start + number for number in square.ravel()} == tokens
            else:
                assert np.isnan(square).all()


@pytest.mark.parametrize(
    ("settings", "size", "box"),
    [
        # Boxes follow from the sizes: 32 of 42 columns of 4000 / 42 pixels each, from column 5.
        ({}, (3000, 4000), (5 * 4000 / 42, 0, 37 * 4000 / 42, 3000)),
        # 32 x 48 pixels, of which columns 8 to 40 are taken.
        ({}, (333, 500), (8 * 500 / 48, 0, 40 * 500 / 48, 333)),
        ({"size": {"shortest_edge": 40}}, (20, 20), (2, 2, 18, 18)),
        ({"size": SQUARE, "do_center_crop": False}, (45, 777), (0, 0, 777, 45)),
        ({"size": SQUARE, "do_center_crop": False}, (7, 5), (0, 0, 5, 7)),
        ({"size": SQUARE, "do_center_crop": False, "resample": 0}, (50, 40), (0, 0, 40, 50)),
        # The crop is larger than the image, so it has a black border of 8 pixels.
        ({"do_resize": False}, (16, 16), (-8, -8, 24, 24)),
        ({"do_resize": False}, (16, 64), (16, -8, 48, 24)),
    ],
)
def test_boxes_follow_from_the_settings_of_the_processor(
    vit: Any, settings: dict[str, Any], size: tuple[int, int], box: tuple[float, ...]
) -> None:
    # A photo has no noise from pixel to pixel.
    image = np.asarray(Image.fromarray(picture(5, 5)).resize(size[::-1]))
    (grid,) = extract(vit, image, processor=processor(**settings)).stack().query_tokens.grids
    assert grid.size == size
    # A fiftieth of a pixel that the model gets.
    assert_allclose(grid.box, box, atol=max((box[2] - box[0]) / 32 / 50, 1e-9))


def test_a_box_of_a_cropped_image_has_the_weight_of_its_patches(vit: Any) -> None:
    record = extract(vit, picture(32, 64), processor=processor())
    stack = record.stack()
    weights = stack.weights(layer=1)[:, 0, 1:].reshape(-1, 4, 4)
    # Columns 0 to 24 of the image are the first patch of each row, and pixels that were cropped.
    scores = analysis.head_scores(record, "region", queries="[CLS]", region=(0, 0, 24, 32))
    # The box is known to about a thousandth of a pixel.
    assert_allclose(scores[1], weights[:, :, 0].sum(axis=1), rtol=1e-3)
    with pytest.raises(ValueError, match=r"got the box \(16, 0, 48, 32\) of the image"):
        analysis.head_scores(record, "region", region=(0, 0, 16, 32))


def test_joined_tiles_and_the_small_picture(make: Make) -> None:
    """An image of 32 x 64 pixels has padding above and below it in four tiles of 32 x 32 pixels."""
    model, reader = make("llava next")
    image = picture(32, 64)
    record = extract(model, (image, TEXT), processor=reader)
    small, joined = record.stacks["self"].key_tokens.grids
    for grid, shape in ((small, (4, 4)), (joined, (4, 8))):
        assert (grid.size, grid.box) == ((32, 64), (0, 0, 64, 32))
        assert (grid.rows, grid.columns) == shape
    tiles = record.stacks["vision"].key_tokens.grids[1:]
    boxes = [(0, -16, 32, 16), (32, -16, 64, 16), (0, 16, 32, 48), (32, 16, 64, 48)]
    assert_allclose([tile.box for tile in tiles], boxes, atol=0.1)
    alone, numbers = mixing_nothing(model), patch_numbers(joined)
    for corner in [(0, 0), (8, 40), (24, 56)]:
        tokens = moved(alone, reader, image, corner, "self")
        assert joined.positions[int(numbers[corner])] in tokens
        assert len(tokens & set(joined.positions)) == 1
    stack = record.stacks["self"]
    with pytest.raises(ValueError, match=r"0 \(the small picture\), 5 \(the image\)"):
        stack.image_weights(0, queries=-1)
    pixels = stack.image_weights(0, 1, queries=-1, image=5)
    row = stack.weights(layer=0, head=1)[-1, list(joined.positions)].reshape(4, 8)
    # Rows of one query and of all queries are rounded differently.
    assert_allclose(pixels, row.repeat(8, 0).repeat(8, 1), rtol=1e-4)


def test_tiles_that_the_model_does_not_join(make: Make) -> None:
    """Idefics 3 reads four tiles and the whole image, each resized to 32 x 32 pixels."""
    model, reader = make("idefics 3")
    stack = extract(model, (picture(48, 64), TEXT), processor=reader).stacks["self"]
    boxes = [grid.box for grid in stack.key_tokens.grids]
    tiles = [(0, 0, 32, 24), (32, 0, 64, 24), (0, 24, 32, 48), (32, 24, 64, 48)]
    assert_allclose(boxes, [*tiles, (0, 0, 64, 48)], atol=0.05)
    pixels = [stack.image_weights(0, queries=-1, image=image) for image in range(4)]
    # Each pixel belongs to one of the tiles.
    assert ((~np.isnan(pixels)).sum(axis=0) == 1).all()
    joined = np.nansum(pixels, axis=0)
    for grid, (left, top, right, bottom) in zip(stack.key_tokens.grids, tiles, strict=False):
        row = stack.weights(layer=0)[:, -1, list(grid.positions)].mean(axis=0)
        expected = row.reshape(2, 2).repeat(12, 0).repeat(16, 1)
        assert_allclose(joined[top:bottom, left:right], expected, rtol=1e-4)


def test_two_images_of_different_sizes_in_one_prompt(make: Make) -> None:
    """Qwen2-VL resizes each image to multiples of 28 pixels."""
    model, reader = make("qwen 2.5")
    images = [Image.fromarray(picture(84, 112)), Image.fromarray(picture(61, 200, seed=1))]
    record = extract(model, chat(images[0], TEXT, images[1]), processor=reader)
    first, second = record.stacks["self"].key_tokens.grids
    assert (first.size, first.box) == ((84, 112), (0, 0, 112, 84))
    assert (second.size, second.box) == ((61, 200), (0, 0, 200, 61))
    pixels = record.stacks["self"].image_weights(1, queries=-1, image=1)
    assert pixels.shape == (61, 200)
    assert [image.shape[:2] for image in record.images] != [(84, 112), (61, 200)]


@pytest.mark.parametrize("kind", ["Stable Diffusion 1.5", "FLUX"])
def test_a_word_of_a_diffusion_pipeline(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("diffusers")
    from models.diffusion_pipelines import make as make_pipeline

    pipe, call = make_pipeline(kind, tmp_path)
    record = extract(pipe, call, steps=-1)
    stack = next(stack for name, stack in record.stacks.items() if not name.startswith("self"))
    tokens = stack.key_tokens
    cat = next(i for i, text in enumerate(tokens.text) if "cat" in text)
    (grid,) = stack.query_tokens.grids
    columns = stack.weights(layer=0).astype(np.float64)[:, list(grid.positions), cat]
    expected = columns.mean(axis=0).reshape(grid.rows, grid.columns)
    patches = stack.image_weights(0, keys=cat, interpolation=None)
    assert_allclose(patches, expected, rtol=1e-4)
    pixels = stack.image_weights(0, keys=cat)
    height, width = record.images[0].shape[:2]
    repeats = height // grid.rows, width // grid.columns
    assert_allclose(pixels, expected.repeat(repeats[0], 0).repeat(repeats[1], 1), rtol=1e-4)
    box = (0, 0, width // 2, height)
    halves = columns.reshape(-1, grid.rows, grid.columns)[..., : grid.columns // 2].sum((1, 2))
    scores = analysis.head_scores(stack, "region", keys=cat, region=box)
    assert_allclose(scores[0], halves / columns.sum(axis=1), rtol=1e-4)
    baseline = analysis.uniform_scores(stack, "region", keys=cat, region=box)
    assert_allclose(baseline[0], 0.5)


def test_stacks_with_the_same_tokens_still_share_them(make: Make) -> None:
    model, reader = make("llava")
    record = extract(model, (picture(40, 60), TEXT), processor=reader)
    for stack in record.stacks.values():
        assert stack.key_tokens is stack.query_tokens
        assert stack.key_tokens.grids[0].size == (40, 60)


def without_box(record: AttentionRecord) -> bool:
    grids = record.stack().query_tokens.grids
    return bool(grids) and all(grid.size is None and grid.box is None for grid in grids)


def test_without_the_image_of_the_user_pixels_are_those_of_the_record(vit: Any) -> None:
    encoded = dict(processor()(picture(32, 64), return_tensors="pt"))
    record = extract(vit, encoded, processor=processor())
    assert without_box(record)
    assert record.stack().image_weights(0, queries=0).shape == (32, 32)


@pytest.mark.parametrize(
    "change",
    [
        lambda image: image.rotate(90),
        lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        lambda image: image.transpose(Image.Transpose.TRANSPOSE),
        lambda image: image.convert("L").convert("RGB"),
        lambda image: Image.effect_noise(image.size, 90).convert("RGB"),
    ],
)
def test_a_place_that_was_not_found_is_not_shown(vit: Any, change: Any) -> None:
    class Changing(transformers.CLIPImageProcessorPil):  # type: ignore[misc]
        def __call__(self, images: Any, **options: Any) -> Any:
            return super().__call__(change(images), **options)

    reader = Changing(size={"shortest_edge": 32}, crop_size=SQUARE)
    assert without_box(extract(vit, picture(32, 64), processor=reader))


def test_a_processor_that_refuses_other_images(vit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise RuntimeError("other images")

    expected = extract(vit, picture(32, 64), processor=processor())
    monkeypatch.setattr(Encoder, "_place_images", refuse)
    record = extract(vit, picture(32, 64), processor=processor())
    assert without_box(record)
    assert np.array_equal(record.stack().weights(layer=1), expected.stack().weights(layer=1))
