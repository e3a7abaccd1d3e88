"""The codec in Python, compared with the formulas of its encodings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.testing import assert_allclose, assert_array_equal

from attnviz.server.codec import Encoded, Precision, decode, encode, pool_max
from fixtures.make_codec import cases, values_of
from unit.formulas import equal_cells

FIXTURE = Path(__file__).parents[2] / "fixtures" / "codec.json"
CASES: list[dict[str, Any]] = json.loads(FIXTURE.read_text(encoding="utf-8"))["cases"]


def test_the_fixture_of_typescript_is_what_replies_contain() -> None:
    """If this fails, run `fixtures.make_codec` and the tests of js."""
    written = json.loads(json.dumps(cases()))
    assert [case["name"] for case in written] == [case["name"] for case in CASES]
    for case, stored in zip(written, CASES, strict=True):
        assert case["data"] == stored["data"]
        assert case["header"] == stored["header"]


def blocks(minimum: float) -> st.SearchStrategy[Any]:
    """Return numbers from `minimum` to 1 for a few heads, rows and columns."""
    shapes = st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 9))
    numbers = st.floats(minimum, 1, width=32)
    return shapes.flatmap(lambda shape: arrays.arrays(np.float32, shape, elements=numbers))


@pytest.mark.parametrize(("signed", "error"), [(False, 0.00392), (True, 0.00786)])
@settings(max_examples=100)
@given(st.data(), st.floats(1e-3, 1e4))
def test_numbers_have_at_most_the_reported_error_and_keep_their_sign(
    signed: bool, error: float, data: st.DataObject, maximum: float
) -> None:
    scaled = data.draw(blocks(-1 if signed else 0)) * np.float32(maximum)
    encoded = encode(scaled, "uint8", maximum, signed=signed)
    codes = np.frombuffer(encoded.data, np.int8 if signed else np.uint8).reshape(scaled.shape)
    # Codes are the nearest ones, except if float32 rounds to the other side.
    top = 127 if signed else 255
    exact = np.sign(scaled) * top * np.sqrt(np.abs(scaled) / maximum)
    assert np.abs(codes - exact).max() <= 0.501
    values = decode(encoded).astype(np.float64)
    assert_allclose(
        values, values_of(encoded.encoding, encoded.data, maximum).reshape(values.shape), rtol=1e-6
    )
    assert np.abs(values - scaled).max() <= encoded.error * (1 + 1e-5)
    assert encoded.error == pytest.approx(error * maximum, rel=1e-3)
    assert (values * scaled >= 0).all()
    if signed:
        # Both signs are rounded in the same way.
        assert_array_equal(decode(encode(-scaled, "uint8", maximum, signed=True)), -values)


@pytest.mark.parametrize(("signed", "codes"), [(False, range(256)), (True, range(-127, 128))])
def test_codes_rise_with_the_numbers_and_the_largest_error_is_reached(
    signed: bool, codes: range
) -> None:
    numbers = np.linspace(-1 if signed else 0, 1, 1_000_001, dtype=np.float32)[None, None]
    encoded = encode(numbers, "uint8", signed=signed)
    assert np.abs(decode(encoded) - numbers).max() == pytest.approx(encoded.error, rel=1e-3)
    codes_sent = np.frombuffer(encoded.data, np.int8 if signed else np.uint8).astype(int)
    assert (np.diff(codes_sent) >= 0).all()
    assert_array_equal(np.unique(codes_sent), codes)


@settings(max_examples=50)
@given(blocks(0))
def test_float32_loses_nothing_in_any_memory_layout(
    weights: np.ndarray[Any, np.dtype[np.float32]],
) -> None:
    encoded = encode(weights, "float32")
    assert (encoded.error, len(encoded.data)) == (0.0, 4 * weights.size)
    assert_array_equal(decode(encoded), weights)
    # The result does not depend on the memory layout.
    turned = np.asfortranarray(weights)
    assert encode(turned, "float32").data == encoded.data
    assert encode(turned, "uint8").data == encode(weights, "uint8").data


@pytest.mark.parametrize("tokens", [8, 64, 65])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("signed", [False, True])
def test_exact_numbers_with_many_zeros_are_compressed_without_loss(
    tokens: int, causal: bool, signed: bool
) -> None:
    weights = np.random.default_rng(0).random((3, tokens, tokens), np.float32) - 0.5 * signed
    weights = np.tril(weights) if causal else weights
    encoded = encode(weights, "float32", signed=signed)
    # Compressing noise or a few bytes does not pay.
    deflated = causal and tokens > 8
    assert encoded.encoding == ("float32-deflated" if deflated else "float32")
    assert (len(encoded.data) < 0.6 * weights.nbytes) == deflated
    assert (encoded.error, encoded.shape) == (0.0, weights.shape)
    assert_array_equal(decode(encoded), weights)


def test_zeros_are_encoded_without_error() -> None:
    encoded = encode(np.zeros((1, 2, 2), np.float32), "uint8", 0.0)
    assert (encoded.data, encoded.error) == (bytes(4), 0.0)
    assert_array_equal(decode(encoded), 0)


def test_rounding_above_the_maximum_is_accepted() -> None:
    weights = np.array([[[np.nextafter(np.float32(1), np.float32(2)), 1.004]]], np.float32)
    assert encode(weights, "uint8").data == b"\xff\xff"


@pytest.mark.parametrize("precision", ["uint8", "float32"])
@pytest.mark.parametrize(
    ("value", "signed", "message"),
    [
        (np.nan, False, r"NaN or infinite \(the first at index 1 of the requested heads\)"),
        (np.inf, False, r"NaN or infinite \(the first at index 1"),
        (-0.1, False, "some weights are negative"),
        (1.01, False, r"some weights are 1\.01, which exceeds the maximum 1\."),
        (np.nan, True, "NaN or infinite"),
        (-np.inf, True, "NaN or infinite"),
        (-3.5, True, r"some numbers have the absolute value 3\.5, which exceeds the maximum 1"),
        (3.5, True, r"some numbers have the absolute value 3\.5"),
    ],
)
def test_numbers_that_cannot_be_encoded_are_refused(
    precision: Precision, value: float, signed: bool, message: str
) -> None:
    numbers = np.zeros((3, 2, 2), np.float32)
    numbers[1, 0, 1] = value
    with pytest.raises(ValueError, match=message):
        encode(numbers, precision, signed=signed)


def test_unknown_precisions_and_encodings_are_refused() -> None:
    with pytest.raises(ValueError, match="precision='float16' must be"):
        encode(np.zeros((1, 1, 1), np.float32), "float16")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="encoding 'zip' is unknown"):
        decode(Encoded((1, 1, 1), "zip", 1.0, 0.0, b"\0"))  # type: ignore[arg-type]


@settings(max_examples=60)
@given(st.integers(1, 2), st.integers(1, 40), st.integers(1, 40), st.integers(1, 20))
def test_pooling_equals_the_formula(heads: int, rows: int, columns: int, size: int) -> None:
    weights = np.random.default_rng(rows).random((heads, rows, columns), np.float32)
    expected = [equal_cells(matrix, size) for matrix in weights]
    assert_array_equal(pool_max(weights, size), expected)
