"""How far the position of a point on a plot says what it attends to.

Two figures for each head. The correlation of distance with q . k says whether near means a large
product: -1 is a plot that can be read like a map. Neighbour recall says how many of a query's
strongest keys are among its nearest ones. Both are of the keys that a query may attend to: those of
its own text that the mask allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from attnviz.corpus.corpus import Corpus
from attnviz.embedding.allowed_pairs import OwnKeys, own_keys
from attnviz.embedding.placement import Placed, check_corpus, problems
from attnviz.utils.arguments import whole_number
from attnviz.utils.threads import side_by_side, torch_threads

__all__ = ["NEIGHBOURS", "HeadTrust", "measure_trust"]

#: How many of a query's strongest keys are looked for among its nearest ones.
NEIGHBOURS = 10

#: The queries and the keys of a head in some space.
_QueriesKeys = tuple[torch.Tensor, torch.Tensor]

# Distances that are held at once: few enough for the processor's cache.
_DISTANCES = 320_000
# Points nearer to each other than this share of a plot are at the same position, and values that
# differ by no more than this share are the same: float32 rounds about that much.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class HeadTrust:
    """How far a head's plot can be trusted.

    All figures are of the keys of a query's own text that its mask allows and that are points.

    Attributes
    ----------
    before, placed, plot : float or None
        The mean over queries of Pearson's correlation of distance with q . k, from -1, the best, to
        1: of the vectors as the model's attention received them; after scaling, translation and
        lift, in all dimensions; and on the plot. Queries whose keys are all as far, or have fewer
        than three different products, say nothing (two are on a line wherever they lie, a
        correlation of -1 or 1); None where none says anything.
    recall : float or None
        The mean share of a query's ten keys with the largest q . k that are among its ten nearest
        ones on the plot. Only queries with more than ten keys count; None where no query has. Which
        of several keys with the same product is the tenth, or of several at one position, is left
        to chance; 1 is what the best plot then gets.
    chance : float or None
        The same where positions say nothing: the mean of ten by the number of keys, more where keys
        with the same product may stand for each other.
    queries, of : int
        How many queries were measured, of how many.
    """

    before: float | None
    placed: float | None
    plot: float | None
    recall: float | None
    chance: float | None
    queries: int
    of: int


def measure_trust(
    corpus: Corpus,
    stack: str | None,
    layer: int,
    placed: Placed,
    coordinates: torch.Tensor,
    *,
    queries: int = 512,
    seed: int = 0,
) -> list[HeadTrust | None]:
    """Measure how far the plots of some heads of a layer can be trusted.

    Parameters
    ----------
    corpus : Corpus
        Whose points.
    stack : str or None
        One of its stacks; None is the first.
    layer : int
        The model's number of the layer.
    placed : Placed
        Some of its heads, from `attnviz.embedding.placement.place`.
    coordinates : Tensor
        (heads, points, dimensions): their plots, queries first.
    queries : int, default 512
        Measure so many queries, chosen at random, the same ones for every head.
    seed : int
        Of that choice.

    Returns
    -------
    list of (HeadTrust or None)
        One a head of `placed`; None where `attnviz.embedding.placement.problems` names one, or its
        coordinates are not finite numbers.

    Raises
    ------
    TypeError, ValueError
        If `queries` is not a positive whole number, or `coordinates` are not those of these points.

    Notes
    -----
    Yeh et al. 2023 (arXiv 2305.03210) judge a placing by the correlation of distance with q . k.
    Recall of neighbours is the usual figure for how much a projection keeps of them, here from
    queries to keys alone. Equal tokens often have equal keys, in the first layer of a model without
    positions all of them, so that the tenth is one of many. With s the chance of each key to be
    among the ten strongest when ties are broken at random, and n that to be among the ten nearest,
    recall is ``sum(s n) / sum(s^2)``: the expected overlap by the largest that there can be.

    Examples
    --------
    >>> import attnviz as av
    >>> from attnviz.analysis import place, principal_components
    >>> vectors = torch.arange(80.0).sin().view(1, 20, 4)
    >>> record = av.AttentionRecord.from_qk([vectors], [vectors], [f"t{i}" for i in range(20)])
    >>> corpus = av.Corpus([record])
    >>> placed = place(corpus, "self", 0)
    >>> plots = principal_components(placed)
    >>> trust = measure_trust(corpus, "self", 0, placed, plots.coordinates)
    >>> trust[0].queries, trust[0].recall > trust[0].chance
    (20, True)
    """
    check_corpus(corpus)
    queries = whole_number("queries", queries, 1, hint="the number of queries to measure")
    points = corpus.points(stack)
    if coordinates.dim() != 3 or coordinates.shape[:2] != (len(placed.heads), len(points)):
        raise ValueError(
            f"coordinates must be (heads, points, dimensions), here ({len(placed.heads)}, "
            f"{len(points)}, 2) or 3; got {tuple(coordinates.shape)}"
        )
    count = min(queries, points.num_queries)
    rows = np.random.default_rng(seed).choice(points.num_queries, count, replace=False)
    with torch_threads(1):
        own = own_keys(
            corpus,
            stack,
            layer,
            placed.heads,
            np.sort(rows),
            at_once=max(1, _DISTANCES // max(1, points.num_keys)),
        )
        vectors = corpus.vectors(stack, layer, placed.heads)
        why_empty = problems(placed)

    def measured(head: int) -> HeadTrust | None:
        plot = coordinates[head].float()
        if why_empty[head] is not None or not bool(torch.isfinite(plot).all()):
            return None
        spaces = _Spaces(
            (vectors.queries[head], vectors.keys[head]),
            (placed.queries[head], placed.keys[head]),
            (plot[: points.num_queries], plot[points.num_queries :]),
        )
        measures = _Measures()
        for block in own:
            measures.add(spaces, block, block.allowed[head % len(block.allowed)])
        return measures.result(count, points.num_queries)

    return side_by_side(measured, len(placed.heads))


class _Spaces:
    """A head's points as they were, where they were placed, and on the plot."""

    def __init__(self, raw: _QueriesKeys, placed: _QueriesKeys, plot: _QueriesKeys) -> None:
        # Products with keys about their mean: another constant for each query, the same order.
        self.queries, self.keys = raw[0], raw[1] - raw[1].mean(dim=0)
        self._longest = torch.linalg.vector_norm(raw[1], dim=1).max()
        self._spaces = [_Space(raw), _Space(placed)]
        self._plot = plot
        both = torch.cat(plot)
        self.same_position = _TOLERANCE * float((both.amax(dim=0) - both.amin(dim=0)).max())

    def products(self, rows: torch.Tensor) -> torch.Tensor:
        return self.queries[rows] @ self.keys.T

    def size_of_products(self, rows: torch.Tensor) -> torch.Tensor:
        lengths = torch.linalg.vector_norm(self.queries[rows], dim=1)
        return torch.mul(lengths, self._longest)

    def distances(self, rows: torch.Tensor) -> list[torch.Tensor]:
        in_spaces = [space.distances(rows) for space in self._spaces]
        queries, keys = self._plot[0][rows], self._plot[1]
        # Few dimensions: as differences, which tell near neighbours apart.
        squares = (queries[:, 0, None] - keys[:, 0]).square_()
        for each in range(1, keys.shape[1]):
            apart = queries[:, each, None] - keys[:, each]
            squares.addcmul_(apart, apart)
        return [*in_spaces, squares.sqrt_()]


