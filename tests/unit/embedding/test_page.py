"""Test the data and size of exported pages of an embedding view, and refused arguments."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from attnviz.embedding.page import make_embedding_page
from attnviz.embedding.server.plots import EmbeddingAnswers
from attnviz.embedding.server.server import CorpusServer
from attnviz.embedding.view import EmbeddingView
from unit.embedding_fixture import PROJECTING, fixture, fixture_corpus
from unit.page_data import bare_data_of as data_of
from unit.page_data import reply_of, unpacked
from unit.random_corpora import corpus

NEEDS_TSNE = pytest.mark.skipif(
    importlib.util.find_spec("openTSNE") is None, reason="openTSNE is not installed"
)


def bytes_of(reply: dict[str, Any]) -> NDArray[np.int64]:
    return np.frombuffer(unpacked(reply["data"]), np.uint8).astype(np.int64)


def codes_of(reply: dict[str, Any]) -> NDArray[np.int64]:
    """Return the coordinates of a layer's points as 16-bit codes, (axes, heads, points)."""
    high, low = bytes_of(reply).reshape(2, 2, len(reply["header"]), -1)
    return 256 * high + low


def test_a_page_equals_the_fixture() -> None:
    expected = fixture()["page"]
    page = EmbeddingView(fixture_corpus()).to_html(top_keys=expected["top_keys"])
    replies = data_of(page)["replies"]
    for reply, expected_reply in zip(replies, expected["replies"], strict=True):
        assert reply.keys() == expected_reply.keys()
        for name in ("request", "arguments", "compressed"):
            assert reply.get(name) == expected_reply.get(name)
        if "data" in reply:
            # A value on the border between two codes can round either way.
            decode = codes_of if reply["request"] == "plot" else bytes_of
            assert_allclose(decode(reply), decode(expected_reply), atol=1)


def test_a_page_has_the_points_of_the_view_and_their_trust() -> None:
    example = corpus([20, 35, 28], layers=2, heads=3)
    placing: dict[str, Any] = {"scaling": "none", "translate": False, "lift": True}
    view = EmbeddingView(example, **placing)
    page = view.to_html()
    server = CorpusServer(example)
    for layer in range(2):
        arguments = PROJECTING | {"stack": "self", "layer": layer, "placing": placing}
        trust = server.reply("trust", arguments).header["heads"]
        assert reply_of(page, "trust", stack="self", layer=layer)["header"]["heads"] == trust
        recorded = reply_of(page, "plot", stack="self", layer=layer)
        for head in range(3):
            plot = server.reply("plot", arguments | {"head": head})
            assert plot.data is not None
            planes = bytes_of(recorded).reshape(4, 3, -1)[:, head]
            assert_array_equal(planes.flatten(), np.frombuffer(plot.data, np.uint8))
            header = recorded["common"] | recorded["header"][head]
            assert header | {"parts": 1} == plot.header


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_mb": 0.001}, "the code of the view takes"),
        ({"top_keys": -1}, "top_keys=-1 must be from 0 to 64, the number of keys of each query"),
        ({"top_keys": 2.5}, "top_keys=2.5 must be a whole number, the number of keys"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        EmbeddingView(corpus([4, 5])).to_html(**options)


@pytest.mark.parametrize("options", [{"top_keys": 2}, {"max_mb": 2}])
def test_options_that_limit_a_page_are_refused_for_pictures(
    options: dict[str, Any], tmp_path: Path
) -> None:
    view = EmbeddingView(corpus([4, 5]), enlarged=True)
    with pytest.raises(ValueError, match=rf"{next(iter(options))}= is for pages.* \.html"):
        view.save(tmp_path / "plot.svg", **options)
    assert not list(tmp_path.iterdir())


def test_a_page_that_is_too_large_is_refused() -> None:
    view = EmbeddingView(corpus([50] * 20, layers=4, heads=4))
    size = len(view.to_html(top_keys=5, max_mb=100).encode())
    words = r"the page of 2,000 points in each of 16 heads would have .* include_layers="
    for limit in (size - 1, size - 60_000):
        with pytest.raises(ValueError, match=words):
            view.to_html(max_mb=limit / 1e6, top_keys=5)
    assert view.to_html(max_mb=size / 1e6, top_keys=5)


@NEEDS_TSNE
def test_a_page_that_the_browser_requests_does_not_wait() -> None:
    example = corpus([300, 300])
    state = EmbeddingView(example, enlarged=True).state | {"method": "tsne"}
    page = data_of(make_embedding_page(EmbeddingAnswers(example), state, wait=False))
    # The projection has not started, so the page contains principal components.
    assert page["state"]["method"] == "pca"
    assert not [reply for reply in page["replies"] if reply["arguments"].get("method") == "tsne"]
