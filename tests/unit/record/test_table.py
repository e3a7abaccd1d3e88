"""Tests of `to_pandas` and `sources` of a record, mostly against plain loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from attnviz.record import table
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.record import AttentionRecord
from rounding import forwards_error
from unit.records import captured_record, encoder_decoder_record, given_record, shares, words

COLUMNS = ["stack", "layer", "head", "query", "query_token", "key", "key_token", "weight"]


def causal(tokens: int = 12, heads: int = 3, window: int | None = None) -> AttentionRecord:
    generator = torch.Generator().manual_seed(0)
    sides = torch.randn((2, 2, heads, tokens, 4), generator=generator)
    names = [f"t{number % 5}" for number in range(tokens)]
    return AttentionRecord.from_qk(
        list(sides[0]), list(sides[1]), names, causal=True, window=window
    )


def column_of(frame: pd.DataFrame, name: str) -> dict[tuple[Any, ...], float]:
    """Return the column `name` as {(stack, layer, head, query, key): value}."""
    names = ["stack", "layer", "head", "query", "key", name]
    values = {tuple(line[:5]): float(line[5]) for line in frame[names].itertuples(index=False)}
    assert len(values) == len(frame)
    return values


def signed_record(measure: str = "difference") -> AttentionRecord:
    numbers = np.random.default_rng(3).normal(size=(1, 2, 5, 5)).astype(np.float32)
    return AttentionRecord.from_weights(numbers, words(5), signed=True, measure=measure)


@pytest.mark.parametrize(
    "make", [given_record, encoder_decoder_record, captured_record, causal, signed_record]
)
@pytest.mark.parametrize(
    ("top_k", "min_weight"), [(None, None), (2, None), (None, 0.2), (3, 0.15), (100, None)]
)
def test_rows_are_the_strongest_pairs_of_a_plain_loop(
    make: Any, top_k: int | None, min_weight: float | None
) -> None:
    record = make()
    every_pair = top_k is None and min_weight is None
    numbers, kept_shares = {}, {}
    for name, stack in record.stacks.items():
        heads = [(layer, head) for layer in stack.layers for head in range(stack.num_heads(layer))]
        for layer, head in heads:
            allowed = stack.allowed(layer=layer, head=head)
            for query, row in enumerate(stack.weights(layer=layer, head=head)):
                sizes = np.abs(row)
                order = sorted(range(len(row)), key=lambda key: -sizes[key])[:top_k]
                strong = [key for key in order if sizes[key] >= (min_weight or 1e-30)]
                kept_share = math.fsum(sizes[strong]) / max(math.fsum(sizes), 1e-30)
                for key in np.flatnonzero(allowed[query]) if every_pair else strong:
                    numbers[name, layer, head, query, key] = row[key]
                    kept_shares[name, layer, head, query, key] = kept_share
    frame = record.to_pandas(top_k=top_k, min_weight=min_weight)
    measure = record.stack().measure
    columns = [*COLUMNS[:-1], measure]
    assert list(frame.columns) == (columns if every_pair else [*columns, "kept"])
    assert column_of(frame, measure) == pytest.approx(numbers, abs=forwards_error(record))
    assert frame[measure].dtype == np.float32
    assert isinstance(frame["query_token"].dtype, pd.CategoricalDtype)
    for line in frame.itertuples():
        stack = record.stacks[line.stack]
        assert line.query_token == stack.query_tokens.text[line.query]
        assert line.key_token == stack.key_tokens.text[line.key]
    if not every_pair:
        assert column_of(frame, "kept") == pytest.approx(kept_shares, rel=1e-5)
    if top_k:
        for _, row in frame.groupby(["stack", "layer", "head", "query"], observed=True):
            assert row[measure].abs().is_monotonic_decreasing


def test_a_measure_with_the_name_of_another_column_is_called_weight() -> None:
    assert list(signed_record("head").to_pandas().columns) == COLUMNS


def test_a_table_can_have_one_stack_layer_or_head() -> None:
    record = encoder_decoder_record()
    assert set(record.to_pandas(stack="cross")["stack"]) == {"cross"}
    # Without `stack`, `layer` means a layer of the first stack.
    assert set(record.to_pandas(layer=1)["stack"]) == {"encoder"}
    assert set(record.to_pandas(layer=-1, stack="decoder")["layer"]) == {2}
    assert set(record.to_pandas(head=0, stack="cross")["head"]) == {0}
    # `head=-1` means the last head, which has the number 4 in the table.
    last = record.to_pandas(layer=1, head=-1, stack="cross", top_k=1)
    assert set(last["head"]) == {4}
    np.testing.assert_allclose(last["weight"], shares(5, 4, 6, seed=5)[4].max(axis=1))
    with pytest.raises(IndexError, match="head=3: layer 0 of stack 'cross' has heads 0"):
        record.to_pandas(head=3, stack="cross")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"top_k": 0}, ValueError, "top_k=0 must be at least 1, the number of keys"),
        ({"top_k": 1.5}, TypeError, "top_k=1.5 must be a whole number"),
        ({"min_weight": 0}, ValueError, "min_weight=0 must be above 0 and finite, such as 0.05"),
    ],
)
def test_invalid_arguments_are_refused(options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        given_record().to_pandas(**options)


def test_a_table_that_is_too_large_names_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    record = causal(40)
    lines = 2 * 3 * 40 * 41 // 2
    monkeypatch.setattr(table, "MAX_ROWS", lines)
    assert len(record.to_pandas()) == lines
    monkeypatch.setattr(table, "MAX_ROWS", lines - 1)
    with pytest.raises(ValueError, match=r"more than 4,919 rows: pass top_k=10, .* layer= or"):
        record.to_pandas()
    assert len(record.to_pandas(min_weight=0.5)) < lines


def test_tables_of_long_texts_read_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    record = causal(3000, heads=1, window=50)
    largest = 0
    block = QueryKeyAttention.block

    def counted(attention: QueryKeyAttention, *position: Any) -> Any:
        nonlocal largest
        result = block(attention, *position)
        largest = max(largest, result.numel())
        return result

    monkeypatch.setattr(QueryKeyAttention, "block", counted)
    frame = record.to_pandas(top_k=3)
    assert len(frame) == 2 * (1 + 2 + 3 * 2998)
    assert 0 < largest <= 1 << 22


def test_nan_weights_are_refused() -> None:
    queries = torch.zeros(1, 2, 3, 4)
    record = AttentionRecord.from_qk(list(queries), list(queries), words(3))
    queries[0, 1, 2] = torch.nan
    with pytest.raises(ValueError, match="layer 0, head 1: some weights are NaN or infinite"):
        record.to_pandas()