class _Space:
    """Distances by ``|q - k|^2 = |q|^2 + |k|^2 - 2 q . k``, about the keys' mean."""

    def __init__(self, points: _QueriesKeys) -> None:
        queries, keys = points
        mean = keys.mean(dim=0)
        self._queries, self._keys = queries - mean, keys - mean
        self._squares = self._keys.square().sum(dim=1)

    def distances(self, rows: torch.Tensor) -> torch.Tensor:
        queries = self._queries[rows]
        squares = torch.addmm(self._squares[None], queries, self._keys.T, alpha=-2)
        squares += queries.square().sum(dim=1, keepdim=True)
        return squares.clamp_min_(0).sqrt_()


@dataclass
class _Mean:
    """A mean over those queries that say something."""

    total: float = 0.0
    count: int = 0

    def add(self, values: torch.Tensor, says: torch.Tensor) -> None:
        self.total += float(values[says].double().sum())
        self.count += int(says.sum())

    @property
    def value(self) -> float | None:
        return self.total / self.count if self.count else None


@dataclass
class _Measures:
    """Sums over the queries of one head."""

    correlations: list[_Mean] = field(default_factory=lambda: [_Mean() for _ in range(3)])
    recall: _Mean = field(default_factory=_Mean)
    chance: _Mean = field(default_factory=_Mean)

    def add(self, spaces: _Spaces, block: OwnKeys, allowed: torch.Tensor) -> None:
        columns = block.columns
        products = spaces.products(block.rows).gather(1, columns)
        distances = [far.gather(1, columns) for far in spaces.distances(block.rows)]
        size = spaces.size_of_products(block.rows)[:, None]
        self._add_recall(products, distances[-1], allowed, size, spaces.same_position)
        self._add_correlations(products, distances, allowed, size)

    def _add_recall(
        self,
        products: torch.Tensor,
        nearest: torch.Tensor,
        allowed: torch.Tensor,
        size: torch.Tensor,
        same_position: float,
    ) -> None:
        counts = allowed.sum(dim=1)
        enough = counts > NEIGHBOURS
        if not bool(enough.any()):
            return
        products = products.masked_fill(~allowed, -torch.inf)
        near = (-nearest).masked_fill_(~allowed, -torch.inf)
        same = _TOLERANCE * size
        # One more than are looked for: whether it is as good as the last of them.
        strong, close = (each.topk(NEIGHBOURS + 1, dim=1) for each in (products, near))
        chosen, last = strong.indices[:, :-1], close.values[:, -2:-1]
        overlap = (near.gather(1, chosen) >= last).float().sum(dim=1)
        most = torch.full_like(overlap, NEIGHBOURS)
        tied = strong.values[:, -2:-1] - strong.values[:, -1:] <= same
        tied |= last - close.values[:, -1:] <= same_position
        unsure = torch.nonzero(tied[:, 0] & enough)[:, 0]
        if len(unsure):
            strongest = _among_first(products[unsure], same[unsure])
            overlap[unsure] = (strongest * _among_first(near[unsure], same_position)).sum(dim=1)
            most[unsure] = strongest.square_().sum(dim=1)
        self.recall.add(overlap / most, enough)
        self.chance.add(NEIGHBOURS**2 / counts / most, enough)

    def _add_correlations(
        self,
        products: torch.Tensor,
        distances: list[torch.Tensor],
        allowed: torch.Tensor,
        size: torch.Tensor,
    ) -> None:
        several = _three_differ(products, _TOLERANCE * size, allowed)
        _centre(products, allowed)
        spread = torch.linalg.vector_norm(products, dim=1)
        # What differs by rounding alone is all the same.
        rounding = _TOLERANCE * products.shape[1] ** 0.5
        for mean, far in zip(self.correlations, distances, strict=True):
            middle = _centre(far, allowed)
            wide = torch.linalg.vector_norm(far, dim=1)
            # As an einsum it would be a matrix product for each row, which takes much longer.
            values = (far * products).sum(dim=1) / (wide * spread)
            tells = several & (wide > rounding * middle) & (spread > rounding * size[:, 0])
            mean.add(values.clamp(-1, 1), tells & torch.isfinite(values))

    def result(self, queries: int, of: int) -> HeadTrust:
        before, placed, plot = (mean.value for mean in self.correlations)
        return HeadTrust(before, placed, plot, self.recall.value, self.chance.value, queries, of)


