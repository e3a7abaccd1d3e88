"""Plots of heads, their trust figures and the norms of their vectors, computed on request.

A point is a query or a key of one token. A plot shows the points of one head by their principal
components, or by a projection (t-SNE or UMAP) that runs in the background. A frame is an
intermediate or final result of a projection.

Coordinates are sent as 16-bit codes. Code 0 is one corner of the smallest square (or cube) that
contains the points of a head, and code 65,535 is the opposite corner. The high bytes of all codes
come first, axis by axis, then the low bytes. The small plots of all heads have only the high bytes.
The tests of both languages read ``tests/fixtures/embedding.json``.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.corpus.corpus import Corpus
from attnviz.embedding.placement import Placed, Placing, place, principal_components, problems
from attnviz.embedding.server.background import BackgroundProjection, Work
from attnviz.embedding.server.description import small_plot_stride
from attnviz.embedding.trust import measure_trust
from attnviz.embedding.tsne_umap import Floats, Method, Metric, ProjectionSettings
from attnviz.server.cache import ByteCache
from attnviz.utils.progress import report
from attnviz.utils.threads import torch_threads

#: Largest code of a coordinate or a norm.
TOP_CODE = 65_535

# Maximum size of the cached plots in bytes. It is enough for two-dimensional plots of a thousand
# heads with 20,000 points each.
_CACHED_BYTES = 192_000_000
# Maximum number of vector entries that are placed at once. This many take about 0.2 s on one core
# and 32 MB in float32.
_PLACED_AT_ONCE = 1 << 23
# Number of decimals of trust figures in replies.
_TRUST_DIGITS = 4
# Maximum and minimum number of queries, and maximum number of query-key pairs, for measuring the
# trust figures of a head. The measurement takes about 0.3 s on one core.
_MAX_QUERIES, _MIN_QUERIES, _MAX_PAIRS = 512, 64, 10_000_000
# Number of heads whose trust figures are measured together, in parallel on several cores.
_MEASURED_AT_ONCE = 4

Dimensions = Literal[2, 3]


@dataclass(frozen=True)
class PlotOptions:
    """Options of the plot of one head, or of all heads of a layer if `head` is None.

    The query and key vectors of the head are placed in one space (`placing`), and then projected to
    two or three dimensions (`method`).

    Attributes
    ----------
    placing : Placing
        Placement of the vectors. If `scaling` is "norms", queries are divided and keys are
        multiplied by one factor, so that both have the same median length. If `translate`, keys are
        then moved so that their mean is the mean of the queries. If `lift`, keys get one more
        coordinate, so that the keys nearest to a query are those with the largest products with the
        query.
    method : Method
        Projection: principal components ("pca"), t-SNE or UMAP.
    perplexity : int
        Perplexity of t-SNE. Other methods ignore it.
    neighbors : int
        Number of neighbours of a point for UMAP. Other methods ignore it.
    seed : int
        Seed of t-SNE and UMAP.
    head : int or None
        Number of the head. None means all heads of the layer.
    """

    stack: str
    layer: int
    placing: Placing
    method: Method = "pca"
    dimensions: Dimensions = 2
    perplexity: int = 50
    neighbors: int = 15
    seed: int = 0
    head: int | None = None

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Cache key of the plot of `head`, which has only the options that affect the plot."""
        settings = {"pca": (), "tsne": (self.perplexity,), "umap": (self.neighbors,)}[self.method]
        seed = () if self.method == "pca" else (self.seed,)
        head = (self.stack, self.layer, self.head, self.placing)
        return (*head, self.method, self.dimensions, *settings, *seed)

    def settings(self) -> ProjectionSettings:
        """Return the settings of the projection.

        Lifted points use the Euclidean distance, because it gives the keys of a query the order of
        their products with the query. The cosine distance of lifted points does not.
        """
        metric: Metric = "euclidean" if self.placing.lift else "cosine"
        return ProjectionSettings(
            self.method, self.dimensions, self.perplexity, self.neighbors, self.seed, metric
        )


class SmallPlot(TypedDict):
    """Small plot of a head. `problem` is the reason why it cannot be drawn, or None."""

    problem: str | None


