"""Projections of points to two or three dimensions that preserve neighbours: t-SNE and UMAP.

t-SNE (van der Maaten & Hinton 2008) comes from openTSNE, and UMAP (McInnes, Healy & Melville 2018)
from umap-learn. Both use exact nearest neighbours and start from the principal components. With the
same points and settings, including the seed, they return the same result on the same machine.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Method = Literal["pca", "tsne", "umap"]
Metric = Literal["cosine", "euclidean"]

_NAMES: dict[Method, str] = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}
_PACKAGES: dict[Method, tuple[str, ...]] = {
    "pca": (),
    "tsne": ("openTSNE", "sklearn"),
    "umap": ("umap", "sklearn"),
}
# Minimum number of points for t-SNE and UMAP. Fewer points get their principal components instead.
_MIN_POINTS = 5
# Exaggeration and numbers of iterations of t-SNE, as in openTSNE. In the first `_EARLY` iterations,
# points attract each other `_EXAGGERATION` times as strongly as in the `_LATE` iterations that
# follow.
_EXAGGERATION = 12
_EARLY, _LATE = 250, 500
# Number of iterations of t-SNE from one frame to the next.
_EVERY = 10
# Caveat of a frame of UMAP before the last.
_UNSEEN = "; the plot shows the principal components until the end"
# Number of points from which t-SNE interpolates the repulsion (Linderman et al. 2019), which is
# then faster than a tree of the points (Barnes-Hut, van der Maaten 2014). The interpolation
# supports only two dimensions.
_INTERPOLATED = 5000
# Largest difference from the first point, relative to the largest entry, that rounding errors of
# float32 can cause. If no point differs more, all points count as equal.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class ProjectionSettings:
    """Method and parameters of a projection.

    Attributes
    ----------
    method : {"tsne", "umap"}
        Method of the projection.
    dimensions : {2, 3}
        Number of dimensions of the plot.
    perplexity : int
        Perplexity of t-SNE, at least 2: roughly the number of neighbours that stay near a point.
    neighbors : int
        Number of neighbours of a point in UMAP, including the point itself, at least 2.
    seed : int
        Seed of the random numbers, 0 to 4,294,967,295.
    metric : {"cosine", "euclidean"}
        Distance between points, used by both methods.
    """

    method: Method
    dimensions: int = 2
    perplexity: int = 50
    neighbors: int = 15
    seed: int = 0
    metric: Metric = "cosine"


@dataclass(frozen=True)
class Frame:
    """Intermediate or final state of a projection.

    Attributes
    ----------
    coordinates : ndarray of float32
        (points, dimensions). In the first frame, and in all frames of UMAP except the last, these
        are the initial coordinates (see `Space.start`).
    done, num_total : int
        Number of completed steps, and number of all steps. A step is an iteration of t-SNE or an
        epoch of UMAP.
    final : bool
        Whether this frame is the final result.
    words : str
        Description of the state in words, with caveats, for the caption of the plot.
    """

    coordinates: NDArray[np.float32]
    done: int
    num_total: int
    final: bool
    words: str


def missing_package(method: Method) -> str | None:
    """Return a message that names the missing package of a method, or None if none is missing."""
    for package in _PACKAGES[method]:
        if importlib.util.find_spec(package) is None:
            return f"{_NAMES[method]} needs {package}: pip install 'attnviz[embedding]'"
    return None


def project(
    points: NDArray[np.float32],
    settings: ProjectionSettings,
    *,
    frame: Callable[[Frame], object] = lambda _: None,
) -> NDArray[np.float32]:
    """Project points to two or three dimensions with t-SNE or UMAP.

    The result is float32, (points, dimensions). The callback `frame` gets a `Frame` before the
    first step, then every 10 iterations of t-SNE or about every 0.2 seconds of UMAP, and at the
    end. Frames of UMAP count its epochs, but have the initial coordinates until the last frame. The
    same points and settings give the same result on the same machine. Raises ImportError if the
    package of the method is not installed, and ValueError for the points that `space_of` refuses.

    Notes
    -----
    t-SNE runs 250 iterations with an exaggeration of 12 and 500 without exaggeration. The learning
    rate is the number of points divided by the exaggeration (Belkina et al. 2019). The number of
    neighbours is three times the perplexity.

    UMAP uses a minimal distance of 0.1. It runs 500 epochs for up to 10,000 points and 200 epochs
    for more points.

    If there are too few points for the perplexity or the number of neighbours, a smaller value is
    used. Fewer than 5 points are projected to their principal components. The words of the frames
    state these changes.
    """
    missing = missing_package(settings.method)
    if missing:
        raise ImportError(missing)
    space = space_of(points, settings.metric)
    name = _NAMES[settings.method]
    run = _Run(frame, [space.caveat] if space.caveat else [])
    if len(space.rows) < _MIN_POINTS:
        run.caveats.append(f"fewer than {_MIN_POINTS} points have no neighbourhoods for {name}")
        return run.frame(space.principal(settings.dimensions), 1, "PCA", final=True)
    lay_out = _tsne if settings.method == "tsne" else _umap
    result = lay_out(space, settings, run)
    return run.frame(result, run.num_total, name, final=True)


@dataclass
class _Run:
    """Reporter that passes frames of one projection, with its caveats, to the callback `tell`."""

    tell: Callable[[Frame], object]
    caveats: list[str]
    num_total: int = 1

    def frame(
        self, coordinates: NDArray[Any], done: int, words: str, *, final: bool = False
    ) -> NDArray[np.float32]:
        # Copy the array, because the library changes it in later steps. This also converts an
        # instance of a subclass of ndarray.
        now = np.array(coordinates, dtype=np.float32, order="C")
        sentences = [words, *(caveat[:1].upper() + caveat[1:] for caveat in self.caveats)]
        self.tell(Frame(now, done, self.num_total, final, ". ".join(sentences)))
        return now


@dataclass(frozen=True)
class Space:
    """Points transformed so that the order of their Euclidean distances is the order of the metric.

    Attributes
    ----------
    rows : ndarray of float32
        Transformed points, (points, dimensions). For the Euclidean metric they are scaled to
        entries of at most 1. For the cosine metric they are scaled to length 1. The nearest points
        by Euclidean distance are then also the nearest by angle, and the cosine distance is half
        the squared Euclidean distance. If some points have length 0, there is one more dimension,
        in which these points are 1 and all other points are 0.
    metric : {"cosine", "euclidean"}
        Distance between the original points.
    caveat : str
        Caveat about points of length 0 for the caption of the plot, or an empty string.
    """

    rows: NDArray[np.float32]
    metric: Metric
    caveat: str

    def principal(self, dimensions: int) -> NDArray[np.float64]:
        """Compute the principal components of the points (Pearson 1901), (points, dimensions).

        The coordinates have mean 0. If the points have fewer entries than `dimensions`, the
        remaining coordinates are 0. In each direction, the entry of largest size is positive.
        """
        rows = self.rows.astype(np.float64)
        rows -= rows.mean(axis=0)
        num_directions = min(dimensions, rows.shape[1])
        # `eigh` sorts by ascending variance. Reverse the order.
        directions = np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, :num_directions]
        largest = np.abs(directions).argmax(axis=0)
        directions = directions * np.where(
            directions[largest, np.arange(num_directions)] < 0, -1.0, 1.0
        )
        coordinates = np.zeros((len(rows), dimensions))
        coordinates[:, :num_directions] = rows @ directions
        return coordinates

    def start(self, dimensions: int, seed: int) -> NDArray[np.float64]:
        """Return initial coordinates for t-SNE and UMAP: the principal components plus noise.

        The components are divided by their standard deviation along the first dimension. The noise
        is normal with a standard deviation of 0.01, so that equal points get different coordinates.
        """
        start = self.principal(dimensions)
        start /= start[:, 0].std()
        return start + np.random.default_rng(seed).normal(scale=0.01, size=start.shape)

    def neighbours(self, count: int, threads: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Find the exact `count` nearest neighbours of every point, without the point itself.

        Return their indices and their distances in the metric, both (points, count), with the
        nearest neighbour first.
        """
        from sklearn.neighbors import NearestNeighbors

        # "brute" computes matrix products. For 10,000 points they are faster than a search tree.
        search = NearestNeighbors(n_neighbors=count, algorithm="brute", n_jobs=threads)
        distances, indices = search.fit(self.rows).kneighbors()
        distances = distances.astype(np.float64)
        return indices, distances**2 / 2 if self.metric == "cosine" else distances


