"""Small maps of long texts, which contain sampled exact queries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from attnviz.record import rows as sampled
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.server.codec import decode, pool_max
from attnviz.server.maps import encode_maps, pool_on_device
from attnviz.server.server import RecordServer
from attnviz.utils.progress import run_steps
from unit.long_records import long_record
from unit.records import captured_record, words

TOKENS, SIZE = 600, 8


@pytest.fixture
def _short_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "_MAX_ENTRIES", TOKENS * TOKENS - 1)


@pytest.mark.usefixtures("_short_is_long")
def test_each_row_of_a_long_text_s_map_is_one_query_of_its_share() -> None:
    stack = long_record(TOKENS, heads=4).stack()
    maps, queries, _ = run_steps(encode_maps(stack, 0, SIZE, heads=[1, 3]))
    assert maps.shape == (2, SIZE, SIZE)
    assert queries is not None
    rows_per_cell = TOKENS // SIZE
    attention = stack.attention(0)
    for drawn, head in zip(decode(maps), (1, 3), strict=True):
        q = torch.from_numpy(stack.queries(layer=0, head=head)).double()
        k = torch.from_numpy(stack.keys(layer=0, head=head)).double()
        logits = q @ k.T / q.shape[1] ** 0.5
        hidden = ~torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
        weights = logits.masked_fill(hidden, -torch.inf).softmax(dim=1).numpy()
        pooled = weights.reshape(TOKENS, SIZE, rows_per_cell).max(axis=2)
        assert_allclose(drawn, pooled[queries], atol=maps.error + 1e-6)
        assert [query // rows_per_cell for query in queries] == [*range(SIZE)]
    assert attention.num_queries == TOKENS


@pytest.mark.usefixtures("_short_is_long")
def test_a_reply_contains_the_sampled_queries() -> None:
    server = RecordServer(long_record(TOKENS))
    request = {"stack": "self", "layer": 0, "size": SIZE}
    assert len(server.reply("maps", request).header["sampled"]) == SIZE
    part = request | {"rows": [0, 100], "columns": [0, 100]}
    assert "sampled" not in server.reply("maps", part).header


@pytest.mark.parametrize("size", [1, 4, 64])
@pytest.mark.parametrize("layer", captured_record().stack().layers)
def test_on_a_device_the_same_cells_are_pooled(layer: int, size: int) -> None:
    # Run the code for devices on the CPU, because there may be no device.
    stack = captured_record().stack()
    for head in range(4):
        attention = stack.attention(layer)
        vectors = attention.vectors
        assert vectors is not None
        for rows, columns in [(slice(0, 6), slice(0, 6)), (slice(1, 6), slice(2, 5))]:
            pooled = pool_on_device(vectors, head, rows, columns, size)
            weights = stack.weights(layer=layer, head=head, rows=rows, columns=columns)
            assert_allclose(pooled, pool_max(weights[None], size)[0], atol=1e-6)


def test_the_largest_weight_of_each_map_is_exact() -> None:
    weights = np.random.default_rng(3).random((1, 4, 70, 90), np.float32)
    weights /= weights.sum(axis=-1, keepdims=True)
    record = AttentionRecord.from_weights(weights, words(70), key_tokens=words(90, "k"))
    maps = run_steps(encode_maps(record.stack(), 0, 32, heads=[2, 0]))
    for head, (cell, weight) in zip([2, 0], maps.largest, strict=True):
        assert weight == float(weights[0, head].max())
        # The cell contains the weight.
        query, key = np.unravel_index(weights[0, head].argmax(), (70, 90))
        row, column = divmod(cell, 32)
        assert row * 70 // 32 <= query < (row + 1) * 70 // 32
        assert column * 90 // 32 <= key < (column + 1) * 90 // 32


@pytest.mark.gpu
def test_maps_are_pooled_on_the_device() -> None:
    record = long_record(6000, heads=2, key_heads=1, head_dim=16)
    layer = record.stack().attention(0)
    assert isinstance(layer, QueryKeyAttention)
    on_device = replace(layer, queries=layer.queries.cuda(), keys=layer.keys.cuda())
    stack = AttentionStack("self", {0: on_device}, record.stack().query_tokens)
    maps, sampled, _ = run_steps(encode_maps(stack, 0, 32, heads=[1]))
    assert sampled is None
    weights = record.stack().weights(layer=0, head=1)
    assert_allclose(decode(maps)[0], pool_max(weights[None], 32)[0], atol=maps.header()["error"])
