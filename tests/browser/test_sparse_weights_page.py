"""Sparse attention on exported pages: a weight of exactly 0 is nothing, and is counted."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from playwright.sync_api import expect

import attnviz as av

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

# Half a step of the byte codec is (0.5 / 255)^2 = 0.000004: this arrives as 0.
SMALL = 1e-6
# Head 0: four exact zeros of nine. Head 1: none, though one weight arrives as 0.
WEIGHTS = np.array(
    [
        [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0], [0.2, 0.8, 0.0]],
        [[0.5, 0.25, 0.25], [SMALL, 0.5, 0.5 - SMALL], [0.25, 0.25, 0.5]],
    ],
    dtype=np.float32,
)


RECORD = av.AttentionRecord.from_weights([WEIGHTS], ["a", "b", "c"])


def opened(page: Page, view: av.HeadView | av.MatrixView, folder: Path) -> Locator:
    page.goto(view.save(folder / "view.html").as_uri())
    root = page.locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile(f"^{view.name}:"))
    return root


def rows_of(page: Page) -> list[dict[str, str]]:
    table = page.evaluate("() => document.querySelector('.attnviz').attnviz.csv()")
    return list(csv.DictReader(io.StringIO(table)))


@pytest.mark.parametrize("kind", [av.HeadView, av.MatrixView])
@pytest.mark.parametrize(
    ("heads", "said"),
    [
        ([0], "44% of head 0's weights are exactly 0."),
        ([0, 1], "22% of the weights of heads 0, 1 are exactly 0."),
        ([1], ""),
    ],
)
def test_zeros_are_counted_where_they_are_exact(
    kind: type[av.HeadView | av.MatrixView],
    heads: list[int],
    said: str,
    page: Page,
    tmp_path: Path,
) -> None:
    root = opened(page, kind(RECORD, heads=heads), tmp_path)
    svg = page.evaluate("() => document.querySelector('.attnviz').attnviz.svg()")
    if said:
        expect(root).to_contain_text(said)
        assert "exactly 0" in svg
    else:
        expect(root).not_to_contain_text("exactly 0")
        assert "exactly 0" not in svg


def test_zeros_are_no_lines(page: Page, tmp_path: Path) -> None:
    opened(page, av.HeadView(RECORD, heads=[0]), tmp_path)
    drawn = {(int(row["query"]), int(row["key"])) for row in rows_of(page)}
    assert drawn == set(map(tuple, np.argwhere(WEIGHTS[0] > 0).tolist()))


def test_the_kernel_and_the_page_say_the_same() -> None:
    page = av.HeadView(RECORD).to_html()
    assert '"zeros": [[[4, 9], [0, 9]]]' in page