def space_of(points: NDArray[np.float32], metric: Metric) -> Space:
    """Transform points so that the order of their Euclidean distances is the order of `metric`.

    A point of length 0 has no direction. For the cosine metric it is placed at a right angle to all
    other points, and the caveat states the number of such points. Raises ValueError if a point is
    not finite, or if all points are equal (for the cosine metric: have the same direction).

    Examples
    --------
    >>> space_of(np.array([[3.0, 4.0], [1.0, 0.0]], dtype=np.float32), "cosine").rows.round(1)
    array([[0.6, 0.8],
           [1. , 0. ]], dtype=float32)
    """
    finite = np.isfinite(points).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"points: {np.count_nonzero(~finite)} of {len(points)} are not finite numbers. Remove "
            "them."
        )
    rows = points.astype(np.float64)
    caveat = ""
    if metric == "cosine":
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        empty = lengths[:, 0] == 0
        rows /= np.where(lengths > 0, lengths, 1.0)
        if empty.any():
            rows = np.hstack([rows, empty[:, None].astype(np.float64)])
            caveat = (
                f"{np.count_nonzero(empty)} of {len(rows)} vectors have length 0 and no "
                "direction: they are placed at right angles to all others"
            )
    else:
        rows /= float(np.abs(rows).max()) or 1.0
    if len(rows) > 1 and float(np.abs(rows - rows[0]).max()) <= _ROUNDING:
        alike = "have the same direction" if metric == "cosine" else "are the same"
        raise ValueError(f"points: all {len(rows)} {alike}, so there is nothing to project")
    return Space(rows.astype(np.float32), metric, caveat)


