"""Test how queries and keys are scaled, translated, lifted (one more coordinate) and projected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from attnviz import Corpus
from attnviz.embedding import Placing, place, principal_components, problems
from unit.random_corpora import corpus, with_vectors
from unit.records import vectors

Numbers = NDArray[np.float64]


def sides(example: Corpus, layer: int, head: int, stack: str = "self") -> tuple[Numbers, Numbers]:
    """Return the queries and the keys of a head from all records, (tokens, head_dim) each."""
    both_sides = []
    for side in ("queries", "keys"):
        vectors_of_records = [
            getattr(record.stacks[stack], side)(layer=layer, head=head)
            for record in example.records
        ]
        both_sides.append(np.concatenate(vectors_of_records).astype(np.float64))
    return both_sides[0], both_sides[1]


def test_scaling_then_translation_by_hand() -> None:
    example = corpus([4, 3, 6])
    placed = place(example, "self", 1)
    for head in range(3):
        queries, keys = sides(example, 1, head)
        c = np.sqrt(np.median(np.sqrt((queries**2).sum(1))) / np.median(np.sqrt((keys**2).sum(1))))
        assert placed.factors[head] == pytest.approx(c, rel=1e-6)
        assert_allclose(placed.queries[head], queries / c, atol=1e-5)
        moved = keys * c + (queries / c).mean(0) - (keys * c).mean(0)
        assert_allclose(placed.keys[head], moved, atol=1e-5)


@given(
    seed=st.integers(0, 50),
    spread=st.sampled_from([0.01, 1.0, 100.0]),
    scaling=st.sampled_from(["norms", "none"]),
    translate=st.booleans(),
)
def test_lifted_keys_are_ordered_by_distance_as_by_product(
    seed: int, spread: float, scaling: Any, translate: bool
) -> None:
    example = with_vectors(
        vectors(1, 12, 5, seed=seed) + 0.5, spread * vectors(1, 12, 5, seed=seed + 100) - 1, [5, 7]
    )
    queries, keys = sides(example, 0, 0)
    products = queries @ keys.T
    placed = place(example, "self", 0, Placing(scaling, translate=translate, lift=True))
    assert placed.keys.shape == (1, 12, 6)
    assert not placed.queries[..., -1].any()
    lengths = torch.linalg.vector_norm(placed.keys[0].double(), dim=1)
    assert_allclose(lengths, lengths.max(), rtol=1e-5)
    both = placed.queries[0].double().numpy(), placed.keys[0].double().numpy()
    distances = np.array([np.linalg.norm(query - both[1], axis=1) for query in both[0]])
    # The lift is rounded to float32, so keys whose products are nearly equal can change order.
    tolerance = 1e-5 * (distances**2).max()
    for query in range(12):
        difference = products[query, :, None] - products[query]
        clear = difference > tolerance
        assert (distances[query, :, None] < distances[query])[clear].all()
        assert clear.sum() > 30


@pytest.mark.parametrize(("dimensions", "lift"), [(2, False), (3, True)])
def test_principal_components_equal_those_of_scikit_learn(dimensions: int, lift: bool) -> None:
    example = corpus([14, 9, 17], layers=1, heads=5)
    placed = place(example, "self", 0, Placing(lift=lift))
    plots = principal_components(placed, dimensions)
    assert plots.coordinates.shape == (5, 80, dimensions)
    assert plots.coordinates.dtype == torch.float32
    for head in range(5):
        pooled = torch.cat([placed.queries[head], placed.keys[head]]).double().numpy()
        reference = PCA(dimensions, svd_solver="full").fit(pooled)
        # Signs agree, because both functions make the largest entry of a component positive.
        assert_allclose(plots.coordinates[head], reference.transform(pooled), atol=2e-4)
        assert_allclose(plots.explained[head], reference.explained_variance_ratio_, atol=1e-5)


def test_a_plot_does_not_depend_on_other_heads() -> None:
    example = corpus([14, 9], heads=5)
    alone = principal_components(place(example, "self", 1, heads=[3])).coordinates[0]
    with_others = principal_components(place(example, "self", 1)).coordinates[3]
    assert_allclose(alone, with_others, atol=1e-4)


def test_a_head_of_fewer_dimensions_gets_zeros() -> None:
    example = with_vectors(vectors(2, 6, 1), vectors(2, 6, 1, seed=1), [6])
    plots = principal_components(place(example, None, 0), 3)
    assert not plots.coordinates[..., 1:].any()
    assert_allclose(plots.explained, [[1, 0, 0]] * 2)
    assert plots.coordinates[..., 0].std() > 0


def test_the_scale_of_numbers_does_not_change_the_plot() -> None:
    queries, keys = vectors(1, 20, 4), vectors(1, 20, 4, seed=1)
    plots = [
        principal_components(place(with_vectors(queries * factor, keys * factor, [20]), None, 0))
        for factor in (1.0, 1e15, 1e-15)
    ]
    for factor, plot in zip((1e15, 1e-15), plots[1:], strict=True):
        assert_allclose(plot.coordinates / factor, plots[0].coordinates, rtol=1e-3, atol=1e-4)
        assert_allclose(plot.explained, plots[0].explained, atol=1e-5)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
def test_a_head_with_nan_does_not_affect_others(value: float) -> None:
    queries, keys = vectors(3, 9, 4), vectors(3, 9, 4, seed=1)
    valid = principal_components(place(with_vectors(queries, keys.clone(), [4, 5]), None, 0))
    keys[1, 5, 2] = value
    placed = place(with_vectors(queries, keys, [4, 5]), None, 0)
    problem = "queries or keys are not finite numbers, or too large to measure distances"
    assert problems(placed) == [None, problem, None]
    plots = principal_components(placed)
    assert plots.coordinates[1].isnan().all()
    assert np.isnan(plots.explained[1]).all()
    for head in (0, 2):
        assert_allclose(plots.coordinates[head], valid.coordinates[head], atol=1e-4)


@pytest.mark.parametrize(
    ("example", "placing", "one_point"),
    [
        (with_vectors(torch.zeros(1, 7, 4), torch.zeros(1, 7, 4), [3, 4]), Placing(), True),
        (corpus([1], heads=1), Placing(), True),
        (
            with_vectors(vectors(1, 7, 4), vectors(1, 1, 4, seed=3).repeat(1, 7, 1), [3, 4]),
            Placing(translate=False),
            False,
        ),
    ],
    ids=["zeros", "one token", "equal keys"],
)
def test_equal_points_and_equal_keys_are_reported(
    example: Corpus, placing: Placing, one_point: bool
) -> None:
    placed = place(example, None, 0, placing)
    assert problems(placed) == ["all keys are the same"]
    for lift in (False, True):
        plots = principal_components(place(example, None, 0, Placing(lift=lift)))
        assert torch.isfinite(plots.coordinates).all()
        assert np.isfinite(plots.explained).all()
        assert lift or not one_point or not plots.coordinates.any()
