"""Weights of a record as one tidy table, with one row for each head, query and key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.softmax import row_tiles, strongest_keys
from attnviz.record.stack import AttentionStack
from attnviz.utils.progress import report, show_progress

if TYPE_CHECKING:
    import pandas as pd

#: Maximum number of rows of a table. A row takes about 25 bytes.
MAX_ROWS = 20_000_000

#: A stack, the number of one of its layers, and head numbers of this layer.
HeadsOfLayer = tuple[AttentionStack, int, Sequence[int]]
_Columns = dict[str, NDArray[Any]]


def require_pandas() -> None:
    """Raise ImportError with an installation command if pandas is not installed."""
    try:
        import pandas  # noqa: F401, ICN001
    except ImportError as error:
        raise ImportError("a table needs pandas: pip install pandas") from error


def create_table(
    selections: Sequence[HeadsOfLayer], *, top_k: int | None, min_weight: float | None
) -> pd.DataFrame:
    """Return the table of the selected heads, as described in `AttentionRecord.to_pandas`."""
    import pandas as pd

    stacks = list(dict.fromkeys(stack for stack, _, _ in selections))
    # Integer code of each distinct token text, for the categorical columns.
    numbers: dict[str, int] = {}
    for stack in stacks:
        for text in (*stack.query_tokens.text, *stack.key_tokens.text):
            numbers.setdefault(text, len(numbers))
    with show_progress("table"):
        parts = list(_parts(selections, numbers, top_k, min_weight))
    columns: dict[str, Any] = {
        name: np.concatenate([part[name] for part in parts]) for name in parts[0]
    }
    texts, names = list(numbers), [stack.name for stack in stacks]
    for name, categories in (("stack", names), ("query_token", texts), ("key_token", texts)):
        columns[name] = pd.Categorical.from_codes(columns[name], pd.Index(categories))
    # Rename the column "weight" to `AttentionStack.measure`, the name of the values. Do not rename
    # it if the stacks have several such names, or if another column has this name.
    measures = {stack.measure for stack in stacks} - columns.keys()
    measure = measures.pop() if len(measures) == 1 else "weight"
    columns = {measure if name == "weight" else name: columns[name] for name in columns}
    return pd.DataFrame(columns, copy=False)


def _parts(
    selections: Sequence[HeadsOfLayer],
    numbers: Mapping[str, int],
    top_k: int | None,
    min_weight: float | None,
) -> Iterator[_Columns]:
    """Yield the columns of the table by name, for a few queries of one head at a time.

    `numbers` are the codes of token texts. Raise ValueError as soon as the number of rows exceeds
    `MAX_ROWS`.
    """
    stacks = list(dict.fromkeys(stack for stack, _, _ in selections))
    sizes = [
        len(heads) * len(stack.query_tokens) * len(stack.key_tokens)
        for stack, _, heads in selections
    ]
    num_rows = done = 0
    for stack, layer, heads in selections:
        query_codes, key_codes = (
            np.array([numbers[text] for text in tokens.text], np.int32)
            for tokens in (stack.query_tokens, stack.key_tokens)
        )
        for head in heads:
            for rows in row_tiles(slice(0, len(query_codes)), len(key_codes)):
                queries, keys, values = _strongest(
                    stack, layer, head, rows, top_k=top_k, min_weight=min_weight
                )
                num_rows += len(queries)
                if num_rows > MAX_ROWS:
                    raise ValueError(
                        f"the table would have more than {MAX_ROWS:,} rows: pass top_k=10, the "
                        "strongest keys of each query, or min_weight=0.05, the smallest weight in "
                        "the table, or select layer= or head="
                    )
                yield {
                    "stack": np.full(len(queries), stacks.index(stack), np.int16),
                    "layer": np.full(len(queries), layer, np.int32),
                    "head": np.full(len(queries), head, np.int32),
                    "query": queries,
                    "query_token": query_codes[queries],
                    "key": keys,
                    "key_token": key_codes[keys],
                    **values,
                }
                done += (rows.stop - rows.start) * len(key_codes)
                report("weights", done, sum(sizes))


def _strongest(
    stack: AttentionStack,
    layer: int,
    head: int,
    rows: slice,
    *,
    top_k: int | None,
    min_weight: float | None,
) -> tuple[NDArray[np.int32], NDArray[np.int32], _Columns]:
    """Return the query and key of each pair that `top_k` and `min_weight` select.

    If both are None, all pairs that the mask allows are selected. The third result has further
    columns of the table by name: "weight" and, with `top_k` or `min_weight`, "kept".
    """
    attention = stack.attention(layer)
    columns = attention.key_range(rows)
    weights = attention.block([head], rows, columns)[0].cpu().numpy()
    sizes = np.abs(weights) if stack.signed else weights
    sums = sizes.sum(axis=1, dtype=np.float64)
    if not np.isfinite(sums).all():
        raise ValueError(
            f"stack {stack.name!r}, layer {layer}, head {head}: some weights are NaN or infinite. "
            "Run the model in float32, or select other layers."
        )
    if top_k is not None:
        largest, keys = (part.numpy() for part in strongest_keys(torch.from_numpy(sizes), top_k))
        query, rank = np.nonzero(largest > 0 if min_weight is None else largest >= min_weight)
        key = keys[query, rank]
    elif min_weight is not None:
        query, key = np.nonzero(sizes >= min_weight)
    else:
        query, key = np.nonzero(attention.allowed([head], rows, columns)[0].numpy())
    values: _Columns = {"weight": weights[query, key]}
    if top_k is not None or min_weight is not None:
        kept = np.bincount(query, sizes[query, key], len(sums)) / np.where(sums > 0, sums, 1)
        values["kept"] = kept[query].astype(np.float32)
    return (query + rows.start).astype(np.int32), (key + columns.start).astype(np.int32), values
