"""Tests of the sampling of queries that represent a long text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.record import rows
from attnviz.record.rows import num_scored_queries, sample_queries
from unit.records import captured_record


@given(st.integers(1, 5000), st.integers(1, 300))
def test_one_query_is_sampled_from_each_part(num_queries: int, max_queries: int) -> None:
    queries = sample_queries(num_queries, max_queries)
    num_sampled = min(num_queries, max_queries)
    edges = np.arange(num_sampled + 1) * num_queries / num_sampled
    assert (queries >= np.floor(edges[:-1])).all()
    assert (queries < edges[1:]).all()
    assert len(set(queries.tolist())) == len(queries) == num_sampled


@pytest.mark.parametrize("period", [16, 24, 64, 256, 512])
def test_sampled_queries_do_not_repeat_with_a_period(period: int) -> None:
    # If an image has `period` patches per row, each quarter of the columns has at least 8 sampled
    # queries.
    columns = sample_queries(32_768) % period
    assert np.bincount(columns * 4 // period, minlength=4).min() >= 8


def test_scores_sample_queries_of_long_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = captured_record().stack()
    monkeypatch.setattr(rows, "_MAX_ENTRIES", 36)
    assert num_scored_queries(stack) is None
    monkeypatch.setattr(rows, "_MAX_ENTRIES", 35)
    assert num_scored_queries(stack) == 6
