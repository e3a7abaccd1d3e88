"""What an atlas is asked for comes as the statistics have it, and as the fixture of both sides."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from attnviz.atlas.server import ATLAS_REQUESTS, AtlasServer
from attnviz.corpus.statistics import HeadStatistics
from attnviz.record.record import AttentionRecord
from attnviz.server.protocol import MAX_REPLY_BYTES
from unit.atlas.statistics_made import (
    as_weights,
    causal_record,
    cross_statistics,
    fixture,
    fixture_statistics,
    made_statistics,
)


def inflated(data: bytes | None) -> Any:
    assert data is not None
    return json.loads(zlib.decompress(data))


def whole(server: AtlasServer, name: str, **arguments: Any) -> Any:
    """What a request that comes in parts says."""
    first = server.reply(name, arguments)
    asked = [arguments | {"part": part} for part in range(1, first.header["parts"])]
    parts = [first.data or b"", *(server.reply(name, each).data or b"" for each in asked)]
    assert all(len(each) <= MAX_REPLY_BYTES for each in parts)
    return inflated(b"".join(parts))


def same_up_to_rounding(got: Any, wanted: Any) -> None:
    """Whether JSON says the same, numbers to single precision."""
    if isinstance(wanted, Mapping):
        assert set(got) == set(wanted)
        for name in wanted:
            same_up_to_rounding(got[name], wanted[name])
    elif isinstance(wanted, list):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            same_up_to_rounding(one, other)
    elif isinstance(wanted, float):
        assert got == pytest.approx(wanted, rel=1e-4)
    else:
        assert got == wanted


def test_the_fixture_is_described() -> None:
    server = AtlasServer(fixture_statistics())
    described = json.loads(json.dumps(server.reply("describe", {}).header))
    wanted = fixture()["description"]
    for told in (described, wanted):
        for each in told["stacks"][0]["statistics"]:
            # Each side's own words.
            assert each.pop("definition")
    assert described == wanted


@pytest.mark.parametrize("name", ["statistics", "texts", "offsets", "classes", "edges"])
def test_the_fixture_is_sent_as_both_sides_read_it(name: str) -> None:
    server = AtlasServer(fixture_statistics())
    for recorded in fixture()["live"][name]:
        reply = server.reply(name, recorded["arguments"])
        assert reply.header == recorded["header"]
        data = base64.b64decode(recorded["data"])
        if name in ("offsets", "classes"):
            assert_allclose(
                np.frombuffer(reply.data or b"", "<f4"), np.frombuffer(data, "<f4"), rtol=1e-6
            )
        else:
            same_up_to_rounding(inflated(reply.data), inflated(data))


def test_statistics_are_those_of_the_records() -> None:
    statistics = made_statistics()
    server = AtlasServer(statistics)
    stack = server.reply("describe", {}).header["stacks"][0]
    table = whole(server, "statistics", stack="self")
    place = [each["name"] for each in stack["statistics"]].index("previous token")
    records = [causal_record(number) for number in range(8)]
    for layer in range(2):
        for head in range(3):
            # The mean weight just before the query, of each text.
            each = [np.diagonal(as_weights(record, layer, head), -1).mean() for record in records]
            assert table["means"][place][layer][head] == pytest.approx(np.mean(each), rel=1e-4)
            error = np.std(each, ddof=1) / np.sqrt(len(each))
            assert table["errors"][place][layer][head] == pytest.approx(error, rel=1e-3)
    assert table["texts"][place] == [[8] * 3] * 2
    assert stack["statistics"][place]["baseline"] is True
    entropy = [each["name"] for each in stack["statistics"]].index("entropy")
    assert table["baselines"][entropy] == []
    # Every statistic says what it is.
    assert all(each["definition"].endswith(".") for each in stack["statistics"])


def test_offsets_are_means_over_pairs() -> None:
    server = AtlasServer(made_statistics())
    labels = server.reply("describe", {}).header["stacks"][0]["offsets"]
    reply = server.reply("offsets", {"stack": "self", "layer": 1})
    found = np.frombuffer(reply.data or b"", "<f4").reshape(3, -1)
    assert found.shape[1] == reply.header["bins"] == len(labels)
    # Pairs whose key is the first are counted apart.
    wanted = np.mean(
        [
            as_weights(causal_record(number), 1, 2)[query, query - 2]
            for number in range(8)
            for query in range(3, 9)
        ]
    )
    assert found[2, labels.index("-2")] == pytest.approx(wanted, rel=1e-4)
    assert np.isnan(found[:, labels.index("1")]).all()


def test_edges_are_weights_of_their_texts_with_the_tokens_around_them() -> None:
    statistics = made_statistics()
    server = AtlasServer(statistics)
    texts = whole(server, "texts", stack="self")
    assert texts["keys"] is None
    for layer in range(2):
        edges = whole(server, "edges", stack="self", layer=layer)
        for columns in edges.values():
            assert columns["head"] == sorted(columns["head"])
            rows = zip(*(columns[name] for name in columns), strict=True)
            for head, weight, text, query, key in rows:
                record = causal_record(text)
                assert as_weights(record, layer, head)[query, key] == pytest.approx(
                    weight, rel=1e-3
                )
                at = texts["numbers"].index(text)
                positions = texts["queries"]["positions"][at]
                for end in (query, key):
                    entry = texts["queries"]["tokens"][at][positions.index(end)]
                    assert texts["vocabulary"][entry] == record.stack().query_tokens[end]
        strongest = edges["strongest"]
        for head in range(3):
            some = [
                w for w, h in zip(strongest["weight"], strongest["head"], strict=True) if h == head
            ]
            assert some == sorted(some, reverse=True)


def test_cross_attention_has_tokens_of_both_sides() -> None:
    server = AtlasServer(cross_statistics())
    stacks = {each["name"]: each for each in server.reply("describe", {}).header["stacks"]}
    assert stacks["decoder"]["same_tokens"]
    assert not stacks["cross"]["same_tokens"]
    texts = whole(server, "texts", stack="cross")
    sides = {
        name: {texts["vocabulary"][entry][:2] for text in texts[name]["tokens"] for entry in text}
        for name in ("queries", "keys")
    }
    assert sides == {"queries": {"·d"}, "keys": {"·e"}}


def test_tokens_of_any_kind_are_sent() -> None:
    statistics = HeadStatistics()
    hostile = ["</script>", "\ud800", "\x00", "\u202e"]
    record = AttentionRecord.from_weights([np.full((1, 4, 4), 0.25)], hostile)
    statistics.fold(record)
    texts = whole(AtlasServer(statistics), "texts", stack="self")
    assert set(texts["vocabulary"]) >= {"</script>"}
    assert len(texts["queries"]["tokens"][0]) == 4


def test_many_heads_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """96 layers of 96 heads: no reply is larger than hosts pass on."""
    statistics = HeadStatistics(edges=4)
    generator = np.random.default_rng(0)
    for _ in range(2):
        weights = generator.dirichlet(np.ones(3), size=(96, 96, 3)).astype(np.float32)
        statistics.fold(AttentionRecord.from_weights(list(weights), ["a", "b", "c"]))
    server = AtlasServer(statistics)
    monkeypatch.setattr("attnviz.server.protocol.MAX_REPLY_BYTES", 100_000)
    assert server.reply("statistics", {"stack": "self"}).header["parts"] > 1
    table = whole(server, "statistics", stack="self")
    assert [len(layer) for layer in table["means"][0]] == [96] * 96
    assert len(json.dumps(server.reply("describe", {}).header)) < MAX_REPLY_BYTES


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("block", {}, "request 'block' is unknown of an atlas"),
        ("statistics", {}, "'stack' is missing"),
        ("statistics", {"stack": "cross"}, "stack 'cross' does not exist; this atlas has 'self'"),
        ("statistics", {"stack": "self", "part": 7}, "part 7 of statistics of 1 parts"),
        ("edges", {"stack": "self", "layer": 5}, r"layer=5: stack 'self' has the layers 0, 1"),
        ("offsets", {"stack": "self", "layer": "0"}, "layer='0' must be a whole number"),
        ("page", {"part": 0, "state": {}}, "this view has no HTML export"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    name: str, arguments: dict[str, Any], message: str
) -> None:
    server = AtlasServer(made_statistics())
    with pytest.raises((IndexError, KeyError, TypeError, ValueError), match=message):
        server.reply(name, arguments)


def test_weights_by_class_are_those_of_the_statistics() -> None:
    statistics = made_statistics()
    server = AtlasServer(statistics)
    asked = {"stack": "self", "layer": 1, "head": 2, "system": "kind"}
    reply = server.reply("classes", asked)
    count = reply.header["classes"]
    found = np.frombuffer(reply.data or b"", "<f4").reshape(count, count)
    assert_allclose(found, statistics.stack("self").class_weights(1)[2], rtol=1e-6)
    # A query of any class gives all of its weight.
    there = np.isfinite(found).all(axis=1)
    assert there.any()
    assert_allclose(found[there].sum(axis=1), 1, rtol=1e-5)
    with pytest.raises(IndexError, match="head=7: layer 1 of stack 'self' has heads 0 to 2"):
        server.reply("classes", asked | {"head": 7})
    with pytest.raises(KeyError, match="classes 'pos' do not exist; known are 'kind'"):
        server.reply("classes", asked | {"system": "pos"})


def test_each_request_is_declared_with_what_it_says() -> None:
    assert set(ATLAS_REQUESTS.classes) == {
        *("describe", "statistics", "offsets", "classes", "texts", "edges", "page")
    }
