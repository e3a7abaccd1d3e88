"""Exported pages against the rules of WCAG 2.1 AA, in whatever state a reader leaves them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

import attnviz as av
from browser.accessibility import check
from browser.hosts import VIEW_IDS, VIEWS
from marks import slow

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

    from browser.hosts import HostedView


@pytest.fixture(scope="module")
def record() -> Any:
    model, tokenizer = av.demos.load("decoder")
    return av.extract(model, "The cat sat on the mat. The cat", tokenizer=tokenizer)


# Each theme and each width once: the rules look at one thing at a time.
@pytest.mark.parametrize("window", [("light", 400), slow(("dark", 1100))], ids=str)
@pytest.mark.parametrize("view", VIEWS, ids=VIEW_IDS)
def test_nobody_is_shut_out(
    page: Page, tmp_path: Path, record: Any, view: HostedView, window: Any
) -> None:
    scheme, width = window
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    traits: dict[str, Any] = {"enlarged": True, "text": 1} if view.several else {}
    # Statistics have no tokens of one text.
    traits |= {} if view.measured else {"token": 3}
    widget = view.widget(record, layer=1, **traits)
    page.goto(widget.save(tmp_path / "view.html").as_uri())
    root = page.locator(".attnviz")
    view.drawn(root, 1)
    expect(root).to_have_attribute("data-theme", scheme)
    whole = page.locator("html")
    check(whole)
    root.get_by_role("button", name="Keys").first.click()
    expect(root.locator(".av-keys").first).to_be_visible()
    check(whole)
    root.get_by_role("button", name="Export").first.click()
    expect(root.get_by_role("menuitem").first).to_be_visible()
    check(whole)


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
    assert "2.84" in said  # of #999 on white, as any contrast calculator has it
    assert "button-name (critical)" in said
