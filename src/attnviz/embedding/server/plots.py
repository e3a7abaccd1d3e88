"""Plots of heads, their trust figures and norms, computed on request and cached.

Coordinates are sent as 16-bit codes over the square (or cube) that contains a head's points. The
small plots of all heads are the upper bytes of the same codes. ``tests/fixtures/embedding.json`` is
read by the tests of both languages.
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
from attnviz.utils.progress import Progress, Steps, run_steps
from attnviz.utils.threads import torch_threads

__all__ = [
    "MAX_SMALL_PLOT_POINTS",
    "TOP_CODE",
    "EmbeddingAnswers",
    "HeadPlot",
    "HeadTrustFigures",
    "NormsHeader",
    "OverviewHeader",
    "Plot",
    "PlotOptions",
    "ProjectionHeader",
    "coded",
]

#: Maximum number of points of a head's small plot.
MAX_SMALL_PLOT_POINTS = 10_000
#: The highest code of a coordinate or a norm.
TOP_CODE = 65_535

# Enough for plots of a thousand heads of 10,000 tokens.
_CACHED_BYTES = 192_000_000
# Maximum size of the small plots of one answer, which is kept until all of its parts are sent.
_OVERVIEW_BYTES = 64_000_000
# Numbers in the vectors that are placed at once: about 0.2 s on one core, and 32 MB in float32.
_PLACED_AT_ONCE = 1 << 23
_TRUST_DIGITS = 4
# Queries and pairs to measure the trust of a head on: about 0.3 s on one core.
_MAX_QUERIES, _MIN_QUERIES, _MAX_PAIRS = 512, 64, 10_000_000
# Heads that are measured together, in parallel if there are several cores.
_MEASURED_AT_ONCE = 4

Dimensions = Literal[2, 3]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class PlotOptions:
    """Placement and projection of the points of heads of a layer."""

    stack: str
    layer: int
    way: Placing
    method: Method
    dimensions: Dimensions
    perplexity: int = 50
    neighbors: int = 15
    seed: int = 0

    def of(self, head: int) -> HeadPlot:
        """Return the options for the plot of one head."""
        named = {field.name: getattr(self, field.name) for field in fields(PlotOptions)}
        return HeadPlot(**named, head=head)


@dataclass(frozen=True, kw_only=True)
class HeadPlot(PlotOptions):
    """Placement and projection of the points of one head."""

    head: int

    def checked(self, corpus: Corpus) -> HeadPlot:
        """Resolve the numbers of layer and head. Raise an error if they do not exist."""
        layer, [head] = check_heads(corpus.stack(self.stack), self.layer, [self.head])
        return replace(self, layer=layer, head=head)

    @property
    def settings(self) -> ProjectionSettings:
        """Settings of the projection, with defaults for settings that the method does not use."""
        plain = ProjectionSettings(self.method)
        return ProjectionSettings(
            self.method,
            dimensions=self.dimensions,
            perplexity=self.perplexity if self.method == "tsne" else plain.perplexity,
            neighbors=self.neighbors if self.method == "umap" else plain.neighbors,
            seed=self.seed,
            # Distances of lifted points give the order of their products, and directions do not.
            metric="euclidean" if self.way.lift else "cosine",
        )

    @property
    def key(self) -> Hashable:
        """Cache key, with exactly the options that the plot depends on."""
        head = (self.stack, self.layer, self.head, self.way)
        if self.method == "pca":
            return (*head, "pca", self.dimensions)
        return (*head, self.settings)


class OverviewHead(TypedDict):
    """Attention head of a small plot, and the reason if it has no plot."""

    layer: int
    head: int
    problem: str | None


class OverviewHeader(TypedDict):
    """Header of a reply with small plots.

    Attributes
    ----------
    stride : int
        Distance between the indices of the points that are drawn: 0, `stride`, 2 `stride`, ...
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
        Corner of the box that contains the points, and its side, the same for all axes.
    explained : list of float or None
        Share of the variance along each axis, null if the method is not PCA.
    factor : float
        Factor by which queries were divided and keys multiplied.
    problem : str or None
        Reason why the plot is missing, in words.
    work : Work or None
        Progress of the projection, null if it needed none.
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
    """The smallest and the largest norm."""

    low: float
    high: float


