"""Trust figures: how well distances on a plot predict attention.

There are two figures for each head. The first is the correlation between the distance of a query
and a key and their product ``q . k``. At -1, the shorter the distance, the larger the product. The
second is neighbour recall: the share of a query's strongest keys (with the largest products) that
are also among its nearest keys on the plot. Both figures use only the keys that a query may attend
to. These are the keys in the same text that the mask allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.corpus.corpus import Corpus
from attnviz.utils.threads import map_threads, torch_threads

#: Number of strongest keys, and number of nearest keys, that neighbour recall compares.
NEIGHBOURS = 10

# Maximum number of distances to compute at once, for all heads together. This many fit into the
# processor's cache.
_DISTANCES = 320_000
# Relative tolerance, about ten times the rounding error of float32. Points whose distance is at
# most this share of the plot's side have the same position. Products that differ by at most this
# share of their largest possible size are equal.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class HeadTrust:
    """Trust figures of a head's plot.

    The keys of a query are the keys of the same text that are points and that the mask allows.

    Attributes
    ----------
    plot : float or None
        Correlation between distance on the plot and product ``q . k`` (Pearson), averaged over
        queries, from -1 (the best) to 1. Queries are excluded if their keys all have the same
        distance, or have fewer than three different products. None if no query remains.
    recall : float or None
        Share of a query's ten keys with the largest ``q . k`` that are among its ten nearest keys
        on the plot, averaged over queries. Only queries with more than ten keys count. None if no
        query has more. Ties of products and of positions are broken at random, and the result is
        divided by its maximum, so that the best possible plot gets 1.
    recall_baseline : float or None
        Expected recall if the points had random positions: ten divided by the number of keys,
        averaged over the same queries. It is larger if products are tied. None if `recall` is None.
    num_queries, num_total : int
        Number of measured queries, and number of all queries.
    """

    head: int
    plot: float | None
    recall: float | None
    recall_baseline: float | None
    num_queries: int
    num_total: int


def measure_trust(
    corpus: Corpus,
    stack: str | None,
    layer: int,
    heads: Sequence[int],
    coordinates: torch.Tensor,
    *,
    max_queries: int = 512,
    seed: int = 0,
) -> list[HeadTrust | None]:
    """Measure the trust figures of the plots of some heads of a layer.

    Parameters
    ----------
    corpus : Corpus
        Corpus whose sampled queries and keys are the points.
    stack : str or None
        Name of a stack. None is the first stack.
    layer : int
        Number of the layer, as the model counts it.
    heads : sequence of int
        Numbers of the heads, as the model counts them.
    coordinates : Tensor
        Coordinates of the points on the plots of these heads, (heads, points, dimensions). All
        queries come before all keys.
    max_queries : int, default 512
        Maximum number of queries to measure. They are chosen at random, and are the same for every
        head.
    seed : int
        Seed of the random choice of queries.

    Returns
    -------
    list of (HeadTrust or None)
        One entry per head. It is None if the vectors or the coordinates of the head are not finite.

    Notes
    -----
    Yeh et al. 2023 (arXiv 2305.03210) rate a placement by the correlation between distance and
    ``q . k``. Neighbour recall is a usual measure of projections. Here it compares a query only
    with keys.

    Equal tokens often have equal keys. (In the first layer of a model without positional
    embeddings, this holds for all equal tokens.) Therefore many keys can be tied for the tenth
    rank. Ties are broken at random. Let s be the probability that a key is among the ten strongest,
    and n the probability that the key is among the ten nearest. Recall is ``sum(s n) / sum(s^2)``
    over the keys of a query, which is the expected overlap divided by its maximum.

    Examples
    --------
    >>> import attnviz as av
    >>> from attnviz.embedding import place, principal_components
    >>> vectors = torch.arange(80.0).sin().view(1, 20, 4)
    >>> record = av.AttentionRecord.from_qk([vectors], [vectors], [f"t{i}" for i in range(20)])
    >>> corpus = av.Corpus([record])
    >>> plots = principal_components(place(corpus, "self", 0))
    >>> [trust] = measure_trust(corpus, "self", 0, [0], plots.coordinates)
    >>> trust.num_queries, trust.recall > trust.recall_baseline
    (20, True)
    """
    points = corpus.points(stack)
    num_rows = min(max_queries, points.num_queries)
    rows = np.random.default_rng(seed).choice(points.num_queries, num_rows, replace=False)
    with torch_threads(1):
        blocks = list(_own_pairs(corpus, stack, layer, heads, np.sort(rows)))
        vectors = corpus.vectors(stack, layer, heads)
        spaces = _Spaces(vectors.queries, vectors.keys, coordinates.float())
    # The axes are sum and count, the figures (correlation, recall and its baseline), and heads.
    sums = np.zeros((2, 3, len(heads)))
    for block_sums in map_threads(lambda number: _sums(spaces, blocks[number]), len(blocks)):
        sums += block_sums
    results: list[HeadTrust | None] = []
    for index, (head, is_finite) in enumerate(zip(heads, spaces.finite, strict=True)):
        plot, recall, baseline = (
            total / count if count else None for total, count in sums[..., index].T.tolist()
        )
        trust = HeadTrust(head, plot, recall, baseline, num_rows, points.num_queries)
        results.append(trust if is_finite else None)
    return results


@dataclass(frozen=True, eq=False)
class _OwnPairs:
    """Block of query-key pairs of one text: n of its queries, with all of its m keys.

    Attributes
    ----------
    rows : Tensor
        int64, (n,). Indices of the queries among the query points of the corpus.
    keys : slice
        Range of the text's keys among the key points of the corpus.
    allowed : Tensor
        bool, (heads, n, m). Whether the mask allows each pair.
    """

    rows: torch.Tensor
    keys: slice
    allowed: torch.Tensor


def _own_pairs(
    corpus: Corpus,
    stack: str | None,
    layer: int,
    heads: Sequence[int],
    rows: NDArray[np.int64],
) -> Iterator[_OwnPairs]:
    """Yield blocks that pair the queries `rows` with the keys of the same text, text by text.

    `rows` contains ascending indices among the query points of the corpus. A block has about
    `_DISTANCES` pairs at most, so a long text has several blocks with few queries each.
    """
    points = corpus.points(stack)
    texts = points.query_text[rows]
    for text in np.unique(texts).tolist():
        keys = points.keys_of(text)
        if keys.start == keys.stop:
            continue
        attention = corpus.attention(stack, layer, text)
        positions = torch.from_numpy(points.key_position[keys].astype(np.int64))
        numbers = torch.from_numpy(rows[texts == text].astype(np.int64))
        for few in numbers.split(max(1, _DISTANCES // (len(heads) * attention.num_keys))):
            queries = torch.from_numpy(points.query_position[few.numpy()].astype(np.int64))
            allowed = attention.allowed(heads, queries)[..., positions]
            yield _OwnPairs(few, keys, allowed.expand(len(heads), -1, -1))


class _Spaces:
    """Points of some heads in two spaces: the vectors of the model, and the plot.

    `queries` and `keys` are (heads, points, dimensions), and so is `plot`, which has all queries
    before all keys.
    """

    def __init__(self, queries: torch.Tensor, keys: torch.Tensor, plot: torch.Tensor) -> None:
        # Subtracting the mean key changes all products of a query by the same number. This changes
        # neither their order nor correlations with them, and reduces rounding errors.
        self.queries, self.keys = queries, keys - keys.mean(dim=1, keepdim=True)
        self.longest = torch.linalg.vector_norm(keys, dim=2).amax(dim=1)
        self.plot_queries, self.plot_keys = plot.split([queries.shape[1], keys.shape[1]], dim=1)
        #: Distance up to which two points on the plot have the same position, (heads,).
        self.same_position = _TOLERANCE * (plot.amax(dim=1) - plot.amin(dim=1)).amax(dim=1)
        #: Whether all numbers of each head are finite.
        self.finite = [
            all(bool(torch.isfinite(numbers[head]).all()) for numbers in (queries, keys, plot))
            for head in range(len(plot))
        ]


def _sums(spaces: _Spaces, block: _OwnPairs) -> NDArray[np.float64]:
    """Sum each figure over the queries of a block, and count the queries that have the figure.

    The result has the shape (2, figures, heads). The first axis has the sum and the count.
    """
    rows, keys = block.rows, block.keys
    queries = spaces.queries[:, rows]
    # Merge the axes of heads and queries into rows, so that a row is one query of one head.
    products = (queries @ spaces.keys[:, keys].mT).flatten(0, 1)
    # Subtract the coordinates. This is more exact for near points than the formula with products,
    # and is fast enough in two or three dimensions.
    apart = spaces.plot_queries[:, rows, None] - spaces.plot_keys[:, None, keys]
    distances = torch.linalg.vector_norm(apart, dim=3).flatten(0, 1)
    allowed = block.allowed.flatten(0, 1)
    # Upper bound of ``|q . k|`` for each query q, over all keys k of the head before centring.
    size = (torch.linalg.vector_norm(queries, dim=2) * spaces.longest[:, None]).flatten()[:, None]
    same_position = spaces.same_position.repeat_interleave(len(rows))[:, None]
    recall = _recall(products, distances, allowed, size, same_position)
    correlation = _correlation(products, distances, allowed, size)
    figures = torch.stack([correlation, *recall]).double().unflatten(1, (-1, len(rows)))
    return np.stack([figures.nansum(dim=2), (~figures.isnan()).sum(dim=2)])


def _recall(
    products: torch.Tensor,
    nearest: torch.Tensor,
    allowed: torch.Tensor,
    size: torch.Tensor,
    same_position: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the recall of each row and its baseline, or NaN unless the row has more than ten keys.

    A row is one query of one head. `products` has the products of the query with all keys, and
    `nearest` has the distances. Both results have the shape (rows,).
    """
    counts = allowed.sum(dim=1)
    enough = counts > NEIGHBOURS
    none = torch.full((len(products),), torch.nan)
    if not bool(enough.any()):
        return none, none
    products = products.masked_fill(~allowed, -torch.inf)
    near = (-nearest).masked_fill_(~allowed, -torch.inf)
    same = _TOLERANCE * size
    # Find one more entry than needed. If it equals the entry before, keys are tied for the last
    # rank.
    strong, close = (matrix.topk(NEIGHBOURS + 1, dim=1) for matrix in (products, near))
    chosen, last = strong.indices[:, :-1], close.values[:, -2:-1]
    overlap = (near.gather(1, chosen) >= last).float().sum(dim=1)
    max_overlap = torch.full_like(overlap, NEIGHBOURS)
    tied = strong.values[:, -2:-1] - strong.values[:, -1:] <= same
    tied |= last - close.values[:, -1:] <= same_position
    tied_rows = torch.nonzero(tied[:, 0] & enough)[:, 0]
    if len(tied_rows):
        strongest = _among_first(products[tied_rows], same[tied_rows])
        closest = _among_first(near[tied_rows], same_position[tied_rows])
        overlap[tied_rows] = (strongest * closest).sum(dim=1)
        max_overlap[tied_rows] = strongest.square_().sum(dim=1)
    recall, baseline = overlap / max_overlap, NEIGHBOURS**2 / counts / max_overlap
    return torch.where(enough, recall, none), torch.where(enough, baseline, none)


