"""Weights beside a strong sink on pages, compared with a fixture of both languages."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import attnviz as av
from attnviz.pages.encoding import embed_weights
from attnviz.pages.strongest import concatenate_rows, encode_sparse, sparse_rows, strongest_rows
from attnviz.pages.vectors import encode_vectors_in_steps
from attnviz.server.strongest import find_strongest_keys
from attnviz.utils.progress import run_steps, run_with_bar
from rounding import UNIT

# The error is a weight minus its decoded byte: numbers up to 1 and three float32 operations.
TOLERANCE = 4 * UNIT

FIXTURE = Path(__file__).parents[2] / "fixtures" / "renormalized.json"
CASES: list[dict[str, Any]] = json.loads(FIXTURE.read_text(encoding="utf-8"))["cases"]

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])


def inflated(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def deflated(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode("ascii")


def record_of(case: dict[str, Any]) -> av.AttentionRecord:
    queries, keys = (np.array(case[name], np.float32) for name in ("queries", "keys"))
    return av.AttentionRecord.from_qk(
        [queries], [keys], [str(token) for token in range(keys.shape[1])], scale=1.0, causal=False
    )


@each_case
def test_the_weight_beside_a_sink_is_summed_and_not_subtracted(case: dict[str, Any]) -> None:
    # A sink of logit 12 leaves so little of 1 that float32 stores it with at most three digits.
    stack = record_of(case).stack()
    rows = slice(0, len(stack.query_tokens))
    for head in (0, 1):
        strongest = run_steps(
            find_strongest_keys(stack, layer=0, heads=[head], rows=rows, k=99, leave_out=["first"])
        )
        expected = np.sort(np.array(case["renormalized"])[head])[:, :0:-1]
        quotients = strongest.weights[0, :, : expected.shape[1]] / strongest.sums[0, :, :1]
        assert_allclose(quotients, expected, rtol=1e-5)


def assert_same_block(block: Mapping[str, Any], expected: dict[str, Any]) -> None:
    """Compare the bytes of a block, and its numbers up to the rounding of float32."""
    for name, value in block.items():
        if name == "data":
            assert inflated(value) == inflated(expected["data"])
        elif isinstance(value, float):
            assert value == pytest.approx(expected[name], rel=1e-5, abs=TOLERANCE)
        else:
            assert value == expected[name]


@each_case
def test_pages_have_the_bytes_and_errors_of_the_fixture(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = record_of(case)
    steps = embed_weights(record, precision="auto", max_bytes=None, other_bytes=0)
    [block] = run_with_bar(steps, "page").blocks
    assert_same_block(block, case["blocks"]["all"])
    weights = record.stack().weights(layer=0)
    stored = concatenate_rows([strongest_rows(head, case["threshold"]) for head in weights])
    rows, error = sparse_rows(stored, weights.shape, 1.0)
    header, data = encode_sparse(rows)
    assert_same_block(
        header | {"error": error, "data": deflated(data)}, case["blocks"]["strongest"]
    )
    monkeypatch.setattr("attnviz.pages.vectors.MAX_EXACT_BYTES", 0)
    [layer] = run_steps(encode_vectors_in_steps(record.stacks.values()))["layers"]
    [expected] = case["vectors"]["layers"]
    for name in ("error", "logit_error"):
        assert layer[name] == pytest.approx(expected[name], rel=1e-2)


def test_the_error_of_a_sink_is_the_sum_of_the_other_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("attnviz.pages.vectors.MAX_EXACT_BYTES", 0)
    # All keys are equal, so each has the same rounding error.
    queries, keys = np.full((1, 1, 1), 1.0005, np.float32), np.full((1, 40, 1), 3.0009, np.float32)
    record = av.AttentionRecord.from_qk(
        [queries],
        [keys],
        ["q"],
        key_tokens=[str(key) for key in range(40)],
        scale=1.0,
        sinks=[[6.0]],
    )
    [layer] = run_steps(encode_vectors_in_steps(record.stacks.values()))["layers"]

    def sink(query: np.floating, key: np.floating) -> float:
        powers = 40 * np.exp(float(query) * float(key))
        return float(np.exp(6.0) / (np.exp(6.0) + powers))

    exact = sink(queries[0, 0, 0], keys[0, 0, 0])
    rounded = sink(np.float16(queries[0, 0, 0]), np.float16(keys[0, 0, 0]))
    assert layer["error"] == pytest.approx(abs(exact - rounded), rel=0.05)
