"""Measures of maps over an image, compared with loops over pixels and scipy's components."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import traitlets
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy import ndimage

import attnviz as av
from attnviz import AttentionRecord
from attnviz.analysis import MEASURES, head_scores, measures_of, sink_patches, uniform_scores
from attnviz.record import PatchGrid, Tokens
from unit.records import vectors

ROWS, COLUMNS, SIDE = 4, 6, 5
GRID = PatchGrid(0, 2, ROWS, COLUMNS)
# Patches and words. Each patch has SIDE x SIDE pixels.
TOKENS = Tokens.of(["<s>", "a", *["?"] * (ROWS * COLUMNS), "cat", "dog"], grids=[GRID])
PICTURE = np.zeros((ROWS * SIDE, COLUMNS * SIDE, 3), np.uint8)
BOX = (7, 3, 22, 11)
N, CAT, DOG = len(TOKENS), len(TOKENS) - 2, len(TOKENS) - 1


def record_of(*, causal: bool, grid: PatchGrid = GRID) -> AttentionRecord:
    queries, keys = vectors(2, 2, 3, N, 8)
    tokens = replace(TOKENS, grids=(grid,))
    return AttentionRecord.from_qk(2 * queries, keys, tokens, causal=causal, images=[PICTURE])


def mask_of(box: tuple[int, ...]) -> NDArray[np.bool_]:
    left, top, right, bottom = box
    mask = np.zeros(PICTURE.shape[:2], np.bool_)
    mask[top:bottom, left:right] = True
    return mask


def on_image(weights: NDArray[Any]) -> NDArray[np.float64]:
    """Return the weights of patches, (..., rows, columns)."""
    patches = weights[..., GRID.start : GRID.stop].astype(np.float64)
    return patches.reshape(*patches.shape[:-1], ROWS, COLUMNS)


def in_mask(map_: NDArray[Any], mask: NDArray[np.bool_]) -> float:
    """Return the weight in a mask: each pixel has a part of the weight of its patch."""
    total = 0.0
    for y, x in zip(*np.nonzero(mask), strict=True):
        total += map_[y // SIDE, x // SIDE] / SIDE**2
    return total


def overlap(map_: NDArray[Any], mask: NDArray[np.bool_]) -> float:
    """Return the intersection over union of the strongest patches with a mask, in pixels."""
    order = sorted(map_.ravel(), reverse=True)
    count = next(n for n in range(1, 99) if sum(order[:n]) >= 0.6 * map_.sum() - 1e-12)
    strongest = (map_ >= order[count - 1]).repeat(SIDE, 0).repeat(SIDE, 1)
    return float((strongest & mask).sum() / (strongest | mask).sum())


def spatial_entropy(map_: NDArray[Any]) -> float:
    excess = np.maximum(map_ - map_.mean(), 0)
    labels, count = ndimage.label(excess > 0, np.ones((3, 3)))
    shares = [excess[labels == label].sum() / excess.sum() for label in range(1, count + 1)]
    return -math.fsum(share * math.log(share) for share in shares)


def means(record: AttentionRecord, number: Any, rows: list[int]) -> NDArray[np.float64]:
    stack = record.stack()
    return np.array(
        [
            [
                np.mean([number(map_) for map_ in on_image(stack.weights(layer, head)[rows])])
                for head in range(3)
            ]
            for layer in (0, 1)
        ]
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [None, "dog", [CAT, DOG]])
def test_scores_equal_loops_over_pixels(causal: bool, queries: Any) -> None:
    record = record_of(causal=causal)
    rows = {None: list(range(GRID.start if causal else 0, N)), "dog": [DOG]}.get(
        queries if not isinstance(queries, list) else "", [CAT, DOG]
    )
    mask = mask_of(BOX)
    for name, number in (
        ("region", lambda map_: in_mask(map_, mask)),
        ("region overlap", lambda map_: overlap(map_, mask)),
        ("spatial entropy", spatial_entropy),
    ):
        expected = means(record, number, rows)
        for region in (BOX, mask):
            scores = head_scores(record, name, queries=queries, region=region)
            assert_allclose(scores, expected, rtol=1e-5, err_msg=name)


def test_uniform_attention_has_the_share_of_its_allowed_keys() -> None:
    record = record_of(causal=True)
    # Query i may attend to i + 1 keys. The box has 120 of the 25 pixels of each of 24 patches.
    counts = np.arange(N) + 1
    seen = [
        [in_mask((np.arange(24).reshape(ROWS, COLUMNS) + GRID.start <= i) / 1.0, mask_of(BOX))]
        for i in range(N)
    ]
    expected = (np.array(seen)[:, 0] / counts)[GRID.start :].mean()
    assert_allclose(uniform_scores(record, "region", region=BOX), np.full((2, 3), expected))
    dog = uniform_scores(record, "region", queries="dog", region=BOX)
    assert_allclose(dog, np.full((2, 3), 120 / 25 / N))
    # All patches are equally strong.
    overlaps = uniform_scores(record, "region overlap", queries="dog", region=BOX)
    assert_allclose(overlaps, np.full((2, 3), 120 / PICTURE[..., 0].size))
    assert_allclose(uniform_scores(record, "sink patches"), 0)


def test_uniform_attention_has_the_scores_of_the_baseline() -> None:
    record = AttentionRecord.from_weights(np.full((1, 2, N, N), 1 / N), TOKENS, images=[PICTURE])
    for name in ("region", "region overlap", "sink patches"):
        scores = head_scores(record, name, region=BOX)
        assert_allclose(scores, uniform_scores(record, name, region=BOX), rtol=1e-6)
    # Uniform attention has no part above the mean.
    assert np.isnan(head_scores(record, "spatial entropy")).all()


def test_the_baseline_of_spatial_entropy_has_other_places() -> None:
    """A square of four patches is one part, but four patches at random places are several."""
    weights = np.zeros((1, 1, N, N), np.float32)
    square = [GRID.start + row * COLUMNS + column for row in (1, 2) for column in (3, 4)]
    weights[..., square] = 0.25
    record = AttentionRecord.from_weights(weights, TOKENS, images=[PICTURE])
    assert head_scores(record, "spatial entropy")[0][0] == 0
    random = np.random.default_rng(1)
    drawn = []
    for _ in range(2000):
        map_ = np.zeros(ROWS * COLUMNS)
        map_[random.permutation(len(map_))[:4]] = 0.25
        drawn.append(spatial_entropy(map_.reshape(ROWS, COLUMNS)))
    # The mean of N x 8 numbers.
    error = np.std(drawn) * (1 / len(drawn) + 1 / (8 * N)) ** 0.5
    assert abs(uniform_scores(record, "spatial entropy")[0][0] - np.mean(drawn)) < 4 * error


@pytest.mark.parametrize("seed", range(4))
def test_components_of_any_shape(seed: int) -> None:
    """Long spirals and diagonals, on which a component must be followed step by step."""
    shape = [
        "#######..#",
        "......#.#.",
        ".####.#..#",
        ".#..#.#.#.",
        ".#.##.#..#",
        ".#....#.#.",
        ".######...",
    ]
    cells = np.array([[cell == "#" for cell in row] for row in shape])
    random = np.random.default_rng(seed)
    cells = cells ^ (random.random(cells.shape) < 0.1 * seed)
    map_ = cells * (1 + random.random(cells.shape))
    (number,) = MEASURES["spatial entropy"].formula(map_[None], None)
    assert_allclose(number, spatial_entropy(map_))


def test_sink_patches() -> None:
    weights = np.full((1, 2, N, N), 0.0, np.float32)
    sink = GRID.start + 2 * COLUMNS + 5
    weights[0, 0, :, sink], weights[0, 0, :, 0] = 0.4, 0.6
    weights[0, 1, ::2, sink], weights[0, 1, 1::2, 0] = 0.5, 1.0
    weights[0, 1, ::2, 0] = 0.5
    record = AttentionRecord.from_weights(weights, TOKENS, images=[PICTURE])
    expected = np.zeros((ROWS, COLUMNS), np.bool_)
    expected[2, 5] = True
    assert np.array_equal(sink_patches(record, 0, 0), expected)
    assert not sink_patches(record, 0, 1).any()
    assert np.array_equal(sink_patches(record, 0, 1, threshold=0.2), expected)
    assert np.array_equal(sink_patches(record, 0, 1, queries=[0, 2]), expected)
    assert_allclose(head_scores(record, "sink patches"), [[0.4, 0.0]], rtol=1e-6)


def test_the_weight_on_all_patches() -> None:
    record = record_of(causal=False)
    weights = record.stack().weights(layer=1)[..., GRID.start : GRID.stop].sum(axis=2).mean(axis=1)
    assert_allclose(head_scores(record, "image")[1], weights, rtol=1e-5)
    assert_allclose(uniform_scores(record, "image")[1], [24 / N] * 3)
    whole = (0, 0, COLUMNS * SIDE, ROWS * SIDE)
    assert_allclose(head_scores(record, "region", region=whole)[1], weights, rtol=1e-5)
    statistics = av.head_statistics([record], progress=False).stack()
    assert_allclose(statistics.mean("image")[1], weights, rtol=1e-5)


def test_a_word_of_a_diffusion_model_is_divided_by_its_sum() -> None:
    queries, keys = vectors(2, 1, 2, ROWS * COLUMNS, 8)
    patches = Tokens.of(["?"] * ROWS * COLUMNS, grids=[PatchGrid(0, 0, ROWS, COLUMNS)])
    record = AttentionRecord.from_qk(
        2 * queries, keys[:, :, :3], patches, key_tokens=["a", "red", "cat"], images=[PICTURE]
    )
    columns = record.stack().weights(layer=0)[..., 2].astype(np.float64)
    maps = (columns / columns.sum(axis=1, keepdims=True)).reshape(2, ROWS, COLUMNS)
    expected = [[in_mask(map_, mask_of(BOX)) for map_ in maps]]
    scores = head_scores(record, "region", keys="cat", region=BOX)
    assert_allclose(scores, expected, rtol=1e-5)
    baseline = uniform_scores(record, "region", keys="cat", region=BOX)
    assert_allclose(baseline, [[120 / PICTURE[..., 0].size] * 2])
    assert {"spatial entropy", "sink patches"} <= set(measures_of(record))
    assert head_scores(record, "spatial entropy")[0].shape == (2,)


def test_regions_of_an_image_that_the_model_got_in_part() -> None:
    """The image has 20 x 60 pixels, and the model got the middle of 20 x 30 pixels."""
    grid = replace(GRID, size=(20, 60), box=(15, 0, 45, 20))
    record = record_of(causal=False, grid=grid)
    inner = (BOX[0] + 15, BOX[1], BOX[2] + 15, BOX[3])
    expected = head_scores(record_of(causal=False), "region", region=BOX)
    assert_allclose(head_scores(record, "region", region=inner), expected, rtol=1e-6)
    # A part outside of the middle has no weight.
    left = head_scores(record, "region", region=(0, 0, 20, 20))
    assert_allclose(
        left, head_scores(record_of(causal=False), "region", region=(0, 0, 5, 20)), rtol=1e-6
    )
    with pytest.raises(ValueError, match=r"got no part of it.* box \(15, 0, 45, 20\)"):
        head_scores(record, "region", region=(0, 0, 15, 20))


class TestErrors:
    @pytest.mark.parametrize(
        "region", [(0, 0, 31, 5), (-1, 0, 3, 3), (4, 0, 4, 3), (0, 0, 5, 21), (0, 8, 5, 4)]
    )
    def test_of_a_box_outside_of_the_image(self, region: Any) -> None:
        with pytest.raises(ValueError, match=r"inside of the image, whose size is 30 x 20 pixels"):
            head_scores(record_of(causal=False), "region", region=region)

    @pytest.mark.parametrize(
        "region", [np.ones((30, 20), np.bool_), np.ones((20, 30)), (1, 2, 3), "box"]
    )
    def test_of_a_mask_of_the_wrong_shape(self, region: Any) -> None:
        with pytest.raises(ValueError, match=r"or a mask, bool, \(height, width\) = \(20, 30\)"):
            head_scores(record_of(causal=False), "region", region=region)

    def test_of_a_missing_region_and_of_needless_places(self) -> None:
        record = record_of(causal=False)
        with pytest.raises(ValueError, match="measure='region' needs a region"):
            head_scores(record, "region")
        with pytest.raises(TypeError, match=r"measure=entropy is not one of maps\. Omit region"):
            head_scores(record, "entropy", region=BOX)
        with pytest.raises(TypeError, match="box"):
            head_scores(record, "region", box=BOX)  # type: ignore[call-arg]
        with pytest.raises(IndexError, match="image=3"):
            head_scores(record, "region", region=BOX, image=3)

    def test_of_records_without_an_image(self) -> None:
        record = AttentionRecord.from_weights([[[[1.0, 0.0], [0.5, 0.5]]]], ["a", "b"])
        assert not {"image", "region", "spatial entropy", "sink patches"} & set(measures_of(record))
        with pytest.raises(ValueError, match="are not patches of an image in the record"):
            head_scores(record, "spatial entropy")

    def test_of_orders(self) -> None:
        record = record_of(causal=False)
        assert av.HeadView(record, order="spatial entropy").order == "spatial entropy"
        with pytest.raises(traitlets.TraitError, match=r"need one image, and no region"):
            av.HeadView(record, order="region")


@pytest.mark.usefixtures("own_measures")
def test_a_measure_of_the_user() -> None:
    @av.measure("largest patch", kind="maps", description="the largest weight of a patch")
    def largest_patch(maps: NDArray[Any], region: Any) -> Any:
        del region
        return maps.max(axis=(1, 2))

    record = record_of(causal=False)
    expected = means(record, np.max, [DOG])
    assert_allclose(head_scores(record, "largest patch", queries="dog"), expected, rtol=1e-6)
    assert (
        MEASURES["largest patch"].sentence == "Mean over tokens of the largest weight of a patch."
    )
    av.measure("flat", kind="maps")(lambda maps, region: maps.max(axis=2))
    with pytest.raises(ValueError, match=r"must return one number for each of the maps"):
        head_scores(record, "flat")
