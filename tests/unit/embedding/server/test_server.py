"""Test the requests of an embedding view and the replies of `CorpusServer`."""

from __future__ import annotations

import base64
import importlib.util
import json
import sys
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from attnviz.corpus.corpus import Corpus
from attnviz.embedding.placement import Placing
from attnviz.embedding.server.description import describe_points
from attnviz.embedding.server.plots import PlotOptions
from attnviz.embedding.server.server import CorpusServer
from attnviz.server.protocol import Reply
from rounding import relative_error
from unit.complete_replies import joined_reply
from unit.embedding_fixture import PLACING, PROJECTING, fixture, fixture_corpus
from unit.random_corpora import attention, corpus, record, with_vectors
from unit.records import vectors

Floats = NDArray[np.float64]

HEAD: dict[str, Any] = {"stack": "self", "layer": 0, "head": 1}
PLOT: dict[str, Any] = HEAD | PROJECTING | {"placing": PLACING}
NEEDS_TSNE = pytest.mark.skipif(
    importlib.util.find_spec("openTSNE") is None, reason="openTSNE is not installed"
)


def points_of(server: CorpusServer, stack: str = "self") -> dict[str, Any]:
    reply = joined_reply(server, "points", {"stack": stack})
    assert reply.data is not None
    data: dict[str, Any] = json.loads(zlib.decompress(reply.data))
    return data


def coordinates_of(reply: Reply) -> Floats:
    header = reply.header
    coordinates: Floats = np.array(header["low"]) + codes_of(reply) / 65535 * header["size"]
    return coordinates


def codes_of(reply: Reply) -> NDArray[np.int64]:
    """Return the coordinates of a plot as 16-bit codes, (points, dimensions)."""
    assert reply.data is not None
    planes = np.frombuffer(reply.data, np.uint8).astype(np.int64)
    high, low = planes.reshape(2, reply.header["dimensions"], reply.header["count"])
    return (256 * high + low).T


