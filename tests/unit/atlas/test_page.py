"""Tests of the data and size of exported atlas pages, and of the table shown without scripts."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import numpy as np
import pytest

from attnviz.atlas.page import MAX_BYTES, make_atlas_page, roles_table
from attnviz.atlas.view import AtlasView
from attnviz.corpus.statistics import HeadStatistics
from attnviz.record.record import AttentionRecord
from unit.atlas.example_statistics import fixture, fixture_statistics, made_statistics
from unit.page_data import bare_data_of as data_of
from unit.page_data import reply_of, unpacked

STATE = {"theme": "auto", "stack": "self"}


def test_a_page_equals_the_fixture_of_both_languages() -> None:
    expected = fixture()
    replies = data_of(make_atlas_page(fixture_statistics(expected), STATE))["replies"]

    def unpacked_reply(reply: dict[str, Any]) -> dict[str, Any]:
        packed = {name: unpacked(reply[name]) for name in ("data", "compressed") if name in reply}
        return reply | packed

    assert list(map(unpacked_reply, replies)) == list(map(unpacked_reply, expected["page"]))


def many_heads(layers: int, heads: int, texts: int = 40, length: int = 40) -> HeadStatistics:
    """Return statistics of random weights, which compress poorly, and many different words."""
    generator = np.random.default_rng(0)
    statistics = HeadStatistics("large")
    for _ in range(texts):
        shape = (layers, heads, length, length)
        weights = generator.exponential(size=shape).astype(np.float32)
        weights /= weights.sum(-1, keepdims=True)
        tokens = [f"·{word:x}" for word in generator.integers(0, 30_000, length)]
        statistics.add(AttentionRecord.from_weights(list(weights), tokens))
    return statistics


def test_a_page_that_has_no_room_for_all_edges_has_fewer() -> None:
    statistics = many_heads(4, 4)
    view = AtlasView(statistics)
    full_size = view.page_size()
    assert full_size == len(make_atlas_page(statistics, view.state, max_bytes=None).encode())
    data = data_of(view.to_html())
    [stack] = data["description"]["stacks"]
    assert stack["sampled"] == stack["sampled_in_all"] == 100
    limit = full_size - 12_000
    page = view.to_html(max_mb=limit / 1e6)
    assert len(page.encode()) <= limit
    [fewer] = data_of(page)["description"]["stacks"]
    assert 0 < fewer["sampled"] < 100
    assert fewer["sampled_in_all"] == 100
    # The page contains the query token of each edge, and at most `sampled` edges per head.
    edges, texts = (
        json.loads(unpacked(reply_of(page, name, stack="self", **layer)["compressed"]))
        for name, layer in (("edges", {"layer": 1}), ("texts", {}))
    )
    edges = edges["sampled"]
    for head, text, query in zip(edges["head"], edges["text"], edges["query"], strict=True):
        assert query in texts["queries"]["positions"][texts["numbers"].index(text)], head
    assert max(np.bincount(edges["head"])) == fewer["sampled"]


def test_a_page_that_cannot_be_small_enough_names_the_needed_size() -> None:
    view = AtlasView(made_statistics())
    with pytest.raises(ValueError, match=r"max_mb=0\.01 is too small for any page"):
        view.to_html(max_mb=0.01)
    min_bytes = len(make_atlas_page(view.statistics, view.state, max_bytes=None).encode())
    with pytest.raises(
        ValueError, match=r"the page of 6 heads needs .* MB without any edges, .* max_mb"
    ):
        view.to_html(max_mb=(min_bytes - 4_000) / 1e6)


@pytest.mark.slow
def test_a_page_of_32_by_32_heads_has_less_than_5_mb() -> None:
    statistics = many_heads(32, 32, texts=24)
    page = AtlasView(statistics).to_html()
    assert len(page.encode()) <= MAX_BYTES == 5_000_000
    [stack] = data_of(page)["description"]["stacks"]
    assert sum(stack["heads_per_layer"]) == 1024
    assert stack["sampled"] >= 10


def test_a_table_replaces_a_view_that_cannot_be_drawn() -> None:
    """The table sorts heads by score minus baseline, and not by score."""
    previous = 0.9 * np.eye(6, k=-1) + 0.1 * np.eye(6)
    previous[0, 0] = 1
    # Half of the tokens are delimiters, so the baseline is 0.5 and the score of this head is 1.
    delimiters = np.tile([0, 0, 0, 1, 1, 1], (6, 1)) / 3
    statistics = HeadStatistics("<m>")
    for _ in range(6):
        record = AttentionRecord.from_weights([[delimiters, previous]], list("abc.,;"), model="<m>")
        statistics.add(record)
    table = roles_table(statistics, "self")
    assert "&lt;m&gt;: roles of heads over 6 texts" in table
    rows = re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td>", html.unescape(table))
    assert rows == [
        ("0.1", "previous token", "0.90 ± <0.01"),
        ("0.0", "delimiter", "1.00 ± <0.01"),
    ]
