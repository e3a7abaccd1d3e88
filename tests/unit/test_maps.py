"""Small maps of long texts: a few exact queries in place of all."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnviz import sampled
from attnviz.channel.codec import decode
from attnviz.channel.maps import encoded_maps
from attnviz.channel.server import RecordServer
from unit.long_records import long_record

TOKENS, SIZE = 600, 8


@pytest.fixture
def _short_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "_CELLS", TOKENS * TOKENS - 1)


@pytest.mark.usefixtures("_short_is_long")
def test_each_row_of_a_long_text_s_map_is_one_query_of_its_share() -> None:
    stack = long_record(TOKENS, heads=4).stack()
    maps, queries = encoded_maps(stack, 0, SIZE, heads=[1, 3])
    assert (maps.shape, queries) == ((2, SIZE, SIZE), SIZE)
    each = TOKENS // SIZE
    attention = stack.attention(0)
    for drawn, head in zip(decode(maps), (1, 3), strict=True):
        q = torch.from_numpy(stack.queries(layer=0, head=head)).double()
        k = torch.from_numpy(stack.keys(layer=0, head=head)).double()
        logits = q @ k.T / q.shape[1] ** 0.5
        hidden = ~torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
        weights = logits.masked_fill(hidden, -torch.inf).softmax(dim=1).numpy()
        pooled = weights.reshape(TOKENS, SIZE, each).max(axis=2)
        for row, cells in enumerate(drawn):
            share = pooled[row * each : (row + 1) * each]
            nearest = np.abs(share - cells).max(axis=1).min()
            assert nearest < maps.error + 1e-6
    assert attention.num_queries == TOKENS


@pytest.mark.usefixtures("_short_is_long")
def test_a_reply_says_how_many_queries_stand_for_all() -> None:
    server = RecordServer(long_record(TOKENS))
    request = {"stack": "self", "layer": 0, "size": SIZE}
    assert server.reply("maps", request).header["sampled"] == SIZE
    part = request | {"rows": [0, 100], "columns": [0, 100]}
    assert "sampled" not in server.reply("maps", part).header
