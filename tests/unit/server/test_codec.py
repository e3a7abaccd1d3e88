"""Tests of `encode` and `decode` against the formulas of the encodings."""

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

from attnviz.server.codec import decode, encode
from fixtures.make_codec import cases, values_of

FIXTURE = Path(__file__).parents[2] / "fixtures" / "codec.json"
CASES: list[dict[str, Any]] = json.loads(FIXTURE.read_text(encoding="utf-8"))["cases"]


def test_the_fixture_of_typescript_is_what_replies_contain() -> None:
    """If this test fails, run `fixtures.make_codec` and the tests of js."""
    assert json.loads(json.dumps(cases())) == CASES


def blocks(minimum: float) -> st.SearchStrategy[Any]:
    """Return a strategy for arrays (heads, rows, columns) of numbers from `minimum` to 1."""
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
    codes = np.frombuffer(encoded.data or b"", np.int8 if signed else np.uint8).reshape(
        scaled.shape
    )
    # Codes are rounded to the nearest integer, up to the rounding of float32.
    top = 127 if signed else 255
    exact = np.sign(scaled) * top * np.sqrt(np.abs(scaled) / maximum)
    assert np.abs(codes - exact).max() <= 0.501
    values = decode(encoded).astype(np.float64)
    assert_allclose(values, values_of(encoded, maximum), rtol=1e-6)
    assert np.abs(values - scaled).max() <= encoded.header["error"] * (1 + 1e-5)
    assert encoded.header["error"] == pytest.approx(error * maximum, rel=1e-3)
    assert (values * scaled >= 0).all()
    if signed:
        # Both signs are rounded in the same way.
        assert_array_equal(decode(encode(-scaled, "uint8", maximum, signed=True)), -values)


@settings(max_examples=50)
@given(blocks(0))
def test_codes_do_not_depend_on_the_memory_layout(
    weights: np.ndarray[Any, np.dtype[np.float32]],
) -> None:
    assert_array_equal(decode(encode(weights, "float32")), weights)
    turned = np.asfortranarray(weights)
    for precision in ("float32", "uint8"):
        assert encode(turned, precision).data == encode(weights, precision).data


@pytest.mark.parametrize("tokens", [8, 65])
@pytest.mark.parametrize("causal", [False, True])
def test_exact_numbers_with_many_zeros_are_compressed_without_loss(
    tokens: int, causal: bool
) -> None:
    numbers = np.random.default_rng(0).random((3, tokens, tokens), np.float32) - np.float32(0.5)
    numbers = np.tril(numbers) if causal else numbers
    encoded = encode(numbers, "float32", signed=True)
    # Noise and short data are not compressed, because they would not become smaller.
    deflated = causal and tokens > 8
    assert encoded.header["encoding"] == ("float32-deflated" if deflated else "float32")
    assert (len(encoded.data or b"") < 0.6 * numbers.nbytes) == deflated
    assert encoded.header["error"] == 0.0
    assert_array_equal(decode(encoded), numbers)


def test_rounding_above_the_maximum_is_accepted() -> None:
    weights = np.array([[[np.nextafter(np.float32(1), np.float32(2)), 1.004]]], np.float32)
    assert encode(weights, "uint8").data == b"\xff\xff"


@pytest.mark.parametrize(
    ("value", "precision", "signed", "message"),
    [
        (np.nan, "uint8", False, r"NaN or infinite \(the first at index 1 of the requested heads"),
        (-0.1, "uint8", False, "some weights are negative"),
        (1.01, "float32", False, r"the absolute value 1\.01, which exceeds the maximum 1"),
        (-np.inf, "float32", True, "NaN or infinite"),
        (-3.5, "uint8", True, r"the absolute value 3\.5, which exceeds the maximum 1"),
    ],
)
def test_numbers_that_cannot_be_encoded_are_refused(
    value: float, precision: Any, signed: bool, message: str
) -> None:
    numbers = np.zeros((3, 2, 2), np.float32)
    numbers[1, 0, 1] = value
    with pytest.raises(ValueError, match=message):
        encode(numbers, precision, signed=signed)
