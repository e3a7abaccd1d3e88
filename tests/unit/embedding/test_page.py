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

from attnviz.corpus.corpus import Corpus
from attnviz.embedding.page import make_embedding_page
from attnviz.embedding.server.plots import EmbeddingAnswers
from attnviz.embedding.server.server import CorpusServer
from attnviz.embedding.view import EmbeddingView
from unit.embedding_fixture import PROJECTING, fixture, fixture_corpus
from unit.page_data import data_of, unpacked
from unit.random_corpora import corpus

NEEDS_TSNE = pytest.mark.skipif(
    importlib.util.find_spec("openTSNE") is None, reason="openTSNE is not installed"
)


def embedding_of(page: str) -> dict[str, Any]:
    data: dict[str, Any] = data_of(page)["embedding"]
    return data


def bytes_of(packed: str) -> NDArray[np.uint8]:
    return np.frombuffer(unpacked(packed), np.uint8)


def codes_of(layer: dict[str, Any], count: int) -> NDArray[np.int64]:
    """Return the coordinates of a layer's `count` points as 16-bit codes, (heads, points, axes)."""
    planes = bytes_of(layer["points"]).reshape(4, -1, count).astype(np.int64)
    return np.stack([256 * planes[0] + planes[2], 256 * planes[1] + planes[3]], axis=-1)


def test_a_page_equals_the_fixture() -> None:
    expected = fixture()["page"]
    page = embedding_of(EmbeddingView(fixture_corpus()).to_html(top_keys=expected["top_keys"]))
    assert set(page) == set(expected)
    [stack], [expected_stack] = page["stacks"], expected["stacks"]
    assert stack.keys() == expected_stack.keys()
    assert bytes_of(stack["corpus"]).tobytes() == bytes_of(expected_stack["corpus"]).tobytes()
    for layer, expected_layer in zip(stack["layers"], expected_stack["layers"], strict=True):
        assert layer.keys() == expected_layer.keys()
        # A coordinate between two codes can be rounded up or down.
        assert_allclose(
            codes_of(layer, stack["count"]), codes_of(expected_layer, stack["count"]), atol=1
        )
        for packed, expected_packed in (
            (layer["norms"]["data"], expected_layer["norms"]["data"]),
            (layer["aggregate"]["data"], expected_layer["aggregate"]["data"]),
            (layer["keys"], expected_layer["keys"]),
        ):
            assert_allclose(
                bytes_of(packed).astype(int), bytes_of(expected_packed).astype(int), atol=1
            )


def test_a_page_has_the_points_of_the_view_and_their_trust() -> None:
    example = corpus([20, 35, 28], layers=2, heads=3)
    placing: dict[str, Any] = {"scaling": "none", "translate": False, "lift": True}
    view = EmbeddingView(example, **placing)
    page = view.to_html()
    assert len(page.encode()) == view.page_size()
    embedded = embedding_of(page)
    assert embedded["placing"] == placing
    added = view.page_size(top_keys=5) - view.page_size(top_keys=0)
    assert embedded["top_keys_add"]["bytes"] == pytest.approx(added, rel=0.1)
    server = CorpusServer(example)
    for layer in embedded["stacks"][0]["layers"]:
        arguments: dict[str, Any] = {"stack": "self", "layer": layer["layer"], "placing": placing}
        arguments |= PROJECTING
        trust = server.reply("trust", arguments | {"heads": [0, 1, 2]}).header["heads"]
        assert layer["trust"] == trust
        for codes, head in zip(codes_of(layer, len(example.points())), range(3), strict=True):
            plot = server.reply("projection", arguments | {"head": head})
            assert plot.data is not None
            assert_array_equal(codes, np.frombuffer(plot.data, "<u2").reshape(-1, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_mb": 0.001}, "the code of the view takes"),
        ({"top_keys": -1}, "top_keys=-1 must be from 0 to 64, the number of keys of each query"),
        ({"top_keys": 2.5}, "top_keys=2.5 must be a whole number, the number of keys"),
        ({"precision": "float32"}, "precision='float32' must be \"auto\": pages of this view"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        EmbeddingView(corpus([4, 5])).to_html(**options)


def test_top_keys_is_refused_for_pictures_without_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("attnviz.pages.image.draw", lambda page, *_: page.encode())
    path = tmp_path / "plot.svg"
    for state in ({}, {"enlarged": True}, {"enlarged": True, "token": None, "key": 1}):
        view = EmbeddingView(corpus([4, 5]), **state)
        with pytest.raises(ValueError, match=r"top_keys=2: this picture has no lines\. .* token="):
            view.save(path, top_keys=2)
    view = EmbeddingView(corpus([4, 5]), enlarged=True)
    view.token = 2
    view.save(path, top_keys=2)
    assert embedding_of(path.read_text(encoding="utf-8"))["top_keys"] == 2


@pytest.mark.parametrize("top_keys", [0, 5])
def test_the_error_of_a_large_page_says_what_would_fit(top_keys: int) -> None:
    example = corpus([50] * 20, layers=4, heads=4)
    view = EmbeddingView(example)
    full_size = view.page_size(top_keys=top_keys)
    bare = EmbeddingView(corpus([2], layers=1, heads=1)).page_size(top_keys=0)
    limit = (bare + (full_size - bare) / 2) / 1e6
    with pytest.raises(ValueError, match="include_layers=") as caught:
        view.to_html(max_mb=limit, top_keys=top_keys)
    words = str(caught.value)
    assert ("top_keys=0" in words) is (top_keys > 0)
    # The page fits with the suggested `max_points`, and with the suggested `max_mb`.
    [fewer] = re.findall(r"max_points=([\d_]+)", words)
    few = EmbeddingView(Corpus(example.records, max_points=int(fewer)))
    assert len(few.to_html(max_mb=limit, top_keys=top_keys).encode()) <= limit * 1e6
    [larger] = re.findall(r"max_mb=(\d+\.?\d*)", words)
    assert view.to_html(max_mb=float(larger), top_keys=top_keys)


@NEEDS_TSNE
def test_a_page_that_the_browser_requests_does_not_wait() -> None:
    example = corpus([300, 300])
    state = EmbeddingView(example, enlarged=True).state | {"method": "tsne"}
    page = data_of(make_embedding_page(EmbeddingAnswers(example), state, wait=False))
    # The projection has not started, so the page contains principal components.
    assert (page["state"]["method"], page["embedding"]["projections"]) == ("pca", [])