class HeadTrustFigures(TypedDict):
    """Trust figures: how well distances on a head's plot follow its logits.

    Attributes
    ----------
    before, placed, plot : float or None
        Correlation between distance and q . k: for the vectors of the model, for the placed
        vectors, and for the plot.
    recall : float or None
        Share of a query's ten strongest keys that are among its ten nearest on the plot.
    recall_baseline : float or None
        Expected recall for random positions.
    num_queries, num_total : int
        Number of measured queries, and of all queries.
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
    """Coordinates of a head's points.

    Attributes
    ----------
    coordinates : ndarray
        float32, (points, dimensions).
    explained : list of float, or None
        Share of the variance along each axis. None if the method is not PCA.
    factor : float
        Factor by which queries were divided and keys multiplied.
    problem : str or None
        Reason why the plot shows nothing, or cannot be trusted.
    """

    coordinates: Floats
    explained: list[float] | None
    factor: float
    problem: str | None

    def header(self) -> dict[str, Any]:
        """Return everything except the coordinates, as JSON values."""
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

    Code 0 stands for the corner `low`, and 65,535 for ``low + size``. `size` is the same for all
    axes, and points are centred along shorter axes. `size` is 0 if all points are equal or some are
    not finite.

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
    """Plots and trust figures of a corpus, computed on request.

    As many plots as fit into `cached_bytes` are cached.
    """

    def __init__(self, corpus: Corpus, cached_bytes: int = _CACHED_BYTES) -> None:
        self.corpus = corpus
        self.running = ProjectionJobs()
        self._plots: ByteCache[Plot] = ByteCache(cached_bytes, lambda plot: plot.coordinates.nbytes)
        # Entries have a few hundred bytes, so they are never dropped.
        self._works: dict[Hashable, Work] = {}
        self._trust: dict[Hashable, dict[str, Any] | None] = {}

    def overview(
        self, stack: str, layers: Sequence[int], placing: Placing
    ) -> Steps[tuple[OverviewHeader, bytes]]:
        """Compute small plots of all heads of some layers by their principal components."""
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
            plots = yield from self.plots(stack, layer, layer_heads, placing)
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
        """Return the plot of one head by any method, or its newest frame if it is running."""
        request = request.checked(self.corpus)
        plot, work = self.plot(request, restart=restart)
        low, size, codes = coded(plot.coordinates)
        header = plot.header() | {"low": low, "size": size}
        header["work"] = None if work is None else work.header()
        return header, codes.astype("<u2").tobytes()

    def trust(
        self, options_of_layer: PlotOptions, heads: Sequence[int]
    ) -> Steps[list[dict[str, Any] | None]]:
        """Measure the trust figures of some heads, with None for heads without a plot."""
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
        # The figures of an intermediate frame are not cached.
        final: set[int] = set()
        if missing and options_of_layer.method == "pca":
            plots = yield from self.plots(
                stack, layer, missing, options_of_layer.way, options_of_layer.dimensions
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
                stack, layer, chunk, [shown[head] for head in chunk], options_of_layer.way
            )
            for head, result in zip(chunk, measured, strict=True):
                figures[head] = result
                if head in final:
                    self._trust[plot_of[head].key] = result
            yield Progress("correlations", start + len(chunk), len(shown), "head")
        return [figures.get(head) for head in heads]

    def norms(self, stack: str, layer: int, head: int) -> tuple[NormsHeader, bytes]:
        """Return the norms of all points' vectors, as the model has them."""
        layer, [head] = check_heads(self.corpus.stack(stack), layer, [head])
        vectors = self.corpus.vectors(stack, layer, [head])
        norms = torch.cat([vectors.queries[0], vectors.keys[0]]).double().norm(dim=1).numpy()
        finite = norms[np.isfinite(norms)]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
        shares = (norms - low) / (high - low) if high > low else np.zeros(len(norms))
        # The plot names the problem of norms that are not finite. Here they become code 0.
        codes = np.rint(np.clip(np.nan_to_num(shares), 0.0, 1.0) * TOP_CODE)
        return {"low": low, "high": high}, codes.astype("<u2").tobytes()

    def plots(
        self, stack: str, layer: int, heads: Sequence[int], placing: Placing, dimensions: int = 2
    ) -> Steps[list[Plot]]:
        """Return the principal components of some heads, from the cache if possible."""
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
            yield Progress("plots", start + len(chunk), len(missing), "head")
        return [cached[key] for key in keys]

    def plot(
        self, request: HeadPlot, *, restart: bool = False, wait: bool = False
    ) -> tuple[Plot, Work | None]:
        """Return the plot of one head by any method, and its progress (None for PCA).

        Until the method has a frame, the plot shows the principal components. `restart` starts a
        cancelled or failed projection again. `wait` waits for the end.
        """
        # Raises an error that lists the stacks, if there is none with this name.
        self.corpus.stack(request.stack)
        [components] = run_steps(
            self.plots(
                request.stack, request.layer, [request.head], request.way, request.dimensions
            )
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
            placed = place(self.corpus, request.stack, request.layer, request.way, [request.head])
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
        """Return the current plot of a head by t-SNE or UMAP, or None without a frame.

        This starts nothing. A finished plot is final.
        """
        key = request.key
        cached = self._plots.get(key)
        if cached is not None:
            return cached, self._works[key]
        frame = self.running.under_way(key)
        if frame is None or frame[0] is None:
            return None
        [components] = run_steps(
            self.plots(
                request.stack, request.layer, [request.head], request.way, request.dimensions
            )
        )
        return Plot(frame[0], None, components.factor, None), frame[1]

    def problems(
        self, stack: str, layer: int, placing: Placing, dimensions: int
    ) -> list[str | None]:
        """Return why each head of a layer has no plot, or None for a head that has one."""
        heads = range(self.corpus.stack(stack).num_heads(layer))
        plots = run_steps(self.plots(stack, layer, heads, placing, dimensions))
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
        """Measure the trust figures of plots, as JSON values."""
        with torch_threads(1):
            placed = place(self.corpus, stack, layer, placing, heads)
        coordinates = torch.from_numpy(np.stack([plot.coordinates for plot in plots]))
        # Queries have many keys in long texts, so that fewer queries are enough.
        num_keys = self.corpus.points(stack).num_keys
        max_queries = min(_MAX_QUERIES, max(_MIN_QUERIES, _MAX_PAIRS // num_keys))
        measured = measure_trust(
            self.corpus, stack, layer, placed, coordinates, max_queries=max_queries
        )
        return [_trust_header(head, trust) for head, trust in zip(heads, measured, strict=True)]


def _trust_header(head: int, measured: HeadTrust | None) -> dict[str, Any] | None:
    return None if measured is None else {"head": head} | _rounded(asdict(measured))


def _rounded(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Round figures to the digits that a view needs. Values that are not finite become None."""
    return {
        name: value
        if value is None or isinstance(value, int)
        else round(float(value), _TRUST_DIGITS)
        if np.isfinite(value)
        else None
        for name, value in figures.items()
    }
