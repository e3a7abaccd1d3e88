"""Tests of the test harness: it detects errors in pages and cells."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from browser.accessibility import check
from browser.chromium import TIMEOUT, Watch

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from browser.jupyter import JupyterLab


def test_a_failing_cell_is_seen(lab: JupyterLab) -> None:
    failing = lab.open(["1 / 0"])
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        failing.run_all()
    failing.close()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("console.error('told')", "console error: told"),
        ("throw new Error('thrown')", "uncaught Error: thrown"),
        ("fetch('http://127.0.0.1:9/').catch(() => {})", "request to http://127.0.0.1:9/"),
    ],
)
def test_a_page_that_does_wrong_fails(
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
    assert any(problem in found for found in watch.problems)


def test_what_shuts_readers_out_is_said(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(
        '<!doctype html><html lang="en"><title>t</title>'
        '<p style="color: #999; background: #fff">faint</p><button></button>',
        encoding="utf-8",
    )
    page.goto(path.as_uri())
    with pytest.raises(pytest.fail.Exception) as failure:
        check(page.locator("html"))
    said = str(failure.value)
    assert "color-contrast (serious)" in said
    assert "2.84" in said  # contrast of #999 on white
    assert "button-name (critical)" in said


def test_a_file_opens_without_network(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("<p>there</p><script>console.log('fine')</script>", encoding="utf-8")
    page.goto(path.as_uri())
    assert page.text_content("p") == "there"
