"""Tests of the encoding of rows of a page, against a fixture and plain loops."""

from __future__ import annotations

import base64
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from attnviz.pages.rows import MIN_KEYS, Rows, concatenate_rows, encode_rows, select_rows
from unit.page_data import decode_rows

FIXTURE = Path(__file__).parents[2] / "fixtures" / "rows.json"
CASES: list[dict[str, Any]] = json.loads(FIXTURE.read_text(encoding="utf-8"))["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_fixture_is_decoded(case: dict[str, Any]) -> None:
    rows = decode_rows(case["header"], base64.b64decode(case["data"]))
    expected = np.zeros(case["header"]["shape"])
    for head, row, column, weight in case["cells"]:
        expected[head, row - case["header"].get("start", 0), column] = weight
    assert_allclose(rows.dense, expected, rtol=1e-12)


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


def signed_numbers(weights: NDArray[np.float32], *, signed: bool) -> NDArray[np.float32]:
    signs = np.random.default_rng(0).choice([-1, 1], weights.shape) if signed else 1
    numbers: NDArray[np.float32] = (weights * signs).astype(np.float32)
    return numbers


def selected(
    numbers: NDArray[np.float32], threshold: float, maximum: float, **options: Any
) -> Rows:
    """Select the keys that a page embeds, head by head, and join the rows of all heads."""
    parts = [select_rows(head, threshold, maximum, **options) for head in numbers]
    return concatenate_rows(parts)


@settings(max_examples=150)
@given(attention(), st.booleans(), st.floats(1e-6, 0.5), st.floats(0.001, 1000))
def test_rows_have_the_largest_weights_and_at_most_the_reported_error(
    weights: NDArray[np.float32], signed: bool, threshold: float, maximum: float
) -> None:
    numbers = signed_numbers(weights, signed=signed) * np.float32(maximum)
    rows = selected(numbers, threshold * maximum, maximum, signed=signed)
    header, runs = encode_rows(rows, numbers.shape, maximum, signed=signed)
    decoded = decode_rows(header, b"".join(runs))
    sizes = np.abs(numbers)
    for row_sizes, embedded in zip(
        sizes.reshape(-1, sizes.shape[2]),
        decoded.embedded.reshape(-1, sizes.shape[2]),
        strict=True,
    ):
        # A row embeds the keys that reach the threshold and the `MIN_KEYS` strongest keys, but no
        # keys of weight 0.
        order = sorted(range(len(row_sizes)), key=lambda key: (-row_sizes[key], key))
        expected = {key for key in order if row_sizes[key] >= np.float32(threshold * maximum)}
        expected |= set(order[:MIN_KEYS])
        keys = np.flatnonzero(embedded)
        assert keys.tolist() == sorted(key for key in expected if row_sizes[key] > 0)
    error = np.abs(decoded.dense - numbers).max()
    assert error <= header["error"] * (1 + 1e-4) + 1e-6 * maximum
    assert (decoded.dense * numbers >= 0).all()
    others = ~decoded.embedded
    if signed:
        assert not decoded.dense[others].any()
        return
    # The reported error is at most the largest of these numbers: rounding errors of embedded
    # weights, the other weights, and estimates of the other weights.
    rounding = np.abs(decoded.dense - numbers)[decoded.embedded].max(initial=0)
    unknown = np.maximum(numbers, decoded.dense)[others].max(initial=0)
    assert header["error"] <= max(rounding, unknown) * (1 + 1e-4) + 1e-6 * maximum
    # The rest of a row is the sum of its weights that are not embedded, rounded to a byte. The rest
    # does not contain rounding errors of the embedded weights.
    rests = np.where(others, numbers, 0).sum(axis=2, dtype=np.float64)
    decoded_rests = np.where(others, decoded.dense, 0).sum(axis=2)
    assert_allclose(decoded_rests, rests, atol=0.004 * header["max_rest"] + 1e-6 * maximum)
    # Weights before the first nonzero key and after the last are decoded as 0.
    before = np.maximum.accumulate(numbers > 0, axis=2)
    after = np.maximum.accumulate(numbers[..., ::-1] > 0, axis=2)[..., ::-1]
    assert not decoded.dense[~(before & after)].any()


@settings(max_examples=50)
@given(attention(), st.booleans())
def test_with_the_threshold_0_every_weight_has_a_code(
    weights: NDArray[np.float32], signed: bool
) -> None:
    numbers = signed_numbers(weights, signed=signed)
    header, runs = encode_rows(
        selected(numbers, 0.0, 1.0, signed=signed), numbers.shape, 1.0, signed=signed
    )
    decoded = decode_rows(header, b"".join(runs))
    assert decoded.embedded[numbers != 0].all()
    top = 127 if signed else 255
    roots = np.sign(numbers) * np.rint(top * np.sqrt(np.abs(numbers)))
    assert_allclose(decoded.dense, roots * np.abs(roots) / top**2, atol=1e-12)
    assert np.abs(decoded.dense - numbers).max() <= header["error"] * (1 + 1e-6)
    # If all keys are embedded, each row has one byte in `runs[0]` and no gaps in `runs[4]`.
    assert header["runs"][0] == numbers.shape[0] * numbers.shape[1]
    assert header["runs"][4] == 0


@settings(max_examples=50)
@given(attention(), st.floats(0, 0.2), st.integers(0, 40))
def test_columns_without_weight_need_not_be_passed(
    weights: NDArray[np.float32], threshold: float, first: int
) -> None:
    weights = weights[:1]
    columns = np.flatnonzero(weights.any(axis=(0, 1)))
    start, stop = (columns[0], columns[-1] + 1) if len(columns) else (0, 1)
    padded = np.pad(weights[0], [(0, 0), (first, 0)])
    rows = select_rows(padded, threshold, 1.0)
    part = select_rows(weights[0, :, start:stop].copy(), threshold, 1.0, first + int(start))
    for field in fields(Rows):
        actual, expected = getattr(part, field.name), getattr(rows, field.name)
        # Sums of the same weights may be rounded differently, in float32.
        assert_allclose(actual, expected, rtol=1e-6, err_msg=field.name)
