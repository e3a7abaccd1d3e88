"""Tests that pages that are too large raise errors, and that the advice of the errors works."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.pages import html
from attnviz.views.head import HeadView
from attnviz.views.neuron import NeuronView
from attnviz.views.record_view import RecordView
from unit.long_records import alike, long_record
from unit.records import captured_record, vectors, words


def refused(view: RecordView, **options: Any) -> str:
    with pytest.raises(ValueError, match=r"max_mb|precision|a page") as raised:
        view.to_html(**options)
    return str(raised.value)


def noise(layers: int, heads: int, tokens: int) -> av.AttentionRecord:
    weights = vectors(layers, heads, tokens, tokens).mul(3).softmax(dim=-1)
    return av.AttentionRecord.from_weights(list(weights), words(tokens))


@pytest.fixture
def _no_computing(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("something was computed before the error")

    for name in ("describe", "_embed_scores", "embed_maps", "embed_weights"):
        monkeypatch.setattr(html, name, never)
    monkeypatch.setattr("attnviz.pages.vectors._measure_errors", never)


@pytest.mark.parametrize("name", ["x.html", "x.svg", "x.png"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "most"}, "precision='most' must be"),
        ({"max_mb": 0}, "max_mb=0 must be greater than 0"),
        ({"controls": "some"}, "controls='some' must be one of"),
    ],
)
def test_options_of_a_page_are_checked_for_pictures_too(
    name: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        HeadView(captured_record()).save(tmp_path / name, **options)
    assert not list(tmp_path.iterdir())


def test_a_limit_below_the_size_of_the_code_is_refused() -> None:
    message = refused(HeadView(captured_record()), max_mb=0.04)
    assert re.search(r"It takes 0\.[01]\d+ MB without weights\. Pass a larger max_mb\.", message)


def test_the_size_that_the_error_states_is_enough() -> None:
    view = HeadView(noise(4, 6, 256))
    message = refused(view, max_mb=0.18)
    pattern = r"at most 0\.18 MB .* takes ([\d.]+) MB with .* keys\. Pass a larger max_mb\."
    needed = re.search(pattern, message)
    assert needed is not None
    size = float(needed[1])
    assert size > 0.18
    assert "include_layers" in message
    page_bytes = len(view.to_html(max_mb=size).encode())
    # The stated size is rounded up, by less than 100 bytes.
    assert size * 1e6 - 100 < page_bytes <= size * 1e6
    refused(view, max_mb=(page_bytes - 1) / 1e6)


@pytest.mark.parametrize(
    ("make", "precision", "message"),
    [
        (partial(alike, 12, 12, 16_384), "auto", r"38,654,705,664 weights .* include_layers"),
        (partial(alike, 1, 4, 131_072), "exact", '"exact": a page with all 68,719,476,736 weights'),
        (partial(alike, 1, 1, 40_000), "exact", r"\(at most 200,000,000\).*shorter text"),
    ],
)
@pytest.mark.usefixtures("_no_computing")
def test_pages_that_take_minutes_are_refused_at_once(
    make: Callable[[], av.AttentionRecord], precision: str, message: str
) -> None:
    record = make()
    actual = refused(HeadView(record), precision=precision)
    assert re.search(message, actual), actual


def test_queries_and_keys_that_do_not_fit_are_refused() -> None:
    view = NeuronView(long_record(8192, layers=2, heads=2, key_heads=2, head_dim=32))
    message = refused(view, max_mb=1)
    assert re.search(r"at most 1 MB is too small for this record\. It takes [\d.]+ MB\. ", message)


def test_a_neuron_page_slightly_above_its_limit_is_refused() -> None:
    view = NeuronView(captured_record())
    size = len(view.to_html().encode())
    message = refused(view, max_mb=(size - 10) / 1e6)
    needed = re.search(r"It takes ([\d.]+) MB\. Pass a larger", message)
    assert needed is not None
    assert len(view.to_html(max_mb=float(needed[1])).encode()) == size
