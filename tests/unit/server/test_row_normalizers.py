"""Cached normalizers belong to their row, head, layer and stack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnviz.record.attention import QueryKeyAttention
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.server.row_normalizers import RowNormalizers
from attnviz.utils.progress import run_steps
from rounding import relative_error
from unit.records import vectors, words

# More keys than a row whose normalizer is recomputed each time.
KEYS = 4_200


def stack_of(name: str = "self", seed: int = 0) -> AttentionStack:
    layers = {
        layer: QueryKeyAttention(
            3 * vectors(2, 3, 2, seed=seed + layer), vectors(2, KEYS, 2, seed=seed + layer + 1), 0.5
        )
        for layer in (4, 9)
    }
    return AttentionStack(name, layers, Tokens.of(words(3)), Tokens.of(words(KEYS, "k")))


@pytest.mark.parametrize("method", ["block", "whole_rows"])
def test_rows_use_their_own_normalizers(method: str) -> None:
    sums = RowNormalizers()
    stacks = [stack_of(), stack_of("cross", seed=20)]
    rows, columns = slice(0, 3), slice(100, 140)
    for _ in range(2):
        # All normalizers are cached in the second iteration.
        for stack in stacks:
            for layer in (4, 9):
                for head in (0, 1):
                    block_rows: dict[str, Any] = {"layer": layer, "head": head, "rows": rows}
                    expected = stack.weights(**block_rows, columns=columns)
                    if method == "whole_rows":
                        sums.whole_rows(stack, **block_rows)
                    weights = run_steps(sums.block(stack, **block_rows, columns=columns))
                    tolerance = relative_error(stack.attention(layer))
                    np.testing.assert_allclose(weights, expected, rtol=tolerance)
    assert sums.num_bytes == 2 * 2 * 2 * 3 * 4