class SmallPlotsHeader(TypedDict):
    """Header of a reply with small plots, in the order of the heads of the layer."""

    heads: list[SmallPlot]


class PlotHeader(TypedDict):
    """Header of a reply with the plot of one head.

    Attributes
    ----------
    count : int
        Number of points.
    low, size : list of float, float
        Square or cube that contains all points: `low` has the smallest coordinate of the square or
        cube along each axis, and `size` is the length of its sides.
    explained : list of float or None
        Share of the variance of the points along each axis. None if the axes are not principal
        components, or if coordinates are NaN.
    factor : float
        Factor that divided the queries and multiplied the keys (see `PlotOptions.placing`).
    problem : str or None
        Reason, in words, why the plot cannot be drawn. None if it can be drawn.
    work : Work or None
        State of the computation of t-SNE or UMAP. None for principal components.
    """

    dimensions: Dimensions
    count: int
    low: list[float]
    size: float
    explained: list[float] | None
    factor: float
    problem: str | None
    work: Work | None


class NormsHeader(TypedDict):
    """Header of a reply with the lengths of vectors (Euclidean norms), as integer codes.

    Code 0 stands for the smallest norm, `low`, and code 65,535 for the largest norm, `high`.
    """

    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Plot:
    """Plot of the points of one head.

    Attributes
    ----------
    coordinates : ndarray
        float32, (points, dimensions). NaN if the vectors of the head, or their distances, are not
        finite.
    explained : list of float, or None
        Share of the variance along each axis. None if the axes are not principal components, or if
        coordinates are NaN.
    factor : float
        Factor by which queries were divided and keys were multiplied. 1 if it is not finite.
    problem : str or None
        Reason why views do not draw the plot, in words. None if they draw it.
    work : Work or None
        Progress of t-SNE or UMAP, None for principal components.
    """

    coordinates: Floats
    explained: list[float] | None
    factor: float
    problem: str | None
    work: Work | None = None

    @property
    def is_projected(self) -> bool:
        """Whether the coordinates come from t-SNE or UMAP."""
        return self.explained is None and self.problem is None

    def reply(self) -> tuple[dict[str, Any], NDArray[np.uint8]]:
        """Return the header and the bytes of a reply with this plot, (2 * dimensions, points)."""
        count, dimensions = self.coordinates.shape
        low, size, codes = coded(self.coordinates)
        header: dict[str, Any] = {
            "dimensions": dimensions,
            "count": count,
            "low": low,
            "size": size,
        }
        header |= {"explained": self.explained, "factor": self.factor, "problem": self.problem}
        header["work"] = None if self.work is None else asdict(self.work)
        return header, np.concatenate([codes.T >> 8, codes.T & 255]).astype(np.uint8)


def coded(coordinates: Floats) -> tuple[list[float], float, NDArray[np.uint16]]:
    """Encode coordinates as uint16 codes over a square or cube. Return low, size and codes.

    On each axis, code 0 is the coordinate `low`, and code 65,535 is ``low + size``. `size` is the
    largest extent of the points along an axis. Along the other axes, the points are in the middle
    of the square or cube. `size` is 0 if all points are equal or any coordinate is not finite.

    Examples
    --------
    >>> coded(np.array([[0.0, 5.0], [4.0, 7.0]], np.float32))[:2]
    ([0.0, 4.0], 4.0)
    """
    dimensions = coordinates.shape[1]
    if not len(coordinates) or not np.isfinite(coordinates).all():
        return [0.0] * dimensions, 0.0, np.zeros(coordinates.shape, np.uint16)
    values = coordinates.astype(np.float64)
    smallest, largest = values.min(axis=0), values.max(axis=0)
    size = float((largest - smallest).max())
    low = (smallest + largest - size) / 2
    shares = (values - low) / size if size > 0 else np.full(values.shape, 0.5)
    codes = np.rint(np.clip(shares, 0.0, 1.0) * TOP_CODE).astype(np.uint16)
    return low.tolist(), size, codes


