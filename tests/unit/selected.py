"""Functions that select weights of a stack, and requests for reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnviz.record.stack import AttentionStack
from attnviz.server.row_normalizers import RowNormalizers
from attnviz.server.weights import Combine, Weights


def selected(
    stack: AttentionStack,
    layer: int,
    heads: Sequence[int],
    rows: slice | None = None,
    columns: slice | None = None,
    *,
    combine: Combine = "separate",
    row_normalizers: RowNormalizers | None = None,
) -> Weights:
    """Return the weights of some heads, by default for all queries and keys."""
    rows = rows or slice(0, len(stack.query_tokens))
    columns = columns or slice(0, len(stack.key_tokens))
    normalizers = row_normalizers or RowNormalizers()
    return Weights(stack, layer, list(heads), rows, columns, combine, normalizers)


def cells(max_cells: int) -> dict[str, Any]:
    """Return the field of a request that reduces matrices to maps."""
    return {"reduce": {"kind": "cells", "pooled": "max", "max_cells": max_cells}}


def strongest(k: int, **more: Any) -> dict[str, Any]:
    """Return the field of a request that reduces matrices to the strongest keys."""
    return {"reduce": {"kind": "strongest", "k": k, **more}}
