"""Sparse attention on exported pages: a weight of exactly 0 is not drawn."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING

import numpy as np
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


def test_zeros_are_no_lines(page: Page, tmp_path: Path) -> None:
    opened(page, av.HeadView(RECORD, heads=[0]), tmp_path)
    drawn = {(int(row["query"]), int(row["key"])) for row in rows_of(page)}
    assert drawn == set(map(tuple, np.argwhere(WEIGHTS[0] > 0).tolist()))
