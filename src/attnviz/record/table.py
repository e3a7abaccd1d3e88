"""Weights of a record as one tidy table, with one row for each head, query and key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.softmax import row_tiles, strongest_keys
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.utils.progress import report, show_progress

if TYPE_CHECKING:
    import pandas as pd

#: Maximum number of rows of a table. A row takes about 25 bytes.
MAX_ROWS = 20_000_000


class HeadsOfLayer(NamedTuple):
    """Selected heads of one layer."""

    stack: AttentionStack
    layer: int
    heads: tuple[int, ...]


class _HeadRows(NamedTuple):
    """Table rows of one head, or of some of its queries."""

    layer: int
    stack_index: int
    head: int
    queries: NDArray[np.int32]
    keys: NDArray[np.int32]
    weights: NDArray[np.float32]
    shares: NDArray[np.float32] | None


def require_pandas() -> None:
    """Raise ImportError with an installation command if pandas is not installed."""
    try:
        import pandas  # noqa: F401, ICN001
    except ImportError as error:
        raise ImportError("to_pandas needs pandas: pip install pandas") from error


def check_min_weight(min_weight: Any) -> float:
    """Return `min_weight` as a float.

    Raise TypeError if it is not a number, or ValueError if it is not positive and finite.

    >>> check_min_weight(0.05)
    0.05
    """
    if isinstance(min_weight, bool) or not isinstance(min_weight, (int, float, np.number)):
        raise TypeError(f"min_weight must be a number such as 0.05; got {min_weight!r}")
    if not 0 < min_weight < float("inf"):
        raise ValueError(f"min_weight={min_weight!r} must be above 0 and finite, such as 0.05")
    return float(min_weight)


def create_table(
    selections: Sequence[HeadsOfLayer], *, top_k: int | None, min_weight: float | None
) -> pd.DataFrame:
    """Return the table of the selected heads, as described in `AttentionRecord.to_pandas`."""
    import pandas as pd

    lines = sum(
        len(selection.heads) * _max_rows(selection.stack, selection.layer, top_k)
        for selection in selections
    )
    if lines > MAX_ROWS and min_weight is None:
        raise ValueError(_size_error(selections, lines, top_k))
    with show_progress("table"):
        parts = _all_rows(selections, top_k, min_weight)
    stacks = list(dict.fromkeys(selection.stack for selection in selections))
    sides = [[stack.query_tokens for stack in stacks], [stack.key_tokens for stack in stacks]]
    texts = list(dict.fromkeys(text for side in sides for tokens in side for text in tokens.text))
    counts = np.array([len(part.keys) for part in parts], np.int64)

    def repeated(values: Iterable[int], dtype: type[np.signedinteger[Any]]) -> NDArray[Any]:
        return np.repeat(np.fromiter(values, dtype, len(parts)), counts)

    def joined(name: str, dtype: type[np.generic]) -> NDArray[Any]:
        arrays = [getattr(part, name) for part in parts]
        return np.concatenate(arrays) if arrays else np.zeros(0, dtype)

    stack_indices = repeated((part.stack_index for part in parts), np.int16)
    queries, keys = joined("queries", np.int32), joined("keys", np.int32)
    columns: dict[str, Any] = {
        "stack": pd.Categorical.from_codes(
            stack_indices, pd.Index([stack.name for stack in stacks])
        ),
        "layer": repeated((part.layer for part in parts), np.int32),
        "head": repeated((part.head for part in parts), np.int32),
        "query": queries,
        "query_token": _token_column(sides[0], stack_indices, queries, texts),
        "key": keys,
        "key_token": _token_column(sides[1], stack_indices, keys, texts),
    }
    # The column of the weights has the name of the measure. The name is "weight" if the stacks have
    # different measures, or if the measure is the name of another column.
    measures = {stack.measure for stack in stacks} - columns.keys() - {"kept"}
    measure = measures.pop() if len(measures) == 1 else "weight"
    columns[measure] = joined("weights", np.float32)
    if top_k is not None or min_weight is not None:
        columns["kept"] = joined("shares", np.float32)
    return pd.DataFrame(columns, copy=False)


def _token_column(
    sides: Sequence[Tokens],
    stack_indices: NDArray[Any],
    positions: NDArray[Any],
    texts: Sequence[str],
) -> pd.Categorical[str]:
    """Return the categorical column of token texts at `positions`, with the categories `texts`.

    `sides` are the query tokens, or the key tokens, of each stack. `stack_indices` contains the
    index of the stack in `sides` for each row of the table.
    """
    import pandas as pd

    numbers = {text: number for number, text in enumerate(texts)}
    codes = np.zeros(len(positions), np.int32)
    for number, tokens in enumerate(sides):
        token_codes = np.array([numbers[text] for text in tokens.text], np.int32)
        in_stack = stack_indices == number
        codes[in_stack] = token_codes[positions[in_stack]]
    return pd.Categorical.from_codes(codes, pd.Index(list(texts)))


def _max_rows(stack: AttentionStack, layer: int, top_k: int | None) -> int:
    """Return an upper bound of the number of table rows of one head of the layer."""
    rows, keys = len(stack.query_tokens), len(stack.key_tokens)
    if top_k is not None:
        return rows * min(top_k, keys)
    mask = None if (vectors := stack.attention(layer).vectors) is None else vectors.mask
    offset = keys - rows if mask is None else mask.offset
    if not stack.attention(layer).causal:
        return rows * keys
    visible = np.clip(np.arange(rows, dtype=np.int64) + offset + 1, 0, keys)
    return int(visible.sum())


def _all_rows(
    selections: Sequence[HeadsOfLayer], top_k: int | None, min_weight: float | None
) -> list[_HeadRows]:
    """Compute the table rows of the selected heads.

    Raise ValueError as soon as the number of rows exceeds `MAX_ROWS`.
    """
    stacks = list(dict.fromkeys(selection.stack for selection in selections))
    total = sum(
        len(selection.heads) * len(selection.stack.query_tokens) * len(selection.stack.key_tokens)
        for selection in selections
    )
    parts: list[_HeadRows] = []
    lines = done = 0
    for stack, layer, heads in selections:
        for head in heads:
            for rows in row_tiles(slice(0, len(stack.query_tokens)), len(stack.key_tokens)):
                part = _rows_of_tile(stack, layer, head, rows, top_k=top_k, min_weight=min_weight)
                parts.append(part._replace(stack_index=stacks.index(stack)))
                lines += len(part.keys)
                if lines > MAX_ROWS:
                    raise ValueError(_size_error(selections, lines, top_k, at_least=True))
                done += (rows.stop - rows.start) * len(stack.key_tokens)
                report("weights", done, total)
    return parts


def _rows_of_tile(
    stack: AttentionStack,
    layer: int,
    head: int,
    rows: slice,
    *,
    top_k: int | None,
    min_weight: float | None,
) -> _HeadRows:
    columns = stack.attention(layer).key_range(rows)
    weights = stack.weights(layer=layer, head=head, rows=rows, columns=columns)
    sizes = np.abs(weights) if stack.signed else weights
    sums = sizes.sum(axis=1, dtype=np.float64)
    if not np.isfinite(sums).all():
        raise ValueError(
            f"stack {stack.name!r}, layer {layer}, head {head}: some weights are NaN or infinite. "
            "Run the model in float32, or select other layers."
        )
    if top_k is not None and weights.shape[1]:
        values, keys = (part.numpy() for part in strongest_keys(torch.from_numpy(sizes), top_k))
        selected = values > 0 if min_weight is None else values >= min_weight
        query, rank = np.nonzero(selected)
        key = keys[query, rank]
    else:
        if min_weight is None:
            selected = stack.allowed(layer=layer, head=head, rows=rows, columns=columns)
        else:
            selected = sizes >= min_weight
        query, key = np.nonzero(selected)
    value = weights[query, key]
    shares = None
    if top_k is not None or min_weight is not None:
        kept_shares = np.bincount(query, sizes[query, key], len(sums)) / np.where(sums > 0, sums, 1)
        shares = kept_shares[query].astype(np.float32)
    numbers = (query + rows.start).astype(np.int32), (key + columns.start).astype(np.int32)
    return _HeadRows(layer, 0, head, *numbers, value, shares)


def _size_error(
    selections: Sequence[HeadsOfLayer], lines: int, top_k: int | None, *, at_least: bool = False
) -> str:
    rows = sum(len(selection.heads) * len(selection.stack.query_tokens) for selection in selections)
    max_top_k = MAX_ROWS // max(1, rows)
    options = []
    if max_top_k >= 1 and (top_k is None or max_top_k < top_k):
        options.append(f"pass top_k={min(max_top_k, 10)}, the strongest keys of each query")
    if not at_least or top_k is not None:
        options.append("pass min_weight=0.05, the smallest weight in the table")
    else:
        options.append("pass a larger min_weight")
    options.append("select layer= or head=")
    return (
        f"the table would have {'at least ' if at_least else ''}{lines:,} rows (at most "
        f"{MAX_ROWS:,}): {', or '.join(options)}"
    )
