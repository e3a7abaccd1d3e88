"""`RowNormalizers` uses cached normalizers only for their own stack, layer, head and row."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from attnviz.record.attention import QueryKeyAttention
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.server.row_normalizers import RowNormalizers
from rounding import relative_error
from unit.records import vectors, words

# Number of keys above `_MAX_RECOMPUTED_KEYS`, so that normalizers are cached.
KEYS = 4_200


def stack_of(name: str = "self", seed: int = 0) -> AttentionStack:
    layers = {
        layer: QueryKeyAttention(
            3 * vectors(2, 3, 2, seed=seed + layer), vectors(2, KEYS, 2, seed=seed + layer + 1), 0.5
        )
        for layer in (4, 9)
    }
    return AttentionStack(name, layers, Tokens.of(words(3)), Tokens.of(words(KEYS, "k")))


@pytest.mark.parametrize("columns", [slice(100, 140), None])
def test_rows_use_their_own_normalizers(columns: slice | None) -> None:
    normalizers = RowNormalizers()
    stacks = [stack_of(), stack_of("cross", seed=20)]
    # In the second repetition, all normalizers come from the cache.
    for stack, layer, head in list(product(stacks, (4, 9), (0, 1))) * 2:
        rows = slice(0, 3)
        weights = normalizers.block(stack, layer, [head], rows, columns)[0]
        expected = stack.weights(layer=layer, head=head, rows=rows, columns=columns)
        tolerance = relative_error(stack.attention(layer))
        np.testing.assert_allclose(weights, expected, rtol=tolerance)
    # 2 stacks x 2 layers x 2 heads x 3 rows have one normalizer of 4 bytes each.
    assert normalizers.num_bytes == 2 * 2 * 2 * 3 * 4
