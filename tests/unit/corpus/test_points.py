"""Points of a corpus: the sampled texts and tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from attnviz.corpus.points import Points, checked_points, sampled_points


def positions_of_points(points: Points) -> list[tuple[int, int, int, int]]:
    """Return the text and position of each query, and of the key with the same number."""
    columns = (points.query_text, points.query_position, points.key_text, points.key_position)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_all_texts_that_fit_are_numbered_text_by_text() -> None:
    points = sampled_points([3, 1, 2], [3, 1, 2], max_points=12)
    assert positions_of_points(points) == [
        (0, 0, 0, 0),
        (0, 1, 0, 1),
        (0, 2, 0, 2),
        (1, 0, 1, 0),
        (2, 0, 2, 0),
        (2, 1, 2, 1),
    ]
    assert (len(points), points.num_queries, points.num_keys) == (12, 6, 6)
    assert (points.total_points, points.whole, points.texts) == (12, True, (0, 1, 2))
    assert points.queries_of(2) == points.keys_of(2) == slice(4, 6)
    for column in (points.query_text, points.query_position, points.key_text, points.key_position):
        assert column.dtype == np.int32


@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    max_points=st.integers(2, 120),
    seed=st.integers(0, 3),
)
def test_complete_texts_are_sampled_while_they_fit(
    counts: list[int], max_points: int, seed: int
) -> None:
    points = sampled_points(counts, counts, max_points=max_points, seed=seed)
    assert 2 <= len(points) <= max_points
    assert points.total_points == 2 * sum(counts)
    for text in points.texts:
        of_text = points.query_position[points.query_text == text]
        if points.whole:
            assert of_text.tolist() == list(range(counts[text]))
        else:
            assert of_text.tolist() == sorted(set(of_text.tolist()))
            assert of_text.max() < counts[text]
    if points.whole:
        omitted = set(range(len(counts))) - set(points.texts)
        room = max_points - len(points)
        # No omitted text would fit into the remaining points.
        assert all(2 * counts[text] > room for text in omitted)
    else:
        assert len(points.texts) == 1
        assert len(points) == 2 * (max_points // 2) < 2 * counts[points.texts[0]]
        assert_array_equal(points.query_position, points.key_position)


def test_the_sample_of_a_text_is_not_its_start() -> None:
    assert sampled_points([100], [100], max_points=21).query_position.max() > 50


def test_the_seed_sets_the_order() -> None:
    counts = [4] * 50
    first, again, other = (
        sampled_points(counts, counts, max_points=80, seed=seed).texts for seed in (1, 1, 2)
    )
    assert first == again != other
    # Every text is equally likely: 100 draws of 10 from 50 omit none.
    drawn = [sampled_points(counts, counts, max_points=80, seed=seed).texts for seed in range(100)]
    counts_of_texts = np.bincount(np.concatenate(drawn), minlength=50)
    assert counts_of_texts.sum() == 1000
    assert counts_of_texts.min() > 5
    assert counts_of_texts.max() < 40


def test_queries_and_keys_of_different_tokens_are_sampled_in_proportion() -> None:
    points = sampled_points([10], [90], max_points=50, same_tokens=False)
    assert (points.num_queries, points.num_keys) == (5, 45)
    lone = sampled_points([1], [900], max_points=2, same_tokens=False)
    assert (lone.num_queries, lone.num_keys) == (1, 1)
    points = sampled_points([2, 1], [1, 3], max_points=100, same_tokens=False)
    assert points.query_text.tolist() == [0, 0, 1]
    assert points.key_text.tolist() == [0, 1, 1, 1]
    assert points.key_position.tolist() == [0, 0, 1, 2]


def test_texts_without_tokens_are_skipped() -> None:
    assert sampled_points([0, 2], [0, 2], max_points=4).texts == (1,)
    with pytest.raises(ValueError, match="the texts have no tokens"):
        sampled_points([0], [0], max_points=4)


@pytest.mark.parametrize(
    ("points", "error", "words"),
    [
        (1, ValueError, "max_points=1 must be at least 2"),
        (1e4, TypeError, r"max_points=10000\.0 must be a whole number"),
        (None, TypeError, "points=None must be a whole number"),
    ],
)
def test_an_invalid_number_of_points_is_refused(
    points: object, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        checked_points(points)
    assert checked_points(10**30) == 10**30
    assert checked_points(np.int64(7)) == 7
