"""Tests that the small weights of keys are exact if a sink has nearly all of the weight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import attnviz as av
from attnviz.pages.vectors import encode_vectors
from attnviz.server.strongest import Strongest, find_strongest_keys
from fixtures.make_renormalized import cases, record_of
from unit.formulas import weights_of
from unit.page_data import unpacked
from unit.selected import selected

FIXTURE = Path(__file__).parents[2] / "fixtures" / "renormalized.json"


def assert_close(actual: Any, stored: Any) -> None:
    """Compare JSON values. Numbers may differ by rounding, and base64 texts by compression."""
    if isinstance(actual, dict):
        assert actual.keys() == stored.keys()
        for key, value in actual.items():
            assert_close(value, stored[key])
    elif isinstance(actual, list | tuple):
        assert len(actual) == len(stored)
        for pair in zip(actual, stored, strict=True):
            assert_close(*pair)
    elif isinstance(actual, float):
        assert actual == pytest.approx(stored, rel=1e-4, abs=1e-6)
    elif actual != stored:
        contents = [unpacked(text) for text in (actual, stored)]
        assert contents[0] == contents[1]


def test_the_fixture_of_typescript_is_what_pages_contain() -> None:
    """If this test fails, run `fixtures.make_renormalized` and the tests of js."""
    assert_close(cases(), json.loads(FIXTURE.read_text(encoding="utf-8"))["cases"])


@pytest.mark.parametrize("sink", [9.0, 12.0])
def test_the_weight_beside_a_sink_is_summed_and_not_subtracted(sink: float) -> None:
    # With a sink of logit 12, 1 - sink weight has at most three correct digits in float32.
    stack = record_of(9, [sink], seed=1).stack()
    strongest = find_strongest_keys(
        selected(stack, 0, [0], slice(0, 9)), Strongest(k=8, exclude=((0, 1),))
    )
    others = weights_of(stack.attention(0))[0][:, 1:]
    expected = -np.sort(-others, axis=1) / others.sum(axis=1, keepdims=True)
    assert_allclose(strongest.weights[0] / strongest.sums[0, :, :1], expected, rtol=1e-5)


def test_the_error_of_a_sink_is_the_sum_of_the_other_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("attnviz.pages.vectors.MAX_EXACT_BYTES", 0)
    # All keys are equal, so their weights have the same rounding error. The error of the sink is
    # the sum of these errors.
    queries, keys = np.full((1, 1, 1), 1.0005, np.float32), np.full((1, 40, 1), 3.0009, np.float32)
    record = av.AttentionRecord.from_qk(
        [queries],
        [keys],
        ["q"],
        key_tokens=[str(key) for key in range(40)],
        scale=1.0,
        sinks=[[6.0]],
    )
    [layer] = encode_vectors(record)["errors"]

    def sink(query: np.floating, key: np.floating) -> float:
        powers = 40 * np.exp(float(query) * float(key))
        return float(np.exp(6.0) / (np.exp(6.0) + powers))

    exact = sink(queries[0, 0, 0], keys[0, 0, 0])
    rounded = sink(np.float16(queries[0, 0, 0]), np.float16(keys[0, 0, 0]))
    assert layer["error"] == pytest.approx(abs(exact - rounded), rel=0.05)
