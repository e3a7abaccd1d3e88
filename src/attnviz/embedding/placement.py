"""Placement of a head's queries and keys in one space, where a short distance means a large weight.

This is the joint query-key embedding of AttentionViz (Yeh et al. 2023, arXiv 2305.03210, section
4). Queries are divided by a factor c and keys are multiplied by c. The keys are then moved by a
vector t, so that their mean is the mean of the queries. Neither step changes the weights if a head
has no soft cap and no sink: ``(q / c) . (k c) = q . k``, and ``q . (k + t) = q . k + q . t``, where
``q . t`` is the same for all keys of a query. Finally, the points are projected to two or three
dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.corpus.corpus import Corpus, LayerVectors

Scaling = Literal["norms", "none"]
_Numbers = NDArray[np.float64]

# Relative rounding error of float32 entries. Points whose entries differ by at most this share of
# the largest entry count as equal.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Placing:
    """Options for the placement of queries and keys in one space.

    Attributes
    ----------
    scaling : {"norms", "none"}
        Factor c that divides the queries and multiplies the keys: ``sqrt(median|q| / median|k|)``,
        or 1.
    translate : bool
        Whether keys are moved after scaling, so that their mean is the mean of the queries.
    lift : bool
        Whether keys get an additional coordinate ``sqrt(M^2 - |k|^2)``, where M is the largest
        length of a key, and queries get a 0. All keys then have the same distance from the origin.
        Therefore the nearest key of a query is the key with the largest product ``q . k``, the
        second nearest key has the second largest product, and so on, for any c.

    Examples
    --------
    >>> Placing(scaling="norms", lift=True)
    Placing(scaling='norms', translate=True, lift=True)
    """

    scaling: Scaling = "norms"
    translate: bool = True
    lift: bool = False


@dataclass(frozen=True, eq=False)
class Placed:
    """Queries and keys of some heads of a layer, after the placement.

    Attributes
    ----------
    heads : tuple of int
        Numbers of the heads, as the model counts them.
    queries : Tensor
        float32, (heads, num_queries, dimensions).
    keys : Tensor
        float32, (heads, num_keys, dimensions).
    factors : ndarray of float64, (heads,)
        Factor c of each head. NaN if the vectors of the head, or their distances, are not finite.
    """

    heads: tuple[int, ...]
    queries: torch.Tensor
    keys: torch.Tensor
    factors: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Plots:
    """Queries and keys of some heads, projected to a few dimensions.

    Attributes
    ----------
    coordinates : Tensor
        float32, (heads, points, dimensions). The points are all queries, then all keys. NaN for
        heads whose vectors, or their distances, are not finite.
    explained : ndarray of float64, (heads, dimensions)
        Share of the variance of the points that lies along each dimension. 0 if all points are
        equal, and NaN for heads whose coordinates are NaN.
    """

    coordinates: torch.Tensor
    explained: NDArray[np.float64]


def place(
    corpus: Corpus,
    stack: str | None,
    layer: int,
    placing: Placing = Placing(),
    heads: Sequence[int] | None = None,
) -> Placed:
    """Place the queries and keys of a layer's heads in one space.

    Parameters
    ----------
    corpus : Corpus
        Corpus whose sampled queries and keys are placed.
    stack : str or None
        Name of a stack. None is the first stack.
    layer : int
        Number of the layer, as the model counts it.
    placing : Placing, default Placing()
        Options of the placement.
    heads : sequence of int, optional
        Numbers of the heads, as the model counts them. All by default.

    Returns
    -------
    Placed

    Raises
    ------
    IndexError
        If the layer or a head does not exist.

    Examples
    --------
    >>> placed = place(corpus, "self", 3)                                   # doctest: +SKIP
    >>> plots = principal_components(placed)                                # doctest: +SKIP
    >>> plots.coordinates.shape                                             # doctest: +SKIP
    torch.Size([12, 9994, 2])
    """
    vectors = corpus.vectors(stack, layer, heads)
    queries, keys = vectors.queries, vectors.keys
    if placing.scaling == "none":
        factors = np.ones(len(vectors.heads))
    else:
        factors = _factors_by_norms(vectors)
    by = torch.from_numpy(factors).float()[:, None, None]
    # `corpus.vectors` returns copies, so they may be changed in place.
    queries /= by
    keys *= by
    if placing.translate:
        keys += queries.mean(dim=1, keepdim=True) - keys.mean(dim=1, keepdim=True)
    if placing.lift:
        queries = torch.nn.functional.pad(queries, (0, 1))
        squares = torch.linalg.vector_norm(keys, dim=2, dtype=torch.float64).square_()
        height = (squares.amax(dim=1, keepdim=True) - squares).sqrt_().float()
        keys = torch.cat([keys, height[..., None]], dim=2)
    finite = _finite_heads(queries, keys)
    factors[~finite.numpy()] = np.nan
    return Placed(vectors.heads, queries, keys, factors)


def problems(placed: Placed) -> list[str | None]:
    """Return the problem of each head's plot as a message, or None if it has no problem.

    Parameters
    ----------
    placed : Placed
        Placed points of some heads.

    Returns
    -------
    list of (str or None)
        One entry per head. It is a message if the vectors of the head or their distances are not
        finite, or if all keys are equal. Otherwise it is None.

    Examples
    --------
    >>> import attnviz as av
    >>> vectors = torch.arange(24.0).sin().view(2, 3, 4)
    >>> record = av.AttentionRecord.from_qk([vectors], [vectors.flip(1)], ["a", "b", "c"])
    >>> problems(place(av.Corpus([record]), "self", 0))
    [None, None]
    """
    return [
        "queries or keys are not finite numbers, or too large to measure distances"
        if np.isnan(factor)
        else ("all keys are the same" if _are_one(keys) else None)
        for keys, factor in zip(placed.keys, placed.factors, strict=True)
    ]


def principal_components(placed: Placed, dimensions: int = 2) -> Plots:
    """Project each head's points onto their directions of largest variance.

    Parameters
    ----------
    placed : Placed
        Placed points of some heads of a layer.
    dimensions : int, default 2
        Number of directions.

    Returns
    -------
    Plots
        Projected queries and keys, with mean 0. If the vectors have fewer entries than
        `dimensions`, the remaining coordinates are 0.

    Notes
    -----
    The directions are eigenvectors of the covariance of all points (Hotelling 1933). The sign of an
    eigenvector is arbitrary. It is chosen so that the entry of largest size is positive, and the
    same points always give the same plot.

    Examples
    --------
    >>> import attnviz as av
    >>> vectors = torch.arange(24.0).sin().view(2, 3, 4)
    >>> record = av.AttentionRecord.from_qk([vectors], [vectors.flip(1)], ["a", "b", "c"])
    >>> plots = principal_components(place(av.Corpus([record]), "self", 0))
    >>> plots.coordinates.shape
    torch.Size([2, 6, 2])
    """
    points = torch.cat([placed.queries, placed.keys], dim=1)
    num_heads, num_points, size = points.shape
    num_directions = min(dimensions, size)
    finite = torch.from_numpy(np.isfinite(placed.factors))
    # After the division by the largest entry, entries are at most 2, and squares cannot overflow.
    unit = points.abs().amax(dim=(1, 2), keepdim=True)
    unit[unit == 0] = 1
    centred = points.sub_(points.mean(dim=1, keepdim=True)).div_(unit)
    centred[~finite] = 0
    values, vectors = torch.linalg.eigh((centred.mT @ centred).double())
    values = values.flip(-1).clamp_min_(0)
    directions = vectors.flip(-1)[..., :num_directions]
    largest = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    directions = directions * torch.where(largest < 0, -1.0, 1.0)
    total = values.sum(dim=1, keepdim=True)
    # `total` is the sum of the squared distances from the mean. If it is at most this bound, the
    # points differ only by rounding errors and count as equal.
    total[total <= num_points * _ROUNDING**2] = torch.inf
    explained = torch.zeros(num_heads, dimensions, dtype=torch.float64)
    explained[:, :num_directions] = values[:, :num_directions] / total
    coordinates = torch.zeros(num_heads, num_points, dimensions)
    coordinates[..., :num_directions] = (centred @ directions.float()).mul_(unit)
    coordinates[torch.isinf(total[:, 0])] = 0
    coordinates[~finite], explained[~finite] = torch.nan, torch.nan
    return Plots(coordinates, explained.numpy())


def _are_one(points: torch.Tensor) -> bool:
    # Points count as equal if they differ by rounding errors, as the vectors of the same text from
    # two forwards do.
    spread = (points.amax(dim=0) - points.amin(dim=0)).max()
    return bool(spread <= _ROUNDING * points.abs().max())


def _finite_heads(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Return for each head whether its vectors and their squared distances are finite.

    `queries` and `keys` are float32, (heads, points, dimensions). The result is bool, (heads,).
    """
    # The squared distance of two opposite vectors is four times their squared length. The
    # factor is 8 instead of 4, which leaves room for rounding.
    limit = (torch.finfo(torch.float32).max / (8 * queries.shape[2])) ** 0.5
    finite = torch.ones(len(queries), dtype=torch.bool)
    for vectors in (queries, keys):
        # `amin` and `amax` together are twenty times as fast as `aminmax`.
        low, high = vectors.amin(dim=(1, 2)), vectors.amax(dim=(1, 2))
        # A head with NaN entries is not finite, because comparisons with NaN are False.
        finite &= (low > -limit) & (high < limit)
    return finite


def _factors_by_norms(vectors: LayerVectors) -> _Numbers:
    """Return the factor c of each head that makes the median norms of queries and keys equal.

    With ``c = sqrt(median|q| / median|k|)``, ``|q / c|`` and ``|k c|`` have the same median. The
    factor is 1 if a median is 0, and NaN if a median is not finite.
    """
    medians = [
        np.median(torch.linalg.vector_norm(points, dim=2).double().numpy(), axis=1)
        for points in (vectors.queries, vectors.keys)
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = np.sqrt(medians[0] / medians[1])
    factors[(medians[0] == 0) | (medians[1] == 0)] = 1.0
    factors[~np.isfinite(medians[0]) | ~np.isfinite(medians[1])] = np.nan
    return np.asarray(factors)
