"""Plots of heads, their trust figures and the norms of their vectors, computed on request.

Coordinates are sent as 16-bit codes. Code 0 is one corner of the smallest square (or cube) that
contains the points of a head, and code 65,535 is the opposite corner. The small plots of all heads
use only the upper byte of each code. The tests of both languages read
``tests/fixtures/embedding.json``.
"""

from __future__ import annotations

import reprlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.corpus.corpus import Corpus
from attnviz.embedding.placement import Placing, place, principal_components, problems
from attnviz.embedding.projection import Method, ProjectionSettings
from attnviz.embedding.server.projections import ProjectionJobs, Work
from attnviz.embedding.trust import HeadTrust, measure_trust
from attnviz.server.cache import ByteCache
from attnviz.server.protocol import check_heads
from attnviz.utils.progress import report
from attnviz.utils.threads import torch_threads

#: Maximum number of points in the small plot of a head.
MAX_SMALL_PLOT_POINTS = 10_000
#: Largest code of a coordinate or a norm.
TOP_CODE = 65_535

# Maximum size of the cached plots in bytes. It is enough for a thousand heads with 10,000 tokens
# each.
_CACHED_BYTES = 192_000_000
# Maximum size in bytes of one reply with small plots. The reply stays in memory until all of its
# parts are sent.
_OVERVIEW_BYTES = 64_000_000
# Maximum number of vector entries that are placed at once. This many take about 0.2 s on one core
# and 32 MB in float32.
_PLACED_AT_ONCE = 1 << 23
_TRUST_DIGITS = 4
# Limits of the number of queries, and of query-key pairs, with which the trust figures of a head
# are measured. This takes about 0.3 s on one core.
_MAX_QUERIES, _MIN_QUERIES, _MAX_PAIRS = 512, 64, 10_000_000
# Number of heads whose trust figures are measured together, in parallel on several cores.
_MEASURED_AT_ONCE = 4

Dimensions = Literal[2, 3]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class PlotOptions:
    """Options of the plots of a layer's heads: placing and projection of the vectors."""

    stack: str
    layer: int
    placing: Placing
    method: Method
    dimensions: Dimensions
    perplexity: int = 50
    neighbors: int = 15
    seed: int = 0

    def of(self, head: int) -> HeadPlot:
        """Return these options for the plot of one head."""
        named = {field.name: getattr(self, field.name) for field in fields(PlotOptions)}
        return HeadPlot(**named, head=head)


@dataclass(frozen=True, kw_only=True)
class HeadPlot(PlotOptions):
    """Options of the plot of one head."""

    head: int

    def checked(self, corpus: Corpus) -> HeadPlot:
        """Return a copy with non-negative numbers of layer and head.

        Raise IndexError if the layer or the head does not exist.
        """
        layer, [head] = check_heads(corpus.stack(self.stack), self.layer, [self.head])
        return replace(self, layer=layer, head=head)

    @property
    def settings(self) -> ProjectionSettings:
        """Settings of the projection. Settings that the method does not use have their defaults."""
        plain = ProjectionSettings(self.method)
        return ProjectionSettings(
            self.method,
            dimensions=self.dimensions,
            perplexity=self.perplexity if self.method == "tsne" else plain.perplexity,
            neighbors=self.neighbors if self.method == "umap" else plain.neighbors,
            seed=self.seed,
            # After lifting, keys are ordered by product if they are ordered by Euclidean distance.
            # This does not hold for the cosine distance.
            metric="euclidean" if self.placing.lift else "cosine",
        )

    @property
    def key(self) -> Hashable:
        """Cache key, which contains only the options that affect the plot."""
        head = (self.stack, self.layer, self.head, self.placing)
        if self.method == "pca":
            return (*head, "pca", self.dimensions)
        return (*head, self.settings)


class OverviewHead(TypedDict):
    """Attention head with a small plot. `problem` is the reason why the plot shows nothing."""

    layer: int
    head: int
    problem: str | None


class OverviewHeader(TypedDict):
    """Header of a reply with small plots.

    Attributes
    ----------
    stride : int
        Every `stride`-th point is drawn: the points 0, `stride`, 2 `stride`, ...
    points : int
        Number of points that are drawn.
    """

    stride: int
    points: int
    heads: list[OverviewHead]


