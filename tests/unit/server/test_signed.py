"""Tests of the server and of analyses for stacks of signed numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from attnviz import analysis
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.difference import DifferenceAttention
from attnviz.record.masks import BandMask
from attnviz.record.record import AttentionRecord
from attnviz.server.description import describe
from attnviz.server.server import RecordServer
from models.counting import LiveTensors
from unit.layers import LAYER, stack_of
from unit.records import difference_record, vectors
from unit.selected import strongest


def test_a_signed_stack_is_described() -> None:
    record = difference_record()
    (described,) = describe(record)["stacks"]
    largest = np.abs(record.stack().weights(layer=0)).max()
    assert described["maximum"] == pytest.approx(largest)
    assert (described["signed"], described["measure"]) == (True, "difference")
    assert (described["normalized"], described["patterns"]) == (False, [])
    assert described["vectors"] is False


def test_analyses_of_weights_refuse_signed_numbers() -> None:
    record = difference_record()
    assert analysis.measures_of(record) == ()
    assert analysis.distinct_head(record) is None
    server, request = RecordServer(record), {"stack": "self: b − a", "layer": 0}
    message = "are defined for attention weights, but stack 'self: b − a' has signed values"
    for analyse in (
        lambda: analysis.head_scores(record, "self: b − a"),
        lambda: analysis.all_head_scores(record),
        lambda: analysis.head_scores(record, "entropy"),
        lambda: analysis.uniform_scores(record, "entropy"),
        lambda: server.reply("scores", request | {"pattern": "self"}),
    ):
        with pytest.raises(ValueError, match=message):
            analyse()
    with pytest.raises(ValueError, match="stack 'self: b − a', layer 0, has no queries and keys"):
        server.reply("vectors", request | {"head": 0, "token": 3, "keys": [0, 3]})


def test_131072_tokens_allocate_nothing_for_all_pairs() -> None:
    count = 131_072
    keys = vectors(1, count, 4, seed=9)
    sides = [
        QueryKeyAttention(vectors(1, count, 4, seed=seed), keys, 0.5, BandMask(None, 0))
        for seed in (0, 1)
    ]
    stack = stack_of(DifferenceAttention(*sides), signed=True)
    server = RecordServer(AttentionRecord({"self": stack}))
    request: dict[str, Any] = {"stack": "self", "layer": LAYER, "heads": [0]}
    request |= {"rows": [0, count], "columns": [0, count]}
    last = [count - 4, count]
    with LiveTensors() as tensors:
        coarse = {"reduce": {"kind": "cells", "pooled": "mean", "length": 512}}
        estimate = server.reply("read", request | coarse)
        block = server.reply("read", request | {"rows": last, "columns": last})
        server.reply("read", request | {"rows": last} | strongest(2))
    # The sampling interval of one attention would be 256. A difference computes two attentions, so
    # its interval is twice as long.
    assert estimate.header["sampling_interval"] == 512
    assert tensors.largest < 40_000_000
    # Compute the differences of the last query by formula.
    a, b = (
        torch.softmax(side.queries[0, -1].double() @ keys[0].double().T * 0.5, dim=0)
        for side in sides
    )
    actual = np.frombuffer(block.data or b"", "<f4").reshape(4, 4)[3]
    assert_allclose(actual, (b - a)[-4:].numpy(), atol=1e-9)
    # Each of the two attentions has one normalizer of 4 bytes per query.
    assert server.row_normalizers.num_bytes == 2 * 4 * count
