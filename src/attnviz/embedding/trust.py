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
from attnviz.embedding.placement import Placed, check_corpus, problems
from attnviz.record.attention import QueryKeyAttention
from attnviz.utils.arguments import whole_number
from attnviz.utils.threads import map_threads, torch_threads

#: Number of strongest keys, and number of nearest keys, that neighbour recall compares.
NEIGHBOURS = 10

#: Queries, (heads, num_queries, dimensions), and keys, (heads, num_keys, dimensions), in one space.
_QueriesKeys = tuple[torch.Tensor, torch.Tensor]

# Maximum number of distances to compute at once. This many fit into the processor's cache.
_DISTANCES = 320_000
# Number of figures of a head: three correlations, recall and the baseline of recall.
_FIGURES = 5
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
    before, placed, plot : float or None
        Correlation between distance and product ``q . k`` (Pearson), averaged over queries, from -1
        (the best) to 1. `before` uses distances between the vectors of the model, `placed` between
        the placed vectors (scaled, translated and lifted) in all dimensions, and `plot` between
        points on the plot. Queries are excluded if their keys all have the same distance, or have
        fewer than three different products. None if no query remains.
    recall : float or None
        Share of a query's ten keys with the largest ``q . k`` that are among its ten nearest keys
        on the plot, averaged over queries. Only queries with more than ten keys count. None if no
        query has more. Ties of products and of positions are broken at random, and the result is
        divided by its maximum, so that the best possible plot gets 1.
    recall_baseline : float or None
        Expected recall if the points had random positions: ten divided by the number of keys,
        averaged over queries. It is larger if products are tied.
    num_queries, num_total : int
        Number of measured queries, and number of all queries.
    """

    before: float | None
    placed: float | None
    plot: float | None
    recall: float | None
    recall_baseline: float | None
    num_queries: int
    num_total: int


def measure_trust(
    corpus: Corpus,
    stack: str | None,
    layer: int,
    placed: Placed,
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
    placed : Placed
        Points of some heads of the layer, from `attnviz.embedding.placement.place`.
    coordinates : Tensor
        Coordinates of the same points on the plots of these heads, (heads, points, dimensions). All
        queries come before all keys.
    max_queries : int, default 512
        Maximum number of queries to measure. They are chosen at random, and are the same for every
        head.
    seed : int
        Seed of the random choice of queries.

    Returns
    -------
    list of (HeadTrust or None)
        One entry per head of `placed`. It is None if `attnviz.embedding.placement.problems` reports
        a problem for the head, or if its coordinates are not finite.

    Raises
    ------
    TypeError, ValueError
        If `max_queries` is not a positive integer, or `coordinates` do not fit the points.

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
    >>> placed = place(corpus, "self", 0)
    >>> plots = principal_components(placed)
    >>> trust = measure_trust(corpus, "self", 0, placed, plots.coordinates)
    >>> trust[0].num_queries, trust[0].recall > trust[0].recall_baseline
    (20, True)
    """
    check_corpus(corpus)
    max_queries = whole_number(
        "max_queries", max_queries, 1, hint="the number of queries to measure"
    )
    points = corpus.points(stack)
    if coordinates.dim() != 3 or coordinates.shape[:2] != (len(placed.heads), len(points)):
        raise ValueError(
            f"coordinates must be (heads, points, dimensions), here ({len(placed.heads)}, "
            f"{len(points)}, 2) or 3; got {tuple(coordinates.shape)}"
        )
    count = min(max_queries, points.num_queries)
    rows = np.random.default_rng(seed).choice(points.num_queries, count, replace=False)
    with torch_threads(1):
        blocks = list(_own_pairs(corpus, stack, layer, placed.heads, np.sort(rows)))
        vectors = corpus.vectors(stack, layer, placed.heads)
        plots = coordinates.float()
        spaces = _Spaces(
            (vectors.queries, vectors.keys),
            (placed.queries, placed.keys),
            (plots[:, : points.num_queries], plots[:, points.num_queries :]),
        )
        why_empty = problems(placed)
    sums = np.zeros((_FIGURES, 2, len(placed.heads)))
    for block_sums in map_threads(lambda number: _sums(spaces, blocks[number]), len(blocks)):
        sums += block_sums
    results: list[HeadTrust | None] = []
    for head, why in enumerate(why_empty):
        if why is not None or not bool(torch.isfinite(plots[head]).all()):
            results.append(None)
            continue
        before, placed_in, plot, recall, baseline = (
            total / says if says else None for total, says in sums[:, :, head].tolist()
        )
        results.append(
            HeadTrust(before, placed_in, plot, recall, baseline, count, points.num_queries)
        )
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
            yield _OwnPairs(few, keys, _allowed(attention, heads, queries, positions))


def _allowed(
    attention: QueryKeyAttention, heads: Sequence[int], queries: torch.Tensor, keys: torch.Tensor
) -> torch.Tensor:
    mask = attention.mask
    if mask is None:
        return torch.ones(len(heads), len(queries), len(keys), dtype=torch.bool)
    columns = slice(0, attention.num_keys)
    flags = [
        mask.allowed(head, queries, columns, torch.device("cpu"))[:, keys]
        for head in (heads if mask.num_heads > 1 else heads[:1])
    ]
    return torch.stack(flags).expand(len(heads), -1, -1)