def assert_like(header: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Assert that two headers are equal, except that floats may differ by rounding to float32."""
    assert set(header) == set(expected)
    for name, value in expected.items():
        if isinstance(value, float) or (isinstance(value, list) and name != "heads"):
            assert_allclose(header[name], value, rtol=2e-6, atol=2e-6, err_msg=name)
        else:
            assert header[name] == value, name


@pytest.mark.parametrize("name", ["plot", "norms", "lines"])
def test_replies_equal_the_fixture(name: str) -> None:
    server = CorpusServer(fixture_corpus())
    for case in fixture()["live"][name]:
        reply = server.reply(name, case["arguments"])
        assert_like(reply.header, case["header"])
        if "data" not in case:
            assert reply.data is None
            continue
        expected, actual = base64.b64decode(case["data"]), reply.data
        assert actual is not None
        kind = np.uint8 if name == "plot" else np.dtype("<u2")
        codes, expected_codes = (
            np.frombuffer(buffer, kind).astype(int) for buffer in (actual, expected)
        )
        # Codes are rounded numbers. Tiny differences of a number can change its code by 1.
        assert_allclose(codes, expected_codes, atol=1)


def test_points_equal_the_fixture() -> None:
    assert points_of(CorpusServer(fixture_corpus())) == fixture()["corpus"]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("block", {}, "It does not exist for a corpus."),
        ("points", {"stack": "cross"}, "this corpus has the stacks 'self'"),
        ("plot", {"stack": "self", "layer": 7, "placing": PLACING}, "layer"),
        ("plot", PLOT | {"head": 3}, "heads 0"),
        ("plot", PLOT | {"method": "mds"}, "Invalid enum value 'mds' - at `method`"),
        ("plot", PLOT | {"part": 1}, "must be from 0 to 0"),
        ("lines", HEAD | {"point": 20}, "points 0 to 19"),
        ("page", {"part": 0, "state": {}}, "no HTML export"),
    ],
)
def test_invalid_requests_are_refused(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, IndexError, KeyError)) as caught:
        CorpusServer(corpus([4, 6])).reply(name, arguments)
    assert message in str(caught.value)


def test_small_plots_have_a_limited_number_of_points() -> None:
    example = corpus([60] * 101, max_points=20_000, layers=1, heads=2, size=4)
    server = CorpusServer(example)
    count = len(example.points())
    assert count > 10_000
    reply = server.reply("plot", {"stack": "self", "layer": 0, "placing": PLACING})
    assert reply.data is not None
    assert points_of(server)["stride"] == 2
    plot = server.reply("plot", PLOT | {"head": 0})
    small = np.frombuffer(reply.data, np.uint8).reshape(2, 2, -(-count // 2))
    assert_array_equal(small[:, 0], (codes_of(plot)[::2] >> 8).T)


def test_large_plots_are_sent_in_parts() -> None:
    example = corpus([500] * 180, max_points=180_000, layers=1, heads=1, size=2)
    server = CorpusServer(example)
    reply = joined_reply(server, "plot", PLOT | {"head": 0, "dimensions": 3})
    assert reply.header["parts"] == 2
    assert reply.data is not None
    assert len(reply.data) == 6 * 180_000
    assert joined_reply(server, "norms", HEAD | {"head": 0}).header["parts"] == 1
    # The reply to "points" contains positions, texts and tokens of all points.
    assert len(points_of(server)["queries"]["text"]) == 90_000


def test_lines_are_the_weights_of_the_text() -> None:
    example = corpus([70, 80])
    server, points = CorpusServer(example), example.points()
    row = example.records[1].stack().weights(layer=0, head=1, rows=slice(75, 76))[0]
    query = 70 + 75
    header = server.reply("lines", HEAD | {"point": query}).header
    assert len(header["points"]) == 64
    tolerance = relative_error(attention(80), 64)
    assert_allclose(header["weights"], np.sort(row)[::-1][:64], rtol=tolerance)
    assert_allclose(header["covered"], np.sort(row)[::-1][:64].sum(), rtol=tolerance)
    for point, weight in zip(header["points"], header["weights"], strict=True):
        key = point - points.num_queries
        assert points.key_text[key] == 1
        assert row[points.key_position[key]] == pytest.approx(weight, rel=tolerance)
    # All queries of a causal text give weight to its first key, the first query the most.
    column = example.records[0].stack().weights(layer=0, head=1)[:, 0]
    header = server.reply("lines", HEAD | {"point": points.num_queries}).header
    assert header["points"][0] == column.argmax()
    assert_allclose(header["weights"], np.sort(column)[::-1][:64], rtol=tolerance)


def test_lines_of_sampled_keys_report_the_covered_weight() -> None:
    example = Corpus([record(50)], max_points=20)
    points = example.points()
    assert not points.whole
    server = CorpusServer(example)
    query = points.num_queries - 1
    header = server.reply("lines", HEAD | {"point": query}).header
    position = int(points.query_position[query])
    row = example.records[0].stack().weights(layer=0, head=1)[position]
    assert header["covered"] == pytest.approx(row[points.key_position].sum(), rel=1e-5)
    assert header["covered"] < 0.95


def test_a_head_with_nan_does_not_affect_others() -> None:
    queries, keys = vectors(3, 24, 4), vectors(3, 24, 4, seed=5)
    queries[1, 3, 2] = torch.nan
    keys[2] = 1.0
    server = CorpusServer(with_vectors(queries, keys, [12, 12]))
    overview = server.reply("plot", {"stack": "self", "layer": 0, "placing": PLACING})
    problems = [head["problem"] for head in overview.header["heads"]]
    assert problems == [
        None,
        "queries or keys are not finite numbers, or too large to measure distances",
        "all keys are the same",
    ]
    assert overview.data is not None
    small = np.frombuffer(overview.data, np.uint8).reshape(2, 3, 48)
    assert small[:, 1].max() == 0
    assert len(np.unique(small[:, 0])) > 10
    plot = server.reply("plot", PLOT)
    assert (plot.header["size"], plot.header["explained"]) == (0.0, None)
    for reply in (plot, server.reply("norms", HEAD)):
        json.dumps(reply.header, allow_nan=False)
    trust = server.reply("trust", PLOT | {"head": None}).header["heads"]
    assert [figures is None for figures in trust] == [False, True, True]
    with pytest.raises(ValueError, match="layer 0, head 1: some weights are NaN"):
        server.reply("lines", HEAD | {"point": 3})


def test_a_missing_package_is_reported_in_the_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    server = CorpusServer(corpus([10, 12]))
    plot = server.answers.plot
    with pytest.raises(RuntimeError, match=r"needs openTSNE: pip install 'attnviz\[embedding\]'"):
        plot(PlotOptions("self", 0, Placing(), "tsne", head=1), wait=True)
    reply = server.reply("plot", PLOT | {"method": "tsne"})
    words = "t-SNE needs openTSNE: pip install 'attnviz[embedding]'"
    assert reply.header["work"] == {"state": "failed", "done": 0, "num_total": 0, "words": words}
    # The reply contains the principal components instead of t-SNE.
    assert_allclose(coordinates_of(reply), coordinates_of(server.reply("plot", PLOT)))
    assert server.reply("trust", PLOT | {"method": "tsne"}).header["heads"] == [None]


@NEEDS_TSNE
def test_a_cancelled_projection_restarts_only_on_request() -> None:
    server = CorpusServer(corpus([400, 300]))
    arguments = PLOT | {"method": "tsne"}
    assert server.reply("plot", arguments).header["work"]["state"] == "running"
    server.reply("plot", arguments | {"action": "cancel", "perplexity": 49})
    assert server.reply("plot", arguments).header["work"]["state"] == "running"
    server.reply("plot", arguments | {"action": "cancel"})
    for _ in range(2):
        assert server.reply("plot", arguments).header["work"]["state"] == "cancelled"
    restarted = server.reply("plot", arguments | {"action": "restart"})
    assert restarted.header["work"]["state"] == "running"
    # The request for head 0 ends the projection of `arguments`. A projection that was ended, but
    # not cancelled, starts again without `restart`.
    other = arguments | {"head": 0}
    assert server.reply("plot", other).header["work"]["state"] == "running"
    assert server.reply("plot", arguments).header["work"]["state"] == "running"
    server.reply("plot", arguments | {"action": "cancel"})


@pytest.mark.parametrize("change", [{"scaling": "none"}, {"translate": False}, {"lift": True}])
def test_replies_and_their_parts_depend_on_the_placing(
    change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnviz.server.base.MAX_REPLY_BYTES", 100)
    example = corpus([40, 30])
    server = CorpusServer(example)
    for name, arguments in (
        ("trust", PLOT | {"head": None}),
        ("plot", PLOT | {"dimensions": 3}),
        ("plot", {"stack": "self", "layer": 0}),
        ("plot", PLOT | {"dimensions": 3, "part": 1}),
        ("plot", {"stack": "self", "layer": 0, "part": 1}),
    ):
        for placing in (PLACING, PLACING | change, PLACING):
            expected = CorpusServer(example).reply(name, arguments | {"placing": placing})
            assert server.reply(name, arguments | {"placing": placing}) == expected


def test_the_description_says_why_texts_have_no_points() -> None:
    records = [record(4), record(6)]
    for example, num_skipped, stopped in (
        # Every text that could be read is included, so nothing was sampled.
        (Corpus(records, total_texts=5, num_skipped=3), 3, False),
        # Reading stopped before the last two texts.
        (Corpus(records, total_texts=5, num_skipped=1), 1, True),
        # The second text does not fit in `max_points`.
        (corpus([4, 6], max_points=12), 0, True),
        # Only a part of the text fits in `max_points`.
        (corpus([40], max_points=12), 0, True),
    ):
        description = describe_points(example, "self")
        assert (description["num_skipped"], description["stopped"]) == (num_skipped, stopped)
