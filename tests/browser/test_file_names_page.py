"""What files are called that a reader exports: after the model and the view, and nothing more."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import attnviz as av

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page


@pytest.mark.parametrize(
    ("model", "begins"),
    [
        ("all-MiniLM-L6-v2", "all-MiniLM-L6-v2-matrix-view-layer-0"),
        ("../../.ssh/a: b", "ssh-a-b-matrix-view-layer-0"),
        ("", "attention-matrix-view-layer-0"),
    ],
)
def test_the_menu_proposes_a_name(page: Page, tmp_path: Path, model: str, begins: str) -> None:
    record = av.AttentionRecord.from_weights([[[[1.0, 0.0], [0.4, 0.6]]]], ["a", "b"], model=model)
    page.goto(av.MatrixView(record).save(tmp_path / "x.html").as_uri())
    root = page.locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("^matrix:"))
    for entry, ending in (("SVG", "svg"), ("PNG", "png"), ("CSV", "csv")):
        root.get_by_role("button", name="Export").click()
        with page.expect_download() as download:
            root.get_by_role("menuitem", name=entry).first.click()
        assert download.value.suggested_filename == f"{begins}.{ending}"
