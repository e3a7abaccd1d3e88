"""Tests of the replies of `RecordServer` to requests about a record."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from attnviz.analysis import measures_of
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.server import pending_replies
from attnviz.server.description import describe
from attnviz.server.images import average_image
from attnviz.server.protocol import MAX_REPLY_BYTES, Reply
from attnviz.server.server import RecordServer
from attnviz.utils.progress import report
from unit.complete_replies import joined_reply
from unit.records import (
    captured_record,
    given_record,
    vectors,
)

BLOCK = {"stack": "self", "layer": 1, "heads": [0], "rows": [0, 5], "columns": [0, 5]}


def test_a_record_is_described() -> None:
    record = captured_record()
    reply = RecordServer(record).reply("describe", {})
    assert reply == Reply(describe(record))
    description = json.loads(json.dumps(reply.header))
    assert (description["model"], description["notes"]) == ("captured", ["made by hand"])
    self_attention, cross = description["stacks"]
    gates, known = self_attention.pop("gates"), record.stack().gates(3)
    assert [of_layer is not None for of_layer in gates] == [False, True, False, True, False, False]
    assert known is not None
    assert gates[1] == pytest.approx(known.mean(axis=1), rel=1e-3)
    tokens = {
        "text": ["[CLS]", "t0", "t1", "t2", "t3", "[SEP]"],
        "special": [0, 5],
        "sequence": [None, 0, 0, 1, 1, None],
    }
    assert self_attention == {
        "name": "self",
        "layers": [2, 3, 5, 7, 11, 12],
        "heads_per_layer": [4] * 6,
        "query_tokens": tokens,
        "key_tokens": None,
        "normalized": True,
        "maximum": 1.0,
        "causal": False,
        "vectors": True,
        "patterns": list(measures_of(record.stack())),
    }
    assert cross["key_tokens"] == {"text": ["x", "·y"], "special": [], "sequence": [0, 0]}


def test_a_long_text_is_described_in_parts() -> None:
    count = 131_072
    # The last three tokens are half of a surrogate pair, a quote, and characters of three bytes.
    texts = [f"{index * 7919 % 99_991:x}" for index in range(count - 3)] + ["\ud800", '"', "日本"]
    weights = torch.eye(1, count)[None]
    record = AttentionRecord.from_weights(
        cross_attentions=[weights], encoder_tokens=texts, decoder_tokens=["q"]
    )
    server = RecordServer(record)
    reply = joined_reply(server, "describe", {})
    sent = json.loads(zlib.decompress(reply.data or b""))
    assert sent == json.loads(json.dumps(describe(record)))
    with pytest.raises(ValueError, match="part"):
        server.reply("describe", {"part": reply.header["parts"]})


def test_a_reply_is_at_most_a_megabyte() -> None:
    attention = QueryKeyAttention(vectors(2, 500, 2), vectors(1, 1100, 2, seed=1), 1.0)
    tokens = Tokens.of(["a"] * 500), Tokens.of(["b"] * 1100)
    server = RecordServer(
        AttentionRecord({"self": AttentionStack("self", {1: attention}, *tokens)})
    )
    block = BLOCK | {"heads": [0, 1], "rows": [0, 500]}
    data = server.reply("read", block | {"columns": [0, 250]}).data
    assert data is not None
    assert len(data) == MAX_REPLY_BYTES
    with pytest.raises(ValueError, match="a block have 1004000 bytes, more than the 1000000"):
        server.reply("read", block | {"columns": [0, 251]})


class Pages:
    """A function that makes a page of 3.6 MB from a state, and counts the pages that it made."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, state: Mapping[str, Any]) -> tuple[str, str]:
        self.made += 1
        return "head-view.html", (f"{state['token']}é" * 2_500_000)[:2_400_000]


def test_two_tabs_that_request_pages_at_once_get_their_own() -> None:
    pages = Pages()
    server = RecordServer(given_record(), page=pages)
    states: list[dict[str, Any]] = [{"token": 1}, {"token": 2}]
    pieces: list[list[bytes]] = [[], []]
    for part in range(4):
        for tab, state in enumerate(states):
            reply = server.reply("page", {"part": part, "state": state})
            assert reply.header == {"parts": 4, "name": "head-view.html"}
            pieces[tab].append(reply.data or b"")
    assert pages.made == 2
    assert max(map(len, pieces[0])) <= MAX_REPLY_BYTES
    assert [b"".join(data).decode() for data in pieces] == [pages(state)[1] for state in states]


def test_a_page_that_takes_long_is_made_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending_replies, "REPLY_SECONDS", 0.0)
    started = []

    def page(state: Mapping[str, Any]) -> tuple[str, str]:
        started.append(dict(state))
        for done in range(1, 4):
            if state.get("stop") == done:
                raise KeyboardInterrupt
            report("strongest keys", done, 4)
        return "x.html", "page"

    server = RecordServer(given_record(), page=page)
    request = {"part": 0, "state": {"token": 1}}
    shares = []
    for _ in range(3):
        reply = server.reply("page", request)
        assert (reply.data, list(reply.header)) == (None, ["pending"])
        assert reply.header["pending"]["doing"] == "strongest keys"
        # While the page is unfinished, the server replies to other requests.
        assert server.reply("describe", {}).header["stacks"]
        shares.append(reply.header["pending"]["progress"])
    assert shares == [0.25, 0.5, 0.75]
    last = server.reply("page", request)
    assert (last.header, last.data) == ({"parts": 1, "name": "x.html"}, b"page")
    assert started == [{"token": 1}]
    # After an interrupt, the next request makes the page from the beginning.
    interrupted = {"part": 0, "state": {"stop": 2}}
    server.reply("page", interrupted)
    with pytest.raises(KeyboardInterrupt):
        server.reply("page", interrupted)
    assert server.reply("page", interrupted).header["pending"]["progress"] == 0.25


def test_an_image_that_is_too_large_is_averaged() -> None:
    image = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    # The image has 5 x 7 x 3 = 105 bytes. At half size, a pixel averages 2 x 2 pixels, or fewer at
    # the right and bottom edge.
    small = average_image(image, 104)
    assert small.shape == (3, 4, 3)
    assert_array_equal(small[0, 0], image[:2, :2].mean((0, 1)).round())
    assert_array_equal(small[1, 3], image[2:4, 6].mean(0).round())
    assert average_image(image, 35).shape == (2, 3, 3)
    assert average_image(image, 105) is image
    with pytest.raises(ValueError, match="max_bytes=2 must be at least 3"):
        average_image(image, 2)