class _Spaces:
    """Points of some heads in three spaces: model vectors, placed vectors and the plot."""

    def __init__(self, raw: _QueriesKeys, placed: _QueriesKeys, plot: _QueriesKeys) -> None:
        # Subtracting the mean key changes all products of a query by the same number. This changes
        # neither their order nor correlations with them, and reduces rounding errors.
        self.queries, self.keys = raw[0], raw[1] - raw[1].mean(dim=1, keepdim=True)
        self._longest = torch.linalg.vector_norm(raw[1], dim=2).amax(dim=1)
        self._spaces = [_Space(raw), _Space(placed)]
        self._plot = plot
        both = torch.cat(plot, dim=1)
        #: Distance up to which two points on the plot have the same position, (heads,).
        self.same_position = _TOLERANCE * (both.amax(dim=1) - both.amin(dim=1)).amax(dim=1)

    def products(self, rows: torch.Tensor, keys: slice) -> torch.Tensor:
        """Return the products of queries with the centred keys, (heads, rows, keys)."""
        return self.queries[:, rows] @ self.keys[:, keys].mT

    def size_of_products(self, rows: torch.Tensor) -> torch.Tensor:
        """Return an upper bound of the absolute products of each query, (heads, rows)."""
        lengths = torch.linalg.vector_norm(self.queries[:, rows], dim=2)
        return torch.mul(lengths, self._longest[:, None])

    def distances(self, rows: torch.Tensor, keys: slice) -> list[torch.Tensor]:
        """Return three arrays of distances, one per space, each (heads, rows, keys)."""
        # On the plot, subtract the coordinates. This is more exact for near points than the formula
        # with products, and is fast enough in two or three dimensions.
        apart = self._plot[0][:, rows, None] - self._plot[1][:, None, keys]
        on_plot = torch.linalg.vector_norm(apart, dim=3)
        return [*(space.distances(rows, keys) for space in self._spaces), on_plot]


class _Space:
    """Vectors whose distances are computed by ``|q - k|^2 = |q|^2 + |k|^2 - 2 q . k``.

    The mean key is subtracted from all vectors first, to reduce rounding errors.
    """

    def __init__(self, points: _QueriesKeys) -> None:
        queries, keys = points
        mean = keys.mean(dim=1, keepdim=True)
        self._queries, self._keys = queries - mean, keys - mean

    def distances(self, rows: torch.Tensor, keys: slice) -> torch.Tensor:
        """Return the distances of some queries to some keys, (heads, rows, keys)."""
        some_queries, some_keys = self._queries[:, rows], self._keys[:, keys]
        squares = torch.baddbmm(
            some_keys.square().sum(dim=2)[:, None], some_queries, some_keys.mT, alpha=-2
        )
        squares += some_queries.square().sum(dim=2, keepdim=True)
        return squares.clamp_min_(0).sqrt_()


def _sums(spaces: _Spaces, block: _OwnPairs) -> NDArray[np.float64]:
    """Sum each figure over the queries of a block, and count the queries that have the figure.

    The result has the shape (figures, 2, heads). The second axis has the sum and the count.
    """
    # Merge the axes of heads and queries into rows, so that a row is one query of one head.
    products = spaces.products(block.rows, block.keys).flatten(0, 1)
    distances = [far.flatten(0, 1) for far in spaces.distances(block.rows, block.keys)]
    allowed = block.allowed.flatten(0, 1)
    size = spaces.size_of_products(block.rows).flatten()[:, None]
    same_position = spaces.same_position.repeat_interleave(len(block.rows))[:, None]
    recall, baseline, enough = _recall(products, distances[-1], allowed, size, same_position)
    figures = [
        *_correlations(products, distances, allowed, size),
        (recall, enough),
        (baseline, enough),
    ]
    return np.stack(
        [
            torch.stack([torch.where(says, values.double(), 0.0), says.double()])
            .unflatten(1, (-1, len(block.rows)))
            .sum(dim=2)
            .numpy()
            for values, says in figures
        ]
    )


def _recall(
    products: torch.Tensor,
    nearest: torch.Tensor,
    allowed: torch.Tensor,
    size: torch.Tensor,
    same_position: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the recall of each row, its baseline, and whether the row has enough keys.

    A row is one query of one head. All three results have the shape (rows,).
    """
    counts = allowed.sum(dim=1)
    enough = counts > NEIGHBOURS
    if not bool(enough.any()):
        none = torch.zeros(len(products))
        return none, none, enough
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
    return overlap / max_overlap, NEIGHBOURS**2 / counts / max_overlap, enough


def _correlations(
    products: torch.Tensor,
    distances: list[torch.Tensor],
    allowed: torch.Tensor,
    size: torch.Tensor,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield, for each space, the correlation between distance and product in each row.

    The second item of each pair says whether the correlation of a row is defined. Both items have
    the shape (rows,). `products` and `distances` are overwritten.
    """
    several = _three_differ(products, _TOLERANCE * size, allowed)
    _centre(products, allowed)
    product_norm = torch.linalg.vector_norm(products, dim=1)
    # Largest norm of centred distances, relative to their mean, that rounding errors alone can
    # cause. If the norm of a row is not larger, its correlation is not defined.
    rounding = _TOLERANCE * products.shape[1] ** 0.5
    for distance in distances:
        mean_size = _centre(distance, allowed)
        distance_norm = torch.linalg.vector_norm(distance, dim=1)
        # `einsum` would be much slower here, because it computes one matrix product per row.
        values = (distance * products).sum(dim=1) / (distance_norm * product_norm)
        is_defined = (
            several
            & (distance_norm > rounding * mean_size)
            & (product_norm > rounding * size[:, 0])
        )
        yield values.clamp(-1, 1), is_defined & torch.isfinite(values)


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
