"""Test that a page decodes a layer when it is shown and reports missing or damaged layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from playwright.sync_api import expect

import attnviz as av
from browser.chromium import TIMEOUT
from browser.pages import table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, BrowserContext, Locator, Page

LAYERS, HEADS, TOKENS = 4, 3, 48
# Count the decompressed blocks. Store this count, and the number of layers that the browser has
# parsed, at the moment of the first picture.
COUNTS = """
globalThis.inflated = 0;
globalThis.DecompressionStream = class extends DecompressionStream {
  constructor(...given) { super(...given); globalThis.inflated += 1; }
};
new MutationObserver((_, observer) => {
  if (!document.querySelector("[data-attnviz-drawn]")) return;
  globalThis.atFirst = globalThis.inflated;
  globalThis.readAtFirst = document.querySelectorAll("template").length;
  observer.disconnect();
}).observe(document, { subtree: true, childList: true, attributes: true });
"""


@pytest.fixture(scope="module")
def weights() -> torch.Tensor:
    logits = 3 * torch.randn(
        LAYERS, HEADS, TOKENS, TOKENS, generator=torch.Generator().manual_seed(0)
    )
    return torch.softmax(logits, dim=-1)


@pytest.fixture(scope="module")
def record(weights: torch.Tensor) -> av.AttentionRecord:
    return av.AttentionRecord.from_weights(weights, [f"t{number}" for number in range(TOKENS)])


@pytest.fixture(scope="module")
def text(record: av.AttentionRecord) -> str:
    return av.HeadView(record, heads=[0, 2], top_k=None).to_html()


@pytest.fixture(scope="module")
def tabs(chromium: Browser) -> Iterator[BrowserContext]:
    """Return a browser context that can reach the local server and may report errors."""
    with chromium.new_context(viewport={"width": 1000, "height": 800}) as context:
        context.set_default_timeout(TIMEOUT)
        context.add_init_script(COUNTS)
        yield context


@pytest.fixture
def tab(tabs: BrowserContext) -> Iterator[Page]:
    page = tabs.new_page()
    yield page
    page.close()


def inside_layer(page: str, layer: int) -> int:
    """Return a position in the middle of the data of a layer."""
    at = page.index(f'<template id="attnviz-{layer:04}">')
    return (at + page.index("</template>", at)) // 2


def open_file(tab: Page, page: str, folder: Path) -> None:
    """Save a page and open the file."""
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    tab.goto(path.as_uri())


def root(page: Page) -> Locator:
    return page.locator(".attnviz")


def drawn(page: Page, layer: int) -> None:
    expect(root(page)).to_have_attribute("data-attnviz-drawn", f"head:self:{layer}")


def layer_button(page: Page, layer: int) -> Locator:
    return page.get_by_role("button", name=f"Layer {layer}", exact=True)


def check_weights(page: Page, weights: torch.Tensor, layer: int) -> None:
    """Check every weight in the table against the model, within the stated error."""
    lines = table(root(page))
    assert {int(line["layer"]) for line in lines} == {layer}
    assert len(lines) > TOKENS
    for line in lines:
        index = int(line["head"]), int(line["query"]), int(line["key"])
        assert float(line["weight"]) == pytest.approx(float(weights[layer][index]), abs=0.005)


def test_layers_are_decoded_when_they_are_shown(
    tab: Page, text: str, weights: torch.Tensor, tmp_path: Path
) -> None:
    open_file(tab, text, tmp_path)
    for layer in (0, 3, 1):
        layer_button(tab, layer).click()
        drawn(tab, layer)
        check_weights(tab, weights, layer)
    expect(tab.locator("#attnviz-note")).to_have_count(0)


def test_the_first_picture_comes_before_other_layers_are_decoded_or_read(
    tab: Page, text: str, tmp_path: Path
) -> None:
    open_file(tab, text, tmp_path)
    drawn(tab, 0)
    # The code and one layer are decompressed.
    assert tab.evaluate("globalThis.atFirst") == 2
    # The browser has parsed one layer. It parses the next one as soon as the code waits.
    assert tab.evaluate("globalThis.readAtFirst") == 1


def test_a_truncated_page_draws_its_complete_layers_and_reports_the_others(
    tab: Page, text: str, weights: torch.Tensor, tmp_path: Path
) -> None:
    open_file(tab, text[: inside_layer(text, 2)], tmp_path)
    drawn(tab, 0)
    expect(tab.locator("#attnviz-note")).to_contain_text("the end of the file is missing")
    layer_button(tab, 3).click()
    expect(tab.locator(".av-standing")).to_contain_text("these weights are missing")
    # The layer that was cut off is not drawn.
    layer_button(tab, 2).click()
    expect(tab.locator(".av-standing")).to_contain_text("The data are damaged.")
    for layer in (0, 1):
        layer_button(tab, layer).click()
        drawn(tab, layer)
        check_weights(tab, weights, layer)
