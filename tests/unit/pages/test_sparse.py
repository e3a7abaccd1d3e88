"""Tests of the strongest keys of rows on pages, against a fixture and plain loops."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from attnviz.pages.strongest import (
    MIN_KEYS,
    SparseRows,
    StrongestRows,
    concatenate_rows,
    encode_sparse,
    sparse_rows,
    strongest_rows,
)
from unit.page_data import decode_sparse

FIXTURE = Path(__file__).parents[2] / "fixtures" / "sparse.json"
CASES: list[dict[str, Any]] = json.loads(FIXTURE.read_text(encoding="utf-8"))["cases"]

Rows = TypeVar("Rows", SparseRows, StrongestRows)
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])


def assert_same(actual: Rows, expected: Rows) -> None:
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
    assert (json.loads(json.dumps(header)), data) == (
        case["header"],
        base64.b64decode(case["data"]),
    )


@st.composite
def attention(draw: st.DrawFn) -> NDArray[np.float32]:
    """Draw weights (heads, queries, keys) with rows that sum to 1 or 0, causal or unmasked."""
    heads, rows, columns = (draw(st.integers(1, limit)) for limit in (3, 7, 150))
    generator = np.random.default_rng(draw(st.integers(0, 10_000)))
    weights = generator.random((heads, rows, columns)) ** draw(st.integers(1, 30))
    weights[generator.random(weights.shape) < draw(st.floats(0, 1))] = 0
    if draw(st.booleans()):
        weights *= np.tri(rows, columns, draw(st.integers(0, 3)))
    sums = weights.sum(axis=2, keepdims=True)
    shares: NDArray[np.float32] = (weights / np.where(sums > 0, sums, 1)).astype(np.float32)
    return shares


def rows_of(numbers: NDArray[np.float32], threshold: float) -> StrongestRows:
    """Return the strongest keys of each row of each head, with signs if any number is below 0."""
    signed = bool((numbers < 0).any())
    return concatenate_rows([strongest_rows(head, threshold, signed=signed) for head in numbers])


@settings(max_examples=150)
@given(attention(), st.booleans(), st.floats(0, 0.5), st.floats(0.001, 1000))
def test_stored_rows_have_the_strongest_keys_and_the_reported_error(
    weights: NDArray[np.float32], signed: bool, threshold: float, maximum: float
) -> None:
    numbers = weights * np.float32(maximum)
    if signed:
        numbers *= np.random.default_rng(0).choice([-1, 1], numbers.shape).astype(np.float32)
    signed = bool((numbers < 0).any())
    stored = rows_of(numbers, threshold * maximum)
    rows, error = sparse_rows(stored, numbers.shape, maximum, signed=signed)
    reloaded = decode_sparse(*encode_sparse(rows))
    assert_same(rows, reloaded)
    lines = numbers.reshape(-1, numbers.shape[2])
    is_embedded = np.zeros(lines.shape, np.bool_)
    for row, keys in enumerate(np.split(stored.keys, np.cumsum(stored.counts)[:-1])):
        # A row stores the keys that reach the threshold and the `MIN_KEYS` strongest, but no zeros.
        sizes = np.abs(lines[row])
        order = sorted(range(len(sizes)), key=lambda key: (-sizes[key], key))
        expected = {key for key in order if sizes[key] >= np.float32(threshold * maximum)}
        expected |= set(order[:MIN_KEYS])
        assert keys.tolist() == sorted(key for key in expected if sizes[key] > 0)
        assert stored.sums[row] == pytest.approx(float(sizes.sum(dtype=np.float64)))
        is_embedded[row, keys] = True
    assert_array_equal(lines[is_embedded], stored.weights)
    dense = reloaded.dense().reshape(lines.shape)
    # The reported error is the largest error of the decoded numbers, and no sign is wrong.
    assert np.abs(dense - lines).max() == pytest.approx(error, rel=1e-4, abs=1e-6 * maximum)
    assert (dense * lines >= 0).all()
    if signed:
        # Numbers that are not embedded are decoded as 0.
        assert not dense[~is_embedded].any()
        return
    # The rest of a row is the sum of the weights that are not embedded, rounded to a byte. Rounding
    # errors of the embedded weights do not change this sum.
    decoded_rests = np.where(is_embedded, 0, dense).sum(axis=1)
    rests = np.where(is_embedded, 0, lines).sum(axis=1, dtype=np.float64)
    assert_allclose(decoded_rests, rests, atol=0.004 * reloaded.max_rest + 1e-6 * maximum)
    # Rows keep their sums, up to the rounding of weights and rest.
    error_of_sum = np.abs(dense.sum(axis=1) - lines.sum(axis=1, dtype=np.float64))
    assert error_of_sum.max() <= 0.0125 * maximum
    # Weights before the first nonzero key and after the last are decoded as 0.
    before = np.maximum.accumulate(lines > 0, axis=1)
    after = np.maximum.accumulate(lines[:, ::-1] > 0, axis=1)[:, ::-1]
    assert not dense[~(before & after)].any()


@settings(max_examples=60)
@given(attention(), st.booleans(), st.floats(0, 0.3), st.floats(0, 1))
def test_raising_the_threshold_later_gives_the_same(
    weights: NDArray[np.float32], signed: bool, threshold: float, part: float
) -> None:
    numbers = -weights if signed else weights
    raised = rows_of(numbers, threshold * part).raise_threshold(threshold)
    assert_same(raised, rows_of(numbers, threshold))
