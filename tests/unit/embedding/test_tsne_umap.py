"""Test layouts of points by principal components, t-SNE and UMAP."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.manifold import TSNE, trustworthiness

from attnviz.embedding import tsne_umap
from attnviz.embedding.tsne_umap import Frame, Method, ProjectionSettings, project, space_of
from attnviz.utils.threads import torch_threads
from unit.clusters import clusters, purity

# Even on a busy machine, only a test that hangs reaches this limit.
pytestmark = pytest.mark.timeout(900)

POINTS, GROUPS = clusters(25)
# UMAP is compiled on first use, which takes ten seconds.
UMAP = pytest.param("umap", marks=pytest.mark.slow)
METHODS: list[Any] = ["tsne", UMAP]


def settings(method: Method = "tsne", **options: Any) -> ProjectionSettings:
    return ProjectionSettings(method, **{"perplexity": 10, "neighbors": 10, **options})


def frames_of(points: Any, projection_settings: ProjectionSettings) -> list[Frame]:
    frames: list[Frame] = []
    result = project(points, projection_settings, frames.append)
    assert np.array_equal(frames[-1].coordinates, result)
    return frames


@pytest.mark.parametrize(("dimensions", "metric"), [(2, "cosine"), (3, "euclidean")])
@pytest.mark.parametrize("method", METHODS)
def test_neighbours_stay_together(method: Method, dimensions: int, metric: Any) -> None:
    how = settings(method, dimensions=dimensions, metric=metric)
    coordinates = project(POINTS, how)
    assert coordinates.shape == (100, dimensions)
    assert coordinates.dtype == np.float32
    assert np.isfinite(coordinates).all()
    assert purity(coordinates, GROUPS) > 0.99
    # In random groups, a quarter of the points have their nearest point in the same group.
    shuffled = np.random.default_rng(0).permutation(GROUPS)
    assert purity(coordinates, shuffled) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [2, 3])
def test_tsne_is_as_faithful_as_that_of_scikit_learn(dimensions: int) -> None:
    # Points without clusters have neighbourhoods that are harder to preserve.
    points = np.random.default_rng(1).normal(size=(200, 5)).astype(np.float32)
    ours = project(points, settings(dimensions=dimensions, metric="euclidean"))
    reference = TSNE(dimensions, perplexity=10, init="pca", random_state=0).fit_transform(points)
    scores = [trustworthiness(points, plot, n_neighbors=10) for plot in (ours, reference)]
    assert scores[0] > scores[1] - 0.02
    assert scores[1] > 0.85


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_neighbours_are_the_nearest_points(metric: Any) -> None:
    points = np.random.default_rng(2).normal(size=(60, 7)).astype(np.float32)
    points[3] = 0
    exact = points.astype(float)
    if metric == "cosine":
        lengths = np.sqrt((exact**2).sum(axis=1))
        lengths[3] = 1
        exact_distances = 1 - exact @ exact.T / np.outer(lengths, lengths)
    else:
        # `space_of` divides the points by their largest absolute entry.
        exact_distances = (
            np.sqrt(((exact[:, None] - exact[None]) ** 2).sum(axis=-1)) / np.abs(exact).max()
        )
    np.fill_diagonal(exact_distances, np.inf)
    indices, distances = space_of(points, metric).neighbours(5, threads=1)
    assert np.allclose(distances, np.sort(exact_distances, axis=1)[:, :5], atol=1e-6)
    assert np.allclose(np.take_along_axis(exact_distances, indices, axis=1), distances, atol=1e-6)


@pytest.mark.parametrize("method", ["tsne", UMAP])
def test_the_seed_determines_the_layout(method: Method) -> None:
    first, repeated = (project(POINTS, settings(method)) for _ in range(2))
    of_other_seed = project(POINTS, settings(method, seed=1))
    assert np.array_equal(first, repeated)
    assert not np.array_equal(first, of_other_seed)


def test_the_number_of_threads_does_not_change_the_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    plots = []
    for threads in ("1", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        plots.append(project(POINTS, settings()))
    assert np.array_equal(plots[0], plots[1])


def test_interpolation_keeps_neighbours_as_the_tree_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tsne_umap, "_INTERPOLATED", 50)
    # Reduce the number of iterations, which are slow with interpolation.
    monkeypatch.setattr(tsne_umap, "_EARLY", 25)
    monkeypatch.setattr(tsne_umap, "_LATE", 25)
    assert purity(project(POINTS, settings()), GROUPS) > 0.99


def test_frames_of_tsne_count_iterations_and_end_with_the_result() -> None:
    frames = frames_of(POINTS, settings())
    assert [frame.done for frame in frames] == [0, *range(10, 751, 10), 750]
    assert {frame.num_total for frame in frames} == {750}
    assert frames[0].words == "t-SNE starts from the principal components"
    assert frames[3].words == "t-SNE, iteration 30 of 750"
    assert frames[-1].words == "t-SNE"
    assert not np.array_equal(frames[30].coordinates, frames[60].coordinates)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_umap_keeps_the_number_of_torch_threads(count: int) -> None:
    # UMAP uses numba, which also sets the number of threads of torch.
    with torch_threads(count):
        project(POINTS, settings("umap"))
        assert torch.get_num_threads() == count


@pytest.mark.parametrize("method", ["tsne", UMAP])
@pytest.mark.parametrize(("count", "dimensions"), [(8, 3)])
def test_few_points_have_finite_layouts_and_a_note(
    count: int, method: Method, dimensions: int
) -> None:
    points = POINTS[:count]
    final = frames_of(points, ProjectionSettings(method, dimensions=dimensions))[-1]
    assert final.coordinates.shape == (count, dimensions)
    assert np.isfinite(final.coordinates).all()
    if method == "tsne":
        assert f"A perplexity of 50 needs 151 points: with {count} it is" in final.words
    else:
        assert f"with {count} points, {count - 1} neighbours" in final.words.lower()


@pytest.mark.parametrize("method", METHODS)
def test_equal_points_lie_together(method: Method) -> None:
    """Points can be equal: a repeated token has equal keys before positions are added to keys."""
    points = np.repeat(POINTS[:: len(POINTS) // 5], 20, axis=0)
    groups = np.repeat(np.arange(len(points) // 20), 20)
    coordinates = project(points, settings(method))
    assert np.isfinite(coordinates).all()
    assert purity(coordinates, groups) > 0.99


@pytest.mark.parametrize("method", METHODS)
def test_points_of_length_zero_are_noted(method: Method) -> None:
    points = POINTS.copy()
    points[[4, 7]] = 0
    final = frames_of(points, settings(method))[-1]
    assert np.isfinite(final.coordinates).all()
    assert "2 of 100 vectors have length 0 and no direction" in final.words
    euclidean = frames_of(points, settings(method, metric="euclidean"))[-1]
    assert "length" not in euclidean.words


def test_the_start_is_the_principal_components_with_little_noise() -> None:
    centred = POINTS.astype(float) - POINTS.mean(axis=0, dtype=float)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    components = left[:, :3] * values[:3]
    expected = components / components[:, 0].std()
    start = space_of(POINTS, "euclidean").start(3, seed=0)
    noise = np.abs(start) - np.abs(expected)
    # The noise is normal with a standard deviation of 0.01. The limit is six standard deviations.
    assert np.abs(noise).max() < 0.06
    assert noise.std() > 0.005


def test_invalid_points_are_refused() -> None:
    missing = POINTS.copy()
    missing[[3, 7], [0, 1]] = [np.nan, np.inf]
    for points, words in (
        (missing, "2 of 100 are not finite numbers"),
        (np.ones((20, 3), np.float32), "all 20 have the same direction"),
        (POINTS[:4], "fewer than 5 points have no neighbourhoods for t-SNE"),
    ):
        with pytest.raises(ValueError, match=words):
            project(points, settings())
    with pytest.raises(ValueError, match="all 20 are the same, so there is nothing to project"):
        project(np.ones((20, 3), np.float32), settings(metric="euclidean"))


@pytest.mark.parametrize(("method", "package"), [("tsne", "openTSNE"), ("umap", "umap")])
def test_a_package_that_is_not_installed(
    method: Method, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in {package, *filter(lambda name: name.startswith(f"{package}."), sys.modules)}:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{package}: pip install 'attnviz\[embedding\]'"):
        project(POINTS, settings(method))
