"""Strongest keys, compared with a fixture made without attnviz and with plain loops."""

from __future__ import annotations

import base64
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from attnviz.pages.strongest import (
    MIN_KEYS,
    SparseRows,
    concatenate_rows,
    encode_sparse,
    sparse_rows,
    strongest_rows,
)
from unit.page_data import decode_sparse

FIXTURE = Path(__file__).parents[2] / "fixtures" / "sparse.json"
CASES: list[dict[str, Any]] = json.loads(FIXTURE.read_text(encoding="utf-8"))["cases"]

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])


def same(actual: SparseRows, expected: SparseRows) -> None:
    for name in actual.__dataclass_fields__:
        assert_array_equal(getattr(actual, name), getattr(expected, name), err_msg=name)


@each_case
def test_the_fixture_is_decoded(case: dict[str, Any]) -> None:
    rows = decode_sparse(case["header"], base64.b64decode(case["data"]))
    expected = np.zeros(case["header"]["shape"])
    for head, row, column, weight in case["cells"]:
        expected[head, row, column] = weight
    assert_allclose(rows.dense(), expected, rtol=1e-12)


@each_case
def test_the_fixture_is_encoded(case: dict[str, Any]) -> None:
    header, data = encode_sparse(decode_sparse(case["header"], base64.b64decode(case["data"])))
    assert (header, data) == (case["header"], base64.b64decode(case["data"]))
    assert json.loads(json.dumps(header)) == case["header"]


@st.composite
def attention(draw: st.DrawFn) -> NDArray[np.float32]:
    """Return weights whose rows sum to one or zero, with a causal mask or without a mask.

    The causal mask allows up to three later keys.
    """
    heads, rows, columns = (draw(st.integers(1, limit)) for limit in (3, 7, 150))
    generator = np.random.default_rng(draw(st.integers(0, 10_000)))
    weights = generator.random((heads, rows, columns)) ** draw(st.integers(1, 30))
    weights[generator.random(weights.shape) < draw(st.floats(0, 1))] = 0
    if draw(st.booleans()):
        weights *= np.tri(rows, columns, draw(st.integers(0, 3)))
    sums = weights.sum(axis=2, keepdims=True)
    shares: NDArray[np.float32] = (weights / np.where(sums > 0, sums, 1)).astype(np.float32)
    return shares


@settings(max_examples=150, deadline=None)
@given(attention(), st.floats(0, 0.5), st.floats(0.001, 1000))
def test_stored_rows_have_the_reported_error(
    weights: NDArray[np.float32], threshold: float, maximum: float
) -> None:
    scaled = weights * np.float32(maximum)
    stored = concatenate_rows([strongest_rows(head, threshold * maximum) for head in scaled])
    rows, error = sparse_rows(stored, scaled.shape, maximum)
    back = decode_sparse(*encode_sparse(rows))
    same(rows, back)
    dense = back.dense()
    # The reported error is the largest error of the decoded weights.
    assert np.abs(dense - scaled).max() == pytest.approx(error, rel=1e-4, abs=1e-6 * maximum)
    # Rows keep their sums, up to the last byte of the rest.
    error_of_sum = np.abs(dense.sum(axis=2) - scaled.sum(axis=2, dtype=np.float64))
    assert error_of_sum.max() <= 0.0125 * maximum
    # Weights before the first nonzero key and after the last are zero.
    nonzero = scaled > 0
    before = np.maximum.accumulate(nonzero, axis=2)
    after = np.maximum.accumulate(nonzero[:, :, ::-1], axis=2)[:, :, ::-1]
    assert (dense[~(before & after)] == 0).all()


@settings(max_examples=80, deadline=None)
@given(attention(), st.floats(0, 0.5), st.floats(0.001, 1000))
def test_signed_numbers_are_embedded_by_size_with_their_signs_and_nothing_is_spread(
    sizes: NDArray[np.float32], threshold: float, maximum: float
) -> None:
    signs = np.random.default_rng(len(sizes)).choice([-1, 1], sizes.shape)
    numbers = (sizes * signs * np.float32(maximum)).astype(np.float32)
    stored = concatenate_rows(
        [strongest_rows(head, threshold * maximum, signed=True) for head in numbers]
    )
    # Absolute values give the same keys and sums.
    plain = concatenate_rows(
        [strongest_rows(np.abs(head), threshold * maximum) for head in numbers]
    )
    assert_array_equal(stored.keys, plain.keys)
    assert_array_equal(np.abs(stored.weights), plain.weights)
    assert_array_equal(stored.sums, plain.sums)
    rows, error = sparse_rows(stored, numbers.shape, maximum, signed=True)
    back = decode_sparse(*encode_sparse(rows))
    same(rows, back)
    dense = back.dense()
    row = np.repeat(np.arange(numbers.shape[0] * numbers.shape[1]), stored.counts)
    embedded = np.zeros((numbers.shape[0] * numbers.shape[1], numbers.shape[2]), np.bool_)
    embedded[row, stored.keys] = True
    embedded = embedded.reshape(numbers.shape)
    assert_array_equal(numbers[embedded], stored.weights)
    # All other numbers are decoded as 0, and the error is at least their absolute value.
    assert not dense[~embedded].any()
    assert np.abs(dense - numbers).max() == pytest.approx(error, rel=1e-4, abs=1e-6 * maximum)
    assert error >= np.abs(numbers[~embedded]).max(initial=0)
    assert (dense * numbers >= 0).all()
    # Raising the threshold later gives the same.
    raised = stored.raise_threshold(2 * threshold * maximum)
    direct = concatenate_rows(
        [strongest_rows(h, 2 * threshold * maximum, signed=True) for h in numbers]
    )
    for name in direct.__dataclass_fields__:
        assert_array_equal(getattr(raised, name), getattr(direct, name), err_msg=name)


@settings(max_examples=100, deadline=None)
@given(attention(), st.floats(0, 0.5))
def test_only_the_strongest_keys_are_stored(weights: NDArray[np.float32], threshold: float) -> None:
    for head in weights:
        stored = strongest_rows(head, threshold)
        starts = np.cumsum(stored.counts) - stored.counts
        for row, line in enumerate(head):
            keys = stored.keys[starts[row] : starts[row] + stored.counts[row]]
            # Sorted by weight. The first of equal weights comes first.
            order = sorted(range(len(line)), key=lambda key: (-line[key], key))
            expected = {key for key in order if line[key] >= threshold and line[key] > 0}
            expected |= {key for key in order[:MIN_KEYS] if line[key] > 0}
            assert keys.tolist() == sorted(expected)
            assert stored.sums[row] == pytest.approx(float(line.sum(dtype=np.float64)))


@settings(max_examples=60, deadline=None)
@given(attention(), st.floats(0, 0.3), st.floats(0, 1))
def test_raising_the_threshold_later_gives_the_same(
    weights: NDArray[np.float32], threshold: float, part: float
) -> None:
    lower = concatenate_rows([strongest_rows(head, threshold * part) for head in weights])
    direct = concatenate_rows([strongest_rows(head, threshold) for head in weights])
    raised = lower.raise_threshold(threshold)
    for name in direct.__dataclass_fields__:
        assert_array_equal(getattr(raised, name), getattr(direct, name), err_msg=name)


def test_read_only_weights_cause_no_warning() -> None:
    weights = np.array([[0.1, 0.5, 0.0, 0.4]], np.float32)
    weights.flags.writeable = False
    before = torch.is_warn_always_enabled()
    # By default torch warns only once in a process.
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            rows = strongest_rows(weights, threshold=0.45)
    finally:
        torch.set_warn_always(before)
    assert rows.keys.tolist() == [1, 3]