class EmbeddingAnswers:
    """Plots, trust figures and norms of the heads of a corpus, computed on request.

    The most recently used plots are cached, up to `cached_bytes` bytes. Only one projection is
    computed: a request for another one stops it, because the reader has moved to another head or
    changed the settings.
    """

    def __init__(self, corpus: Corpus, cached_bytes: int = _CACHED_BYTES) -> None:
        self.corpus = corpus
        #: Last requested t-SNE or UMAP, by the cache key of its plot. It is kept after its end.
        self.projections: dict[Hashable, BackgroundProjection] = {}
        self._lock = threading.Lock()
        self._plots: ByteCache[Plot] = ByteCache(cached_bytes, lambda plot: plot.coordinates.nbytes)
        # Trust figures of plots of principal components. An entry has a few hundred bytes and is
        # never dropped.
        self._trust: dict[Hashable, dict[str, Any] | None] = {}

    def small_plots(self, options: PlotOptions) -> tuple[SmallPlotsHeader, bytes]:
        """Compute small plots of all heads of a layer by principal components.

        The bytes have one uint8 code per coordinate, (2, heads, drawn points).
        """
        plots = self.plots(options)
        stride = small_plot_stride(len(self.corpus.points(options.stack)))
        codes = np.stack([coded(plot.coordinates)[2][::stride].T >> 8 for plot in plots], axis=1)
        header: SmallPlotsHeader = {"heads": [{"problem": plot.problem} for plot in plots]}
        return header, codes.astype(np.uint8).tobytes()

    def trust(self, options: PlotOptions) -> list[dict[str, Any] | None]:
        """Measure the trust figures of the current plots of one head, or of all heads of a layer.

        An entry is None if the head has no plot by this method yet, or if the plot has a problem.
        """
        each = {head: replace(options, head=head) for head in self._heads(options)}
        if options.method != "pca":
            plots = {head: self.plot(own, start=False) for head, own in each.items()}
            projected = {head: plot for head, plot in plots.items() if plot.is_projected}
            return list(map(self._measure(options, projected).get, each))
        missing = [head for head, own in each.items() if own.key not in self._trust]
        components = zip(missing, self.plots(options, missing), strict=True)
        measured = self._measure(options, dict(components))
        self._trust |= {each[head].key: measured.get(head) for head in missing}
        return [self._trust[own.key] for own in each.values()]

    def norms(self, stack: str, layer: int, head: int) -> tuple[NormsHeader, NDArray[np.uint16]]:
        """Return the norms of the model's queries and keys of a head, as 16-bit codes."""
        vectors = self.corpus.vectors(stack, layer, [head])
        norms = torch.cat([vectors.queries[0], vectors.keys[0]]).double().norm(dim=1).numpy()
        finite = norms[np.isfinite(norms)]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
        # Norms that are not finite get code 0. The plot of the head states this problem.
        shares = np.nan_to_num((norms - low) / ((high - low) or 1.0), posinf=0.0)
        codes = np.rint(np.clip(shares, 0.0, 1.0) * TOP_CODE)
        return {"low": low, "high": high}, codes.astype("<u2")

    def plots(self, options: PlotOptions, heads: Sequence[int] | None = None) -> list[Plot]:
        """Return plots of some heads by principal components. Compute those that are not cached.

        The default of `heads` is the head of `options`, or all heads of the layer.
        """
        if heads is None:
            heads = self._heads(options)
        keys = {head: replace(options, head=head, method="pca").key for head in heads}
        cached = {head: self._plots.get(key) for head, key in keys.items()}
        missing = [head for head, plot in cached.items() if plot is None]
        points = self.corpus.points(options.stack)
        attention = self.corpus.attention(options.stack, options.layer, points.texts[0])
        together = max(1, _PLACED_AT_ONCE // (len(points) * attention.queries.shape[2]))
        for start in range(0, len(missing), together):
            chunk = missing[start : start + together]
            for head, plot in zip(chunk, self._components(options, chunk), strict=True):
                cached[head] = self._plots[keys[head]] = plot
            report("plots", start + len(chunk), len(missing), "head")
        return [plot for plot in cached.values() if plot is not None]

    def plot(
        self, request: PlotOptions, *, restart: bool = False, wait: bool = False, start: bool = True
    ) -> Plot:
        """Return the current plot of the head and by the method that `request` names.

        For t-SNE and UMAP, a projection runs in the background. It is started if necessary, unless
        `start` is False. If `restart` is True, a cancelled or failed projection is started again.
        Until the projection has a frame, the plot shows the principal components.

        If `wait` is True, the projection is started or restarted in any case, and this method
        returns only when it is done. RuntimeError is raised if it fails or is cancelled.
        """
        [components] = self.plots(request)
        if request.method == "pca":
            return components
        key = request.key
        cached = self._plots.get(key)
        if cached is not None:
            return cached
        if not np.isfinite(components.coordinates).all():
            return replace(components, work=Work("failed", 0, 0, str(components.problem)))
        if start or wait:
            self._start(request, restart=restart or wait)
        projection = self.projections.get(key)
        if projection is None:
            return components
        if wait:
            projection.wait()
            if projection.state != "done":
                problem = projection.problem or f"method={request.method!r} was cancelled"
                raise RuntimeError(problem)
        work, frame = projection.work(), projection.frame
        if frame is None:
            return replace(components, work=work)
        plot = Plot(frame.coordinates, None, components.factor, None, work)
        if work.state == "done":
            self._plots[key] = plot
        return plot

    def cancel(self, key: Hashable | None = None) -> None:
        """Stop the projection if its plot has the cache key `key`. None stops any projection."""
        for own, projection in self.projections.items():
            if key in (None, own):
                projection.cancel()

    def _start(self, request: PlotOptions, *, restart: bool) -> None:
        """Start the projection unless it runs. Start an ended one only if `restart` is True."""
        # A page may be built in one thread while the browser sends requests to another.
        with self._lock:
            current = self.projections.get(request.key)
            if current and not (restart and current.state in {"cancelled", "failed"}):
                return
            self.cancel()
            placed = self._place(request, self._heads(request))
            points = torch.cat([placed.queries[0], placed.keys[0]]).numpy()
            self.projections = {request.key: BackgroundProjection(points, request.settings())}

    def _heads(self, options: PlotOptions) -> Sequence[int]:
        if options.head is not None:
            return [options.head]
        return range(self.corpus.stack(options.stack).num_heads(options.layer))

    def _place(self, options: PlotOptions, heads: Sequence[int]) -> Placed:
        return place(self.corpus, options.stack, options.layer, options.placing, heads)

    def _components(self, options: PlotOptions, heads: Sequence[int]) -> list[Plot]:
        with torch_threads(1):
            placed = self._place(options, heads)
            made = principal_components(placed, options.dimensions)
            reasons = problems(placed)
        return [
            Plot(
                made.coordinates[index].numpy(),
                shares.tolist() if np.isfinite(shares).all() else None,
                float(factor) if np.isfinite(factor) else 1.0,
                problem,
            )
            for index, (shares, factor, problem) in enumerate(
                zip(made.explained, placed.factors, reasons, strict=True)
            )
        ]

    def _measure(
        self, options: PlotOptions, plots: Mapping[int, Plot]
    ) -> dict[int, dict[str, Any]]:
        """Measure the trust figures of the plots of some heads, as JSON values by head.

        Plots with a problem have no figures.
        """
        # `_MAX_PAIRS` limits the number of queries. With many keys per query, fewer queries give
        # equally exact figures.
        stack, layer = options.stack, options.layer
        num_keys = self.corpus.points(stack).num_keys
        max_queries = min(_MAX_QUERIES, max(_MIN_QUERIES, _MAX_PAIRS // num_keys))
        figures: dict[int, dict[str, Any]] = {}
        shown = [head for head, plot in plots.items() if plot.problem is None]
        for start in range(0, len(shown), _MEASURED_AT_ONCE):
            heads = shown[start : start + _MEASURED_AT_ONCE]
            coordinates = torch.from_numpy(np.stack([plots[head].coordinates for head in heads]))
            measured = measure_trust(
                self.corpus, stack, layer, heads, coordinates, max_queries=max_queries
            )
            for trust in filter(None, measured):
                figures[trust.head] = {
                    name: round(value, _TRUST_DIGITS) if isinstance(value, float) else value
                    for name, value in asdict(trust).items()
                }
            report("correlations", start + len(heads), len(shown), "head")
        return figures
