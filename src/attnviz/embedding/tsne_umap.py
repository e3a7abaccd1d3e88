"""t-SNE and UMAP of points, in two or three dimensions.

t-SNE (van der Maaten & Hinton 2008) comes from openTSNE, and UMAP (McInnes, Healy & Melville 2018)
from umap-learn. Both use exact nearest neighbours and start from the principal components. With the
same points and settings, including the seed, they return the same result on the same machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.embedding.placement import Placed, principal_components
from attnviz.utils.threads import torch_threads

Method = Literal["pca", "tsne", "umap"]
Metric = Literal["cosine", "euclidean"]
Floats = NDArray[np.float32]

NAMES: dict[Method, str] = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}
# Minimum number of points, because fewer points have no neighbourhoods.
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
    words : str
        Description of the state in words, with caveats, for the caption of the plot.
    """

    coordinates: Floats
    done: int
    num_total: int
    words: str


def project(
    points: Floats,
    settings: ProjectionSettings,
    show: Callable[[Frame], object] = lambda _: None,
) -> Floats:
    """Project points to two or three dimensions with t-SNE or UMAP.

    The result is float32, (points, dimensions). The callback `show` gets a `Frame` before the first
    step, then every 10 iterations of t-SNE or about every 0.2 seconds of UMAP, and at the end. If
    it raises an exception, the projection ends. Frames of UMAP count its epochs, but have the
    initial coordinates until the last frame. Raises ImportError if the package of the method is not
    installed, and ValueError for fewer than 5 points and for the points that `space_of` refuses.

    Notes
    -----
    t-SNE runs 250 iterations with an exaggeration of 12 and 500 without exaggeration. The learning
    rate is the number of points divided by the exaggeration (Belkina et al. 2019). The number of
    neighbours is three times the perplexity.

    UMAP uses a minimal distance of 0.1. It runs 500 epochs for up to 10,000 points and 200 epochs
    for more points.

    If there are too few points for the perplexity or the number of neighbours, a smaller value is
    used. The words of the frames state these changes.
    """
    name = NAMES[settings.method]
    if len(points) < _MIN_POINTS:
        raise ValueError(f"fewer than {_MIN_POINTS} points have no neighbourhoods for {name}")
    space = space_of(points, settings.metric)
    run = _Run(show, [space.caveat] if space.caveat else [])
    try:
        # numba, which compiles UMAP, also sets the number of threads of torch.
        with torch_threads():
            result = (_tsne if settings.method == "tsne" else _umap)(space, settings, run)
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        raise ImportError(f"{name} needs {package}: pip install 'attnviz[embedding]'") from error
    return run.frame(result, run.num_total, name)


@dataclass
class _Run:
    """Reporter that passes frames of one projection, with its caveats, to the callback `show`."""

    show: Callable[[Frame], object]
    caveats: list[str]
    num_total: int = 0

    def frame(self, coordinates: NDArray[Any], done: int, words: str) -> Floats:
        # Copy the array, because the library changes it in later steps. This also converts an
        # instance of a subclass of ndarray.
        now = np.array(coordinates, dtype=np.float32, order="C")
        sentences = [words, *(caveat[:1].upper() + caveat[1:] for caveat in self.caveats)]
        self.show(Frame(now, done, self.num_total, ". ".join(sentences)))
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

    rows: Floats
    metric: Metric
    caveat: str

    def start(self, dimensions: int, seed: int) -> NDArray[np.float64]:
        """Return initial coordinates for t-SNE and UMAP: the principal components plus noise.

        The components are divided by their standard deviation along the first dimension. The noise
        is normal with a standard deviation of 0.01, so that equal points get different coordinates.
        """
        rows = torch.from_numpy(self.rows)[None]
        placed = Placed((0,), rows, rows[:, :0], np.ones(1))
        start = principal_components(placed, dimensions).coordinates[0].double().numpy()
        start /= start[:, 0].std()
        noise = np.random.default_rng(seed).normal(scale=0.01, size=start.shape)
        return np.asarray(start + noise)

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


def space_of(points: Floats, metric: Metric) -> Space:
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
        empty = lengths == 0
        rows /= np.where(empty, 1.0, lengths)
        if empty.any():
            rows = np.hstack([rows, empty])
            caveat = (
                f"{np.count_nonzero(empty)} of {len(rows)} vectors have length 0 and no "
                "direction: they are placed at right angles to all others"
            )
    else:
        rows /= float(np.abs(rows).max()) or 1.0
    if float(np.abs(rows - rows[0]).max()) <= _ROUNDING:
        alike = "have the same direction" if metric == "cosine" else "are the same"
        raise ValueError(f"points: all {len(rows)} {alike}, so there is nothing to project")
    return Space(rows.astype(np.float32), metric, caveat)


def _tsne(space: Space, settings: ProjectionSettings, run: _Run) -> NDArray[Any]:
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

    def tell(before: int, iteration: int, _error: float, coordinates: NDArray[Any]) -> None:
        done = before + iteration
        run.frame(coordinates, done, f"t-SNE, iteration {done} of {run.num_total}")

    for before, steps, exaggeration in ((0, _EARLY, _EXAGGERATION), (_EARLY, _LATE, 1)):
        embedding.optimize(
            n_iter=steps,
            exaggeration=exaggeration,
            momentum=0.8,
            inplace=True,
            callbacks=[partial(tell, before)],
            callbacks_every_iters=_EVERY,
        )
    return np.asarray(embedding)


def _umap(space: Space, settings: ProjectionSettings, run: _Run) -> NDArray[Any]:
    count = len(space.rows)
    neighbours = min(settings.neighbors, count - 1)
    if neighbours < settings.neighbors:
        run.caveats.append(f"with {count} points, {neighbours} neighbours are used")
    run.num_total = 500 if count <= 10_000 else 200
    start = space.start(settings.dimensions, settings.seed)
    run.frame(start, 0, "UMAP starts from the principal components")
    # The class UMAP calls the same functions, but warns that it cannot transform new points. A
    # filter of warnings would also hide those of other threads.
    from umap.umap_ import find_ab_params, fuzzy_simplicial_set, simplicial_set_embedding

    others, distances = space.neighbours(neighbours - 1, _threads())
    random = np.random.RandomState(settings.seed)
    graph, *_ = fuzzy_simplicial_set(
        space.rows,
        neighbours,
        random,
        # This metric is not used, because the neighbours are precomputed in `space.metric`.
        "euclidean",
        # UMAP expects that the first neighbour of each point is the point itself.
        knn_indices=np.hstack([np.arange(count)[:, None], others]),
        knn_dists=np.hstack([np.zeros((count, 1)), distances]).astype(np.float32),
    )
    a, b = find_ab_params(spread=1.0, min_dist=0.1)
    # UMAP has no callback. It writes its progress bar to this file, which reads the epoch from it.
    bar = {"file": _Epochs(start, run), "bar_format": "{n}", "mininterval": 0.2, "disable": False}
    coordinates, _ = simplicial_set_embedding(
        *(space.rows, graph, settings.dimensions),
        *(1.0, a, b, 1.0, 5),  # learning rate, curve, weight and number of repelled points
        *(run.num_total, start.astype(np.float32), random, "euclidean", {}),
        *(False, {}, False),  # no density
        tqdm_kwds=bar,
    )
    return np.asarray(coordinates)


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
    """Return OMP_NUM_THREADS if it is positive, or all available cores but one.

    The kernel uses the other core for its replies. Threads that wait for each other keep their
    cores busy, which would slow down both.
    """
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if setting.isdigit() and int(setting):
        return int(setting)
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, cores - 1)
