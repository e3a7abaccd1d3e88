"""Tests of reads: weights of heads that are combined and reduced, against their definitions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from attnviz.record.attention import StoredWeights
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.server.codec import decode
from attnviz.server.server import RecordServer
from fixtures import make_reads
from unit.formulas import combined
from unit.layers import LAYER, error_of, heads_lists, numbers_of, ranges, stacks
from unit.records import words

FIXTURE = json.loads((make_reads.FILE).read_text(encoding="utf-8"))


def server_of(record: make_reads.Record) -> RecordServer:
    numbers = make_reads.numbers_of(record).astype(np.float32)
    _, queries, keys = numbers.shape
    stack = AttentionStack(
        "self",
        {LAYER: StoredWeights(torch.from_numpy(numbers))},
        Tokens.of(words(queries)),
        Tokens.of(words(keys)),
        normalized=False,
        signed=record["signed"],
    )
    return RecordServer(AttentionRecord({"self": stack}))


SERVERS = {name: server_of(record) for name, record in FIXTURE["records"].items()}


@pytest.mark.parametrize(
    "case",
    FIXTURE["cases"],
    ids=[json.dumps([c["record"], c["request"]]) for c in FIXTURE["cases"]],
)
def test_a_read_of_the_fixture(case: dict[str, Any]) -> None:
    request = {"stack": "self", "layer": LAYER} | case["request"]
    reply = SERVERS[case["record"]].reply("read", request)
    assert_allclose(decode(reply), case["matrices"], atol=reply.header["error"] + 1e-6)


@given(st.data(), heads_lists, st.sampled_from(["separate", "mean", "max"]))
def test_blocks_are_slices_of_the_combined_weights(
    data: st.DataObject, heads: list[int], combine: str
) -> None:
    stack = data.draw(stacks())
    rows = data.draw(ranges(len(stack.query_tokens)))
    columns = data.draw(ranges(len(stack.key_tokens)))
    request = {"stack": "self", "layer": LAYER, "heads": heads, "combine": combine}
    request |= {"rows": [rows.start, rows.stop], "columns": [columns.start, columns.stop]}
    reply = RecordServer(AttentionRecord({"self": stack})).reply("read", request)
    expected = combined(numbers_of(stack)[heads], combine)[:, rows, columns]
    assert reply.header["shape"] == expected.shape
    error = reply.header["error"] + 2 * error_of(stack.attention(LAYER))
    # Rounding may decide which of two numbers of equal magnitude is the larger one.
    assert_allclose(np.abs(decode(reply)), np.abs(expected), atol=error)
    if combine != "max":
        assert_allclose(decode(reply), expected, atol=error)
    json.dumps(reply.header, allow_nan=False)
