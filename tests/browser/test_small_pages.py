"""Test exported pages without all weights: what they report and which weights they show."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import torch
from playwright.sync_api import expect

import attnviz as av
from browser.pages import figure, open_view, table, texts

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

TOKENS = 90
STRONGEST = "This page contains each query’s strongest keys: "


def attention() -> list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """Return two layers of three causal heads with a sink and local attention."""
    generator = torch.Generator().manual_seed(3)
    ahead = torch.arange(TOKENS) - torch.arange(TOKENS)[:, None]
    logits = 2 * torch.randn((2, 3, TOKENS, TOKENS), generator=generator) + ahead / 6
    logits[..., 0] += 6
    return list(torch.softmax(logits.masked_fill(ahead > 0, -torch.inf), -1).numpy())


WEIGHTS = attention()
RECORD = av.AttentionRecord.from_weights(WEIGHTS, [f"w{number}" for number in range(TOKENS)])
# Bytes by which the page must be smaller than a page with all weights.
LESS = 5_000


def opened(page: Page, view: av.HeadView | av.MatrixView | av.ModelView, folder: Path) -> Locator:
    most = len(view.to_html().encode()) - LESS
    root = open_view(page, folder, view, max_mb=most / 1e6)
    assert (folder / "view.html").stat().st_size <= most
    return root


def test_a_page_states_what_it_omits_and_no_weight_has_a_larger_error(
    page: Page, tmp_path: Path
) -> None:
    view = av.MatrixView(RECORD, layer=1, heads=[2])
    limit = len(view.to_html().encode()) - LESS
    root = open_view(page, tmp_path, view, max_mb=limit / 1e6)
    assert (tmp_path / "view.html").stat().st_size <= limit
    note = root.locator(".av-note").filter(has_text=STRONGEST)
    expect(note).to_have_count(1)
    [numbers] = re.findall(
        r"keys: ([\d.]+)% of the weight, largest error ([\d.]+)\.", note.inner_text()
    )
    share, error = float(numbers[0]) / 100, float(numbers[1])
    assert 0.5 < share < 1
    assert 0 < error < 0.1
    subtitle = re.compile(rf"{share:.1%} of the weight, exact to 0\.\d+")
    expect(root.locator(".av-subtitle")).to_contain_text(subtitle)
    # The exported picture breaks the subtitle into several texts.
    assert subtitle.search(" ".join(texts(figure(root)))) is not None
    weights = np.zeros((TOKENS, TOKENS))
    for row in table(root):
        weights[int(row["query"]), int(row["key"])] = float(row["weight"])
        assert float(row["largest_error"]) <= error
    # The table rounds weights to four decimals.
    assert np.abs(weights - WEIGHTS[1][2]).max() <= error + 5e-5
    # Rows sum to 1, because the page spreads the omitted weight over the other keys of the row.
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=0.02)
    assert (np.triu(weights, 1) == 0).all()