def _among_first(values: torch.Tensor, same: torch.Tensor | float) -> torch.Tensor:
    """The chance of each entry to be among its row's ten largest, when ties are broken at random.

    `same` is how far apart entries may be and still be tied.
    """
    last = values.topk(NEIGHBOURS, dim=1, sorted=False).values.amin(dim=1, keepdim=True)
    above, reached = (values > last + same).float(), (values >= last - same).float()
    certain = above.sum(dim=1, keepdim=True)
    share = (NEIGHBOURS - certain) / (reached.sum(dim=1, keepdim=True) - certain)
    return above.mul_(1 - share).addcmul_(reached, share)


def _three_differ(values: torch.Tensor, same: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Which rows have at least three different values: one that is neither least nor largest."""
    least = values.masked_fill(~allowed, torch.inf).amin(dim=1, keepdim=True)
    largest = values.masked_fill(~allowed, -torch.inf).amax(dim=1, keepdim=True)
    between = (values > least + same) & (values < largest - same) & allowed
    return between.any(dim=1)


def _centre(values: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Subtract each row's mean over allowed entries, in place, and give its size; others are 0."""
    values.masked_fill_(~allowed, 0)
    mean = values.sum(dim=1, keepdim=True) / allowed.sum(dim=1, keepdim=True).clamp_min(1)
    values -= mean
    values.masked_fill_(~allowed, 0)
    return mean[:, 0].abs()
