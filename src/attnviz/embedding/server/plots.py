"""What a view asks of the joint query-key embedding: plots of heads, how far to trust them, norms.

Coordinates travel as 16-bit codes over the square (or cube) that holds a head's points; the small
plots of all heads are the upper byte of the same codes. Whatever was computed is kept, as far as a
bound on memory allows. ``js/src/views/embedding/client/requests.ts`` is the other side and
``tests/fixtures/embedding.json`` is read by both.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.corpus.corpus import Corpus
from attnviz.embedding.placement import Placing, place, principal_components, problems
from attnviz.embedding.server.plot import (
    TOP_CODE,
    Plot,
    coded,
    dimensions_of,
    method_of,
    placing_of,
    settings_of,
)
from attnviz.embedding.server.running import RunningProjections, Work
from attnviz.embedding.threads import one_thread
from attnviz.embedding.trust import HeadTrust, measure_trust
from attnviz.server.cache import KeptAnswers

__all__ = ["MOST_SHOWN", "Answer", "EmbeddingAnswers"]

#: Points of a head's small plot at most.
MOST_SHOWN = 10_000

# Plots of a thousand heads of 10,000 points.
_KEPT_BYTES = 256_000_000
_TRUST_DIGITS = 4
# What a head is measured on: some 0.3 s on one core.
_MOST_QUERIES, _FEWEST_QUERIES, _MOST_PAIRS = 512, 64, 10_000_000

Answer = tuple[dict[str, Any], bytes]
Floats = NDArray[np.float32]


class EmbeddingAnswers:
    """Computes the plots of a corpus and keeps them.

    Parameters
    ----------
    corpus : Corpus
        The corpus.
    kept_bytes : int, default 256 MB
        What is kept at most; what was not asked for lately is forgotten and computed anew.
    """

    def __init__(self, corpus: Corpus, kept_bytes: int = _KEPT_BYTES) -> None:
        self.corpus = corpus
        self.running = RunningProjections()
        self._plots: KeptAnswers[Plot] = KeptAnswers(
            kept_bytes, lambda plot: plot.coordinates.nbytes
        )
        # A few hundred bytes each: not worth to be forgotten.
        self._works: dict[Hashable, Work] = {}
        self._trust: dict[Hashable, dict[str, Any] | None] = {}

    def overview(self, arguments: Mapping[str, Any]) -> Answer:
        """Small plots of all heads of some layers, by their principal components."""
        name = self._stack(arguments)
        placing = placing_of(arguments["way"])
        layers = [int(layer) for layer in arguments["layers"]]
        if not layers:
            raise ValueError("layers is empty; ask for at least one")
        count = len(self.corpus.points(name))
        stride = max(1, -(-count // MOST_SHOWN))
        heads, data = [], []
        for layer in layers:
            kept = self.corpus.stack(name).kept_heads(layer)
            for head, plot in zip(kept, self.plots(name, layer, kept, placing), strict=True):
                heads.append({"layer": layer, "head": head, "problem": plot.problem})
                data.append((coded(plot.coordinates)[2][::stride] >> 8).astype(np.uint8))
        header = {"stride": stride, "points": -(-count // stride), "heads": heads}
        return header, np.concatenate(data).tobytes()

    def projection(self, arguments: Mapping[str, Any]) -> Answer:
        """The plot of one head, by any method; of one that runs, its newest frame."""
        plot, work = self.plot(arguments, restart=bool(arguments.get("restart", False)))
        low, size, codes = coded(plot.coordinates)
        header = plot.header() | {"low": low, "size": size}
        header["work"] = None if work is None else work.header()
        return header, codes.astype("<u2").tobytes()

    def cancel(self, arguments: Mapping[str, Any]) -> Answer:
        """End a projection that runs."""
        self.running.cancel(self._key(arguments))
        return {}, b""

    def trust(self, arguments: Mapping[str, Any]) -> list[dict[str, Any] | None]:
        """How far plots of some heads can be trusted; None of those that have none."""
        name, layer = self._stack(arguments), int(arguments["layer"])
        heads = [int(head) for head in arguments["heads"]]
        asked = {head: dict(arguments) | {"head": head} for head in heads}
        found = {
            head: self._trust[key]
            for head, each in asked.items()
            if (key := self._key(each)) in self._trust
        }
        missing = [head for head in heads if head not in found]
        shown: dict[int, Plot] = {}
        # A frame on its way is nobody's last word.
        last: set[int] = set()
        if missing and method_of(arguments) == "pca":
            placing = placing_of(arguments["way"])
            plots = self.plots(name, layer, missing, placing, dimensions_of(arguments))
            shown, last = dict(zip(missing, plots, strict=True)), set(missing)
        else:
            for head in missing:
                known = self.under_way(asked[head])
                if known is not None:
                    shown[head] = known[0]
                    last |= {head} if known[1].state == "done" else set()
        if shown:
            measured = self._measure(name, layer, list(shown), list(shown.values()), arguments)
            for head, each in zip(shown, measured, strict=True):
                found[head] = each
                if head in last:
                    self._trust[self._key(asked[head])] = each
        return [found.get(head) for head in heads]

    def norms(self, arguments: Mapping[str, Any]) -> Answer:
        """The length of every point's vector, as the model has it."""
        name, layer, head = self._stack(arguments), int(arguments["layer"]), int(arguments["head"])
        vectors = self.corpus.vectors(name, layer, [head])
        norms = torch.cat([vectors.queries[0], vectors.keys[0]]).double().norm(dim=1).numpy()
        finite = norms[np.isfinite(norms)]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
        shares = (norms - low) / (high - low) if high > low else np.zeros(len(norms))
        # What is not finite has a problem that the plot names; here it is only kept off the bytes.
        codes = np.rint(np.clip(np.nan_to_num(shares), 0.0, 1.0) * TOP_CODE)
        return {"low": low, "high": high}, codes.astype("<u2").tobytes()

    def plots(
        self, stack: str, layer: int, heads: Sequence[int], placing: Placing, dimensions: int = 2
    ) -> list[Plot]:
        """Principal components of some heads, kept.

        Parameters
        ----------
        stack : str
            Name of the stack.
        layer : int
            The model's number of the layer.
        heads : sequence of int
            The model's numbers of heads that were kept.
        placing : Placing
            How points are placed before.
        dimensions : {2, 3}
            Of the plot.

        Returns
        -------
        list of Plot
        """
        keys = [(stack, layer, head, placing, "pca", dimensions) for head in heads]
        known = {key: plot for key in keys if (plot := self._plots.get(key)) is not None}
        missing = [head for head, key in zip(heads, keys, strict=True) if key not in known]
        if missing:
            made = self._components(stack, layer, missing, placing, dimensions)
            for head, plot in zip(missing, made, strict=True):
                key = (stack, layer, head, placing, "pca", dimensions)
                known[key] = plot
                self._plots[key] = plot
        return [known[key] for key in keys]

    def plot(
        self, arguments: Mapping[str, Any], *, restart: bool = False, wait: bool = False
    ) -> tuple[Plot, Work | None]:
        """The plot of one head, by any method.

        Parameters
        ----------
        arguments : mapping
            Of a request for a projection.
        restart : bool, default False
            Whether what was cancelled or has failed is begun again.
        wait : bool, default False
            Whether to wait for its end.

        Returns
        -------
        plot : Plot
            While a method has no frame yet, that of the principal components.
        work : Work or None
            How far it is; None of principal components.

        Raises
        ------
        ImportError, RuntimeError
            If it was waited for and failed.
        """
        name, layer, head = self._stack(arguments), int(arguments["layer"]), int(arguments["head"])
        placing, dimensions = placing_of(arguments["way"]), dimensions_of(arguments)
        [components] = self.plots(name, layer, [head], placing, dimensions)
        if method_of(arguments) == "pca":
            return components, None
        key = self._key(arguments)
        kept = self._plots.get(key)
        if kept is not None:
            return kept, self._works[key]
        if components.problem is not None and not np.isfinite(components.coordinates).all():
            return components, Work("failed", 0, 0, components.problem)

        def points() -> Floats:
            placed = place(self.corpus, name, layer, placing, [head])
            return torch.cat([placed.queries[0], placed.keys[0]]).numpy()

        settings = settings_of(arguments)
        ask = self.running.wait if wait else self.running.ask
        found, work = ask(key, points, settings, restart=restart)
        if found is None:
            return components, work
        plot = Plot(found, None, components.factor, None)
        if work.state == "done":
            self._works[key], self._plots[key] = work, plot
        return plot, work

    def under_way(self, arguments: Mapping[str, Any]) -> tuple[Plot, Work] | None:
        """The plot of a head by t-SNE or UMAP as far as it is known; nothing is begun.

        Parameters
        ----------
        arguments : mapping
            Of a request for a projection.

        Returns
        -------
        (Plot, Work) or None
            None while there is no frame. A plot that is done will stay as it is.
        """
        key = self._key(arguments)
        kept = self._plots.get(key)
        if kept is not None:
            return kept, self._works[key]
        found = self.running.under_way(key)
        if found is None or found[0] is None:
            return None
        [components] = self.plots(
            key[0], key[1], [key[2]], placing_of(arguments["way"]), dimensions_of(arguments)
        )
        return Plot(found[0], None, components.factor, None), found[1]

    def problems(
        self, stack: str, layer: int, way: Mapping[str, Any], dimensions: int
    ) -> list[str | None]:
        """Why heads of a layer show nothing.

        Parameters
        ----------
        stack : str
            Name of the stack.
        layer : int
            The model's number of the layer.
        way : mapping
            How points are placed.
        dimensions : {2, 3}
            Of the plots.

        Returns
        -------
        list of (str or None)
            One a head that was kept; None where nothing is in the way.
        """
        heads = self.corpus.stack(stack).kept_heads(layer)
        plots = self.plots(stack, layer, heads, placing_of(way), dimensions)
        return [plot.problem for plot in plots]

    def _components(
        self, stack: str, layer: int, heads: Sequence[int], placing: Placing, dimensions: int
    ) -> list[Plot]:
        with one_thread():
            placed = place(self.corpus, stack, layer, placing, heads)
            made = principal_components(placed, dimensions)
            found = problems(placed)
        return [
            Plot(
                made.coordinates[index].numpy(),
                [float(share) for share in shares] if np.isfinite(shares).all() else None,
                float(factor) if np.isfinite(factor) else 1.0,
                problem,
            )
            for index, (shares, factor, problem) in enumerate(
                zip(made.explained, placed.factors, found, strict=True)
            )
        ]

    def _measure(
        self,
        stack: str,
        layer: int,
        heads: Sequence[int],
        plots: Sequence[Plot],
        arguments: Mapping[str, Any],
    ) -> list[dict[str, Any] | None]:
        """How far plots can be trusted, fit for JSON."""
        with one_thread():
            placed = place(self.corpus, stack, layer, placing_of(arguments["way"]), heads)
        coordinates = torch.from_numpy(np.stack([plot.coordinates for plot in plots]))
        # Each query is held against all keys: of many, fewer queries say enough in that time.
        num_keys = self.corpus.points(stack).num_keys
        queries = min(_MOST_QUERIES, max(_FEWEST_QUERIES, _MOST_PAIRS // num_keys))
        measured = measure_trust(self.corpus, stack, layer, placed, coordinates, queries=queries)
        return [_trust_header(head, each) for head, each in zip(heads, measured, strict=True)]

    def _key(self, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
        """Names a plot: all that it depends on, and nothing else."""
        method, placing = method_of(arguments), placing_of(arguments["way"])
        place = (self._stack(arguments), int(arguments["layer"]), int(arguments["head"]), placing)
        if method == "pca":
            return (*place, "pca", dimensions_of(arguments))
        return (*place, settings_of(arguments))

    def _stack(self, arguments: Mapping[str, Any]) -> str:
        name = str(arguments["stack"])
        # Says which there are, where it is none.
        self.corpus.stack(name)
        return name


def _trust_header(head: int, measured: HeadTrust | None) -> dict[str, Any] | None:
    return None if measured is None else {"head": head} | _rounded(asdict(measured))


def _rounded(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures with more digits than a view shows, and no more; None for what is none."""
    return {
        name: _rounded(value)
        if isinstance(value, Mapping)
        else value
        if value is None or isinstance(value, int)
        else round(float(value), _TRUST_DIGITS)
        if np.isfinite(value)
        else None
        for name, value in figures.items()
    }
