"""All weights of a record as one tidy table, with one row per head and query-key pair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.record.softmax import tiles
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.utils.progress import Progress, Steps, run_with_bar

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["HeadsOfLayer", "check_min_weight", "need_pandas", "tidy_table"]

#: Maximum number of rows of a table, about 25 bytes each.
MAX_LINES = 20_000_000


class HeadsOfLayer(NamedTuple):
    """Selected heads of one layer."""

    stack: AttentionStack
    layer: int
    heads: tuple[int, ...]


class _Found(NamedTuple):
    """Table rows of one head."""

    layer: int
    place: int
    head: int
    queries: NDArray[np.int32]
    keys: NDArray[np.int32]
    weights: NDArray[np.float32]
    shares: NDArray[np.float32] | None


def need_pandas() -> None:
    """Raise ImportError with an installation command if pandas is missing."""
    try:
        import pandas  # noqa: F401, ICN001
    except ImportError as error:
        raise ImportError("to_pandas needs pandas: pip install pandas") from error


def check_min_weight(min_weight: Any) -> float:
    """Return `min_weight` as a float. Raise TypeError or ValueError if it is not positive.

    >>> check_min_weight(0.05)
    0.05
    """
    if isinstance(min_weight, bool) or not isinstance(min_weight, (int, float, np.number)):
        raise TypeError(f"min_weight must be a number such as 0.05; got {min_weight!r}")
    if not 0 < min_weight < float("inf"):
        raise ValueError(f"min_weight={min_weight!r} must be above 0 and finite, such as 0.05")
    return float(min_weight)


def tidy_table(
    wanted: Sequence[HeadsOfLayer], *, top_k: int | None, min_weight: float | None
) -> pd.DataFrame:
    """Return the table of `wanted` heads. See `AttentionRecord.to_pandas`."""
    import pandas as pd

    lines = sum(len(each.heads) * _most_lines(each.stack, each.layer, top_k) for each in wanted)
    if lines > MAX_LINES and min_weight is None:
        raise ValueError(_too_many(wanted, lines, top_k))
    found = run_with_bar(_lines(wanted, top_k, min_weight), "table")
    stacks = list(dict.fromkeys(each.stack for each in wanted))
    sides = [[stack.query_tokens for stack in stacks], [stack.key_tokens for stack in stacks]]
    texts = list(dict.fromkeys(text for side in sides for tokens in side for text in tokens.text))
    counts = np.array([len(each.keys) for each in found], np.int64)

    def repeated(values: Iterable[int], dtype: type[np.signedinteger[Any]]) -> NDArray[Any]:
        return np.repeat(np.fromiter(values, dtype, len(found)), counts)

    def joined(name: str, dtype: type[np.generic]) -> NDArray[Any]:
        parts = [getattr(each, name) for each in found]
        return np.concatenate(parts) if parts else np.zeros(0, dtype)

    place = repeated((each.place for each in found), np.int16)
    queries, keys = joined("queries", np.int32), joined("keys", np.int32)
    columns: dict[str, Any] = {
        "stack": pd.Categorical.from_codes(place, pd.Index([stack.name for stack in stacks])),
        "layer": repeated((each.layer for each in found), np.int32),
        "head": repeated((each.head for each in found), np.int32),
        "query": queries,
        "query_token": _token_column(sides[0], place, queries, texts),
        "key": keys,
        "key_token": _token_column(sides[1], place, keys, texts),
    }
    # The fallback name applies if stacks have different measures or the measure is a column.
    measures = {stack.measure for stack in stacks} - columns.keys() - {"kept"}
    measure = measures.pop() if len(measures) == 1 else "weight"
    columns[measure] = joined("weights", np.float32)
    if top_k is not None or min_weight is not None:
        columns["kept"] = joined("shares", np.float32)
    return pd.DataFrame(columns, copy=False)


def _token_column(
    sides: Sequence[Tokens], place: NDArray[Any], positions: NDArray[Any], texts: Sequence[str]
) -> pd.Categorical[str]:
    """Return token texts as categories that queries and keys share. `place` selects a side."""
    import pandas as pd

    numbers = {text: number for number, text in enumerate(texts)}
    codes = np.zeros(len(positions), np.int32)
    for number, tokens in enumerate(sides):
        known = np.array([numbers[text] for text in tokens.text], np.int32)
        here = place == number
        codes[here] = known[positions[here]]
    return pd.Categorical.from_codes(codes, pd.Index(list(texts)))


def _most_lines(stack: AttentionStack, layer: int, top_k: int | None) -> int:
    """Return the maximum number of table rows of one head."""
    rows, keys = len(stack.query_tokens), len(stack.key_tokens)
    if top_k is not None:
        return rows * min(top_k, keys)
    mask = None if (vectors := stack.attention(layer).vectors) is None else vectors.mask
    offset = keys - rows if mask is None else mask.offset
    if not stack.attention(layer).causal:
        return rows * keys
    seen = np.clip(np.arange(rows, dtype=np.int64) + offset + 1, 0, keys)
    return int(seen.sum())


def _lines(
    wanted: Sequence[HeadsOfLayer], top_k: int | None, min_weight: float | None
) -> Steps[list[_Found]]:
    """Compute the rows of all heads, tile by tile."""
    stacks = list(dict.fromkeys(each.stack for each in wanted))
    total = sum(
        len(each.heads) * len(each.stack.query_tokens) * len(each.stack.key_tokens)
        for each in wanted
    )
    found: list[_Found] = []
    lines = done = 0
    for stack, layer, heads in wanted:
        for head in heads:
            for rows in tiles(slice(0, len(stack.query_tokens)), len(stack.key_tokens)):
                some = _of_tile(stack, layer, head, rows, top_k=top_k, min_weight=min_weight)
                found.append(some._replace(place=stacks.index(stack)))
                lines += len(some.keys)
                if lines > MAX_LINES:
                    raise ValueError(_too_many(wanted, lines, top_k, at_least=True))
                done += (rows.stop - rows.start) * len(stack.key_tokens)
                yield Progress("weights", done, total)
    return found


def _of_tile(
    stack: AttentionStack,
    layer: int,
    head: int,
    rows: slice,
    *,
    top_k: int | None,
    min_weight: float | None,
) -> _Found:
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
        strong, keys = torch.from_numpy(sizes).topk(min(top_k, weights.shape[1]), dim=1)
        values, places = strong.numpy(), keys.numpy()
        taken = values > 0 if min_weight is None else values >= min_weight
        # Sort by weight. Equal weights are sorted by key.
        order = np.lexsort((places, -values), axis=1)
        values, places, taken = (
            np.take_along_axis(each, order, axis=1) for each in (values, places, taken)
        )
        query, place = np.nonzero(taken)
        key = places[query, place]
    else:
        if min_weight is None:
            taken = stack.allowed(layer=layer, head=head, rows=rows, columns=columns)
        else:
            taken = sizes >= min_weight
        query, key = np.nonzero(taken)
    value = weights[query, key]
    shares = None
    if top_k is not None or min_weight is not None:
        kept = np.bincount(query, sizes[query, key], len(sums)) / np.where(sums > 0, sums, 1)
        shares = kept[query].astype(np.float32)
    numbers = (query + rows.start).astype(np.int32), (key + columns.start).astype(np.int32)
    return _Found(layer, 0, head, *numbers, value, shares)


def _too_many(
    wanted: Sequence[HeadsOfLayer], lines: int, top_k: int | None, *, at_least: bool = False
) -> str:
    rows = sum(len(each.heads) * len(each.stack.query_tokens) for each in wanted)
    fitting = MAX_LINES // max(1, rows)
    ways = []
    if fitting >= 1 and (top_k is None or fitting < top_k):
        ways.append(f"pass top_k={min(fitting, 10)}, the strongest keys of each query")
    if not at_least or top_k is not None:
        ways.append("pass min_weight=0.05, the smallest weight in the table")
    else:
        ways.append("pass a larger min_weight")
    ways.append("select layer= or head=")
    return (
        f"the table would have {'at least ' if at_least else ''}{lines:,} rows (at most "
        f"{MAX_LINES:,}): {', or '.join(ways)}"
    )
