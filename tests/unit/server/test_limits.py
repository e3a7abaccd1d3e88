"""What crosses between kernel and browser is small enough for every host.

Databricks ends a widget's message at 5 MB, Colab drops connections that carry much; the tightest
limit that is kept here is a megabyte of weights and a tenth of that for everything around them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from jupyter_client.session import Session

import attnviz as av
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask
from attnviz.record.tokens import Tokens
from attnviz.server.kernel import KernelChannel
from attnviz.server.server import RecordServer
from unit.records import words

LARGEST_MESSAGE = 1_100_000
LAYERS = 96
HEADS = 64


def large_record(num_tokens: int, num_heads: int = HEADS) -> av.AttentionRecord:
    """As many layers as the largest open models have, of one and the same attention."""
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(num_heads, num_tokens, 4, generator=generator)
    attention = QueryKeyAttention(shared, shared, scale=0.5, mask=BandMask(None, 0))
    # Longer than tokens are, and of characters that JSON writes with six each.
    tokens = Tokens.of([f"{word}日本語語" for word in words(num_tokens)])
    stack = av.AttentionStack("self", dict.fromkeys(range(LAYERS), attention), tokens)
    # More pixels than a reply may carry, of which no two are alike.
    image = np.random.default_rng(0).integers(0, 256, (3000, 4000, 3), dtype=np.uint8)
    return av.AttentionRecord({"self": stack}, model="organisation/model" * 5, images=[image])


@pytest.fixture(scope="module")
def record() -> av.AttentionRecord:
    return large_record(1_000)


def page(_: object) -> tuple[str, str]:
    # Characters of more than one byte, which the cuts between parts may go through.
    return "head-view.html", "é" * 1_700_000


def sent(record: av.AttentionRecord, name: str, arguments: Any) -> tuple[dict[str, Any], int]:
    """What the kernel answers, and the bytes that this takes on the wire of Jupyter."""
    answers: list[tuple[dict[str, Any], list[bytes]]] = []
    server = RecordServer(record, page=page)
    channel = KernelChannel(server, lambda *answer: answers.append(answer))
    while not answers or "later" in answers[-1][0].get("header", {}):
        channel.receive({"attnviz": "request", "id": "tab-1", "name": name, "arguments": arguments})
    message, buffers = answers[-1]
    session = Session(key=b"secret")
    content = {"comm_id": "0" * 32, "data": {"method": "custom", "content": message}}
    parts = session.serialize(session.msg("comm_msg", content))
    return message, sum(map(len, parts)) + sum(map(len, buffers))


WHOLE = {"stack": "self", "layer": 95, "rows": [0, 1000], "columns": [0, 1000]}
TILE = {"stack": "self", "layer": 0, "row": 0, "column": 0, "pooled": "max"}
STRONGEST = {"stack": "self", "layer": 95, "rows": [0, 1000], "k": 100}
STRONGEST |= {"combine": "mean", "leave_out": ["first"], "pair": "all"}
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("describe", {}),
    ("block", WHOLE | {"heads": [0], "rows": [0, 250]}),
    (
        "block",
        WHOLE | {"heads": [*range(16)], "rows": [0, 125], "columns": [0, 125]},
    ),
    ("strongest", STRONGEST | {"heads": [0, 1, 2]}),
    ("maps", {"stack": "self", "layer": 0, "size": 64}),
    ("maps", {"stack": "self", "layer": 0, "size": 1000, "heads": [0]}),
    ("tile", TILE | {"heads": [0], "level": 0}),
    ("tile", TILE | {"heads": [0, 1, 2], "level": 2}),
    ("vectors", {"stack": "self", "layer": 95, "head": 63, "token": 999, "keys": [0, 1000]}),
    ("image", {"index": 0}),
    ("sources", {"stack": "self", "query": 999}),
    *(("page", {"part": part, "state": {"layer": 3}}) for part in range(4)),
]


@pytest.mark.parametrize(("name", "arguments"), REQUESTS)
def test_no_answer_is_too_large(record: av.AttentionRecord, name: str, arguments: Any) -> None:
    message, size = sent(record, name, arguments)
    assert message["attnviz"] == "reply", message
    assert size < LARGEST_MESSAGE


@pytest.mark.slow
def test_scores_of_all_heads_are_not_too_large() -> None:
    # Their size is that of layers and heads; few tokens keep the test quick.
    message, size = sent(large_record(8), "scores", {"stack": "self", "pattern": "first token"})
    assert message["attnviz"] == "reply", message
    assert 10 * LAYERS * HEADS < size < LARGEST_MESSAGE


def test_the_widget_itself_is_small(record: av.AttentionRecord) -> None:
    """Its state is sent when it shows, and is saved where a host saves states."""
    state = av.HeadView(record, layer=95).get_state()
    assert len(state.pop("_code")) < 126_000
    assert len(str(state)) < 10_000
