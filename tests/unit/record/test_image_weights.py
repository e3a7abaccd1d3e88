"""Weights over an image, compared with the resizing of Pillow and torch, and with plain sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from PIL import Image

import attnviz as av
from attnviz import AttentionRecord
from attnviz.record import PatchGrid, Tokens
from attnviz.record.notes import Note

ROWS, COLUMNS, GAP = 3, 4, 1
GRID = PatchGrid(0, 1, ROWS, COLUMNS, gap=GAP)
# A token, three rows of four patches with a token between rows, and words.
TEXTS = ["<s>", *(f"[{index}]" for index in range(GRID.stop - 1)), "cat", "dog", "cat"]
CAT, DOG = GRID.stop, GRID.stop + 1


def random(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    weights = np.random.default_rng(seed).random(shape, np.float32)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def record_of(grid: PatchGrid = GRID, size: tuple[int, int] = (30, 44)) -> AttentionRecord:
    tokens = Tokens.of(TEXTS, grids=[grid])
    weights = random(2, 3, len(TEXTS), len(TEXTS))
    return AttentionRecord.from_weights(weights, tokens, images=[np.zeros((*size, 3), np.uint8)])


def on_patches(row: NDArray[Any]) -> NDArray[Any]:
    """Return the patches of a row of weights: four of every five tokens after the first."""
    return row[..., 1 : 1 + ROWS * 5].reshape(*row.shape[:-1], ROWS, 5)[..., :COLUMNS]


def row_of_patches(array: NDArray[Any]) -> NDArray[Any]:
    padded = np.concatenate([array, np.zeros((*array.shape[:-1], 1))], axis=-1)
    return on_patches(padded)


def test_one_value_per_patch() -> None:
    stack = record_of().stack()
    weights = stack.weights(layer=1)
    expected = row_of_patches(weights)
    for heads, chosen in ((2, [2]), ([0, 2], [0, 2]), (None, [0, 1, 2]), (-1, [2])):
        values = stack.image_weights(1, heads, queries="dog", interpolation=None)
        assert values.dtype == np.float32
        assert_allclose(values, expected[chosen, DOG].mean(axis=0), atol=1e-6)
    values = stack.image_weights(1, 0, queries=[CAT, DOG], interpolation=None)
    assert_allclose(values, expected[0, [CAT, DOG]].mean(axis=0), atol=1e-6)
    values = stack.image_weights(1, 0, interpolation=None)
    assert_allclose(values, expected[0].mean(axis=0), atol=1e-6)


def test_a_word_on_which_patches_have_weight() -> None:
    stack = record_of().stack()
    columns = row_of_patches(stack.weights(layer=0).swapaxes(1, 2))
    values = stack.image_weights(0, [0, 1], keys="dog", interpolation=None)
    assert_allclose(values, columns[:2, DOG].mean(axis=0), atol=1e-6)
    values = stack.image_weights(0, 1, keys=[CAT, DOG], interpolation=None)
    assert_allclose(values, columns[1, [CAT, DOG]].sum(axis=0), atol=1e-6)


def test_parts_of_many_queries_have_the_same_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = record_of().stack()
    expected = stack.image_weights(0)
    monkeypatch.setattr("attnviz.record.patch_maps._MAX_ENTRIES", 2 * 3 * ROWS * COLUMNS)
    assert_allclose(stack.image_weights(0), expected, rtol=1e-6)


@pytest.mark.parametrize("size", [(30, 44), (3, 4), (31, 52), (300, 48)])
@pytest.mark.parametrize("name", ["nearest", "bilinear"])
def test_pixels_are_those_of_torch_and_pillow(name: Any, size: tuple[int, int]) -> None:
    stack = record_of(size=size).stack()
    values = stack.image_weights(0, 0, queries="dog", interpolation=None)
    pixels = stack.image_weights(0, 0, queries="dog", interpolation=name)
    mode = {"nearest": "nearest-exact", "bilinear": "bilinear"}[name]
    resized = torch.nn.functional.interpolate(torch.from_numpy(values)[None, None], size, mode=mode)
    assert_allclose(pixels, resized[0, 0], atol=1e-6)
    form = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR}[name]
    expected = np.asarray(Image.fromarray(values).resize(size[::-1], form))
    assert_allclose(pixels, expected, atol=1e-6)


def test_pixels_of_a_cropped_image() -> None:
    """A processor took the middle of an image of 20 x 40 pixels: 20 x 20 pixels, 4 x 4 patches."""
    grid = replace(GRID, size=(20, 40), box=(10, 0, 30, 20))
    stack = record_of(grid, size=(32, 32)).stack()
    pixels = stack.image_weights(0, 0, queries="dog")
    assert pixels.shape == (20, 40)
    values = stack.image_weights(0, 0, queries="dog", interpolation=None)
    middle = Image.fromarray(values).resize((20, 20), Image.Resampling.NEAREST)
    assert_allclose(pixels[:, 10:30], np.asarray(middle))
    assert np.isnan(pixels[:, :10]).all()
    assert np.isnan(pixels[:, 30:]).all()


def test_pixels_of_a_padded_image() -> None:
    """Ten rows of padding above and below: the first and the last patches are mostly padding."""
    grid = replace(GRID, size=(20, 40), box=(0, -10, 40, 30))
    pixels = record_of(grid).stack().image_weights(0, 0, queries="dog")
    values = record_of().stack().image_weights(0, 0, queries="dog", interpolation=None)
    padded = Image.fromarray(values).resize((40, 40), Image.Resampling.NEAREST)
    assert_allclose(pixels, np.asarray(padded)[10:30])


def test_places_are_saved(tmp_path: Any) -> None:
    grid = replace(GRID, size=(20, 40), box=(10, 0, 30, 20))
    record = record_of(grid)
    loaded = av.load(record.save(tmp_path / "image"))
    loaded_grid = loaded.stack().key_tokens.grids[0]
    assert (loaded_grid.size, loaded_grid.box) == ((20, 40), (10, 0, 30, 20))
    options = {"queries": "dog", "interpolation": "bilinear"}
    expected = record.stack().image_weights(1, **options)  # type: ignore[arg-type]
    actual = loaded.stack().image_weights(1, **options)  # type: ignore[arg-type]
    assert np.array_equal(actual, expected, equal_nan=True)


def test_derived_stacks_keep_the_image() -> None:
    record = record_of()
    stack = record.stack()
    expected = stack.image_weights(1, queries="dog")
    assert_allclose(stack.only(1).image_weights(1, queries="dog"), expected)
    assert_allclose(record.only(1).stack().image_weights(1, queries="dog"), expected)
    renamed = AttentionRecord({"other": stack}, images=[np.zeros((6, 8, 3), np.uint8)])
    assert renamed.stack().image_weights(1, queries="dog").shape == (6, 8)
    assert stack.image_weights(1, queries="dog").shape == (30, 44)


class TestErrors:
    def test_of_tokens(self) -> None:
        stack = record_of().stack()
        with pytest.raises(ValueError, match="queries='cat': 2 tokens have this text"):
            stack.image_weights(0, queries="cat")
        with pytest.raises(ValueError, match="queries and keys cannot be combined"):
            stack.image_weights(0, queries="dog", keys="dog")
        with pytest.raises(ValueError, match="queries is empty"):
            stack.image_weights(0, queries=[])
        with pytest.raises(IndexError, match="heads=3: layer 0 of stack 'self' has heads 0 to 2"):
            stack.image_weights(0, 3, queries="dog")

    def test_of_unknown_images_and_interpolations(self) -> None:
        stack = record_of().stack()
        with pytest.raises(IndexError, match="image=1: the keys of stack 'self' are patches of im"):
            stack.image_weights(0, image=1)
        with pytest.raises(ValueError, match="interpolation='cubic' must be 'nearest' or 'bilin"):
            stack.image_weights(0, interpolation="cubic")  # type: ignore[arg-type]

    def test_of_several_images(self) -> None:
        grids = [PatchGrid(0, 0, 1, 2), PatchGrid(1, 2, 2, 1, name="the image")]
        tokens = Tokens.of(["a", "b", "c", "d"], grids=grids)
        images = [np.zeros((4, 4, 3), np.uint8), np.zeros((2, 6, 3), np.uint8)]
        record = AttentionRecord.from_weights(random(1, 2, 4, 4), tokens, images=images)
        stack = record.stack()
        with pytest.raises(ValueError, match=r"several images\. .* numbers 0, 1 \(the image\)"):
            stack.image_weights(0)
        weights = stack.weights(layer=0, head=0)
        for image, part in enumerate((weights[3, :2], weights[3, 2:])):
            pixels = stack.image_weights(0, 0, queries=3, image=image)
            assert pixels.shape == images[image].shape[:2]
            assert_allclose(np.unique(pixels), np.sort(part))

    def test_without_places_the_reason_of_the_record_is_named(self) -> None:
        reason = "The tokens of the image have no rows and columns: they are odd (stack “self”)."
        weights = random(1, 1, 2, 2)
        plain = AttentionRecord.from_weights(weights, ["a", "b"])
        with pytest.raises(ValueError, match=r"keys of stack 'self' are not patches .* record\.$"):
            plain.stack().image_weights(0, queries=0)
        noted = AttentionRecord(dict(plain.stacks), notes=[Note(reason, "no places")])
        with pytest.raises(ValueError, match="they are odd"):
            noted.stack().image_weights(0, queries=0)
        renamed = AttentionRecord({"other": plain.stack()}, notes=[Note(reason, "no places")])
        with pytest.raises(ValueError, match=r"not patches of an image in the record\.$"):
            renamed.stack().image_weights(0, queries=0)

    def test_of_a_stack_without_a_record(self) -> None:
        stack = record_of().stack()
        layers = {layer: stack.attention(layer) for layer in stack.layers}
        alone = type(stack)("self", layers, stack.query_tokens)
        assert alone.image_weights(0, interpolation=None).shape == (ROWS, COLUMNS)
        with pytest.raises(ValueError, match="belongs to no record with its image"):
            alone.image_weights(0)

    def test_of_patches_that_are_queries(self) -> None:
        patches = Tokens.of(["0,0", "0,1"], grids=[PatchGrid(0, 0, 1, 2)])
        picture = np.zeros((2, 4, 3), np.uint8)
        record = AttentionRecord.from_weights(
            random(1, 1, 2, 3), patches, key_tokens=["a", "red", "cat"], images=[picture]
        )
        stack = record.stack()
        with pytest.raises(ValueError, match="keys: patches are queries of stack 'self'"):
            stack.image_weights(0)
        with pytest.raises(ValueError, match="the keys of stack 'self' are not patches"):
            stack.image_weights(0, queries=0)
        pixels = stack.image_weights(0, keys="cat")
        assert_allclose(pixels, np.repeat(stack.weights(0, 0)[:, [2]].T, 2, axis=0).repeat(2, 1))

    @pytest.mark.parametrize(
        "wrong", [{"size": (0, 4)}, {"box": (4, 0, 2, 4)}, {"box": (0, 4, 2, 4)}]
    )
    def test_of_a_grid_without_area(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"must have a size and a box"):
            PatchGrid(0, 0, 1, 1, **wrong)

    def test_of_a_grid_that_does_not_fit_the_tokens(self) -> None:
        with pytest.raises(ValueError, match="needs the tokens 0 to 3, but there are 2 tokens"):
            Tokens.of(["a", "b"], grids=[PatchGrid(0, 0, 2, 2)])