def _tsne(space: Space, settings: ProjectionSettings, run: _Run) -> NDArray[np.float64]:
    from openTSNE import TSNEEmbedding
    from openTSNE.affinity import PerplexityBasedNN
    from openTSNE.nearest_neighbors import PrecomputedNeighbors

    count, threads = len(space.rows), _threads()
    near = min(3 * settings.perplexity, count - 1)
    perplexity = min(float(settings.perplexity), near / 3)
    if perplexity < settings.perplexity:
        run.caveats.append(
            f"a perplexity of {settings.perplexity} needs {3 * settings.perplexity + 1} points: "
            f"with {count} it is {perplexity:.3g}"
        )
    start = space.start(settings.dimensions, settings.seed)
    run.num_total = _EARLY + _LATE
    run.frame(start, 0, "t-SNE starts from the principal components")
    affinities = PerplexityBasedNN(
        perplexity=perplexity,
        knn_index=PrecomputedNeighbors(*space.neighbours(near, threads)),
        n_jobs=threads,
    )
    interpolated = settings.dimensions == 2 and count >= _INTERPOLATED
    # Start at small distances, at which points can move past each other (Kobak & Linderman 2021).
    embedding = TSNEEmbedding(
        start * 1e-4,
        affinities,
        negative_gradient_method="fft" if interpolated else "bh",
        n_jobs=threads,
        random_state=settings.seed,
    )
    before = 0

    def tell(iteration: int, _error: float, coordinates: NDArray[np.float64]) -> None:
        done = before + iteration
        run.frame(coordinates, done, f"t-SNE, iteration {done} of {run.num_total}")

    for steps, exaggeration in ((_EARLY, _EXAGGERATION), (_LATE, 1)):
        embedding.optimize(
            n_iter=steps,
            exaggeration=exaggeration,
            momentum=0.8,
            inplace=True,
            callbacks=[tell],
            callbacks_every_iters=_EVERY,
        )
        before += steps
    return np.asarray(embedding)


def _umap(space: Space, settings: ProjectionSettings, run: _Run) -> NDArray[np.float32]:
    count = len(space.rows)
    neighbours = min(settings.neighbors, count - 1)
    if neighbours < settings.neighbors:
        run.caveats.append(f"with {count} points, {neighbours} neighbours are used")
    run.num_total = 500 if count <= 10_000 else 200
    start = space.start(settings.dimensions, settings.seed)
    run.frame(start, 0, "UMAP starts from the principal components")
    others, distances = space.neighbours(neighbours - 1, _threads())
    # UMAP expects that the first neighbour of each point is the point itself.
    indices = np.hstack([np.arange(count)[:, None], others])
    distances = np.hstack([np.zeros((count, 1)), distances]).astype(np.float32)
    # Imported here, because t-SNE and PCA do not need torch.
    from attnviz.utils.threads import torch_threads

    with warnings.catch_warnings(), torch_threads():
        # UMAP warns that optional packages are missing, and that it cannot transform new points.
        # Neither matters here.
        warnings.simplefilter("ignore")
        from umap import UMAP

        return np.asarray(
            UMAP(
                n_neighbors=neighbours,
                n_components=settings.dimensions,
                min_dist=0.1,
                # This metric is not used, because the neighbours are precomputed in `space.metric`.
                metric="euclidean",
                precomputed_knn=(indices, distances),
                init=start.astype(np.float32),
                n_epochs=run.num_total,
                random_state=settings.seed,
                n_jobs=1,
                # UMAP has no callback. It writes its progress bar to this file, which reads the
                # epoch from it.
                tqdm_kwds={
                    "file": _Epochs(start, run),
                    "bar_format": "{n}",
                    "mininterval": 0.2,
                    "disable": False,
                },
            ).fit_transform(space.rows)
        )


class _Epochs:
    """File-like object that receives UMAP's progress bar, and reports the epoch in it."""

    def __init__(self, start: NDArray[Any], run: _Run) -> None:
        self._start = start
        self._run = run

    def write(self, text: str) -> None:
        done = text.strip("\r\n\x1b[A ")
        if done.isdigit() and int(done):
            words = f"UMAP, epoch {done} of {self._run.num_total}{_UNSEEN}"
            self._run.frame(self._start, int(done), words)

    def flush(self) -> None:
        """Do nothing, because nothing is buffered."""


def _threads() -> int:
    """Return OMP_NUM_THREADS if it is positive, otherwise the number of available cores."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if setting.isdigit() and int(setting):
        return int(setting)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
