"""Tests of the test harness: it detects errors in pages and cells."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from browser.chromium import TIMEOUT, Watch

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

    from browser.jupyter import JupyterLab


def test_a_failing_cell_fails_the_test(lab: JupyterLab) -> None:
    failing = lab.open(["1 / 0"])
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        failing.run_all()
    failing.close()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("console.error('logged')", "console error: logged"),
        ("throw new Error('thrown')", "uncaught Error: thrown"),
        ("fetch('http://127.0.0.1:9/').catch(() => {})", "request to http://127.0.0.1:9/"),
    ],
)
def test_problems_of_a_page_are_collected(
    chromium: Browser, tmp_path: Path, body: str, problem: str
) -> None:
    path = tmp_path / "page.html"
    path.write_text(f"<script>{body}</script>", encoding="utf-8")
    page = chromium.new_page()
    watch = Watch()
    watch.follow(page)
    page.goto(path.as_uri())
    end = time.monotonic() + TIMEOUT / 1000
    while not watch.problems and time.monotonic() < end:
        page.wait_for_timeout(50)
    page.close()
    assert any(problem in message for message in watch.problems)
