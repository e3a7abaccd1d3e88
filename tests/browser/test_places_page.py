"""Test the times, dates and groups on the axes of exported pages, with tokens of tiny models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from playwright.sync_api import expect

import attnviz as av
from browser.pages import figure, says, table, texts
from fixtures.make_places import dated, filled_up, filmed
from unit.records import shares

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from attnviz.record.tokens import Tokens
    from browser.pages import Show


def record_of(tokens: Tokens, **more: Any) -> av.AttentionRecord:
    weights = shares(1, 1, len(tokens), len(tokens))
    record = av.AttentionRecord.from_weights(weights, list(tokens.text))
    return record.with_tokens(tokens, **more)


def test_a_sound_has_seconds_and_opens_without_the_silence_after_it(show: Show, page: Page) -> None:
    tokens, covered = filled_up()
    root = show(av.MatrixView(record_of(tokens)))
    num_frames = sum(not text.startswith("silence") for text in tokens.text)
    assert len(table(root)) == num_frames**2
    end = covered[num_frames - 1][1]
    says(root, f"The silence after the sound, {end:.2f}–1.00 s, is outside the window.")
    names = texts(figure(root))
    assert "silence" not in names
    starts = [f"{start:.2f} s" for start, _ in covered]
    assert [names.count(start) for start in starts] == [2] * num_frames + [0] * (50 - num_frames)
    box = root.locator(".av-plot").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    title = page.locator(".av-hint").inner_text()
    spans = [f"{start:.2f}–{end:.2f} s" for start, end in covered]
    assert sum(span in title for span in spans) in {1, 2}
    root.get_by_role("button", name="Fit").click()
    expect(root).not_to_contain_text("outside the window")
    names = texts(figure(root))
    assert names.count("silence") == 2
    assert [names.count(start) for start in starts] == [2] * 50


def test_channels_have_headings_and_dates(show: Show) -> None:
    tokens, covered = dated()
    record = record_of(tokens)
    for view in (av.HeadView(record), av.MatrixView(record)):
        names = texts(figure(show(view)))
        for channel in ("x1", "x2", "x3"):
            assert names.count(channel) == 2
        for first, _ in covered:
            # Three channels on two sides.
            assert names.count(first) == 6
    row = table(show(av.MatrixView(record)))[0]
    assert row["query_token"] == f"x1 {covered[0][0]} – {covered[0][1]}"


def test_frames_of_a_video_have_their_time(show: Show) -> None:
    tokens, _ = filmed()
    images = [np.full((8, 8, 3), grey, np.uint8) for grey in (80, 160)]
    root = show(av.HeadView(record_of(tokens, images=images), token=3))
    names = texts(figure(root))
    assert [names.count(time) for time in ("0.0 s", "0.5 s")] == [2, 2]
    says(root, "“patch 1,0 at 0.0 s” attends most to")
