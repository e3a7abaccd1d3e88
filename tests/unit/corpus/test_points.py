"""The points of a corpus are its queries and keys, or a sample of the queries and keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from attnviz.corpus.points import checked_points, sampled_points


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
    assert_array_equal(points.query_text, points.key_text)
    assert_array_equal(points.query_position, points.key_position)
    for text in points.texts:
        of_text = points.query_position[points.queries_of(text)]
        assert set(points.query_text[points.queries_of(text)]) == {text}
        if points.whole:
            assert of_text.tolist() == list(range(counts[text]))
        else:
            assert of_text.tolist() == sorted(set(of_text.tolist()))
            assert of_text.max() < counts[text]
    if points.whole:
        omitted = set(range(len(counts))) - set(points.texts)
        room = max_points - len(points)
        assert all(2 * counts[text] > room for text in omitted)
    else:
        assert len(points.texts) == 1
        assert len(points) == 2 * (max_points // 2) < 2 * counts[points.texts[0]]


def test_the_seed_sets_the_order() -> None:
    counts = [4] * 50
    first, again, other = (
        sampled_points(counts, counts, max_points=80, seed=seed).texts for seed in (1, 1, 2)
    )
    assert first == again != other
    # Each of 100 samples has 10 of the 50 texts, so a text is in 20 samples on average.
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


def test_an_invalid_number_of_points_is_refused() -> None:
    with pytest.raises(ValueError, match="max_points=1 must be at least 2"):
        checked_points(1)
    assert checked_points(np.int64(7)) == 7
