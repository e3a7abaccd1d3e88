"""Figures of how far an embedding plot can be trusted equal those computed by plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from attnviz import Corpus
from attnviz.embedding import (
    HeadTrust,
    Placing,
    measure_trust,
    place,
    principal_components,
)
from attnviz.record.masks import BandMask, PackedMask
from unit.random_corpora import corpus, cross_record, record, with_vectors
from unit.records import vectors

Numbers = NDArray[np.float64]
FIGURES = ("plot", "recall", "recall_baseline")


def mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def looped(
    example: Corpus, stack: str, layer: int, head: int, plot: torch.Tensor
) -> list[float | None]:
    """Compute `FIGURES` of a head with loops."""
    points = example.points(stack)
    raw = example.vectors(stack, layer, [head])
    num_queries = points.num_queries
    products = (raw.queries[0].double() @ raw.keys[0].double().T).numpy()
    allowed = np.zeros(products.shape, bool)
    for i in range(num_queries):
        for j in range(points.num_keys):
            if points.query_text[i] == points.key_text[j]:
                pair = int(points.query_position[i]), int(points.key_position[j])
                allowed[i, j] = (
                    example.records[points.query_text[i]]
                    .stacks[stack]
                    .allowed(layer=layer, head=head)[pair]
                )
    queries, keys = plot.double().numpy()[:num_queries], plot.double().numpy()[num_queries:]
    distances = np.array([[np.linalg.norm(q - k) for k in keys] for q in queries])
    correlations, shares, chances = [], [], []
    for i in range(num_queries):
        keys_of = np.flatnonzero(allowed[i])
        if len(np.unique(products[i, keys_of])) > 2:
            correlations.append(np.corrcoef(distances[i, keys_of], products[i, keys_of])[0, 1])
        if len(keys_of) <= 10:
            continue
        strongest = sorted(keys_of, key=lambda j, i=i: -products[i, j])[:10]  # type: ignore[misc]
        nearest = sorted(keys_of, key=lambda j, i=i: distances[i, j])[:10]  # type: ignore[misc]
        shares.append(len({*strongest} & {*nearest}) / 10)
        chances.append(10 / len(keys_of))
    return [mean(correlations), mean(shares), mean(chances)]


def assert_looped(example: Corpus, stack: str, layer: int, placing: Placing) -> list[HeadTrust]:
    placed = place(example, stack, layer, placing)
    plots = principal_components(placed).coordinates
    measured = measure_trust(example, stack, layer, placed.heads, plots)
    assert len(measured) == len(placed.heads)
    for number, figures in enumerate(measured):
        assert figures is not None
        actual = [getattr(figures, name) for name in FIGURES]
        # `np.array` converts None to NaN.
        expected = looped(example, stack, layer, placed.heads[number], plots[number])
        assert_allclose(np.array(actual, float), np.array(expected, float), atol=1e-4)
        assert (figures.num_queries, figures.num_total) == (example.points(stack).num_queries,) * 2
    return [figures for figures in measured if figures is not None]


@pytest.mark.parametrize(
    "placing", [Placing(), Placing("none", translate=False), Placing(lift=True)], ids=str
)
def test_figures_are_those_of_plain_loops(placing: Placing) -> None:
    figures = assert_looped(corpus([23, 4, 1, 15], layers=1), "self", 0, placing)
    assert len({head_trust.plot for head_trust in figures}) == 3
    assert all(head_trust.recall and head_trust.recall > 0.2 for head_trust in figures)


def test_other_masks_and_kinds_of_heads_equal_plain_loops() -> None:
    flags = torch.from_numpy(np.random.default_rng(0).random((3, 16, 16)) < 0.7)
    flags[:, 3] = False
    masked = record(16, layers=1, mask=PackedMask.pack(flags))
    queries, keys = vectors(1, 40, 4), vectors(1, 40, 4, seed=1)
    # All products of a zero query are equal, so the query has no correlation.
    queries[:, :10:2] = 0
    for example, stack, layer in (
        (Corpus([masked, record(16, layers=1)]), "self", 0),
        (corpus([16, 5], layers=1, mask=BandMask(4, 4)), "self", 0),
        (corpus([16, 5], layers=1, mask=None), "self", 0),
        (corpus([14, 12], layers=1, heads=6, key_heads=2), "self", 0),
        (Corpus([cross_record(14, 12), cross_record(5, 13, seed=9)]), "cross", 0),
        (corpus([60], max_points=40, layers=1), "self", 0),
        (corpus([2] * 20, layers=1), "self", 0),
        (with_vectors(queries, keys, [40]), "self", 0),
    ):
        assert_looped(example, stack, layer, Placing())


def test_ties_are_broken_at_random() -> None:
    """The recall equals the mean of recalls over many random orders of equal numbers."""
    random = np.random.default_rng(2)
    token_of_key = torch.from_numpy(random.integers(0, 9, 80))
    queries, keys = vectors(1, 9, 4), vectors(1, 9, 4, seed=1)
    example = with_vectors(queries[:, token_of_key], keys[:, token_of_key], [80])
    plots = principal_components(place(example, None, 0)).coordinates
    [figures] = measure_trust(example, None, 0, [0], plots)
    assert figures is not None
    raw = example.vectors(None, 0)
    products = np.round((raw.queries[0] @ raw.keys[0].T).double().numpy(), 4)
    distances = np.round(torch.cdist(plots[0, :80], plots[0, 80:]).double().numpy(), 4)

    def first(values: Numbers) -> NDArray[np.int64]:
        shuffled = random.permutation(len(values))
        return shuffled[np.argsort(values[shuffled], kind="stable")[:10]]

    def overlap(one: Numbers, other: Numbers) -> int:
        return len({*first(one).tolist()} & {*first(other).tolist()})

    shares = []
    for query in range(10, 80):
        strong, near = -products[query, : query + 1], distances[query, : query + 1]
        by_chance = [overlap(strong, near) for _ in range(200)]
        shares.append(np.mean(by_chance) / np.mean([overlap(strong, strong) for _ in range(200)]))
    assert figures.recall == pytest.approx(np.mean(shares), abs=0.02)


def test_a_sample_of_queries_estimates_the_figures() -> None:
    example = corpus([50] * 20, layers=1, heads=2)
    plots = principal_components(place(example, None, 0)).coordinates
    for exact, estimate in zip(
        measure_trust(example, None, 0, [0, 1], plots, max_queries=10**9),
        measure_trust(example, None, 0, [0, 1], plots, max_queries=200, seed=3),
        strict=True,
    ):
        assert exact is not None
        assert estimate is not None
        assert (exact.num_queries, estimate.num_queries, estimate.num_total) == (1000, 200, 1000)
        assert estimate.plot == pytest.approx(exact.plot, abs=0.05)
        assert estimate.recall == pytest.approx(exact.recall, abs=0.05)


def test_a_head_that_is_not_finite_has_no_figures() -> None:
    queries, keys = vectors(3, 14, 4), vectors(3, 14, 4, seed=1)
    queries[1, 3, 2] = float("nan")
    example = with_vectors(queries, keys, [14])
    plots = principal_components(place(example, None, 0)).coordinates
    plots[2, 0] = float("inf")
    figures_of_heads = measure_trust(example, None, 0, [0, 1, 2], plots)
    assert [figures is None for figures in figures_of_heads] == [False, True, True]