class ProjectionHeader(TypedDict):
    """Header of a reply with a plot.

    Attributes
    ----------
    low, size : float
        Square or cube that contains the points: `low` is the corner with the smallest coordinates,
        and `size` is the length of a side.
    explained : list of float or None
        Share of the variance along each axis. null if the axes are not principal components, or if
        the coordinates are NaN.
    factor : float
        Factor by which queries were divided and keys were multiplied.
    problem : str or None
        Reason why the plot shows nothing, in words, null if it shows something.
    work : Work or None
        Progress of t-SNE or UMAP, null for PCA.
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
    """Header of a reply with norms: the smallest norm (code 0) and the largest (code 65,535)."""

    low: float
    high: float


class HeadTrustFigures(TypedDict):
    """Trust figures of a head: how well distances on its plot predict attention.

    `attnviz.embedding.trust.HeadTrust` defines the figures.

    Attributes
    ----------
    before, placed, plot : float or None
        Correlation between the distance of a query and a key and their product ``q . k``, averaged
        over queries. `before` uses the vectors of the model, `placed` the placed vectors, and
        `plot` the plot.
    recall : float or None
        Share of a query's ten strongest keys that are among its ten nearest keys on the plot.
    recall_baseline : float or None
        Expected recall for random positions.
    num_queries, num_total : int
        Number of measured queries, and number of all queries.
    """

    head: int
    before: float | None
    placed: float | None
    plot: float | None
    recall: float | None
    recall_baseline: float | None
    num_queries: int
    num_total: int


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
        Factor by which queries were divided and keys were multiplied.
    problem : str or None
        Reason why the plot is empty or meaningless, in words. Otherwise None.
    """

    coordinates: Floats
    explained: list[float] | None
    factor: float
    problem: str | None

    def header(self) -> dict[str, Any]:
        """Return the shape of the coordinates and all other fields, as JSON values."""
        count, dimensions = self.coordinates.shape
        return {
            "dimensions": dimensions,
            "count": count,
            "explained": self.explained,
            "factor": self.factor,
            "problem": self.problem,
        }


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

    The most recently used plots are cached, up to `cached_bytes` bytes.
    """

    def __init__(self, corpus: Corpus, cached_bytes: int = _CACHED_BYTES) -> None:
        self.corpus = corpus
        self.running = ProjectionJobs()
        self._plots: ByteCache[Plot] = ByteCache(cached_bytes, lambda plot: plot.coordinates.nbytes)
        # Entries of these two caches have a few hundred bytes and are never dropped.
        self._works: dict[Hashable, Work] = {}
        self._trust: dict[Hashable, dict[str, Any] | None] = {}

    def overview(
        self, stack: str, layers: Sequence[int], placing: Placing
    ) -> tuple[OverviewHeader, bytes]:
        """Compute small plots of all heads of some layers by principal components.

        The bytes have one uint8 code per coordinate, (heads, points, 2).
        """
        own = self.corpus.stack(stack)
        if not layers:
            raise ValueError("layers is empty. Request at least one layer.")
        numbers = [own.layer_number(layer) for layer in layers]
        if len(set(numbers)) < len(numbers):
            raise ValueError(
                f"layers={reprlib.repr(list(layers))} contains a layer twice. Request each "
                "layer once."
            )
        count = len(self.corpus.points(stack))
        stride = max(1, -(-count // MAX_SMALL_PLOT_POINTS))
        num_heads = sum(own.num_heads(layer) for layer in numbers)
        size = 2 * -(-count // stride) * num_heads
        if size > _OVERVIEW_BYTES:
            raise ValueError(
                f"small plots of {num_heads:,} heads have {size} bytes, more than "
                f"{_OVERVIEW_BYTES}. Request fewer layers."
            )
        heads: list[OverviewHead] = []
        data = []
        for layer in numbers:
            layer_heads = range(own.num_heads(layer))
            plots = self.plots(stack, layer, layer_heads, placing)
            for head, plot in zip(layer_heads, plots, strict=True):
                heads.append({"layer": layer, "head": head, "problem": plot.problem})
                data.append((coded(plot.coordinates)[2][::stride] >> 8).astype(np.uint8))
        header: OverviewHeader = {
            "stride": stride,
            "points": -(-count // stride),
            "heads": heads,
        }
        return header, np.concatenate(data).tobytes()

    def projection(
        self, request: HeadPlot, *, restart: bool = False
    ) -> tuple[dict[str, Any], bytes]:
        """Return the current plot of one head by any method: its header, and its 16-bit codes.

        While t-SNE or UMAP is running, this is the newest frame. See `plot`.
        """
        request = request.checked(self.corpus)
        plot, work = self.plot(request, restart=restart)
        low, size, codes = coded(plot.coordinates)
        header = plot.header() | {"low": low, "size": size}
        header["work"] = None if work is None else work.header()
        return header, codes.astype("<u2").tobytes()

    def trust(
        self, options_of_layer: PlotOptions, heads: Sequence[int]
    ) -> list[dict[str, Any] | None]:
        """Measure the trust figures of the current plots of some heads.

        An entry is None if the head has no plot by this method yet, or if the plot has a problem.
        """
        stack = options_of_layer.stack
        layer, heads = check_heads(self.corpus.stack(stack), options_of_layer.layer, heads)
        options_of_layer = replace(options_of_layer, layer=layer)
        plot_of = {head: options_of_layer.of(head) for head in heads}
        figures = {
            head: self._trust[options.key]
            for head, options in plot_of.items()
            if options.key in self._trust
        }
        missing = [head for head in heads if head not in figures]
        shown: dict[int, Plot] = {}
        # Heads whose plot is final. The figures of a plot that may change are not cached.
        final: set[int] = set()
        if missing and options_of_layer.method == "pca":
            plots = self.plots(
                stack, layer, missing, options_of_layer.placing, options_of_layer.dimensions
            )
            shown, final = dict(zip(missing, plots, strict=True)), set(missing)
        else:
            for head in missing:
                current = self.under_way(plot_of[head])
                if current is not None:
                    shown[head] = current[0]
                    final |= {head} if current[1].state == "done" else set()
        for start in range(0, len(shown), _MEASURED_AT_ONCE):
            chunk = list(shown)[start : start + _MEASURED_AT_ONCE]
            measured = self._measure(
                stack, layer, chunk, [shown[head] for head in chunk], options_of_layer.placing
            )
            for head, result in zip(chunk, measured, strict=True):
                figures[head] = result
                if head in final:
                    self._trust[plot_of[head].key] = result
            report("correlations", start + len(chunk), len(shown), "head")
        return [figures.get(head) for head in heads]

    def norms(self, stack: str, layer: int, head: int) -> tuple[NormsHeader, bytes]:
        """Return the norms of the model's queries and keys of a head, as 16-bit codes."""
        layer, [head] = check_heads(self.corpus.stack(stack), layer, [head])
        vectors = self.corpus.vectors(stack, layer, [head])
        norms = torch.cat([vectors.queries[0], vectors.keys[0]]).double().norm(dim=1).numpy()
        finite = norms[np.isfinite(norms)]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
        shares = (norms - low) / (high - low) if high > low else np.zeros(len(norms))
        # Norms that are not finite get code 0. The plot of the head states this problem.
        codes = np.rint(np.clip(np.nan_to_num(shares), 0.0, 1.0) * TOP_CODE)
        return {"low": low, "high": high}, codes.astype("<u2").tobytes()

    def plots(
        self, stack: str, layer: int, heads: Sequence[int], placing: Placing, dimensions: int = 2
    ) -> list[Plot]:
        """Return plots of some heads by principal components. Compute those that are not cached."""
        keys = [(stack, layer, head, placing, "pca", dimensions) for head in heads]
        cached = {key: plot for key in keys if (plot := self._plots.get(key)) is not None}
        missing = [head for head, key in zip(heads, keys, strict=True) if key not in cached]
        attention = self.corpus.attention(stack, layer, self.corpus.points(stack).texts[0])
        together = max(
            1, _PLACED_AT_ONCE // (len(self.corpus.points(stack)) * attention.queries.shape[2])
        )
        for start in range(0, len(missing), together):
            chunk = missing[start : start + together]
            made = self._components(stack, layer, chunk, placing, dimensions)
            for head, plot in zip(chunk, made, strict=True):
                key = (stack, layer, head, placing, "pca", dimensions)
                cached[key] = plot
                self._plots[key] = plot
            report("plots", start + len(chunk), len(missing), "head")
        return [cached[key] for key in keys]

    def plot(
        self, request: HeadPlot, *, restart: bool = False, wait: bool = False
    ) -> tuple[Plot, Work | None]:
        """Return the current plot of one head by any method, and its progress (None for PCA).

        t-SNE or UMAP is started if necessary. Until it has a frame, the plot shows the principal
        components. If `restart` is True, a cancelled or failed projection is started again. If
        `wait` is True, this method returns only when the projection has ended.
        """
        # If no stack has this name, this raises an error that lists the names.
        self.corpus.stack(request.stack)
        [components] = self.plots(
            request.stack, request.layer, [request.head], request.placing, request.dimensions
        )
        if request.method == "pca":
            return components, None
        key = request.key
        cached = self._plots.get(key)
        if cached is not None:
            return cached, self._works[key]
        if components.problem is not None and not np.isfinite(components.coordinates).all():
            return components, Work("failed", 0, 0, components.problem)

        def points() -> Floats:
            placed = place(
                self.corpus, request.stack, request.layer, request.placing, [request.head]
            )
            return torch.cat([placed.queries[0], placed.keys[0]]).numpy()

        start = self.running.wait if wait else self.running.ask
        coordinates, work = start(key, points, request.settings, restart=restart)
        if coordinates is None:
            return components, work
        plot = Plot(coordinates, None, components.factor, None)
        if work.state == "done":
            self._works[key], self._plots[key] = work, plot
        return plot, work

    def under_way(self, request: HeadPlot) -> tuple[Plot, Work] | None:
        """Return the current plot of a head by t-SNE or UMAP, or None if it has no frame.

        This method does not start a projection.
        """
        key = request.key
        cached = self._plots.get(key)
        if cached is not None:
            return cached, self._works[key]
        frame = self.running.under_way(key)
        if frame is None or frame[0] is None:
            return None
        [components] = self.plots(
            request.stack, request.layer, [request.head], request.placing, request.dimensions
        )
        return Plot(frame[0], None, components.factor, None), frame[1]

    def problems(
        self, stack: str, layer: int, placing: Placing, dimensions: int
    ) -> list[str | None]:
        """Return the problem of each plot of a layer's heads as a message, or None."""
        heads = range(self.corpus.stack(stack).num_heads(layer))
        plots = self.plots(stack, layer, heads, placing, dimensions)
        return [plot.problem for plot in plots]

    def _components(
        self, stack: str, layer: int, heads: Sequence[int], placing: Placing, dimensions: int
    ) -> list[Plot]:
        with torch_threads(1):
            placed = place(self.corpus, stack, layer, placing, heads)
            made = principal_components(placed, dimensions)
            reasons = problems(placed)
        return [
            Plot(
                made.coordinates[index].numpy(),
                [float(share) for share in shares] if np.isfinite(shares).all() else None,
                float(factor) if np.isfinite(factor) else 1.0,
                problem,
            )
            for index, (shares, factor, problem) in enumerate(
                zip(made.explained, placed.factors, reasons, strict=True)
            )
        ]

    def _measure(
        self,
        stack: str,
        layer: int,
        heads: Sequence[int],
        plots: Sequence[Plot],
        placing: Placing,
    ) -> list[dict[str, Any] | None]:
        """Measure the trust figures of some plots. Return them as JSON values."""
        with torch_threads(1):
            placed = place(self.corpus, stack, layer, placing, heads)
        coordinates = torch.from_numpy(np.stack([plot.coordinates for plot in plots]))
        # The limit of pairs reduces the number of queries. If a query has many keys, fewer queries
        # give equally exact figures.
        num_keys = self.corpus.points(stack).num_keys
        max_queries = min(_MAX_QUERIES, max(_MIN_QUERIES, _MAX_PAIRS // num_keys))
        measured = measure_trust(
            self.corpus, stack, layer, placed, coordinates, max_queries=max_queries
        )
        return [_trust_header(head, trust) for head, trust in zip(heads, measured, strict=True)]


def _trust_header(head: int, measured: HeadTrust | None) -> dict[str, Any] | None:
    return None if measured is None else {"head": head} | _rounded(asdict(measured))


def _rounded(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Round figures to `_TRUST_DIGITS` digits. Replace values that are not finite with None."""
    return {
        name: value
        if value is None or isinstance(value, int)
        else round(float(value), _TRUST_DIGITS)
        if np.isfinite(value)
        else None
        for name, value in figures.items()
    }
