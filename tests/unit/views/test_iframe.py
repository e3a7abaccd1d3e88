"""`to_iframe` returns one element that contains the page. Its height is given or automatic."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

import attnviz as av
from unit.page_data import data_of
from unit.pages.test_html import Page
from unit.records import HOSTILE, shares

CLASSES = ("HeadView", "MatrixView", "ModelView", "Dashboard")


def record(tokens: list[str] | None = None, layers: int = 2) -> av.AttentionRecord:
    tokens = tokens or list("abcd")
    return av.AttentionRecord.from_weights(
        [shares(1, 2, len(tokens), len(tokens), seed=seed) for seed in range(layers)], tokens
    )


def frame_of(text: str) -> dict[str, Any]:
    [(tag, attributes)] = Page(text).tags
    assert tag == "iframe"
    return attributes


@pytest.mark.parametrize("name", CLASSES)
def test_the_frame_contains_the_page_in_a_sandbox(name: str) -> None:
    view = getattr(av, name)(record(list(HOSTILE)))
    frame = frame_of(view.to_iframe(controls="compact"))
    assert frame["srcdoc"] == view.to_html(controls="compact")
    assert frame["sandbox"] == "allow-scripts allow-downloads"
    assert frame["title"]


def test_an_automatic_height_starts_with_an_estimate() -> None:
    heights = []
    for tokens in (4, 16, 64):
        frame = frame_of(av.HeadView(record(["a"] * tokens)).to_iframe())
        assert "onload" in frame
        height = re.search(r"height: (\d+)px", frame["style"])
        assert height is not None
        heights.append(int(height[1]))
    assert heights == sorted(set(heights))
    assert heights[0] > 300


def test_a_stated_height_is_kept() -> None:
    frame = frame_of(av.HeadView(record()).to_iframe(height=420.5))
    assert "height: 420.5px" in frame["style"]
    assert "onload" not in frame


def controls_of(text: str) -> str:
    controls: str = data_of(frame_of(text)["srcdoc"])["state"]["controls"]
    return controls


def test_a_frame_with_automatic_height_is_not_compact() -> None:
    view = av.HeadView(record())
    assert controls_of(view.to_iframe()) == "full"
    assert controls_of(view.to_iframe(height=400)) == "auto"
    assert controls_of(view.to_iframe(controls=False)) == "none"


@pytest.mark.parametrize(
    ("invalid", "error"),
    [
        *(("800px", TypeError), (None, TypeError), (True, TypeError), ([600], TypeError)),
        *((0, ValueError), (-5, ValueError), (math.nan, ValueError)),
    ],
)
def test_invalid_heights_are_refused(invalid: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=re.escape(f"height={invalid!r} must be")) as refused:
        av.HeadView(record()).to_iframe(height=invalid)
    assert "such as 600" in str(refused.value)
