"""Tiles of a matrix, compared with cells computed weight by weight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnviz.record.softmax
import attnviz.server.tiles
from attnviz.record.attention import StoredWeights
from attnviz.record.record import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.server.codec import decode
from attnviz.server.row_normalizers import RowNormalizers
from attnviz.server.tiles import TILE, encode_tile
from attnviz.utils.progress import run_steps
from rounding import UNIT
from unit.records import captured_record, words

FIXTURE = json.loads((Path(__file__).parents[2] / "fixtures" / "tiles.json").read_text())


def stack_of(weights: Any, *, signed: bool = False) -> AttentionStack:
    import torch

    values = np.asarray(weights, np.float32)
    layer = StoredWeights(torch.from_numpy(values))
    _, rows, columns = values.shape
    return AttentionStack(
        "self",
        {0: layer},
        Tokens.of(words(rows)),
        Tokens.of(words(columns, "k")),
        normalized=False,
        signed=signed,
    )


def tile(stack: AttentionStack, **request: Any) -> Any:
    defaults: dict[str, Any] = {
        "layer": 0,
        "heads": [0],
        "level": 0,
        "pooled": "mean",
    }
    position = request.pop("row", 0), request.pop("column", 0)
    encoded, interval = run_steps(
        encode_tile(stack, RowNormalizers(), position=position, **(defaults | request))
    )
    assert interval is None
    return decode(encoded)[0]


def rounding_of(request: dict[str, Any], stack: AttentionStack) -> float:
    """Return a bound of the error of a cell of numbers up to 1: a float32 sum in any order."""
    level: int = request["level"]
    weights: int = min(4**level, len(stack.query_tokens) * len(stack.key_tokens))
    return (len(request["heads"]) * weights + 2) * UNIT


@pytest.mark.parametrize("case", FIXTURE["cases"], ids=lambda case: json.dumps(case["request"]))
def test_cells_are_the_mean_or_the_maximum_of_their_weights(case: Any) -> None:
    codes = np.array(FIXTURE["codes"][case["record"]], np.float64)
    stack = stack_of((codes / 255) ** 2)
    tolerance = rounding_of(case["request"], stack)
    np.testing.assert_allclose(tile(stack, **case["request"]), case["cells"], atol=tolerance)


@pytest.mark.parametrize(
    "case", FIXTURE["signed"]["cases"], ids=lambda case: json.dumps(case["request"])
)
def test_cells_of_signed_numbers_are_those_of_the_larger_sign(case: Any) -> None:
    codes = np.array(FIXTURE["signed"]["codes"][case["record"]], np.float64)
    stack = stack_of(codes * np.abs(codes) / 127**2, signed=True)
    tolerance = rounding_of(case["request"], stack)
    np.testing.assert_allclose(tile(stack, **case["request"]), case["cells"], atol=tolerance)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_tiles_cover_the_matrix_without_overlap(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(1, 23)), data.draw(st.integers(1, 23))
    level = data.draw(st.integers(0, 5))
    pooled = data.draw(st.sampled_from(["mean", "max"]))
    heads = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True))
    seed = data.draw(st.integers(0, 99))
    weights = np.random.default_rng(seed).random((3, rows, columns)).astype(np.float32)
    stack = stack_of(weights)
    matrix: Any = np.mean(weights[heads], axis=0, dtype=np.float64)
    cell_size = 2**level
    pool = np.mean if pooled == "mean" else np.max
    expected = [
        [pool(matrix[y : y + cell_size, x : x + cell_size]) for x in range(0, columns, cell_size)]
        for y in range(0, rows, cell_size)
    ]
    with pytest.MonkeyPatch.context() as patch:
        # Small tiles, computed in small blocks, are the same.
        patch.setattr(attnviz.server.tiles, "TILE", 4)
        patch.setattr(attnviz.record.softmax, "_TILE_ENTRIES", data.draw(st.integers(1, 60)))
        span = 4 * cell_size
        tiles = [
            [
                tile(stack, row=row, column=column, level=level, heads=heads, pooled=pooled)
                for column in range(-(-columns // span))
            ]
            for row in range(-(-rows // span))
        ]
    assert all(max(part.shape) <= 4 for line in tiles for part in line)
    np.testing.assert_allclose(np.block(tiles), expected, atol=1e-6)


def test_tiles_of_a_model_are_blocks_of_its_weights() -> None:
    stack = captured_record().stacks["self"]
    for layer in stack.layers:
        matrix = stack.weights(layer=layer)
        np.testing.assert_array_equal(tile(stack, layer=layer, heads=[1]), matrix[1])
        # At this level one cell contains the mean of all weights.
        mean = tile(stack, layer=layer, heads=[0, 1, 2, 3], level=9)
        np.testing.assert_allclose(mean, [[matrix.mean(dtype=np.float64)]], rtol=1e-5)


def test_a_tile_fits_into_a_reply() -> None:
    stack = stack_of(np.zeros((1, TILE + 1, TILE + 1), np.float32))
    assert tile(stack).shape == (TILE, TILE)
    assert tile(stack, row=1, column=1).shape == (1, 1)
    assert 4 * TILE * TILE < 1_000_000
