"""By how much queries are made smaller and keys larger before they are shown together.

Dividing all queries of a head by c and multiplying its keys by c leaves every product q . k, and so
every weight, as it is, but not the distances between them (Yeh et al. 2023, arXiv 2305.03210,
section 4).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.corpus.corpus import Corpus, LayerVectors
from attnviz.embedding.pairs import own_pairs

__all__ = [
    "GRID",
    "factors_by_norms",
    "factors_by_search",
    "finite_heads",
    "weighted_correlation",
]

Numbers = NDArray[np.float64]

#: The factors that are tried, those nearest to 1 first: of equally good ones the first is taken.
GRID = (1.0, 0.8, 1.25, 0.4, 2.5, 0.2, 5.0)

# Distances up to this percentile of a head's own are near.
_PERCENTILE = 0.5
# Pairs of a query and a key that are looked at, at most.
_PAIRS = 1 << 17
# Queries, at least, however many keys each has.
_QUERIES = 64


def finite_heads(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Tell which heads' vectors are finite numbers, and their distances too.

    Parameters
    ----------
    queries, keys : Tensor
        float32, (heads, any number, dimensions).

    Returns
    -------
    Tensor
        bool, (heads,).

    Examples
    --------
    >>> vectors = torch.tensor([[[1.0]], [[float("nan")]], [[1e30]]])
    >>> finite_heads(vectors, vectors).tolist()
    [True, False, False]
    """
    # The squared distance of two vectors of opposite directions is four times that of their length.
    most = (torch.finfo(torch.float32).max / (8 * queries.shape[2])) ** 0.5
    found = torch.ones(len(queries), dtype=torch.bool)
    for side in (queries, keys):
        # Along a dimension `aminmax` takes twenty times as long as these two.
        low, high = side.amin(dim=(1, 2)), side.amax(dim=(1, 2))
        # A comparison with what is no number is false.
        found &= (low > -most) & (high < most)
    return found


