"""Test that the address of an exported page follows the reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

import attnviz as av
from browser.hosts import record

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

    from browser.pages import Show


def test_the_address_follows_and_the_browsers_back_leaves_the_page(
    show: Show, page: Page, tmp_path: Path
) -> None:
    before = tmp_path / "before.html"
    before.write_text("<!doctype html><title>before</title>")
    page.goto(before.as_uri())
    root = show(av.HeadView(record(), heads=[1]))
    root.get_by_role("button", name="Head 3", exact=True).click()
    root.get_by_role("button", name="Layer 1").click()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:1")
    page.reload()
    expect(root).to_have_attribute("data-attnviz-drawn", "head:self:1")
    pressed = root.locator(".av-head[aria-pressed=true]")
    expect(pressed).to_have_count(2)
    page.go_back()
    assert page.title() == "before"
