"""Touch gestures by Chromium's own input events. Playwright supports only taps."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playwright.sync_api import Page

    Point = tuple[float, float]


def slide(page: Page, ways: Sequence[Sequence[Point]], steps: int = 12) -> None:
    """Move one finger along each path of points, then lift them.

    The fingers touch down one after the other. All paths have the same number of points.
    """
    session = page.context.new_cdp_session(page)

    def send(kind: str, points: Sequence[Point]) -> None:
        touched = [{"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(points)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touched})

    corners = list(zip(*ways, strict=True))
    for finger in range(len(ways)):
        send("touchStart", corners[0][: finger + 1])
    for start, end in pairwise(corners):
        for step in range(1, steps + 1):
            share = step / steps
            pairs = zip(start, end, strict=True)
            send(
                "touchMove",
                [(x + share * (u - x), y + share * (v - y)) for (x, y), (u, v) in pairs],
            )
    send("touchEnd", [])
    session.detach()
