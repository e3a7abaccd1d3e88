"""Compare replies of an atlas server with its statistics and ``tests/fixtures/atlas.json``."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np
import pytest

from attnviz.atlas.server import AtlasServer
from attnviz.corpus.statistics import HeadStatistics
from attnviz.record.record import AttentionRecord
from unit.atlas.example_statistics import (
    cross_statistics,
    fixture,
    fixture_statistics,
    made_statistics,
)
from unit.complete_replies import joined_reply


def inflated(data: bytes | None) -> Any:
    assert data is not None
    return json.loads(zlib.decompress(data))


def test_replies_equal_the_fixture_of_both_languages() -> None:
    expected = fixture()
    server = AtlasServer(fixture_statistics(expected))
    assert json.loads(json.dumps(server.reply("describe", {}).header)) == expected["description"]
    for name, replies in expected["live"].items():
        for recorded in replies:
            reply = server.reply(name, recorded["arguments"])
            assert reply.header == recorded["header"]
            data = base64.b64decode(recorded["data"])
            if name == "offsets":
                assert reply.data == data
            else:
                assert inflated(reply.data) == inflated(data)


def test_each_stack_has_its_own_statistics_and_tokens() -> None:
    server = AtlasServer(cross_statistics())
    stacks = {stack["name"]: stack for stack in server.reply("describe", {}).header["stacks"]}
    assert stacks["decoder"]["same_tokens"]
    assert not stacks["cross"]["same_tokens"]
    tables = {
        name: inflated(joined_reply(server, "statistics", {"stack": name}).data) for name in stacks
    }
    assert {name: len(tables[name]["roles"]) for name in stacks} == {"decoder": 3, "cross": 2}
    texts = inflated(joined_reply(server, "texts", {"stack": "cross"}).data)
    sides = {
        name: {texts["vocabulary"][entry][0] for text in texts[name]["tokens"] for entry in text}
        for name in ("queries", "keys")
    }
    assert sides == {"queries": {"d"}, "keys": {"e"}}


def test_a_table_of_many_heads_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    statistics = HeadStatistics(edges=4)
    generator = np.random.default_rng(0)
    for _ in range(2):
        weights = generator.dirichlet(np.ones(3), size=(24, 24, 3)).astype(np.float32)
        statistics.add(AttentionRecord.from_weights(list(weights), ["a", "b", "c"]))
    server = AtlasServer(statistics)
    monkeypatch.setattr("attnviz.server.base.MAX_REPLY_BYTES", 6_000)
    assert server.reply("statistics", {"stack": "self"}).header["parts"] > 1
    table = inflated(joined_reply(server, "statistics", {"stack": "self"}).data)
    assert [len(layer) for layer in table["means"][0]] == [24] * 24


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("block", {}, "request 'block' is unknown. It does not exist for an atlas"),
        (
            "statistics",
            {"stack": "cross"},
            "stack='cross': these statistics have the stacks",
        ),
        ("edges", {"stack": "self", "layer": 5}, r"layer=5: stack 'self' has layers 0, 1"),
    ],
)
def test_invalid_requests_are_refused(name: str, arguments: dict[str, Any], message: str) -> None:
    server = AtlasServer(made_statistics())
    with pytest.raises((IndexError, KeyError, TypeError, ValueError), match=message):
        server.reply(name, arguments)