def _correlation(
    products: torch.Tensor, distances: torch.Tensor, allowed: torch.Tensor, size: torch.Tensor
) -> torch.Tensor:
    """Return the correlation between distance and product in each row, or NaN if it is undefined.

    The result has the shape (rows,). `products` and `distances` are overwritten.
    """
    several = _three_differ(products, _TOLERANCE * size, allowed)
    _centre(products, allowed)
    mean_size = _centre(distances, allowed)
    product_norm, distance_norm = (
        torch.linalg.vector_norm(values, dim=1) for values in (products, distances)
    )
    # Largest norm of centred numbers, relative to their size, that rounding errors alone can cause.
    # If the norm of a row is not larger, its correlation is not defined.
    rounding = _TOLERANCE * products.shape[1] ** 0.5
    # `einsum` would be much slower here, because it computes one matrix product per row.
    values = (distances * products).sum(dim=1) / (distance_norm * product_norm)
    is_defined = (
        several & (distance_norm > rounding * mean_size) & (product_norm > rounding * size[:, 0])
    )
    return torch.where(is_defined & torch.isfinite(values), values.clamp(-1, 1), torch.nan)


def _among_first(values: torch.Tensor, same: torch.Tensor) -> torch.Tensor:
    """Return the probability that each entry is among the ten largest of its row.

    Entries that differ by at most `same` are tied, and ties are broken at random.
    """
    last = values.topk(NEIGHBOURS, dim=1, sorted=False).values.amin(dim=1, keepdim=True)
    above, reached = (values > last + same).float(), (values >= last - same).float()
    certain = above.sum(dim=1, keepdim=True)
    share = (NEIGHBOURS - certain) / (reached.sum(dim=1, keepdim=True) - certain)
    return above.mul_(1 - share).addcmul_(reached, share)


def _three_differ(values: torch.Tensor, same: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Return which rows have at least three different values, counting only allowed entries.

    Values that differ by at most `same` are equal. A correlation of two values is always -1 or 1.
    """
    smallest = values.masked_fill(~allowed, torch.inf).amin(dim=1, keepdim=True)
    largest = values.masked_fill(~allowed, -torch.inf).amax(dim=1, keepdim=True)
    between = (values > smallest + same) & (values < largest - same) & allowed
    return between.any(dim=1)


def _centre(values: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Subtract from each row the mean of its allowed entries, in place. Return the absolute means.

    Entries that are not allowed become 0.
    """
    values.masked_fill_(~allowed, 0)
    mean = values.sum(dim=1, keepdim=True) / allowed.sum(dim=1, keepdim=True).clamp_min(1)
    values -= mean
    values.masked_fill_(~allowed, 0)
    return mean[:, 0].abs()
