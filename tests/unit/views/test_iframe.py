"""`to_iframe` returns one element that contains the page, with a fixed or automatic height."""

from __future__ import annotations

import re
from typing import Any

import pytest

import attnviz as av
from unit.page_data import data_of
from unit.pages.test_html import Page
from unit.records import HOSTILE, given_record, shares


def frame_of(text: str) -> dict[str, Any]:
    [(tag, attributes)] = Page(text).tags
    assert tag == "iframe"
    return attributes


def test_the_frame_contains_the_page_in_a_sandbox() -> None:
    tokens = list(HOSTILE)
    view = av.HeadView(av.AttentionRecord.from_weights([shares(2, 12, 12)], tokens))
    frame = frame_of(view.to_iframe(controls="compact"))
    assert frame["srcdoc"] == view.to_html(controls="compact")
    assert frame["sandbox"] == "allow-scripts allow-downloads"
    assert frame["title"]


def test_an_automatic_height_starts_with_an_estimate() -> None:
    heights = []
    for count in (4, 16, 64):
        frame = frame_of(av.HeadView(given_record((2,), count)).to_iframe())
        assert "onload" in frame
        height = re.search(r"height: (\d+)px", frame["style"])
        assert height is not None
        heights.append(int(height[1]))
    assert heights == sorted(set(heights))
    assert heights[0] > 300


def test_a_height_from_the_caller_is_kept_and_allows_compact_controls() -> None:
    view = av.HeadView(given_record())
    fixed, automatic = (frame_of(view.to_iframe(**size)) for size in ({"height": 420.5}, {}))
    assert "height: 420.5px" in fixed["style"]
    assert "onload" not in fixed
    states = [data_of(frame["srcdoc"])["state"] for frame in (fixed, automatic)]
    assert [state["controls"] for state in states] == ["auto", "full"]


@pytest.mark.parametrize(
    ("height", "error"), [("800px", TypeError), (True, TypeError), (0, ValueError)]
)
def test_an_invalid_height_is_refused(height: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=re.escape(f"height={height!r} must be")):
        av.HeadView(given_record()).to_iframe(height=height)
