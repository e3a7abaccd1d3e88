"""The model view where a text is too long for whole maps: strips, on pages and live."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

import attnviz as av
from attnviz.record import rows as sampled
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.masks import BandMask
from attnviz.record.record import AttentionRecord, AttentionStack
from attnviz.record.rows import sampled_queries
from attnviz.record.tokens import Tokens
from attnviz.views.model import ModelView
from browser.accessibility import check
from browser.hosts import FIRST_PICTURE
from unit.records import vectors, words

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

    from browser.jupyter import JupyterLab

TOKENS, HEADS = 200, 4
LAYERS = (0, 3)


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> AttentionRecord:
    """One layer that looks back at all and one with a window, of a text that passes for long."""
    monkeypatch.setattr(sampled, "_CELLS", TOKENS**2 - 1)
    sinks = torch.tensor([0.0, 1.0, 2.0, 3.0])
    keys = vectors(2, TOKENS, 8, seed=9)
    first, second = (vectors(HEADS, TOKENS, 8, seed=number) for number in LAYERS)
    layers = {
        0: QueryKeyAttention(first, keys, 1.0, mask=BandMask(None, 0)),
        3: QueryKeyAttention(second, keys, 1.0, mask=BandMask(19, 0), sinks=sinks),
    }
    tokens = Tokens.of(words(TOKENS))
    return AttentionRecord({"self": AttentionStack("self", layers, tokens)}, model="long")


def opened(page: Page, view: ModelView, folder: Path) -> Locator:
    page.goto(view.save(folder / "view.html").as_uri())
    root = page.locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", re.compile("^model:"))
    return root


def cell(root: Locator, layer: int, head: int) -> Locator:
    return root.get_by_role("gridcell", name=re.compile(rf"^Layer {layer}, head {head}(,|:|$)"))


def sampled_weights(record: AttentionRecord, layer: int) -> np.ndarray:
    """Weights of the queries taken, (heads, rows, keys)."""
    return record.stack().weights(layer=layer)[:, sampled_queries(TOKENS)].astype(np.float64)


def test_a_strip_tells_where_the_weight_goes(
    page: Page, tmp_path: Path, record: AttentionRecord
) -> None:
    root = opened(page, ModelView(record), tmp_path)
    expect(root.locator(".av-header")).to_contain_text("estimate from 64 of 200 queries")
    footer = root.locator("footer")
    expect(footer).to_contain_text("estimate from 64 of 200 queries")
    expect(footer).to_contain_text("the query and the 64 tokens before it")
    expect(footer).to_contain_text("the model's window, the query and the 19 tokens before it")
    legend = root.locator(".av-strip-legend > span").all_text_contents()
    assert legend == ["no key", "first token", "elsewhere", "own window", "previous token"]
    rows = sampled_queries(TOKENS)
    for layer in LAYERS:
        weights = sampled_weights(record, layer)
        for head in range(HEADS):
            cell(root, layer, head).hover()
            hint = root.locator(".av-hint")
            expect(hint).to_contain_text(f"Layer {layer}, head {head}")
            said = {
                name: float(share)
                for name, share in re.findall(
                    r"(no key|first token|elsewhere|own window|previous token) <?([\d.]+)",
                    hint.text_content() or "",
                )
            }
            assert said["first token"] == pytest.approx(weights[head, :, 0].mean(), abs=0.006)
            before = weights[head, np.arange(64), np.maximum(0, rows - 1)] * (rows > 1)
            assert said["previous token"] == pytest.approx(before.mean(), abs=0.006)
            assert sum(said.values()) == pytest.approx(1, abs=0.03)
            if layer == 3:
                lost = 1 - weights[head].sum(1).mean()
                assert said["no key"] == pytest.approx(lost, abs=0.006)
                assert said["elsewhere"] == 0


def test_bands_are_as_high_as_the_shares(
    page: Page, tmp_path: Path, record: AttentionRecord
) -> None:
    opened(page, ModelView(record), tmp_path)
    colors = page.evaluate(
        """() => {
          const canvas = document.querySelector(".av-grid-row canvas");
          const context = canvas.getContext("2d");
          // Down the left edge of the first thumbnail, where nothing is written.
          const column = context.getImageData(1, 0, 1, canvas.height).data;
          return Array.from({ length: canvas.height },
            (_, y) => [...column.slice(4 * y, 4 * y + 3)].join(" "));
        }"""
    )
    first = sampled_weights(record, 0)[0, :, 0].mean()
    assert colors.count(colors[0]) / len(colors) == pytest.approx(first, abs=1.5 / len(colors))
    # First token, elsewhere, own window, previous token.
    assert len(set(colors)) == 4


def test_heads_that_are_not_offered_have_no_strip(
    page: Page, tmp_path: Path, record: AttentionRecord
) -> None:
    root = opened(page, ModelView(record, include_heads={3: [1, 2]}), tmp_path)
    assert root.get_by_role("gridcell").count() == 2
    expect(root).to_contain_text("2 of 8 heads offered")
    expect(cell(root, 3, 2)).to_have_count(1)


def test_no_control_offers_what_strips_do_not_have(
    page: Page, tmp_path: Path, record: AttentionRecord
) -> None:
    root = opened(page, ModelView(record), tmp_path)
    expect(root.get_by_label("Thumbnails")).to_have_count(0)
    expect(root.get_by_label("Size")).to_have_count(1)


def test_heads_are_ordered_by_scores_of_the_same_queries(
    page: Page, tmp_path: Path, record: AttentionRecord
) -> None:
    root = opened(page, ModelView(record, order="first token"), tmp_path)
    expect(root.locator("footer")).to_contain_text("By first token, estimated from those queries")
    shown = [
        re.match(r"Layer (\d+), head (\d+), first token ([\d.]+)", name or "")
        for name in root.get_by_role("gridcell").evaluate_all(
            "cells => cells.map((cell) => cell.getAttribute('aria-label'))"
        )
    ]
    scores = {
        (layer, head): av.analysis.head_scores(record.stack(), "first token", queries=64)[at][head]
        for at, layer in enumerate(LAYERS)
        for head in range(HEADS)
    }
    expected = sorted(scores, key=lambda each: -scores[each])
    assert [(int(each[1]), int(each[2])) for each in shown if each] == expected


def test_the_keyboard_reads_the_shares_out(
    page: Page, tmp_path: Path, record: AttentionRecord
) -> None:
    root = opened(page, ModelView(record), tmp_path)
    grid = root.get_by_role("grid")
    grid.focus()
    page.keyboard.press("ArrowDown")
    active = grid.get_attribute("aria-activedescendant")
    name = page.locator(f"#{active}").get_attribute("aria-label") or ""
    assert re.match(r"Layer 0, head 0: first token [\d.]+ ± [\d.]+, elsewhere", name), name
    page.keyboard.press("Enter")
    expect(root.locator(".av-model-detail")).to_be_visible()
    expect(root).to_have_attribute("data-attnviz-drawn", "model:self:0")
    check(root)


def test_figures_and_tables_contain_the_strips(
    page: Page, tmp_path: Path, record: AttentionRecord
) -> None:
    opened(page, ModelView(record), tmp_path)
    svg = page.evaluate("() => document.querySelector('.attnviz').attnviz.svg()")
    assert "estimate from 64 of 200 queries" in svg
    assert "previous token" in svg
    table = page.evaluate("() => document.querySelector('.attnviz').attnviz.csv()")
    rows = list(csv.DictReader(io.StringIO(table)))
    assert len(rows) == len(LAYERS) * HEADS
    for row in rows:
        weights = sampled_weights(record, int(row["layer"]))[int(row["head"])]
        assert float(row["first_token"]) == pytest.approx(weights[:, 0].mean(), abs=1e-4)
        error = weights[:, 0].std(ddof=1) / 8 * np.sqrt(1 - 64 / TOKENS)
        assert float(row["first_token_standard_error"]) == pytest.approx(error, abs=1e-4)
        parts = ("first_token", "elsewhere", "own_window", "previous_token", "no_key")
        assert sum(float(row[part] or 0) for part in parts) == pytest.approx(1, abs=3e-4)
        assert (row["queries_taken"], row["queries"]) == ("64", "200")
        assert row["window_before"] == ("64" if row["layer"] == "0" else "19")


LIVE = """
import torch, attnviz as av
from attnviz.server.server import RecordServer
from attnviz.record.masks import BandMask
from attnviz.record.record import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.record.attention import QueryKeyAttention