def factors_by_norms(vectors: LayerVectors) -> Numbers:
    """Make queries and keys of each head equally long, by their medians.

    Parameters
    ----------
    vectors : LayerVectors
        Of a layer's points.

    Returns
    -------
    ndarray of float64, (heads,)
        ``c = sqrt(median|q| / median|k|)``: the medians of ``|q / c|`` and ``|k c|`` are equal.
        1 where one of them is 0, NaN where one is no finite number.

    Examples
    --------
    >>> import torch
    >>> queries, keys = torch.full((1, 3, 2), 8.0), torch.full((1, 3, 2), 2.0)
    >>> factors_by_norms(LayerVectors((0,), queries, keys)).tolist()
    [2.0]
    """
    medians = [
        np.median(torch.linalg.vector_norm(each, dim=2).double().numpy(), axis=1)
        for each in (vectors.queries, vectors.keys)
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = np.sqrt(medians[0] / medians[1])
    factors[(medians[0] == 0) | (medians[1] == 0)] = 1.0
    factors[~np.isfinite(medians[0]) | ~np.isfinite(medians[1])] = np.nan
    return np.asarray(factors)


def factors_by_search(
    corpus: Corpus,
    stack: str | None,
    layer: int,
    vectors: LayerVectors,
    *,
    translate: bool,
) -> Numbers:
    """Find for each head the factor with which near means a large product most clearly.

    Parameters
    ----------
    corpus : Corpus
        The texts.
    stack : str or None
        One of its stacks; None is the first.
    layer : int
        The model's number of the layer.
    vectors : LayerVectors
        Of the layer's points.
    translate : bool
        Whether keys are moved afterwards so that their mean is that of the queries.

    Returns
    -------
    ndarray of float64, (heads,)
        The best of `GRID` by `weighted_correlation`. Where no query has two keys that are near
        enough to tell, as in a handful of short texts, that of `factors_by_norms`.

    Notes
    -----
    Yeh et al. 2023, section 4, and as they describe it, not as their released code does it: near
    is what lies under the 0.5 percentile of the head's own distances at that factor, and only keys
    of a query's own text that its mask allows are looked at.

    A factor far from 1 makes one side small beside the other. All distances of a query then differ
    by nearly nothing but the products, which is what is asked for here, and a plot of both shows
    the small side as a dot. Trained models often get 0.2 or 5.

    It knows of no lift. With it near means a large product at every factor, so that
    `attnviz.embedding.placement.place` then takes `factors_by_norms`.
    """
    factors = factors_by_norms(vectors)
    finite = finite_heads(vectors.queries, vectors.keys).tolist()
    rows = _rows(corpus, stack)
    blocks = list(own_pairs(corpus, stack, layer, vectors.heads, rows))
    for place in range(len(vectors.heads)):
        if not finite[place]:
            continue
        queries, keys = vectors.queries[place], vectors.keys[place]
        pairs = _Pairs(queries, keys, translate=translate)
        for block in blocks:
            pairs.add(block.rows, block.keys, block.allowed[place % len(block.allowed)])
        found = pairs.correlations(GRID)
        if not np.isnan(found).all():
            factors[place] = GRID[int(np.nanargmin(found))]
    return factors


def weighted_correlation(
    rows: NDArray[np.int64], distances: Numbers, products: Numbers, near: float
) -> float:
    """How clearly near means a large product, over keys that are near.

    Parameters
    ----------
    rows : ndarray of int64, (pairs,)
        The query of each pair.
    distances : ndarray of float64, (pairs,)
        Distance of query and key, all less than `near`.
    products : ndarray of float64, (pairs,)
        Their dot product.
    near : float
        What counts as near.

    Returns
    -------
    float
        The mean over queries of Pearson's correlation of distance and product, each pair weighing
        ``(near - distance) ** 2``; -1 is best. Queries with one key, or whose keys are all equally
        far or have the same product, say nothing; NaN where no query says anything.
    """
    _, at, counts = np.unique(rows, return_inverse=True, return_counts=True)
    weights = (near - distances) ** 2
    total = np.bincount(at, weights)

    def centred(values: Numbers) -> Numbers:
        return np.asarray(values - (np.bincount(at, weights * values) / total)[at])

    far, large = centred(distances), centred(products)
    both = np.bincount(at, weights * far * large)
    spread = np.bincount(at, weights * far**2) * np.bincount(at, weights * large**2)
    tells = (counts > 1) & (spread > 0)
    return float(np.mean(both[tells] / np.sqrt(spread[tells]))) if tells.any() else np.nan


class _Pairs:
    """The pairs of a head that are looked at, and their distance at any factor.

    With both moved so that their mean is 0, as translation does,

        |q / c - k c|^2 = |q|^2 / c^2 + c^2 |k|^2 - 2 q . k
    """

    def __init__(self, queries: torch.Tensor, keys: torch.Tensor, *, translate: bool) -> None:
        # In units in which no square overflows; correlations are the same in all.
        unit = max(float(each.abs().max()) for each in (queries, keys)) or 1.0
        self._queries, self._keys = queries, keys = queries / unit, keys / unit
        self._moved = [queries, keys]
        if translate:
            self._moved = [each - each.mean(dim=0) for each in (queries, keys)]
        self._squares = [each.square().sum(dim=1) for each in self._moved]
        self._rows: list[torch.Tensor] = []
        self._columns: list[torch.Tensor] = []
        self._products: list[torch.Tensor] = []

    def add(self, rows: torch.Tensor, keys: slice, allowed: torch.Tensor) -> None:
        row, column = torch.nonzero(allowed, as_tuple=True)
        self._rows.append(rows[row])
        self._columns.append(column + keys.start)
        self._products.append((self._moved[0][rows] @ self._moved[1][keys].T)[row, column])

    def correlations(self, factors: Sequence[float]) -> Numbers:
        found = np.full(len(factors), np.nan)
        if not sum(map(len, self._rows)):
            return found
        rows, columns = torch.cat(self._rows), torch.cat(self._columns)
        products = torch.cat(self._products)
        squares = self._squares[0][rows], self._squares[1][columns]
        for number, factor in enumerate(factors):
            squared = squares[0] / factor**2 + squares[1] * factor**2 - 2 * products
            distances = squared.clamp_min_(0).sqrt_().numpy()
            near = float(np.percentile(distances, _PERCENTILE))
            chosen = torch.from_numpy(np.flatnonzero(distances < near))
            if not len(chosen):
                continue
            pair = rows[chosen], columns[chosen]
            found[number] = weighted_correlation(
                pair[0].numpy(),
                distances[chosen.numpy()].astype(np.float64),
                (self._queries[pair[0]].double() * self._keys[pair[1]]).sum(dim=1).numpy(),
                near,
            )
        return found


def _rows(corpus: Corpus, stack: str | None) -> NDArray[np.int64]:
    """Queries whose pairs are looked at: all, or as many as give enough of them."""
    points = corpus.points(stack)
    own = np.zeros(len(corpus), np.int64)
    np.add.at(own, points.key_text, 1)
    rows = np.random.default_rng(corpus.seed).permutation(points.num_queries)
    pairs = np.cumsum(own[points.query_text[rows]])
    return np.sort(rows[: max(_QUERIES, int(np.searchsorted(pairs, _PAIRS, side="right")))])