asked, answer = [], RecordServer.reply
def reply(self, name, arguments):
    found = answer(self, name, arguments)
    # What goes on when it is asked again counts once.
    if "later" not in found.header:
        asked.append([name, arguments.get("layer"), arguments.get("heads"), len(found.data or b"")])
    return found
RecordServer.reply = reply

torch.manual_seed(0)
queries, keys = torch.randn(64, 8192, 8).bfloat16(), torch.randn(8, 8192, 8).bfloat16()
mask = BandMask(None, 0)
layers = {n: QueryKeyAttention(queries, keys, 0.01 * n, mask=mask) for n in range(64)}
tokens = Tokens.of([f"t{place}" for place in range(8192)])
record = av.AttentionRecord({"self": AttentionStack("self", layers, tokens)}, model="64 by 64")
view = av.ModelView(record)
view
"""


@pytest.mark.slow
def test_live_only_heads_in_sight_are_asked_for(lab: JupyterLab) -> None:
    # Its own kernel: it counts what the server is asked for, whoever asks.
    notebook = lab.open([LIVE], own_kernel=True)
    notebook.run_all()
    root = notebook.output(0).locator(".attnviz")
    expect(root).to_have_attribute("data-attnviz-drawn", "model:self:0", timeout=FIRST_PICTURE)
    expect(root).to_contain_text("estimate from 64 of 8,192 queries")
    shown = set(
        root.get_by_role("gridcell").evaluate_all(
            "cells => cells.map((cell) => cell.getAttribute('aria-label'))"
        )
    )
    asked = notebook.evaluate("asked")
    strips = [each for each in asked if each[0] == "strips"]
    assert {each[0] for each in asked} == {"describe", "strips"}
    names = [f"Layer {layer}, head {head}" for _, layer, heads, _ in strips for head in heads]
    assert len(names) == len(set(names))
    assert set(names) == shown
    assert len(shown) < 64 * 64 / 3
    # Four shares with their errors, as floats.
    assert sum(each[3] for each in strips) == 32 * len(names)
    assert root.evaluate("root => root.querySelectorAll('*').length") < 1100
